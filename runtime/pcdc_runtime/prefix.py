"""KV of prompts, one sequence per artifact, kept least recently used within a number of bytes.

Used on the owner thread of one model only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from .artifact import Ints
from .fast_mlx import mx
from .tokenizer import common_prefix
from .tree import CHUNK, chunks

if TYPE_CHECKING:
    from .model import KVSequence, LanguageModel

NOTHING: Ints = np.empty(0, dtype=np.int32)


class Prefix:
    """One sequence and the prompt ids whose KV it holds; `go_on` runs before each pass and may raise."""

    def __init__(self, sequence: KVSequence, go_on: Callable[[], None]) -> None:
        self.sequence = sequence
        self._go_on = go_on
        self._ids = NOTHING

    def advance(self, ids: Ints, nodes: int = 0) -> int:
        """Make the sequence hold `ids` and nothing else; gives how many leading ones it held already.

        Where a tree of `nodes` comes next, the last part of `ids` is left to `branch` if one forward takes
        both: it reads all weights, which is most of what a short request costs.
        """
        shared = common_prefix(self._ids, ids)
        self._ids = ids[:shared]
        self.sequence.truncate(shared)
        for start, stop in chunks(shared, len(ids), CHUNK):
            if nodes and stop == len(ids) and stop - start + nodes <= CHUNK:
                break
            self._go_on()
            mx.eval(self.sequence.append(ids[start:stop]))
            self._ids = ids[:stop]
        return shared

    def missing(self, ids: Ints) -> int:
        """How many of `ids` the sequence does not hold."""
        return len(ids) - common_prefix(self._ids, ids)

    def adopt(self, ids: Ints, layers: Iterable[tuple[mx.array, mx.array]]) -> None:
        """Hold `ids` and nothing else, as `KVSequence.adopt` does; nothing at all where `layers` raises."""
        self._ids = NOTHING
        self.sequence.adopt(len(ids), layers)
        self._ids = ids

    def branch(self, tokens: Ints, parents: Ints, ids: Ints = NOTHING) -> mx.array:
        """Run what `advance` left of `ids`, and a tree below them as `KVSequence.append` does.

        Gives the hidden states of the tree.
        """
        held = self.sequence.length
        left = ids[held:]
        tokens = np.concatenate([left, tokens])
        parents = np.concatenate([np.arange(held - 1, held - 1 + len(left)), parents])
        parts: list[mx.array] = []
        for start, stop in chunks(0, len(tokens), CHUNK):
            self._go_on()
            parts.append(self.sequence.append(tokens[start:stop], parents[start:stop]))
        if len(left):
            self._ids = ids
        return mx.concatenate(parts)[len(left) :]


class PrefixCache:
    """Prefixes by artifact digest; together they hold at most `limit` bytes between requests.

    `go_on` is called before each pass, and ends the request where it raises.
    """

    def __init__(self, model: LanguageModel, limit: int, go_on: Callable[[], None]) -> None:
        self._model = model
        self._go_on = go_on
        self._limit = limit
        self._kept: OrderedDict[str, Prefix] = OrderedDict()

    @property
    def bytes_held(self) -> int:
        """KV bytes of all kept prefixes."""
        return sum(prefix.sequence.bytes_held for prefix in self._kept.values())

    @property
    def bytes_per_token(self) -> int:
        """KV bytes that one token takes."""
        return self._model.kv_bytes_per_token

    @property
    def limit(self) -> int:
        """The KV bytes that may stay between requests."""
        return self._limit

    @contextmanager
    def lease(self, digest: str, slots: int) -> Iterator[Prefix]:
        """The artifact's prefix for one request that needs `slots` slots, most recently used afterwards.

        Others make room first. A request that fails leaves nothing behind: its prefix is dropped.
        """
        prefix = self._kept.pop(digest, None) or Prefix(self._model.sequence(), self._go_on)
        needed = max(slots * self.bytes_per_token, prefix.sequence.bytes_held)
        self._evict(self._limit - needed)
        yield prefix
        self._kept[digest] = prefix
        self._evict(self._limit)

    def hand_over(self, old: str, new: str) -> None:
        """Let artifact `new` go on with the sequence of `old`, which then holds none."""
        prefix = self._kept.pop(old, None)
        if prefix is not None:
            self._kept.setdefault(new, prefix)

    def _evict(self, allowance: int) -> None:
        while self._kept and self.bytes_held > allowance:
            self._kept.popitem(last=False)
