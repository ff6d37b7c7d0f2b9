"""One row per field on a copied KV cache, in rounds, as neighbouring engines answer.

The prompt is prefilled once and its KV copied for every field's row, on caches and plain forwards of mlx-lm;
the output head runs on the rows' last tokens only. At each branch the best option is taken, after a softmax
over what may follow there, and the rows that are not decided run the next round. So nothing is known of the
branches that were not taken, and the best options need not lead to the best choice of the `trie` rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Artifact

from .caches import Cache, CountedModel, batches, copied, layer_of, padded
from .measured import Answer
from .tries import Branch, Rows, check_scores

if TYPE_CHECKING:
    from pcdc_runtime.fast_mlx import mx
    from pcdc_runtime.loaded import LoadedModel


class FieldRows(Rows):
    """One row per field, in rounds, the head's KV warm."""

    key = "rows"
    title = "a row per field on copied KV, best token per round, head warm"

    def answer(self, context: str) -> Answer:
        """Answer one request. Raises ContextNotTextError, ContextTooLongError, ScoreError."""
        return self.loaded.call(lambda: self._decide(context)[0])

    def decide(self, context: str) -> tuple[Answer, list[float]]:
        """The answer, and for each field the log of the product of softmaxes on the way that was taken."""
        return self.loaded.call(lambda: self._decide(context))

    def _decide(self, context: str) -> tuple[Answer, list[float]]:
        started = perf_counter()
        last, cache = self.prompt.prefill(context)
        walks = [
            _Walk(compiled.name, root.parting(), last)
            for compiled, root in zip(self.fields, self.roots, strict=True)
        ]
        lengths = [len(walk.pending) for walk in walks]
        # Batches do not wait for one another, the rounds of one do.
        rounds = [
            self._run(cache, [walks[number] for number in batch])
            for batch in batches(lengths, cache[0].size(), self.loaded.language)
        ]
        choices = [min(walk.branch.choices) for walk in walks]
        return self.answered(started, choices, None, max(rounds)), [walk.log for walk in walks]

    def _run(self, cache: Cache, walks: Sequence[_Walk]) -> int:
        """Walk down to one choice each; gives the number of rounds."""
        from pcdc_runtime.fast_mlx import mx

        deepest = max(len(walk.pending) for walk in walks)
        rows, rounds = _RowsKV.of(cache, len(walks), 2 * deepest), 0
        while any(walk.open for walk in walks):
            rounds += 1
            if sum(walk.open for walk in walks) * 2 <= len(walks):
                kept = [number for number, walk in enumerate(walks) if walk.open]
                rows, walks = rows.only(kept), [walks[number] for number in kept]
            hidden = rows.run(self.prompt.model, [walk.pending for walk in walks])
            at = [max(len(walk.pending) - 1, 0) for walk in walks]
            logits = self.head(hidden[mx.arange(len(walks)), mx.array(at)])
            for walk, row in zip(walks, logits, strict=True):
                walk.take(row)
        return rounds


def make(artifact: Artifact, loaded: LoadedModel) -> FieldRows:
    """One row per field. Raises FingerprintMismatchError, ModelNotSupportedError."""
    return FieldRows(artifact, loaded)


class _Walk:
    """One field's way down: where it is, the tokens that are not run yet, the log of what it took so far."""

    def __init__(self, name: str, branch: Branch, last: int) -> None:
        self._name = name
        self.branch = branch
        self.pending: tuple[int, ...] = (last, *branch.tokens)
        self.log = 0.0

    @property
    def open(self) -> bool:
        """Whether several choices are left."""
        return len(self.branch.choices) > 1

    def take(self, logits: NDArray[np.float32]) -> None:
        """Go on by the best option, the first among equals; a decided walk stays where it is."""
        if not self.open:
            return
        logs = self.branch.log_softmax(logits)
        check_scores(self._name, logs)
        best, here = int(logs.argmax()), self.branch
        self.log += float(logs[best])
        if best < len(here.onward):
            self.branch = list(here.onward.values())[best].parting()
        else:
            self.branch = Branch(here.tokens, choices={list(here.closing.values())[best - len(here.onward)]})
        self.pending = self.branch.tokens[len(here.tokens) :] if self.open else ()


class _RowsKV:
    """Copied caches of rows of different lengths, and which of their slots hold a token of the row."""

    def __init__(self, cache: Cache, filled: NDArray[np.bool_]) -> None:
        self._step = _Step(cache[0].size(), None)
        self._layers = [_RowsLayer(self._step, layer) for layer in cache]
        self._filled = filled

    @classmethod
    def of(cls, cache: Cache, rows: int, room: int) -> _RowsKV:
        """Copies of a one-row cache, each with room for that many more tokens."""
        return cls(copied(cache, rows, room), np.ones((rows, cache[0].size()), dtype=bool))

    def only(self, rows: Sequence[int]) -> _RowsKV:
        """A copy of some of the rows."""
        from pcdc_runtime.fast_mlx import mx

        kept = mx.array(list(rows))
        cache = [layer_of(x.keys[kept], x.values[kept], length=x.size()) for x in self._layers]
        return _RowsKV(cache, self._filled[list(rows)])

    def run(self, model: CountedModel, pending: Sequence[Sequence[int]]) -> mx.array:
        """Run each row's pending tokens, padded on the right; hidden states [rows, longest, width]."""
        from pcdc_runtime.fast_mlx import mx

        tokens = padded(pending)
        rows, width = tokens.shape
        positions = self._filled.sum(axis=1)
        alike = bool((positions == positions[0]).all())
        self._step.offset = int(positions[0]) if alike else mx.array(positions.astype(np.int32))
        if self._filled.all():
            self._step.mask = "causal" if width > 1 else None
        else:
            own = np.broadcast_to(np.tri(width, dtype=bool), (rows, width, width))
            before = np.broadcast_to(self._filled[:, None], (rows, width, self._filled.shape[1]))
            self._step.mask = mx.array(np.concatenate([before, own], axis=2)[:, None])
        hidden = model.hidden(mx.array(tokens), cache=self._layers)
        mx.eval(hidden)
        sizes = np.array([len(row) for row in pending])
        self._filled = np.concatenate([self._filled, np.arange(width) < sizes[:, None]], axis=1)
        return hidden


@dataclass
class _Step:
    """The positions of the first new token of each row, or the one of all, and the mask of a forward."""

    offset: int | mx.array
    mask: mx.array | str | None


class _RowsLayer:
    """A cache of mlx-lm whose rows are at positions of their own and do not see their padding."""

    def __init__(self, step: _Step, base: Any) -> None:
        self._step = step
        self._base = base

    @property
    def offset(self) -> int | mx.array:
        """The position of the first new token, or that of each row."""
        return self._step.offset

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """The mask of the current forward."""
        return self._step.mask

    def __getattr__(self, key: str) -> Any:
        return getattr(self._base, key)
