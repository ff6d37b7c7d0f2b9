"""Rules about the choices as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pcdc.diagnostics import Diagnostic, Location, finding, quoted
from pcdc.schema import Choice, Field, Schema

SHOWN = 3


def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ABSENT = _vocabulary(
    "absent else missing na neither neutral nil no none nobody not nothing other others unclear "
    "unclassified undecided undefined undetermined unknown unsure unspecified unstated misc miscellaneous "
    "rest general andere anderes keine keiner nichts sonstige sonstiges unbekannt unklar aucun aucune "
    "autre autres inconnu rien ninguna ninguno nada otra otro otros desconocido nessuno nessuna altro "
    "altri sconosciuto nenhum nenhuma outro outros desconhecido geen overig onbekend ingen annet andet "
    "annat okänd brak inne inny inna nieznany другое прочее неизвестно нет ничего"
)
_ABSENT_PARTS = (
    "其他",
    "其它",
    "未知",
    "无",
    "無",
    "以上",
    "その他",
    "なし",
    "不明",
    "없음",
    "기타",
    "알 수 없음",
)
_ABSENT_NOTE = re.compile(
    r"\b(none of|anything else|everything else|not stated|not applicable)\b", re.IGNORECASE
)
# A scale has an answer for everything that it measures.
_SCALE = _vocabulary(
    "acute always average bad best big blocker critical excellent extreme fair fatal fifth first fourth good "
    "great high higher highest huge info informational large least low lower lowest major max maximum medium "
    "mid middle min minimal minimum minor mild moderate most negative negligible neutral never normal often "
    "poor positive rarely second serious severe severity slight small sometimes strong third tiny trivial "
    "urgent usually very weak worst yes true false warning error"
)
_WORD = re.compile(r"[^\W\d_]+")
_PART = re.compile(r"[^\W_]+")
_CODE_LETTERS = 4
_MEANING_LETTERS = 3


def answers_absence(field: Field) -> bool:
    """Whether some choice is for a text that does not say, or to which no other choice applies."""
    return any(_is_absence(choice) for choice in field.choices)


def _is_absence(choice: Choice) -> bool:
    if choice.value is None or _ABSENT_NOTE.search(choice.description):
        return True
    return bool(_ABSENT & set(_words(choice))) or any(part in choice.label for part in _ABSENT_PARTS)


def _words(choice: Choice) -> list[str]:
    return [word.casefold() for word in _WORD.findall(choice.label)]


def no_absence(schema: Schema) -> Iterator[Diagnostic]:
    """An enum without a choice for a text that does not say."""
    for field in schema.fields:
        if field.type == "enum" and not answers_absence(field) and not _is_scale(field):
            yield finding(
                "PCDC511",
                field.location,
                f"field {quoted(field.name)}",
                "has no choice for a text that does not say",
                "one of the choices is always answered",
                'add "none of the above" or "not stated", or ignore this rule with the reason why one fits',
            )


def _is_scale(field: Field) -> bool:
    """Whether the choices are numbers or degrees, codes such as `P1` aside."""
    if all(isinstance(c.value, int | float) for c in field.choices):
        return True
    words = [[w for w in _words(choice) if len(w) > 1] for choice in field.choices]
    return all(words) and all(_SCALE.issuperset(of_choice) for of_choice in words)


def code_first(schema: Schema) -> Iterator[Diagnostic]:
    """Labels that begin with a code and say what it means after it."""
    for field in schema.fields:
        meanings = {c.label: m for c in field.choices if (m := _meaning_after_code(c.label))}
        # Quantities, such as "7 days" beside "30 days", repeat what is counted.
        if len(meanings) < 2 or len({m.casefold().rstrip("s") for m in meanings.values()}) < len(meanings):
            continue
        yield finding(
            "PCDC513",
            place_of(field, next(iter(meanings))),
            f"field {quoted(field.name)}",
            f"has choices with a code before their meaning: {listed(list(meanings))}",
            "the model has to write the code before it has said what it means",
            f"put the meaning first, such as {quoted(next(iter(meanings.values())))}, "
            "and map it to the code outside, or say the meaning in the choice's description",
        )


def place_of(field: Field, label: str) -> Location | None:
    """Where a choice stands in the field's own file, or else where the field does."""
    place = next((c.location for c in field.choices if c.label == label), None)
    return place if place and field.location and place.path == field.location.path else field.location


def _meaning_after_code(label: str) -> str:
    """What follows a leading code such as `CAT_185_`, `P0_` or `0101.21 `; nothing where there is none."""
    for index, found in enumerate(parts := list(_PART.finditer(label))):
        part = found[0]
        is_code = len(part) <= _CODE_LETTERS and part.isupper() and _code_follows(parts, index)
        if part.isalpha() and not is_code:
            after_digits = any(c.isdigit() for before in parts[:index] for c in before[0])
            return label[found.start() :] if after_digits and len(part) >= _MEANING_LETTERS else ""
    return ""


def _code_follows(parts: list[re.Match[str]], index: int) -> bool:
    return index + 1 < len(parts) and any(c.isdigit() for c in parts[index + 1][0])


def listed(labels: list[str]) -> str:
    """Some labels, and how many more there are."""
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(quoted(label) for label in labels[:SHOWN]) + more
