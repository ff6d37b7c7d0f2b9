"""What is asked of contexts, from one artifact as it was when they were taken up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from .artifact import Ints
from .bound import Bound, check_window
from .correction import Correction
from .passes import Counts
from .plan import Plan
from .result import Result
from .score import FieldScores, Weighing, decide, drift_band
from .tokenizer import assemble_prompt

if TYPE_CHECKING:
    from .loaded import LoadedModel


@dataclass(frozen=True, eq=False)
class Asked:
    """The fields `chosen` in the order asked, under the rules that `passes` has plans for.

    `temperature` None is the artifact's, `prune` None evaluates every form. `refused` is a warning where the
    artifact's file is.
    """

    model: LoadedModel
    bound: Bound
    refused: tuple[str, ...]
    chosen: tuple[int, ...]
    passes: tuple[tuple[Plan, ...], ...]
    temperature: float | None
    calibrated: bool
    prune: float | None = None

    def prompt(self, context: str) -> Ints:
        """The context's prompt ids.

        Raises ContextNotTextError, TokenizerError, and ContextTooLongError where it is larger than any may
        be or the model's window does not take it with the deepest path.
        """
        prompt = assemble_prompt(self.model.tokenizer, self.bound.artifact.prompt, context)
        check_window(self.model, len(prompt), max(plans[0].deepest for plans in self.passes))
        return prompt

    def weighings(self, rule: str) -> dict[int, Weighing]:
        """How each field's scores become probabilities, by index."""
        fields = self.bound.artifact.fields
        return {
            index: Weighing.of(len(fields[index].candidates), self._heat, self._correction(rule, index))
            for index in self.chosen
        }

    @property
    def _heat(self) -> float:
        return self.bound.artifact.temperature if self.temperature is None else self.temperature

    def _correction(self, rule: str, index: int) -> Correction | str:
        corrections = self.bound.calibrated.under(rule) if self.calibrated else {}
        return corrections.get(self.bound.artifact.fields[index].name, "")

    def result(
        self,
        context: str,
        prompt: Ints,
        rule: str,
        scores: Mapping[int, FieldScores],
        counts: Counts,
        started: float,
    ) -> Result:
        """The context's result under one rule; `started` is when its time began."""
        artifact, language = self.bound.artifact, self.model.language
        cut = artifact.prompt
        band = drift_band(language.dtype)
        answers = tuple(
            decide(
                artifact.fields[index],
                scores[index],
                self._heat,
                upper_bound=rule == "identify",
                band=band,
                correction=self._correction(rule, index),
            )
            for index in self.chosen
        )
        warnings = ["uncalibrated"] if any(a.calibration is None for a in answers) else []
        if any(a.calibration_dropped for a in answers):
            warnings.append("calibration_dropped")
        warnings += self.refused
        if not context.strip():
            warnings.append("empty_context")
        if language.window is None:
            warnings.append("window_unknown")
        return Result(
            answers=answers,
            schema_fields=tuple(field.name for field in artifact.fields),
            scoring=rule,
            temperature=self._heat,
            model=self.model.name,
            artifact_digest=artifact.digest,
            elapsed_ms=(perf_counter() - started) * 1000,
            prefill_ms=counts.prefill_ms,
            suffix_eval_ms=counts.tree_ms,
            forward_passes=counts.forwards,
            sequential_forward_passes=counts.sequential,
            head_cached=counts.cached,
            nodes=counts.nodes,
            positions=counts.positions,
            kv_bytes=counts.kv_bytes,
            kv_added=counts.kv_added,
            kv_copied=counts.kv_copied,
            context_tokens=len(prompt) - len(cut.head) - len(cut.tail),
            warnings=tuple(warnings),
            pruning=self.prune,
        )
