"""Answer lines as tokens: the surface forms of every choice, the suffix, the anchor of legal mass.

Whole lines are encoded and the branch is taken where the tokens really branch, so that a choice which
merges with a quote or shares its first token with another needs no special case (TOKENIZATION, section 4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from .diagnostics import Diagnostic, Location, finding, quoted
from .prompt import Prompt, Target, UnstableBoundaryError, render_prompt
from .schema import Choice, Field, Schema
from .vocabulary import Remainder, shared_beginning

QUOTED_CONTINUATIONS = ("", "}", ",", "\n")
BARE_CONTINUATIONS = ("}", ",", "\n", " ")
_TO_QUOTE = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
ANCHOR_PROBES = ('"a', '"1', '" ', "true", "null", "1", "-1")

# Why a choice cannot be scored exactly: code, fact, limit and help.
NOT_BACK = (
    "PCDC302",
    "does not come back from the tokenizer as the bytes that went in",
    "every character must survive tokenization",
    "use a tokenizer with byte fallback, or spell the choice in other characters",
)
QUOTE_LOST = (
    "PCDC305",
    "does not keep its closing quote when the tokenizer normalises it",
    "the first unescaped quote must be the closing one",
    "spell the choice without compatibility characters",
)


class SurfaceForm(NamedTuple):
    """One token path that spells a choice, from the end of the prompt's tail, and what closes it."""

    path: tuple[int, ...]
    remainder: Remainder


@dataclass(frozen=True)
class TokenizedField:
    """A field with the forms of each choice; `anchor` counts the ids that all its lines share by force."""

    field: Field
    anchor: int
    forms: tuple[tuple[SurfaceForm, ...], ...]


@dataclass(frozen=True)
class TokenizedSchema:
    """A schema in one model's tokens. `opening` are the ids that every line of every field begins with."""

    schema: Schema
    prompt: Prompt
    opening: tuple[int, ...]
    fields: tuple[TokenizedField, ...]


def tokenize_schema(schema: Schema, target: Target) -> tuple[TokenizedSchema | None, list[Diagnostic]]:
    """Turn every choice of a schema into surface forms, or say where that is not exact."""
    problems = _control_spellings(schema, target.vocabulary.control_spellings)
    try:
        prompt = render_prompt(schema, target)
        fields = []
        for line in _lines(prompt, target, schema.fields):
            tokenized, found = line.tokenize()
            problems += found
            if tokenized is not None:
                fields.append(tokenized)
    except UnstableBoundaryError as error:
        problems.append(finding("PCDC301", None, f"model {target.model}", f"merges the prompt with {error}"))
    if problems:
        return None, problems
    paths = [form.path for f in fields for forms in f.forms for form in forms]
    opening = shared_beginning([*paths, *(f.forms[0][0].path[: f.anchor] for f in fields)])
    return TokenizedSchema(schema, prompt, opening, tuple(fields)), []


def _lines(prompt: Prompt, target: Target, fields: Sequence[Field]) -> Iterator[_Line]:
    """The lines of each field in order; while one field's are worked on, the next one's are encoded.

    Never more than one ahead: the encodings of all fields at once can be large.
    """
    with ThreadPoolExecutor(max_workers=1) as ahead:
        coming = ahead.submit(_Line, prompt, target, fields[0])
        for field in fields[1:]:
            ready, coming = coming.result(), ahead.submit(_Line, prompt, target, field)
            yield ready
        yield coming.result()


def _control_spellings(schema: Schema, spellings: Sequence[str]) -> list[Diagnostic]:
    named = [(f.location, f"field {quoted(f.name)}", f.name) for f in schema.fields]
    named += [
        (c.location or f.location, f"choice {quoted(c.label)} of field {quoted(f.name)}", c.label)
        for f in schema.fields
        for c in f.choices
    ]
    return [
        control_spelled(location, subject, found)
        for location, subject, text in named
        if (found := next((s for s in spellings if s in text), None)) is not None
    ]


def control_spelled(location: Location | None, subject: str, spelling: str) -> Diagnostic:
    """What is said of a name or a choice that spells a control token."""
    return finding(
        "PCDC303",
        location,
        subject,
        f"spells the control token {quoted(spelling)}",
        "no model writes a control token as text",
        "rename it; in descriptions and contexts such text is harmless",
    )


class _Inexact(Exception):
    """A line cannot be scored exactly; holds code, fact, limit and help."""


