"""Every lint rule: its code, its name, and the function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pcdc.diagnostics import Diagnostic
from pcdc.indexing.definition import IndexDefinition
from pcdc.schema import Schema

from . import choices, evaluated, indexes, questions, size, tokens
from .indexes import BuiltIndex, Indexed
from .subject import Built, Compiled, Unbuilt

Subject = TypeVar("Subject", Schema, Compiled, Unbuilt, Built, IndexDefinition, Indexed, BuiltIndex)


@dataclass(frozen=True)
class LintRule(Generic[Subject]):
    """One rule; severity and title are its code's. `check` finds every place that breaks it."""

    code: str
    check: Callable[[Subject], Iterable[Diagnostic]]


SCHEMA_RULES: tuple[LintRule[Schema], ...] = (
    LintRule("PCDC501", questions.asks_nothing),
    LintRule("PCDC502", questions.same_description),
    LintRule("PCDC503", questions.same_field),
    LintRule("PCDC504", questions.looks_dependent),
    LintRule("PCDC511", choices.no_absence),
    LintRule("PCDC513", choices.code_first),
)
COMPILED_RULES: tuple[LintRule[Compiled], ...] = (
    LintRule("PCDC512", tokens.many_choices),
    LintRule("PCDC514", tokens.token_prefix),
    LintRule("PCDC515", tokens.first_token),
    LintRule("PCDC516", tokens.merges),
    LintRule("PCDC517", tokens.uneven),
    LintRule("PCDC518", tokens.long_choice),
    LintRule("PCDC521", size.window_share),
    LintRule("PCDC522", size.many_passes),
    LintRule("PCDC523", size.many_examples),
)
BUILT_RULES: tuple[LintRule[Built], ...] = (
    LintRule("PCDC531", evaluated.never_evaluated),
    LintRule("PCDC532", evaluated.for_something_else),
    LintRule("PCDC533", evaluated.no_threshold),
    LintRule("PCDC534", evaluated.out_of_date),
    LintRule("PCDC536", evaluated.few_texts),
    LintRule("PCDC537", evaluated.low_threshold),
)
UNBUILT_RULES: tuple[LintRule[Unbuilt], ...] = (LintRule("PCDC535", evaluated.not_built),)
INDEX_RULES: tuple[LintRule[IndexDefinition], ...] = (
    LintRule("PCDC501", indexes.asks_nothing),
    LintRule("PCDC504", indexes.looks_dependent),
    LintRule("PCDC524", indexes.no_question),
    LintRule("PCDC525", indexes.no_examples),
)
INDEXED_RULES: tuple[LintRule[Indexed], ...] = (LintRule("PCDC521", size.window_share),)
BUILT_INDEX_RULES: tuple[LintRule[BuiltIndex], ...] = (LintRule("PCDC534", evaluated.out_of_date),)
NOTHING_IGNORED = "PCDC541"
"""An ignored code that found nothing: `linting` finds it, when all other rules have run."""
