"""The branches of a field's spellings, and the score of the `trie` rule that its own rows give.

Shared by the ways to answer that run rows on copies of a prompt's KV. It shares nothing with plan and score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Artifact, Value
from pcdc_runtime.errors import ScoreError

from .caches import PromptCache
from .measured import Answer
from .oracle import logsumexp
from .spellings import spellings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pcdc_runtime.fast_mlx import mx
    from pcdc_runtime.loaded import LoadedModel


@dataclass
class Branch:
    """A place among a field's spellings.

    `tokens` lead there from the prompt, `onward` are the places behind each token that may follow, `closing`
    the sets of ids that end a value here, each with the choice that it ends. `choices` are all from here on.
    """

    tokens: tuple[int, ...]
    onward: dict[int, Branch] = field(default_factory=dict)
    closing: dict[tuple[int, ...], int] = field(default_factory=dict)
    choices: set[int] = field(default_factory=set)

    def parting(self) -> Branch:
        """The first place from here on where several options are left, or where a value ends."""
        branch = self
        while len(branch.onward) == 1 and not branch.closing:
            (branch,) = branch.onward.values()
        return branch

    @property
    def decides(self) -> bool:
        """Whether several options are left here."""
        return len(self.onward) + len(self.closing) > 1

    def log_softmax(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of the options, those of `onward` first, from logits over the vocabulary."""
        row = logits.astype(np.float64)
        options = np.array([*row[list(self.onward)], *(logsumexp(row[list(ids)]) for ids in self.closing)])
        logs: NDArray[np.float64] = options - logsumexp(options)
        return logs


def roots(artifact: Artifact) -> list[Branch]:
    """The place of each field where its value begins."""
    found: list[Branch] = []
    for spelling in spellings(artifact):
        if spelling.field == len(found):
            found.append(Branch(spelling.tokens[: spelling.forced]))
        branch = found[-1]
        branch.choices.add(spelling.choice)
        for count, token in enumerate(spelling.tokens[spelling.forced :], spelling.forced + 1):
            branch = branch.onward.setdefault(token, Branch(spelling.tokens[:count]))
            branch.choices.add(spelling.choice)
        branch.closing[spelling.closing] = spelling.choice
    return found


class Rows:
    """One artifact's prompt and branches on one model, and the answer that rows give."""

    def __init__(self, artifact: Artifact, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.fields = artifact.fields
        self.roots = roots(artifact)
        self.prompt = PromptCache(artifact, loaded)

    def close(self) -> None:
        """Free the caches."""
        self.prompt.close()

    def head(self, hidden: mx.array) -> NDArray[np.float32]:
        """Logits of hidden states [rows, width] by the family's own head."""
        from pcdc_runtime.fast_mlx import mx

        language: Any = self.loaded.language
        return np.array(language.head(hidden).astype(mx.float32))

    def answered(
        self,
        started: float,
        choices: Sequence[int],
        log_scores: Mapping[str, tuple[float, ...]] | None,
        rounds: int,
    ) -> Answer:
        model = self.prompt.model
        """The chosen values and what was counted; `rounds` waited for one another after the prefill."""
        values: dict[str, Value] = {
            compiled.name: compiled.candidates[choice].value
            for compiled, choice in zip(self.fields, choices, strict=True)
        }
        return Answer(
            values=values,
            log_scores=log_scores,
            passes=self.prompt.passes + rounds,
            forwards=model.forwards,
            positions=model.positions,
            kv_bytes=model.kv_bytes,
            kv_copied=model.kv_copied,
            ms=(perf_counter() - started) * 1000,
        )


def check_scores(name: str, logs: NDArray[np.float64]) -> None:
    """Raises ScoreError where none is finite."""
    if not np.isfinite(logs.max()):
        raise ScoreError(f"field {name}", "got no usable scores", help="check the model's weights")
