"""What the text of choices and field names may hold, and which choices are too alike to be told apart."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcdc_runtime.visible import BLANKS, MAX_NAME_CHARS, hidden
from pcdc_runtime.visible import MAX_CHOICE_CHARS as MAX_CHOICE_CHARS
from pcdc_runtime.wire import identity

from .diagnostics import code_points, quoted
from .schema import NULL_LABEL, Choice
from .source import NOWHERE, Report, SchemaSource

MAX_TEXT_CHARS = 20_000

_LETTERS = str.maketrans(
    "аеорсухіјѕһԁԛԝѵӏАВЕКМНОРСТХУІЈЅӀΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορυιɑɡı",
    "aeopcyxijshdqwvlABEKMHOPCTXYIJSIABEZHIKMNOPTYXavopuiagi",
)


@dataclass(frozen=True)
class Declared:
    """One choice; `at` is its place in the definition or the catalog `origin`, `spelling` a number's text."""

    choice: Choice
    at: int = NOWHERE
    spelling: str = ""
    origin: SchemaSource | None = None


def check_name(name: str, at: int, report: Report) -> None:
    """Report what keeps a key from being a field name."""
    subject = f"field {quoted(name)}"
    if not name.strip():
        report.add("PCDC204", at, subject, "has no visible name", help="name the field after its question")
    elif len(name) > MAX_NAME_CHARS:
        limit = f"at most {MAX_NAME_CHARS} characters"
        help = "put the question into the field's description"
        report.add("PCDC204", at, subject, f"has a name of {len(name)} characters", limit, help)
    unseen = hidden(name)
    if unseen:
        limit = "names hold visible characters only"
        report.add("PCDC204", at, subject, f"has {code_points(unseen)} in its name", limit, "remove it")


def check_names(names: Mapping[str, int], report: Report) -> None:
    """Report field names, given with their places, that are canonically equal."""
    by_canon = dict[str, str]()
    for name, at in names.items():
        first = by_canon.setdefault(unicodedata.normalize("NFC", name), name)
        if first != name:
            fact = f"({_differing(first, name)}) is canonically equal to field {quoted(first)}"
            limit, help = "some tokenizers make the two one", "keep one of the two Unicode forms"
            report.add("PCDC204", at, f"field {quoted(name)}", fact, limit, help)


def check_length(subject: str, text: str, at: int, report: Report) -> None:
    """Report a description or instructions that no prompt should carry."""
    if len(text) > MAX_TEXT_CHARS:
        limit = f"at most {MAX_TEXT_CHARS} characters"
        help = "say it shortly; what is to be judged belongs into the context"
        report.add("PCDC233", at, subject, f"has {len(text)} characters", limit, help)


def check_choices(field: str, choices: Sequence[Declared | None], report: Report) -> None:
    """Report choices whose text cannot be scored, equal choices, and choices hard to tell apart.

    None stands for a choice that was refused before and only counts as a position.
    """
    owner = f"field {quoted(field)}"
    known = {position: declared for position, declared in enumerate(choices, 1) if declared is not None}
    for position, declared in known.items():
        _check_text(f"choice {position} of {owner}", declared, report)
        told, note = report.of(declared.origin), declared.choice.description
        check_length(f"description of choice {position} of {owner}", note, declared.at, told)
    _check_equal(owner, known, report)


def _check_text(subject: str, declared: Declared, report: Report) -> None:
    label, at, report = declared.choice.label, declared.at, report.of(declared.origin)
    if not label.strip():
        fact = "is empty" if not label else "holds only blanks"
        help = f'say what it means with an explicit label such as "{NULL_LABEL}" or "none of the above"'
        help += ", or remove the row" if declared.origin else ""
        report.add("PCDC216", at, subject, fact, "a choice is text that a model can write", help)
    if len(label) > MAX_CHOICE_CHARS:
        limit = f"at most {MAX_CHOICE_CHARS} characters"
        help = "use a short label and put the rest into the choice's description"
        report.add("PCDC217", at, subject, f"has {len(label)} characters", limit, help)
    unseen = hidden(label, BLANKS)
    if unseen:
        limit = "choices hold visible characters only"
        report.add(
            "PCDC218", at, subject, f"has {code_points(unseen)}", limit, "remove it; nobody could see it"
        )
    value, spelling = declared.choice.value, declared.spelling
    if isinstance(value, int | float) and not isinstance(value, bool) and spelling != label:
        help = f'write it as text: "{spelling}"'
        limit = "a number keeps its value, not its spelling"
        report.add("PCDC222", at, subject, f"is the number {spelling}, which reads as {label}", limit, help)


def _check_equal(owner: str, choices: Mapping[int, Declared], report: Report) -> None:
    by_value = dict[object, int]()
    by_label = dict[str, int]()
    by_canon = dict[str, int]()
    by_look = dict[tuple[str, str], int]()
    for position, declared in choices.items():
        choice, at, told = declared.choice, declared.at, report.of(declared.origin)
        subject = f"choice {position} of {owner}"
        if declared.origin and not choice.label.strip():
            continue
        first = by_value.setdefault(identity(choice.value), position)
        if first != position:
            fact = f"{shown(choice)} is choice {first} again"
            help = "remove one; a repeated choice would take a share of the probability"
            told.add("PCDC219", at, subject, fact, "choices are distinct", help)
            continue
        first = by_label.setdefault(choice.label, position)
        if first != position:
            fact = f"{shown(choice)} has the label {quoted(choice.label)}, as choice {first}, "
            fact += f"{shown(choices[first].choice)}, has"
            help = "keep one of them, or give them different texts"
            told.add("PCDC220", at, subject, fact, "a model sees labels only", help)
            continue
        canon = unicodedata.normalize("NFC", choice.label)
        first = by_canon.setdefault(canon, position)
        if first != position:
            fact = f"{shown(choice)} ({_differing(choices[first].choice.label, choice.label)}) "
            fact += f"is canonically equal to choice {first}"
            help = "keep one of the two Unicode forms"
            told.add("PCDC221", at, subject, fact, "some tokenizers make the two one", help)
            continue
        looks = [by_look.setdefault(key, position) for key in _looks(choice.label)]
        first = min(looks)
        if first != position:
            how = _difference(choices[first].choice.label, choice.label)
            fact = f"{shown(choice)} differs from choice {first} {how}"
            told.add("PCDC252", at, subject, fact, help="give choices texts that a reader cannot confuse")


def shown(choice: Choice) -> str:
    """A choice's value as it may stand in a message."""
    if isinstance(choice.value, str):
        return quoted(choice.value)
    return "null" if choice.value is None else choice.label


def _folded(label: str) -> str:
    return " ".join(unicodedata.normalize("NFC", label).casefold().split())


def _looks(label: str) -> tuple[tuple[str, str], ...]:
    """Keys that are equal for texts a reader may take for each other."""
    folded = _folded(label)
    if label.isascii():
        return ("fold", folded), ("look", folded)
    plain = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    return ("fold", folded), ("look", " ".join(plain.translate(_LETTERS).casefold().split()))


def _difference(a: str, b: str) -> str:
    if a.casefold() == b.casefold():
        return "only in case"
    blanks = " ".join(a.split()) == " ".join(b.split())
    kind = "only in blanks" if blanks else "only in characters that look or read alike"
    return f"{kind} ({_differing(a, b)})"


def _differing(a: str, b: str) -> str:
    """The characters that only one of two texts has; where there are none, the blanks."""
    only = sorted(set(a) ^ set(b)) or sorted({c for c in a + b if c.isspace()})
    return code_points(only)
