"""Worked examples of an index: queries with the labels that are right for them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property

from pcdc.diagnostics import quoted
from pcdc.examples import ShapeCheck, read_examples
from pcdc.schema import Field
from pcdc.source import Node, Object, Report, Scalar

from .definition import Entries

_NEAR = 500
_ENDS = 3


def read_pairs(
    items: Sequence[Node], field: str, entries: Entries | None, report: Report, malformed: ShapeCheck
) -> tuple[tuple[str, str], ...]:
    """The examples of an index as query and label; answers are looked for where the entries are known."""
    asked = None if entries is None else Field(field, "enum", "", ())
    lookup = Lookup(entries, answers_of(items, field)) if entries else None

    def find(_: Field, given: Scalar) -> int | str:
        text = given.value
        if lookup is None or not isinstance(text, str):
            return "write the label as text, as the catalog has it"
        return lookup.find(text)

    found = read_examples(items, {field: asked}, report, malformed, find)
    if entries is None:
        return ()
    return tuple((example.context, entries.labels[n]) for example in found for _, n in example.answers)


def answers_of(items: Sequence[Node], field: str) -> set[str]:
    """What the examples give as labels, whether they are or not."""
    answers = (item.get("answers") for item in items if isinstance(item, Object))
    given = (node.get(field) for node in answers if isinstance(node, Object))
    return {node.value for node in given if isinstance(node, Scalar) and isinstance(node.value, str)}


class Lookup:
    """Finds the labels that are `wanted` in one pass over the entries; hints for others take a second one."""

    def __init__(self, entries: Entries, wanted: Iterable[str]) -> None:
        self._entries, found = entries, frozenset(wanted)
        self._numbers = {
            label: number for number, label in enumerate(entries.labels) if found and label in found
        }

    def knows(self, text: str) -> bool:
        """Whether a text that was wanted is a label."""
        return text in self._numbers

    def find(self, text: str) -> int | str:
        """The number of an entry with a label that was wanted, or a hint for people."""
        number = self._numbers.get(text)
        return self._hint(text) if number is None else number

    @cached_property
    def _folded(self) -> list[str]:
        return list(map(_fold, self._entries.labels))

    def _hint(self, text: str) -> str:
        entries, wanted = self._entries, _fold(text)
        if entries.ids is not entries.labels and text in entries.ids:
            label = entries.labels[entries.ids.index(text)]
            return f"that is an id; write its label {quoted(label)}"
        if text in entries.left_out:
            return "the catalog has it, but `where` leaves it out; choose another example, or change `where`"
        near = self._near(wanted)
        if near is not None:
            return f"did you mean {quoted(entries.labels[near])}?"
        listed = ", ".join(map(quoted, [*dict.fromkeys(entries.labels[:9])][:3]))
        return f"write a label as the catalog has it, such as {listed}"

    def _near(self, wanted: str) -> int | None:
        """The entry whose label this may stand for.

        To compare a million letter by letter takes minutes. Only those are that are about as long and share
        most at their ends.
        """
        folded = self._folded
        if wanted in folded:
            return folded.index(wanted)
        head, tail, size = wanted[:_ENDS], wanted[-_ENDS:], len(wanted)
        alike = {
            label: number
            for number, label in enumerate(folded)
            if (label.startswith(head) or label.endswith(tail)) and 4 * abs(len(label) - size) <= size
        }
        nearest = sorted(alike, key=lambda label: _shared(label, wanted), reverse=True)[:_NEAR]
        found = get_close_matches(wanted, nearest, n=1, cutoff=0.75)
        if found:
            return alike[found[0]]
        begun = (number for number, label in enumerate(folded) if size >= _ENDS and label.startswith(wanted))
        return next(begun, None)


def _shared(a: str, b: str) -> int:
    """How many characters two texts share at their ends."""
    size = min(len(a), len(b))
    head = next((n for n in range(size) if a[n] != b[n]), size)
    return head + next((n for n in range(size - head) if a[-1 - n] != b[-1 - n]), size - head)


def _fold(text: str) -> str:
    folded = text.casefold() if text.isascii() else unicodedata.normalize("NFC", text).casefold()
    return " ".join(folded.split())
