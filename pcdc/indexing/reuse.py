"""Forms that an earlier index of the same tokenizer and line has already."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pcdc_runtime.artifact import Ints
from pcdc_runtime.indexed.index import Index

from pcdc.prompt import Prompt, Target
from pcdc.tokenization import line_opening
from pcdc.vocabulary import shared_beginning

from .labels import Forms
from .lines import Places, offsets, spans

FORMS_VERSION = "1"
FORMS_INPUT = "forms"
"""The input of an index that says what its forms depend on besides the labels."""


def forms_digest(prompt: Prompt, target: Target, field: str) -> str:
    """sha256 over all that decides a label's forms but the label, as hexadecimal text."""
    parts = (
        FORMS_VERSION,
        target.fingerprint,
        prompt.line_text(line_opening(field)),
        " ".join(map(str, prompt.skipped)),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Kept:
    """What an earlier index knows. END sets are its own, by number."""

    def __init__(self, index: Index, opening: tuple[int, ...]) -> None:
        self._index = index
        self._opening = np.array(opening, dtype=np.int32)
        entry = index.rows.entry
        self._rows = np.argsort(entry, kind="stable")
        self._at = offsets(np.bincount(entry, minlength=index.rows.entries))

    @property
    def ends(self) -> list[tuple[int, ...]]:
        """The END sets of the index."""
        ends = self._index.rows.ends
        return [tuple(ends[number].tolist()) for number in range(len(ends))]

    def numbers(self, labels: Sequence[str]) -> Places:
        """The number that each label has in the index, or -1."""
        texts = self._index.labels.texts
        data, at = texts.data.tobytes(), texts.offset.tolist()
        known = {data[start:stop]: n for n, (start, stop) in enumerate(pairwise(at))}
        found = (known.get(label.encode("utf-8", "surrogatepass"), -1) for label in labels)
        return np.fromiter(found, dtype=np.int64, count=len(labels))

    def forms(self, label: Ints, known: Places) -> Forms:
        """The forms of labels that the index has under the numbers `known`, as forms of `label`."""
        entry = self._index.labels.entry[known]
        count = self._at[entry + 1] - self._at[entry]
        row = self._rows[spans(self._at[entry], count)]
        stored = self._index.rows
        opened = len(self._opening)
        size = stored.offset[row + 1].astype(np.int64) - stored.offset[row]
        first = offsets(size + opened)
        token = np.empty(first[-1], dtype=np.int32)
        for position, opening in enumerate(self._opening):
            token[first[:-1] + position] = opening
        token[spans(first[:-1] + opened, size)] = stored.token[
            spans(stored.offset[row].astype(np.int64), size)
        ]
        return Forms(np.repeat(label, count), token, first, stored.end[row])


def kept_of(index: Index | None, digest: str, prompt: Prompt) -> Kept | None:
    """What an earlier index knows of this prompt's lines, if it was made for lines that begin alike."""
    if index is None or index.inputs.get(FORMS_INPUT) != digest:
        return None
    ours, theirs = tuple(prompt.cut.tail.tolist()), tuple(index.prompt.tail.tolist())
    if shared_beginning([ours, theirs]) != ours:
        return None
    return Kept(index, theirs[len(ours) :])
