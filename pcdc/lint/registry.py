"""Every lint rule: its code, its name, and the function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pcdc.diagnostics import Diagnostic
from pcdc.schema import Schema

from . import choices, evaluated, questions, size, tokens
from .subject import Built, Compiled, Unbuilt

Subject = TypeVar("Subject", Schema, Compiled, Unbuilt, Built)


@dataclass(frozen=True)
class LintRule(Generic[Subject]):
    """One rule; severity and title are its code's. `check` finds every place that breaks it."""

    code: str
    name: str
    check: Callable[[Subject], Iterable[Diagnostic]]


SCHEMA_RULES: tuple[LintRule[Schema], ...] = (
    LintRule("PCDC501", "asks-nothing", questions.asks_nothing),
    LintRule("PCDC502", "same-description", questions.same_description),
    LintRule("PCDC503", "same-field", questions.same_field),
    LintRule("PCDC504", "looks-dependent", questions.looks_dependent),
    LintRule("PCDC511", "no-absence", choices.no_absence),
    LintRule("PCDC513", "code-first", choices.code_first),
)
COMPILED_RULES: tuple[LintRule[Compiled], ...] = (
    LintRule("PCDC512", "many-choices", tokens.many_choices),
    LintRule("PCDC514", "token-prefix", tokens.token_prefix),
    LintRule("PCDC515", "first-token", tokens.first_token),
    LintRule("PCDC516", "merges", tokens.merges),
    LintRule("PCDC517", "uneven", tokens.uneven),
    LintRule("PCDC518", "long-choice", tokens.long_choice),
    LintRule("PCDC521", "window-share", size.window_share),
    LintRule("PCDC522", "many-passes", size.many_passes),
    LintRule("PCDC523", "many-examples", size.many_examples),
)
BUILT_RULES: tuple[LintRule[Built], ...] = (
    LintRule("PCDC531", "never-evaluated", evaluated.never_evaluated),
    LintRule("PCDC532", "for-something-else", evaluated.for_something_else),
    LintRule("PCDC533", "no-threshold", evaluated.no_threshold),
    LintRule("PCDC534", "out-of-date", evaluated.out_of_date),
    LintRule("PCDC536", "few-texts", evaluated.few_texts),
    LintRule("PCDC537", "low-threshold", evaluated.low_threshold),
)
UNBUILT_RULES: tuple[LintRule[Unbuilt], ...] = (LintRule("PCDC535", "not-built", evaluated.not_built),)
NOTHING_IGNORED = "PCDC541"
"""An ignored code that found nothing: `linting` finds it, when all other rules have run."""
