"""What is wrong with a schema that compiles, and what it costs: the rules, and reports of them."""

from __future__ import annotations

from .linting import IgnoredFinding, LintReport, TargetView, lint
from .registry import BUILT_RULES, COMPILED_RULES, SCHEMA_RULES, UNBUILT_RULES, LintRule
from .select import Selection, UnknownCodeError, selection

__all__ = [
    "BUILT_RULES",
    "COMPILED_RULES",
    "SCHEMA_RULES",
    "UNBUILT_RULES",
    "IgnoredFinding",
    "LintReport",
    "LintRule",
    "Selection",
    "TargetView",
    "UnknownCodeError",
    "lint",
    "selection",
]