class _Line:
    """The answer lines of one field."""

    def __init__(self, prompt: Prompt, target: Target, field: Field) -> None:
        self.prompt = prompt
        self.vocabulary = target.vocabulary
        self.field = field
        self.opening = line_opening(field.name)
        self.opened = len(self._plain(""))
        self.skipped = prompt.skipped
        self.literals = [choice.literals for choice in field.choices]
        literals = dict.fromkeys(literal for own in self.literals for literal in own)
        spelled = [answer for literal in literals for answer in answers(literal)]
        self.probes, self.encoded = self._encoded(ANCHOR_PROBES), self._encoded(spelled)

    def tokenize(self) -> tuple[TokenizedField | None, list[Diagnostic]]:
        problems: list[Diagnostic] = []
        forms: list[tuple[SurfaceForm, ...]] = []
        for choice, literals in zip(self.field.choices, self.literals, strict=True):
            try:
                found = (form for literal in literals for form in self._forms(literal))
                forms.append(tuple(dict.fromkeys(found)))
            except _Inexact as error:
                subject = f"choice {quoted(choice.label)} of field {quoted(self.field.name)}"
                problems.append(
                    finding(error.args[0], choice.location or self.field.location, subject, *error.args[1:])
                )
        problems += self._same_tokens(forms) if not problems else []
        if problems:
            return None, problems
        paths = [form.path for one in forms for form in one]
        anchor = shared_beginning([*map(tuple, self.probes.values()), *paths])
        return TokenizedField(self.field, len(anchor), tuple(forms)), []

    def _encoded(self, endings: Sequence[str]) -> dict[str, list[int]]:
        lines = [self.opening + ending for ending in endings]
        return dict(zip(endings, self.prompt.encode_lines(lines), strict=True))

    def _forms(self, literal: str) -> Iterable[SurfaceForm]:
        return self._quoted(literal) if literal.startswith('"') else self._bare(literal)

    def _quoted(self, literal: str) -> Iterable[SurfaceForm]:
        *lines, body = answers(literal)
        end = len(self._plain(body))
        for line in lines:
            path, spelled, whole = self._spelled(line)
            quote = closing_quote(whole, self.opened)
            if quote != end:
                raise _Inexact(*QUOTE_LOST)
            count, start = _covering(spelled, len(whole), quote)
            yield self._form(path, count, Remainder(whole[start : quote + 1]))
        path, spelled, whole = self._spelled(body)
        if whole + b'"' == self._plain(literal):
            yield self._form(path, len(spelled), Remainder(b'"'))

    def _bare(self, literal: str) -> Iterable[SurfaceForm]:
        clean, *lines = answers(literal)
        path, spelled, whole = self._spelled(clean)
        stop = len(whole)
        yield self._form(path, len(spelled), Remainder(b"", bare=True))
        for line in lines:
            path, spelled, whole = self._spelled(line)
            count, start = _covering(spelled, len(whole), stop)
            yield self._form(path, count, Remainder(whole[start:stop], bare=True))

    def _form(self, path: Sequence[int], count: int, remainder: Remainder) -> SurfaceForm:
        """A form of the first `count` tokens of a line, of which `path` is without the skipped ones."""
        return SurfaceForm(tuple(path[: max(count - len(self.skipped), 0)]), remainder)

    def _plain(self, answer: str) -> bytes:
        return self.vocabulary.plain(self.prompt.line_text(self.opening + answer))

    def _spelled(self, answer: str) -> tuple[list[int], list[bytes], bytes]:
        """The ids of a line, the bytes of each of its tokens with the skipped ones, and those joined."""
        ids = self.encoded[answer]
        spelled = self.vocabulary.bytes_of(self.skipped + ids)
        whole = b"".join(spelled)
        if whole != self._plain(answer):
            raise _Inexact(*NOT_BACK)
        return ids, spelled, whole

    def _same_tokens(self, forms: Sequence[tuple[SurfaceForm, ...]]) -> list[Diagnostic]:
        owner: dict[SurfaceForm, Choice] = {}
        problems: dict[tuple[str, str], Diagnostic] = {}
        for choice, own in zip(self.field.choices, forms, strict=True):
            for form in own:
                first = owner.setdefault(form, choice)
                if first is not choice:
                    problems[first.label, choice.label] = finding(
                        "PCDC304",
                        choice.location or self.field.location,
                        f"choice {quoted(choice.label)} of field {quoted(self.field.name)}",
                        f"has the same tokens as choice {quoted(first.label)}",
                        "the model could not tell them apart",
                        "keep one of them, or make their spelling differ",
                    )
        return list(problems.values())


def line_opening(name: str) -> str:
    """What every answer line of a field begins with."""
    return f"{{{json.dumps(name, ensure_ascii=False)}: "


def answers(literal: str) -> list[str]:
    """How a line goes on after its opening: with and without what may follow the value."""
    if literal.startswith('"'):
        return [*(literal + after for after in QUOTED_CONTINUATIONS), literal[:-1]]
    return [literal, *(literal + after for after in BARE_CONTINUATIONS)]


def closing_quote(whole: bytes, opening: int) -> int:
    """Index of the first unescaped quote after the one at `opening`, or -1."""
    found = _TO_QUOTE.match(whole, opening + 1)
    return found.end() - 1 if found else -1


def _covering(spelled: Sequence[bytes], size: int, position: int) -> tuple[int, int]:
    """How many tokens end at or before the byte at `position`, and where the next one starts.

    `size` is the length of all tokens. The last tokens are looked at first: that is where it is.
    """
    count, start = len(spelled), size
    while start > position:
        count -= 1
        start -= len(spelled[count])
    return count, start
