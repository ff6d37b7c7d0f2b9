"""What can follow a prefix in a catalog: the index against the tries that constrained decoding uses."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from pcdc_runtime.artifact import Ints
from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.rows import Rows, Span

if TYPE_CHECKING:
    from pcdc_runtime.indexed.index import Index

ENDS = "end"
"""Under which key a JSON trie says that a label ends."""

SIZE = 3
"""Bytes of a token id in a marisa trie."""

FEW = 4096
"""So many keys are listed before a marisa trie is asked for each byte instead, which takes as long."""


MANY = 256
"""From how many tokens on a trie keeps a mask that it found, as the index keeps children of many rows."""

Prefix: TypeAlias = tuple[int, ...]


class Mask(NamedTuple):
    """The tokens that may follow a prefix, each once, in any order, and whether a label may end there."""

    tokens: Ints | Sequence[int]
    closes: bool


class MaskBaseline(Protocol):
    """A way to keep a catalog in a file and to ask what may follow a prefix.

    `open` makes no use of what `build` left in memory. Where what it is made of is not installed, `build`
    raises ImportError.
    """

    key: str
    title: str

    def build(self, index: Index, path: Path) -> None: ...

    def open(self, path: Path) -> None: ...

    def mask(self, prefix: Prefix) -> Mask:
        """At a prefix of some label's tokens."""
        ...


class SortedRows:
    """The index: rows in order, mapped into memory."""

    key = "index"
    title = "pcdc index"
    _rows: Rows

    def build(self, index: Index, path: Path) -> None:
        write_index(path, index)

    def open(self, path: Path) -> None:
        self._rows = open_index(path).rows

    def mask(self, prefix: Prefix) -> Mask:
        span = self._rows.whole
        children = self._rows.children(span)
        for token in prefix:
            child = children.token.searchsorted(token)
            span = Span(int(children.start[child]), int(children.start[child + 1]), span.depth + 1)
            children = self._rows.children(span)
        return Mask(children.token, bool(children.start[0] > span.low))


class _Trie(ABC):
    """Finds large masks once."""

    _kept: dict[Prefix, Mask]

    def open(self, path: Path) -> None:
        self._kept = {}

    def mask(self, prefix: Prefix) -> Mask:
        if prefix in self._kept:
            return self._kept[prefix]
        found = self._found(prefix)
        if len(found.tokens) >= MANY:
            self._kept[prefix] = found
        return found

    @abstractmethod
    def _found(self, prefix: Prefix) -> Mask: ...


class JsonTrie(_Trie):
    """Nested dictionaries by token id, as generative retrieval keeps its tries."""

    key = "json"
    title = "JSON trie"
    _root: dict[str, Any]

    def build(self, index: Index, path: Path) -> None:
        root: dict[str, Any] = {}
        for row in _paths(index.rows):
            node = root
            for token in row:
                node = node.setdefault(str(token), {})
            node[ENDS] = {}
        path.write_text(json.dumps(root, separators=(",", ":")), encoding="utf-8")

    def open(self, path: Path) -> None:
        super().open(path)
        self._root = json.loads(path.read_bytes())

    def _found(self, prefix: Prefix) -> Mask:
        node = self._root
        for token in prefix:
            node = node[str(token)]
        return Mask([int(token) for token in node if token != ENDS], ENDS in node)


class MarisaTrie(_Trie):
    """A succinct trie over labels as bytes, three for an id, mapped into memory.

    It has no list of a node's children. Keys below a prefix are listed where they are few; otherwise each
    byte of an id is tried, which is several times as fast at a prefix of a million keys.
    """

    key = "marisa"
    title = "marisa-trie"

    def build(self, index: Index, path: Path) -> None:
        import marisa_trie

        rows = index.rows
        ids = rows.token.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
        bounds = (rows.offset.astype(np.int64) * SIZE).tolist()
        marisa_trie.BinaryTrie([ids[low:high] for low, high in pairwise(bounds)]).save(str(path))

    def open(self, path: Path) -> None:
        import marisa_trie

        super().open(path)
        self._trie = marisa_trie.BinaryTrie()
        self._trie.mmap(str(path))

    def _found(self, prefix: Prefix) -> Mask:
        start = b"".join(token.to_bytes(SIZE, "big") for token in prefix)
        depth = len(start)
        keys = list(islice(self._trie.iterkeys(start), FEW + 1))
        if len(keys) <= FEW:
            after = {key[depth : depth + SIZE] for key in keys} - {b""}
        else:
            after = {b""}
            for _ in range(SIZE):
                after = {
                    part + byte for part in after for byte in _BYTES if self._leads_on(start + part + byte)
                }
        return Mask([int.from_bytes(part, "big") for part in after], start in self._trie)

    def _leads_on(self, start: bytes) -> bool:
        return next(self._trie.iterkeys(start), None) is not None


_BYTES = [bytes([byte]) for byte in range(256)]


def baselines() -> tuple[MaskBaseline, ...]:
    """All of them, the index first."""
    return SortedRows(), JsonTrie(), MarisaTrie()


def _paths(rows: Rows) -> list[list[int]]:
    token, bounds = rows.token.tolist(), rows.offset.tolist()
    return [token[low:high] for low, high in pairwise(bounds)]
