"""Which warnings a lint is asked for, by code or by the beginning of codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pcdc.diagnostics import RULES, Diagnostic
from pcdc.ignoring import WARNINGS
from pcdc.keywords import suggestion

_FAMILY = "PCDC"


class UnknownCodeError(ValueError):
    """What was given is no code of a warning and no beginning of one; the message says so."""


@dataclass(frozen=True)
class Selection:
    """Codes of warnings to keep; errors are always kept."""

    codes: frozenset[str]

    def wants(self, found: Diagnostic) -> bool:
        """Whether a diagnostic is kept."""
        return found.severity == "error" or found.code in self.codes


def selection(select: Sequence[str], ignore: Sequence[str]) -> Selection:
    """From lists of codes, separated by commas. Raises UnknownCodeError."""
    kept = _codes(select) if select else WARNINGS
    return Selection(kept - _codes(ignore))


def _codes(given: Sequence[str]) -> frozenset[str]:
    words = [word for part in given for piece in part.split(",") if (word := piece.strip())]
    if given and not words:
        raise UnknownCodeError("names no code")
    return frozenset(code for word in words for code in _matching(word))


def _matching(word: str) -> list[str]:
    found = [code for code in WARNINGS if code.startswith(word)]
    if found and word.startswith(_FAMILY):
        return found
    if word in RULES:
        raise UnknownCodeError(f"{word} is an error, and errors are always told")
    hint = suggestion(word, WARNINGS)
    raise UnknownCodeError(f"{word!r} is no code of a warning" + (f"; {hint}" if hint else ""))
