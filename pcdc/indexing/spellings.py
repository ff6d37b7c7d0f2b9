"""Which of very many labels spell a control token."""

from __future__ import annotations

import re
from collections.abc import Sequence


class ControlSpellings:
    """The control tokens' spellings, of which a vocabulary can have thousands."""

    def __init__(self, spellings: Sequence[str]) -> None:
        self._spellings = spellings
        self._known = frozenset(spellings)
        self._sizes = sorted({len(spelling) for spelling in spellings})
        initials = "".join(sorted({re.escape(spelling[0]) for spelling in spellings}))
        self._initial = re.compile(f"[{initials}]" if initials else "(?!)")

    def among(self, labels: Sequence[str]) -> dict[int, str]:
        """By number, the labels that spell a control token, each with the first that it spells."""
        may = [number for number, label in enumerate(labels) if self._initial.search(label)]
        return {n: self._first(labels[n]) for n in may if self._spelled(labels[n])}

    def _spelled(self, label: str) -> bool:
        at = [found.start() for found in self._initial.finditer(label)]
        return any(label[start : start + size] in self._known for start in at for size in self._sizes)

    def _first(self, label: str) -> str:
        return next(spelling for spelling in self._spellings if spelling in label)
