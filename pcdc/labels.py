"""What the text of choices and field names may hold, and which choices are too alike to be told apart."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcdc_runtime.artifact import Value

from .diagnostics import code_points, quoted
from .schema import NULL_LABEL, Choice
from .source import NOWHERE, Report, SchemaSource

MAX_CHOICE_CHARS = 2000
MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 20_000

# Format characters (Cf) that do show: Arabic and related number signs.
_VISIBLE_FORMAT = frozenset(
    map(chr, [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD])
)
# Invisible without being format characters: grapheme joiner, Hangul and Khmer fillers, empty Braille cell.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN = frozenset(("Co", "Zl", "Zp"))
_JOINERS = frozenset("\u200c\u200d")
_JOINED = frozenset(("Lo", "Mn", "Mc", "Me", "So", "Sk"))

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
    hidden = _hidden(name, allowed="")
    if hidden:
        limit = "names hold visible characters only"
        report.add("PCDC204", at, subject, f"has {code_points(hidden)} in its name", limit, "remove it")


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
    hidden = _hidden(label, allowed="\t\n\r")
    if hidden:
        limit = "choices hold visible characters only"
        report.add(
            "PCDC218", at, subject, f"has {code_points(hidden)}", limit, "remove it; nobody could see it"
        )
    value, spelling = declared.choice.value, declared.spelling
    if isinstance(value, int | float) and not isinstance(value, bool) and spelling != label:
        help = f'write it as text: "{spelling}"'
        limit = "a number keeps its value, not its spelling"
        report.add("PCDC222", at, subject, f"is the number {spelling}, which reads as {label}", limit, help)


def _hidden(text: str, allowed: str) -> list[str]:
    """Characters that show nothing or nothing agreed upon, each once; joiners in scripts that need them pass.

    Control, format, private-use and blank-letter characters, line separators, noncharacters.
    """
    if text.isascii() and text.isprintable():
        return []
    found = dict[str, None]()
    for i, char in enumerate(text):
        category = unicodedata.category(char)
        if char in _JOINERS and 0 < i < len(text) - 1:
            neighbours = unicodedata.category(text[i - 1]), unicodedata.category(text[i + 1])
            if _JOINED.issuperset(neighbours):
                continue
        hides = category in _UNSEEN or (category == "Cf" and char not in _VISIBLE_FORMAT)
        hides = hides or ord(char) & 0xFFFE == 0xFFFE or "\ufdd0" <= char <= "\ufdef"
        if hides or char in _BLANK_LETTERS or (category == "Cc" and char not in allowed):
            found[char] = None
    return list(found)


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


def identity(value: Value) -> object:
    """Equal for JSON values that are equal: 1 and 1.0 are, 1 and true are not."""
    kind = type(value)
    return ("number" if kind in (int, float) else kind.__name__, value)


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
