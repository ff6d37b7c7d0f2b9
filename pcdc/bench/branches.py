"""One row per branch of every field's trie on a copied KV cache, all at once, as neighbouring engines answer.

The prompt is prefilled once and its KV copied for every row, on caches and plain forwards of mlx-lm; the
output head runs on the rows' last tokens only. This gives the `trie` rule's score of every choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Artifact

from .caches import batches, copied, padded
from .measured import Answer
from .tries import Branch, Rows, check_scores

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel


class BranchRows(Rows):
    """One row per branch of every field's trie, all at once, the head's KV warm."""

    key = "branches"
    title = "a row per trie branch on copied KV, rule trie, head warm"

    def __init__(self, artifact: Artifact, loaded: LoadedModel) -> None:
        super().__init__(artifact, loaded)
        self._branches = [branch for root in self.roots for branch in deciding(root)]

    def answer(self, context: str) -> Answer:
        """Answer one request. Raises ContextNotTextError, ContextTooLongError, ScoreError."""
        return self.loaded.call(lambda: self._score(context))

    def _score(self, context: str) -> Answer:
        from pcdc_runtime.fast_mlx import mx

        started = perf_counter()
        last, cache = self.prompt.prefill(context)
        rows = [(last, *branch.tokens) for branch in self._branches]
        logs: dict[int, NDArray[np.float64]] = {}
        for batch in batches(list(map(len, rows)), cache[0].size(), self.loaded.language):
            tokens = padded([rows[number] for number in batch])
            hidden = self.prompt.model.hidden(mx.array(tokens), cache=copied(cache, *tokens.shape))
            at = mx.array([len(rows[number]) - 1 for number in batch])
            for number, row in zip(batch, self.head(hidden[mx.arange(len(batch)), at]), strict=True):
                branch = self._branches[number]
                logs[id(branch)] = branch.log_softmax(row)
        scores = [
            _choice_scores(root, logs, len(compiled.candidates))
            for root, compiled in zip(self.roots, self.fields, strict=True)
        ]
        for compiled, score in zip(self.fields, scores, strict=True):
            check_scores(compiled.name, score)
        named = {
            compiled.name: tuple(score.tolist()) for compiled, score in zip(self.fields, scores, strict=True)
        }
        return self.answered(started, [int(score.argmax()) for score in scores], named, rounds=1)


def make(artifact: Artifact, loaded: LoadedModel) -> BranchRows:
    """One row per branch. Raises FingerprintMismatchError, ModelNotSupportedError."""
    return BranchRows(artifact, loaded)


def deciding(branch: Branch) -> list[Branch]:
    """This place and those below it, as far as they leave several options."""
    below = [found for onward in branch.onward.values() for found in deciding(onward)]
    return [branch, *below] if branch.decides else below


def _choice_scores(
    root: Branch, logs: Mapping[int, NDArray[np.float64]], choices: int
) -> NDArray[np.float64]:
    """Log of the product of softmaxes down to each closing, summed over the closings of each choice."""
    scores = np.full(choices, -np.inf)

    def descend(branch: Branch, so_far: float) -> None:
        steps = logs.get(id(branch), np.zeros(1))
        for onward, step in zip(branch.onward.values(), steps, strict=False):
            descend(onward, so_far + float(step))
        for choice, step in zip(branch.closing.values(), steps[len(branch.onward) :], strict=True):
            scores[choice] = np.logaddexp(scores[choice], so_far + float(step))

    descend(root, 0.0)
    return scores
