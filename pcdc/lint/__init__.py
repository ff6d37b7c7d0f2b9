"""What is wrong with a definition that compiles, and what it costs: the rules, and reports of them."""

from __future__ import annotations

from .linting import IgnoredFinding, LintReport, lint
from .registry import (
    BUILT_INDEX_RULES,
    BUILT_RULES,
    COMPILED_RULES,
    INDEX_RULES,
    INDEXED_RULES,
    SCHEMA_RULES,
    UNBUILT_RULES,
    LintRule,
)
from .select import Selection, UnknownCodeError, selection
from .views import IndexTokens, TargetView

__all__ = [
    "BUILT_INDEX_RULES",
    "BUILT_RULES",
    "COMPILED_RULES",
    "INDEXED_RULES",
    "INDEX_RULES",
    "SCHEMA_RULES",
    "UNBUILT_RULES",
    "IgnoredFinding",
    "IndexTokens",
    "LintReport",
    "LintRule",
    "Selection",
    "TargetView",
    "UnknownCodeError",
    "lint",
    "selection",
]
