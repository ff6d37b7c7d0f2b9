"""The exactness oracle: every spelling of every choice run as a row of its own, as evaluation harnesses do.

From the product it takes the ids of the prompt and what the compiler says of a choice: the token paths that
spell it and the END sets that close them. It shares nothing with what it judges, neither tree pass nor plan
nor score: rows are plain forwards of mlx-lm's model over copies of mlx-lm's cache, and NumPy sums them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import ScoreError

from .caches import Cache, CountedModel, PromptCache, batches, copied, padded
from .measured import Answer
from .spellings import Spelling, spellings

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel


class Oracle:
    """log P(choice and END) of every choice by rows of plain forwards, the head's KV warm."""

    key = "oracle"
    title = "per-choice log-likelihood, KV copied per row, head warm"

    def __init__(self, artifact: Artifact, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._fields = artifact.fields
        self._spellings = spellings(artifact)
        self._prompt = PromptCache(artifact, loaded)

    def answer(self, context: str) -> Answer:
        """Score every choice. Raises ContextNotTextError, ContextTooLongError, ScoreError."""
        return self._loaded.call(lambda: self._answer(context))

    def close(self) -> None:
        """Free the caches."""
        self._prompt.close()

    def _answer(self, context: str) -> Answer:
        started = perf_counter()
        last, cache = self._prompt.prefill(context)
        scores = [np.full(len(field.candidates), -np.inf) for field in self._fields]
        model = self._prompt.model
        lengths = [1 + len(spelling.tokens) for spelling in self._spellings]
        for batch in batches(lengths, cache[0].size(), self._loaded.language):
            spelled = [self._spellings[number] for number in batch]
            logits = _logits(model, cache, [(last, *spelling.tokens) for spelling in spelled])
            for spelling, rows in zip(spelled, logits, strict=True):
                field = scores[spelling.field]
                field[spelling.choice] = np.logaddexp(field[spelling.choice], log_probability(spelling, rows))
        for compiled, score in zip(self._fields, scores, strict=True):
            if not np.isfinite(score.max()):
                raise ScoreError(
                    f"field {compiled.name}", "got no usable scores", help="check the model's weights"
                )
        return Answer(
            values={
                compiled.name: compiled.candidates[int(score.argmax())].value
                for compiled, score in zip(self._fields, scores, strict=True)
            },
            log_scores={
                compiled.name: tuple(score.tolist())
                for compiled, score in zip(self._fields, scores, strict=True)
            },
            # No batch of rows waits for another one.
            passes=self._prompt.passes + 1,
            forwards=model.forwards,
            positions=model.positions,
            kv_bytes=model.kv_bytes,
            kv_copied=model.kv_copied,
            ms=(perf_counter() - started) * 1000,
        )


def make(artifact: Artifact, loaded: LoadedModel) -> Oracle:
    """The oracle of one artifact. Raises FingerprintMismatchError, ModelNotSupportedError."""
    return Oracle(artifact, loaded)


def log_probability(spelling: Spelling, rows: NDArray[np.float32]) -> float:
    """log P of the value's tokens and of any token that closes it, from logits [1 + tokens, vocabulary].

    The first row is that of the prompt's last token, so row i decides token i.
    """
    scored = rows[spelling.forced :].astype(np.float64)
    scored -= logsumexp(scored)[:, None]
    value = spelling.tokens[spelling.forced :]
    closing = logsumexp(scored[-1, list(spelling.closing)])
    return float(scored[range(len(value)), list(value)].sum() + closing)


def logsumexp(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the sum of exponentials along the last axis."""
    top = values.max(axis=-1, keepdims=True)
    total: NDArray[np.float64] = np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0]
    return total


def _logits(
    model: CountedModel, cache: Cache, rows: Sequence[Sequence[int]]
) -> Iterator[NDArray[np.float32]]:
    """The logits of each row, run on a copy of the cache of its own, without those of its padding."""
    from pcdc_runtime.fast_mlx import mx

    tokens = padded(rows)
    logits = model(mx.array(tokens), cache=copied(cache, *tokens.shape)).astype(mx.float32)
    mx.eval(logits)
    for number, row in enumerate(rows):
        yield np.array(logits[number, : len(row)])
