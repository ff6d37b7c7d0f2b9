"""Rules about what the fields ask."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from pcdc.diagnostics import Diagnostic, finding, quoted
from pcdc.keywords import TWO_CALLS
from pcdc.schema import Field, Schema

from .choices import answers_absence

_MARKS = frozenset("?？؟՞፧\u037e")
# Written without a question mark, or often so.
_UNMARKED = ("HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_ASKING = re.compile(
    r"\W*(please )?(answer|choose|classify|decide|determine|identify|judge|name|pick|rate|say|select|tell)\b",
    re.IGNORECASE,
)
_SENTENCE = r"(?:^|[.;:?!]\s+)"
_REFERS = re.compile(
    rf"{_SENTENCE}if (?:so|yes|not|no|true|false)\s*,|\bin that case\b"
    r"|\b(?:previous|preceding|above|next|other) (?:question|field|answer)s?\b"
    r"|\b(?:see|as|answered|given|chosen|selected) above\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_SHORTEST = 3


def asks_nothing(schema: Schema) -> Iterator[Diagnostic]:
    """A description without a question."""
    for field in schema.fields:
        if field.description.strip() and not _asks(field.description):
            yield finding(
                "PCDC501",
                field.asked,
                f"field {quoted(field.name)}",
                f"has a description that asks nothing: {quoted(field.description)}",
                "the description is the question the model reads",
                "ask what is to be decided, with a question mark",
            )


def _asks(text: str) -> bool:
    if not _MARKS.isdisjoint(text) or _ASKING.match(text):
        return True
    return any(unicodedata.name(c, "").startswith(_UNMARKED) for c in text)


def same_description(schema: Schema) -> Iterator[Diagnostic]:
    """Two fields with one description that differ in their choices."""
    for field, first in _twins(schema):
        if _labels(field) != _labels(first):
            yield finding(
                "PCDC502",
                field.asked,
                f"field {quoted(field.name)}",
                f"has the description of field {quoted(first.name)}{_line(first)}",
                "the description is what tells two questions apart",
                "ask in each what only this field decides",
            )


def same_field(schema: Schema) -> Iterator[Diagnostic]:
    """Two fields with one description and the same choices."""
    for field, first in _twins(schema):
        if _labels(field) == _labels(first):
            yield finding(
                "PCDC503",
                field.location,
                f"field {quoted(field.name)}",
                f"has the description and the choices of field {quoted(first.name)}{_line(first)}",
                "nothing but the name tells them apart",
                "remove one, or ask in each what only this field decides",
            )


def _twins(schema: Schema) -> Iterator[tuple[Field, Field]]:
    """Each field with the first one before it that has its description."""
    seen = dict[str, Field]()
    for field in schema.fields:
        text = " ".join(field.description.casefold().split())
        first = seen.setdefault(text, field)
        if text and first is not field:
            yield field, first


def _line(field: Field) -> str:
    return f" in line {field.location.line}" if field.location else ""


def _labels(field: Field) -> frozenset[str]:
    return frozenset(c.label for c in field.choices)


def looks_dependent(schema: Schema) -> Iterator[Diagnostic]:
    """A field whose name or description refers to another field."""
    for field in schema.fields:
        how = _reference(field, schema)
        if how:
            yield finding(
                "PCDC504",
                field.asked if how.startswith("its description") else field.location,
                f"field {quoted(field.name)}",
                f"looks dependent on another field: {how}",
                "fields are answered independently",
                f'word it so that it stands alone, with a choice such as "not applicable"; or {TWO_CALLS}',
            )


def _reference(field: Field, schema: Schema) -> str:
    own = frozenset(c.label for c in field.choices)
    for other in schema.fields:
        if other is field:
            continue
        if other.name not in own and _names(field.description, other.name):
            return f"its description names field {quoted(other.name)}"
        words, before = _words(field.name), _words(other.name)
        longer = len(words) > len(before) and words[: len(before)] == before
        if longer and len(other.name) >= _SHORTEST and not answers_absence(field):
            return f"its name begins with field {quoted(other.name)}"
    told = _REFERS.search(field.description)
    return f"its description says {quoted(told[0].strip(' .;:?!'))}" if told else ""


def _names(text: str, name: str) -> bool:
    """Whether a text speaks of a field; a name that is a common word must be marked as one."""
    if name not in text:
        return False
    escaped = re.escape(name)
    if re.search(r"[_\d]|[a-z][A-Z]", name):
        return re.search(rf"(?<!\w){escaped}(?!\w)", text) is not None
    marked = rf"[`'\"“‘]{escaped}[`'\"”’]|\b{escaped} field\b|\bfield {escaped}\b"
    return re.search(marked, text) is not None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
