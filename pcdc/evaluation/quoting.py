"""Texts of the data in a report: its surest wrong answers, or none at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .rows import Row

QUOTED = 160
"""How many characters of a text are shown."""
LEFT_OUT = "(text left out)"


def quote(report: dict[str, Any], rows: Sequence[Row], *, texts: bool) -> None:
    """Say of each wrong answer in a report which text it is, in place; without `texts` leave them out."""
    for field in report["fields"]:
        field["mistakes"] = [
            {
                "line": rows[one["text"]].line,
                "context": _shortened(rows[one["text"]].context),
                "expected": field["labels"][one["expected"]],
                "answered": field["labels"][one["answered"]],
                "probability": one["probability"],
            }
            for one in field["mistakes"]
            if texts
        ]


def without_examples(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the texts of the worked examples that were tried."""
    if "examples" not in report:
        return report
    found = report["examples"]
    quoted = [one | {"context": LEFT_OUT} for one in found["examples"]]
    return report | {"examples": found | {"examples": quoted, "declaration": None}}


def _shortened(context: str) -> str:
    words = " ".join(context.split())
    return words if len(words) <= QUOTED else words[: QUOTED - 1] + "…"
