"""An artifact bound to a loaded model: checked against it, with the plans of its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from .artifact import Artifact
from .calibration import Calibration
from .correction import Calibrated
from .errors import ContextTooLongError, LogitsWidthError, UnknownFieldError, did_you_mean
from .plan import Plan, make_shared_plans
from .tokenizer import check_tokenizer

if TYPE_CHECKING:
    from .indexed.index import Index
    from .loaded import LoadedModel

PLANS_KEPT = 64


@dataclass(frozen=True, eq=False)
class Bound:
    """What a request is answered from; `plans` takes rules, field indices and whether mass is wanted.

    It gives per pass one plan for each rule.
    """

    artifact: Artifact
    plans: Callable[[tuple[str, ...], frozenset[int], bool], tuple[tuple[Plan, ...], ...]]
    calibrated: Calibrated

    def chosen(self, fields: str | Sequence[str] | None) -> tuple[int, ...]:
        """Indices of the named fields, each once; all when None. Raises UnknownFieldError."""
        names = [field.name for field in self.artifact.fields]
        if fields is None:
            return tuple(range(len(names)))
        wanted = list(dict.fromkeys([fields] if isinstance(fields, str) else fields))
        unknown = [name for name in wanted if name not in names]
        if unknown or not wanted:
            raise UnknownFieldError(
                self.artifact.name,
                f"has no field {', '.join(map(repr, unknown))}"
                if unknown
                else "was asked for no field at all",
                f"its fields: {', '.join(names)}",
                did_you_mean(map(str, unknown), names),
            )
        return tuple(names.index(name) for name in wanted)


def bind(
    artifact: Artifact, model: LoadedModel, node_budget: int, calibration: Calibration | None = None
) -> Bound:
    """Check that the artifact fits the model, and what of the calibration fits both; nothing is run.

    Raises FingerprintMismatchError, LogitsWidthError, ContextTooLongError, CalibrationError and, only with a
    calibration, ModelNotFoundError.
    """
    check_fit(artifact, model, "artifact", "split the schema in two")
    plans = lru_cache(PLANS_KEPT)(partial(_plans, artifact, node_budget))
    return Bound(artifact, plans, Calibrated(artifact, model, calibration))


def check_fit(made: Artifact | Index, model: LoadedModel, kind: str, shorter: str) -> None:
    """Check tokens and prompt against the model; `shorter` is what helps a long prompt.

    Raises FingerprintMismatchError, LogitsWidthError, ContextTooLongError.
    """
    check_tokenizer(made, model.tokenizer, model.fingerprint, model.name)
    width = model.language.logits_width
    if made.largest_id >= width:
        raise LogitsWidthError(
            made.name,
            f"uses token {made.largest_id}",
            f"the logits of {model.name} end at {width - 1}",
            f"recompile with `pcdc build --model {model.name}`",
        )
    fixed, window = len(made.prompt.head) + len(made.prompt.tail), model.language.window
    if window is not None and fixed > window:
        raise ContextTooLongError(
            f"{kind} {made.name}",
            f"has a prompt of {fixed} tokens before any text is in it",
            f"the window of {model.name} is {window} tokens",
            f"{shorter}, or run a model with a longer window",
        )


def check_window(model: LoadedModel, prompt: int, deepest: int) -> None:
    """Refuse a prompt that exceeds the window with its deepest path. Raises ContextTooLongError."""
    window = model.language.window
    if window is not None and prompt + deepest > window:
        raise ContextTooLongError(
            "context",
            f"makes a prompt of {prompt} tokens, {prompt + deepest} with the deepest path",
            f"the window of {model.name} is {window} tokens",
            "shorten the text, or run a model with a longer window",
        )


def _plans(
    artifact: Artifact, budget: int, rules: tuple[str, ...], fields: frozenset[int], legal_mass: bool
) -> tuple[tuple[Plan, ...], ...]:
    return make_shared_plans(artifact, rules, fields, legal_mass, budget)
