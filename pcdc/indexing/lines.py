"""Many answer lines at once, as flat arrays: their tokens, the bytes of those, and what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Ints

from pcdc.prompt import Prompt
from pcdc.tokenization import closing_quote
from pcdc.vocabulary import Vocabulary

Bytes: TypeAlias = NDArray[np.uint8]
Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]
QUOTE, BACKSLASH = ord('"'), ord("\\")


@dataclass(frozen=True, eq=False)
class Texts:
    """Line `n` is the bytes `data[at[n]:at[n + 1]]`."""

    data: Bytes
    at: Places

    @property
    def sizes(self) -> Places:
        return np.diff(self.at)

    def line(self, number: int) -> bytes:
        return self.data[self.at[number] : self.at[number + 1]].tobytes()

    def taken(self, numbers: Places) -> Texts:
        """Some of the lines."""
        sizes = self.sizes[numbers]
        return Texts(self.data[spans(self.at[:-1][numbers], sizes)], offsets(sizes))

    def ended(self, end: bytes) -> Texts:
        """The lines with the same end after each."""
        data = np.insert(self.data, np.repeat(self.at[1:], len(end)), list(end) * (len(self.at) - 1))
        return Texts(data, self.at + np.arange(len(self.at)) * len(end))

    def equal(self, other: Texts) -> Flags:
        """Which lines are the other's line of the same number."""
        return equal_parts(self.data, self.at[:-1], self.sizes, other.data, other.at[:-1], other.sizes)

    def closing_quotes(self, opened: int) -> Places:
        """In each line the index of the first unescaped quote after the one at `opened`, or -1."""
        found = np.full(len(self.at) - 1, -1, dtype=np.int64)
        quotes = np.flatnonzero(self.data == QUOTE)
        line = np.searchsorted(self.at, quotes, side="right") - 1
        inside = quotes - self.at[line] > opened
        quotes, line = quotes[inside], line[inside]
        first = np.flatnonzero(np.diff(line, prepend=-1))
        found[line[first]] = quotes[first] - self.at[line[first]]
        for number in np.unique(line[self.data[quotes - 1] == BACKSLASH]).tolist():
            found[number] = closing_quote(self.line(number), opened)
        return found


@dataclass(frozen=True, eq=False)
class Lines:
    """Encoded lines. Line `n` has the tokens `token[first[n]:first[n + 1]]`.

    Token `t` begins at byte `start[t]` of the texts' data.
    """

    token: Ints
    first: Places
    start: Places
    texts: Texts

    def taken(self, numbers: Places) -> Lines:
        """Some of them."""
        count = np.diff(self.first)[numbers]
        tokens, first = spans(self.first[:-1][numbers], count), offsets(count)
        start = offsets(np.diff(self.start)[tokens])
        return Lines(self.token[tokens], first, start, self.texts.taken(numbers))


class LineReader:
    """Encodes the answer lines of one prompt. The ids that lines share with the prompt's tail stay on."""

    def __init__(self, prompt: Prompt, vocabulary: Vocabulary) -> None:
        self.prompt = prompt
        self.vocabulary = vocabulary
        spelled = vocabulary.bytes_of(list(range(len(vocabulary))))
        self._size = np.fromiter(map(len, spelled), dtype=np.int64, count=len(spelled))
        self._at = np.cumsum(self._size) - self._size
        self._bytes = np.frombuffer(b"".join(spelled), dtype=np.uint8)

    def encode(self, lines: Sequence[str]) -> Lines:
        """The lines as they are encoded in place. Raises UnstableBoundaryError."""
        encoded = self.prompt.encode_lines(lines)
        skipped = self.prompt.skipped
        counts = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) + len(skipped)
        ids = chain.from_iterable(part for line in encoded for part in (skipped, line))
        token = np.fromiter(ids, dtype=np.int32, count=int(counts.sum()))
        first = offsets(counts)
        size = self._size[token]
        start = offsets(size)
        data = self._bytes[spans(self._at[token], size)]
        return Lines(token, first, start, Texts(data, start[first]))

    def plain(self, lines: Sequence[str]) -> Texts:
        """The bytes that the tokens of the lines must come back as."""
        spelled = [self.vocabulary.plain(self.prompt.line_text(line)) for line in lines]
        sizes = np.fromiter(map(len, spelled), dtype=np.int64, count=len(spelled))
        return Texts(np.frombuffer(b"".join(spelled), dtype=np.uint8), offsets(sizes))


def offsets(sizes: Places) -> Places:
    """Where each of many parts begins, and where the last ends."""
    at = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=at[1:])
    return at


def spans(start: Places, size: Places) -> Places:
    """The numbers `start[n]`, `start[n] + 1`, ... `size[n]` of them for each `n`, in one array."""
    at = offsets(size)
    return np.repeat(start - at[:-1], size) + np.arange(at[-1])


def equal_parts(
    a: Bytes | Ints, a_start: Places, a_size: Places, b: Bytes | Ints, b_start: Places, b_size: Places
) -> Flags:
    """Whether part `n` of `a`, `a_size[n]` items from `a_start[n]` on, is part `n` of `b`."""
    same = np.equal(a_size, b_size)
    size = a_size[same]
    differs = a[spans(a_start[same], size)] != b[spans(b_start[same], size)]
    if differs.any():
        wrong, at = np.concatenate([[0], np.cumsum(differs)]), offsets(size)
        same[same] = wrong[at[1:]] == wrong[at[:-1]]
    return same
