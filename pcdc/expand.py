"""One field of a definition to its choices: types, unions, references, within stated bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pcdc_runtime.artifact import Value
from pcdc_runtime.rules import MAX_CHOICES

from .catalog import Catalogs, Few, ShapeCheck
from .diagnostics import quoted
from .keywords import (
    CHOICE_KEYWORDS,
    CHOICE_SOURCES,
    FIELD_KEYWORDS,
    check_keywords,
    escape_pointer,
    suggestion,
)
from .labels import Declared, shown
from .schema import CatalogUse, Choice, label_of
from .source import NOWHERE, Array, Node, Object, Report, Scalar, Unread, kind_of

MAX_LEVELS = 64
_INDEX = re.compile("0|[1-9][0-9]{0,8}")

TYPES = frozenset(("boolean", "enum", "string", "number", "integer", "null", "object", "array"))
_SYNONYMS = {"bool": "boolean", "str": "string", "int": "integer", "float": "number", "none": "null"}
_SYNONYMS |= {"choice": "enum", "choices": "enum", "literal": "enum", "text": "string"}

SOURCES = (*CHOICE_SOURCES, "allOf", "$ref")
_VALUE = frozenset(("value",))


@dataclass(frozen=True)
class Expanded:
    """The choices below one schema node; None is a choice that was refused.

    `total` counts them also where they were too many to read. Where a branch could not be read, this is not
    the `whole`: its choices are one None and not counted. `described_at` is the place of the description.
    """

    choices: tuple[Declared | None, ...]
    total: int
    description: str = ""
    described_at: int = NOWHERE
    whole: bool = True
    uses: tuple[CatalogUse, ...] = ()
    few: Few | None = None

    @property
    def known(self) -> tuple[Declared, ...]:
        """The choices that were not refused."""
        return tuple(d for d in self.choices if d is not None)


class Expansion:
    """Reads the fields of one document; what a reference leads to is read once, however often it is used.

    Of a field with more choices than the `limit` none are read.
    """

    def __init__(
        self,
        root: Object,
        report: Report,
        malformed: ShapeCheck,
        catalogs: Catalogs,
        limit: int = MAX_CHOICES,
    ) -> None:
        self._root, self._limit = root, limit
        self._catalogs = catalogs
        self._report = report
        self._malformed = malformed
        self._referred = dict[int, Expanded | None]()

    def expand(
        self, subject: str, node: Node, pointer: str, at: int, trail: tuple[str, ...] = (), level: int = 1
    ) -> Expanded | None:
        """The choices of a schema node, or None after reporting why there are none.

        `at` is the place of the node's key, `trail` the references that led here.
        """
        if isinstance(node, Unread):
            return None
        if not isinstance(node, Object):
            limit = "a field is an object with a type or choices"
            self._report.add("PCDC201", at, subject, f"is {kind_of(node)}", limit)
            return None
        if level > MAX_LEVELS:
            fact, limit = "leads through too many references and unions", f"at most {MAX_LEVELS} levels"
            self._report.add("PCDC225", at, subject, fact, limit, "list the choices in one place")
            return None
        malformed = self._malformed(subject, node)
        kinds = None if "type" in malformed else self._kinds(subject, node, level)
        is_open = kinds is not None and self._is_open(node, kinds)
        misspelt = check_keywords(subject, node, pointer, FIELD_KEYWORDS, self._report, closed=not is_open)
        if kinds is not None and is_open:
            if not misspelt:
                self._refuse_open(subject, node, kinds, at)
            return None
        if malformed.intersection(SOURCES) or (kinds is None and node.members.keys().isdisjoint(SOURCES)):
            return None
        own = _text(node.get("description"))
        found = self._choices(subject, node, pointer, kinds or frozenset(), trail, level)
        if found is None:
            return None
        if kinds:
            self._check_fit(subject, node, kinds, found)
        if own:
            return replace(found, description=own, described_at=node.members["description"].value.at)
        return found

    def resolve(self, subject: str, reference: Scalar, trail: tuple[str, ...]) -> tuple[Node, str] | None:
        """The node that a `$ref` names and its pointer, or None after reporting why not."""
        target = str(reference.value)
        pointer = unquote(target[1:])
        if pointer in trail:
            cycle = " -> ".join(f"#{p}" for p in (*trail[trail.index(pointer) :], pointer))
            help = "break the cycle: one of them must list choices"
            self._report.add("PCDC224", reference.at, subject, f"refers to itself: {cycle}", "", help)
            return None
        node: Node | None = self._root
        for token in pointer.split("/")[1:]:
            node = _step(node, token.replace("~1", "/").replace("~0", "~"))
        if node is None or (pointer and not pointer.startswith("/")):
            fact, limit = (
                f"refers to {quoted(target)}, which is not there",
                "references are JSON pointers in this file",
            )
            self._report.add("PCDC223", reference.at, subject, fact, limit, "declare it under `$defs`")
            return None
        return node, pointer

    def _kinds(self, subject: str, node: Object, level: int) -> frozenset[str] | None:
        declared = node.get("type")
        scalars = declared.items if isinstance(declared, Array) else (declared,) if declared else ()
        words = [(str(s.value), s.at) for s in scalars if isinstance(s, Scalar)]
        unknown = [(word, at) for word, at in words if word not in TYPES]
        for word, at in unknown:
            limit, help = "fields are `boolean` or `enum`", _type_hint(word, node, level)
            self._report.add("PCDC210", at, subject, f"has the unknown type {quoted(word)}", limit, help)
        return None if unknown else frozenset(word for word, _ in words)

    def _is_open(self, node: Object, kinds: frozenset[str]) -> bool:
        """Whether the answers have no list: nested values, free text, open numbers, nothing at all."""
        if kinds & {"object", "array"}:
            return True
        has_source = any(key in node.members for key in SOURCES)
        return not has_source and (not kinds or not kinds <= {"boolean", "null"})

    def _refuse_open(self, subject: str, node: Object, kinds: frozenset[str], at: int) -> None:
        def refuse(code: str, fact: str, limit: str, help: str) -> None:
            self._report.add(code, at, subject, fact, limit, help)

        if "array" in kinds or "items" in node.members:
            help = "split it: one boolean field per item, or one field per position"
            refuse("PCDC207", "is an array", "schemas are flat", help)
        elif "object" in kinds or "properties" in node.members:
            help = "split it: one flat field per question, nested names joined into one"
            refuse("PCDC207", "is a nested object", "schemas are flat", help)
        elif "string" in kinds:
            help = "list the allowed answers in `enum`, or route it elsewhere: free text needs generation"
            refuse("PCDC208", "is free text", "a field has a list of answers", help)
        elif kinds & {"number", "integer"}:
            help = "list the numbers in `enum`, or bucket the range into named choices"
            refuse("PCDC208", "is an open number", "a field has a list of answers", help)
        else:
            help = 'add `"choices": [...]`, or `"type": "boolean"`'
            refuse("PCDC211", "declares no choices", "a field has a list of answers", help)

    def _choices(
        self,
        subject: str,
        node: Object,
        pointer: str,
        kinds: frozenset[str],
        trail: tuple[str, ...],
        level: int,
    ) -> Expanded | None:
        sources = [key for key in SOURCES if key in node.members]
        if len(sources) > 1:
            names = " and ".join(f"`{key}`" for key in sources)
            at = node.members[sources[1]].at
            help = "keep one of them; only annotations stand beside it"
            self._report.add(
                "PCDC211", at, subject, f"has both {names}", "choices are declared in one way", help
            )
            return None
        if not sources:
            values: list[Value] = [
                *([True, False] if "boolean" in kinds else []),
                *([None] if "null" in kinds else []),
            ]
            note = "" if "boolean" in kinds else _note(node)
            return _expanded([Declared(self._choice(value, node.at, note), node.at) for value in values])
        key = sources[0]
        value, at = node.members[key].value, node.members[key].at
        below = f"{pointer}/{escape_pointer(key)}"
        if key == "$ref":
            assert isinstance(value, Scalar)
            found = self.resolve(subject, value, trail)
            if found is None:
                return None
            target, place = found
            if id(target) not in self._referred:
                referred = self.expand(subject, target, place, value.at, (*trail, place), level + 1)
                self._referred[id(target)] = referred
            return self._referred[id(target)]
        if key == "x-catalog":
            return self._catalog(subject, node, value, kinds)
        if key == "const":
            return _expanded([self._literal(subject, value, "`const`", at, _note(node))])
        assert isinstance(value, Array)
        if len(value.items) > self._limit:
            return Expanded((), len(value.items))
        if key in ("choices", "enum"):
            literals = [
                self._described(subject, item, f"{below}/{i - 1}", f"item {i} of `{key}`")
                if key == "choices"
                else self._literal(subject, item, f"item {i} of `{key}`", item.at)
                for i, item in enumerate(value.items, 1)
            ]
            return _expanded(literals)
        branches = [
            self.expand(subject, item, f"{below}/{i}", item.at, trail, level + 1)
            for i, item in enumerate(value.items)
        ]
        return _union(branches, self._limit)

    def _catalog(self, subject: str, node: Object, value: Node, kinds: frozenset[str]) -> Expanded | None:
        if kinds and kinds.isdisjoint(("string", "enum")):
            fact, limit = f"has the type {' or '.join(sorted(kinds))}", "the values of a catalog are text"
            at = node.members["type"].value.at
            self._report.add("PCDC215", at, subject, fact, limit, 'write `"type": "string"`')
            return None
        assert isinstance(value, Object)
        rows = self._catalogs.read(subject, value)
        return Expanded(rows.choices, rows.total, whole=rows.whole, uses=rows.uses, few=rows.few)

    def _described(self, subject: str, node: Node, pointer: str, place: str) -> Declared | None:
        if not isinstance(node, Object) or not any(suggestion(key, _VALUE) for key in node.members):
            return self._literal(subject, node, place, node.at)
        check_keywords(f"{place} of {subject}", node, pointer, CHOICE_KEYWORDS, self._report)
        self._malformed(f"{place} of {subject}", node)
        value = node.get("value")
        return None if value is None else self._literal(subject, value, place, value.at, _note(node))

    def _literal(self, subject: str, node: Node, place: str, at: int, note: str = "") -> Declared | None:
        if isinstance(node, Scalar):
            return Declared(self._choice(node.value, node.at, note), node.at, node.spelling)
        if isinstance(node, Unread):
            return None
        limit = "a choice is text, a number, a boolean or null"
        help = (
            'describe a choice with {"value": ..., "description": ...} in `choices`, or `oneOf` with `const`'
        )
        self._report.add("PCDC214", at, f"{place} of {subject}", f"is {kind_of(node)}", limit, help)
        return None

    def _choice(self, value: Value, at: int, note: str) -> Choice:
        return Choice(value, label_of(value), note, self._report.source.locate(at))

    def _check_fit(self, subject: str, node: Object, kinds: frozenset[str], found: Expanded) -> None:
        if "enum" in kinds or found.total > self._limit:
            return
        # The short spelling has no other way to say that an answer may be missing.
        fitting = kinds | {"null"} if "choices" in node.members else kinds
        for declared in found.known:
            if not fitting.isdisjoint(_kinds_of(declared.choice.value)):
                continue
            fact, limit = (
                f"has the choice {shown(declared.choice)}",
                f"its type is {' or '.join(sorted(kinds))}",
            )
            help = "change the type or the choice"
            if kinds == {"boolean"}:
                help = "write `true` and `false` without quotes"
            self._report.of(declared.origin).add("PCDC215", declared.at, subject, fact, limit, help)
        has_null = any(d.choice.value is None for d in found.known)
        if "null" not in kinds or has_null or None in found.choices or not found.whole:
            return
        fact, help = (
            "has a type with null but no choice null",
            "add null to the choices, or take it out of the type",
        )
        if "x-catalog" in node.members:
            help = 'write `"anyOf": [{"x-catalog": ...}, {"type": "null"}]`, or take null out of the type'
        self._report.add("PCDC215", node.members["type"].value.at, subject, fact, "", help)


def _kinds_of(value: Value) -> frozenset[str]:
    if value is None:
        return frozenset(("null",))
    if isinstance(value, bool):
        return frozenset(("boolean",))
    if isinstance(value, str):
        return frozenset(("string",))
    return frozenset(("number", "integer") if isinstance(value, int) or value.is_integer() else ("number",))


def _text(node: Node | None) -> str:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _note(node: Object) -> str:
    return _text(node.get("description")) or _text(node.get("title"))


def _type_hint(word: str, node: Object, level: int) -> str:
    """What an unknown type should be: a type that is accepted where it stands."""
    sources = node.members.keys() & SOURCES
    usable = frozenset(("boolean", "enum"))
    if sources or level > 1:
        usable |= {"null"}
    if sources - {"choices"}:
        usable |= {"string", "number", "integer"}
    known = _SYNONYMS.get(word.lower())
    if known in usable:
        return f"did you mean `{known}`?"
    use = "use `enum` and list the answers in `choices`, or `boolean` for true and false"
    return suggestion(word, usable) or use


def _expanded(choices: Sequence[Declared | None]) -> Expanded:
    return Expanded(tuple(choices), len(choices))


def _union(branches: Sequence[Expanded | None], limit: int) -> Expanded:
    """Branches in order; the description is that of the one branch which is more than a single answer."""
    read = [branch or Expanded((None,), 0, whole=False) for branch in branches]
    total = sum(branch.total for branch in read)
    size = sum(max(branch.total, len(branch.choices)) for branch in read)
    choices = tuple(d for branch in read for d in branch.choices) if size <= limit else ()
    groups = [(branch.description, branch.described_at) for branch in read if branch.total > 1]
    description, described_at = groups[0] if len(groups) == 1 else ("", NOWHERE)
    whole = all(branch.whole for branch in read)
    uses = tuple(use for branch in read for use in branch.uses)
    few = next((branch.few for branch in read if branch.few), None)
    return Expanded(choices, total, description, described_at, whole, uses, few)


def _step(node: Node | None, token: str) -> Node | None:
    if isinstance(node, Object):
        return node.get(token)
    if isinstance(node, Array) and _INDEX.fullmatch(token) and int(token) < len(node.items):
        return node.items[int(token)]
    return None
