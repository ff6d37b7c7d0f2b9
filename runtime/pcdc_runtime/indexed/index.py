"""The index: one catalog of any size for one question and one model's tokenizer.

`layout` says how it lies in a file, `rows` what its rows are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints, PromptCut

from .rows import Rows

Bytes: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts. Text `n` is the UTF-8 of `data[offset[n]:offset[n + 1]]`, decoded when read."""

    data: Bytes
    offset: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """The column that holds these texts."""
        joined = "".join(texts)
        sizes = map(len, texts) if joined.isascii() else (len(text.encode()) for text in texts)
        offset = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(sizes, dtype=np.int64, count=len(texts)), out=offset[1:])
        return cls(np.frombuffer(joined.encode(), dtype=np.uint8), narrowed(offset))

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, number: int) -> str:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self.data[self.offset[number] : self.offset[number + 1]].tobytes().decode()


@dataclass(frozen=True, eq=False)
class Labels:
    """The catalog's rows in the order of their declaration, and which of them are one entry.

    Without a column of ids each label is its own id. Entries are numbered by the first label of each: the
    labels that are not the first of their entry are those that `later` numbers, rising, and `joins` has the
    entry of each. Both are empty where every label is an entry of its own.
    """

    texts: Texts
    ids: Texts | None
    later: Ints
    joins: Ints

    @classmethod
    def of(cls, labels: Sequence[str], ids: Sequence[str], entry: Ints) -> Labels:
        """The columns of a catalog; `ids` are the labels where it has none.

        `entry[n]` is the entry of label `n`. Entries must be numbered by their first labels.
        """
        highest = np.maximum.accumulate(entry)
        first = np.diff(highest, prepend=np.int32(-1)) > 0
        if entry.min(initial=0) < 0 or not np.array_equal(entry[first], np.arange(np.count_nonzero(first))):
            raise ValueError("entries are not numbered by their first labels")
        later = np.flatnonzero(~first).astype(np.int32)
        own = None if ids is labels or [*ids] == [*labels] else Texts.of(ids)
        return cls(Texts.of(labels), own, later, entry[later].astype(np.int32))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def entries(self) -> int:
        """How many entries the labels are."""
        return len(self) - len(self.later)

    def label(self, number: int) -> str:
        return self.texts[number]

    def id(self, number: int) -> str:
        return self.texts[number] if self.ids is None else self.ids[number]

    def of_entry(self, entry: int) -> Ints:
        """The numbers of an entry's labels, rising."""
        if not 0 <= entry < self.entries:
            raise IndexError(entry)
        before, by_entry = self._places
        # Of the labels before the first one of entry `e`, `e` are first ones.
        first = entry + int(np.searchsorted(before, entry, side="right"))
        low, high = np.searchsorted(self.joins, (entry, entry + 1), sorter=by_entry)
        return np.append(np.int32(first), self.later[by_entry[low:high]])

    @property
    def grouped(self) -> Ints:
        """The entries that are more than one label, rising."""
        return np.unique(self.joins)

    @cached_property
    def _places(self) -> tuple[Ints, NDArray[np.int64]]:
        """How many first labels are before each later one, and the later ones by their entries."""
        before = np.subtract(self.later, np.arange(len(self.later)), dtype=np.int32)
        return before, np.argsort(self.joins, kind="stable")

    @cached_property
    def entry(self) -> Ints:
        """The entry of every label."""
        first = np.ones(len(self), dtype=np.bool_)
        first[self.later] = False
        entry = np.cumsum(first, dtype=np.int32) - np.int32(1)
        entry[self.later] = self.joins
        return entry


@dataclass(frozen=True, repr=False, eq=False)
class Index:
    """Everything the runtime needs to find a catalog's labels for a context, and nothing it must look up.

    `examples` are pairs of a query and the label that the prompt shows for it. Two of the same digest are
    equal.
    """

    name: str
    model: str
    field: str
    question: str
    instructions: str
    examples: tuple[tuple[str, str], ...]
    temperature: float
    fingerprint: str
    tokenizer_probes: tuple[tuple[str, tuple[int, ...]], ...]
    prompt_version: str
    prompt_text: str
    prompt: PromptCut
    inputs: Mapping[str, str]
    rows: Rows
    labels: Labels

    def __repr__(self) -> str:
        return f"Index({self.name!r}, model={self.model!r}, digest={self.digest[:12]!r})"

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Index) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def header(self) -> bytes:
        """The canonical bytes of the file's header."""
        from .layout import header_of

        return header_of(self)

    @cached_property
    def digest(self) -> str:
        """sha256 of the header, which holds those of all sections, as hexadecimal text: its identity."""
        return hashlib.sha256(self.header).hexdigest()

    @cached_property
    def largest_id(self) -> int:
        """The largest token id that the prompt, a row or an END set uses."""
        arrays = (self.prompt.head, self.prompt.tail, self.rows.token, self.rows.ends.ids)
        return max(int(a.max()) for a in arrays if len(a))

    def check(self) -> None:
        """Wait until all of it may be used, as what is in memory may. Raises IndexFileError."""


def narrowed(offset: NDArray[np.int64]) -> Ints:
    """Offsets as the format holds them. Raises IndexSizeError where one is too large for it."""
    from pcdc_runtime.errors import IndexSizeError

    if offset[-1] > np.iinfo(np.int32).max:
        raise IndexSizeError(
            "catalog", f"has {int(offset[-1])} tokens or bytes of text", "at most 2147483647", "split it"
        )
    return offset.astype(np.int32)
