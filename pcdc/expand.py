"""One field of a definition to its choices: types, unions, references, within stated bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from pcdc_runtime.artifact import Value
from pcdc_runtime.rules import MAX_CHOICES

from .diagnostics import quoted
from .keywords import (
    CHOICE_KEYWORDS,
    CHOICE_SOURCES,
    FIELD_KEYWORDS,
    NESTING,
    check_keywords,
    escape_pointer,
    suggestion,
)
from .labels import Declared
from .schema import Choice, label_of
from .source import Array, Node, Object, Report, Scalar

MAX_LEVELS = 64
MAX_REFERENCES = 10_000

TYPES = frozenset(("boolean", "enum", "string", "number", "integer", "null", "object", "array"))
_SYNONYMS = {"bool": "boolean", "str": "string", "int": "integer", "float": "number", "none": "null"}
_SYNONYMS |= {"list": "array", "dict": "object", "choice": "enum", "literal": "enum", "text": "string"}
FLAT = "split it: one flat field per question, nested names joined into one"
ELSEWHERE = "list the allowed answers in `enum`, or route this field elsewhere: free text needs generation"
BUCKETS = "list the numbers in `enum`, or bucket the range into named choices"

ShapeCheck = Callable[[str, Object], bool]


@dataclass(frozen=True)
class Expanded:
    """The choices below one schema node. `total` counts them also where they were too many to read."""

    choices: tuple[Declared, ...]
    total: int
    description: str = ""


class Expansion:
    """Reads the fields of one document; the number of references it may still follow goes down."""

    def __init__(self, root: Object, report: Report, has_shape: ShapeCheck) -> None:
        self._root = root
        self._report = report
        self._has_shape = has_shape
        self._references = MAX_REFERENCES

    def expand(
        self, subject: str, node: Node, pointer: str, at: int, trail: tuple[str, ...] = (), level: int = 1
    ) -> Expanded | None:
        """The choices of a schema node, or None after reporting why there are none.

        `at` is the place of the node's key, `trail` the references that led here.
        """
        if not isinstance(node, Object):
            limit = "a field is an object with a type or choices"
            self._report.add("PCDC201", at, subject, f"is {kind_of(node)}", limit)
            return None
        if level > MAX_LEVELS:
            fact, limit = "leads through too many references and unions", f"at most {MAX_LEVELS} levels"
            self._report.add("PCDC225", at, subject, fact, limit, "list the choices in one place")
            return None
        if "x-catalog" in node.members:
            self.refuse_catalog(subject, node.members["x-catalog"].at)
            return None
        if not self._has_shape(subject, node):
            return None
        kinds = self._kinds(subject, node)
        if kinds is None or self._is_open(subject, node, kinds, at):
            return None
        check_keywords(subject, node, pointer, FIELD_KEYWORDS, self._report)
        own = _text(node.get("description"))
        found = self._choices(subject, node, pointer, kinds, trail, level)
        if found is None or not self._fits(subject, node, kinds, found):
            return None
        return Expanded(found.choices, found.total, own or found.description)

    def refuse_catalog(self, subject: str, at: int) -> None:
        """Report `x-catalog`."""
        limit, help = "catalogs are not supported in this version", "list the choices in the definition"
        self._report.add("PCDC226", at, subject, "uses `x-catalog`", limit, help)

    def resolve(self, subject: str, reference: Scalar, trail: tuple[str, ...]) -> tuple[Node, str] | None:
        """The node that a `$ref` names and its pointer, or None after reporting why not."""
        target = str(reference.value)
        pointer = unquote(target[1:])
        if pointer in trail:
            cycle = " -> ".join(f"#{p}" for p in (*trail[trail.index(pointer) :], pointer))
            help = "break the cycle: one of them must list choices"
            self._report.add("PCDC224", reference.at, subject, f"refers to itself: {cycle}", "", help)
            return None
        self._references -= 1
        if self._references < 0:
            if self._references == -1:
                limit = f"at most {MAX_REFERENCES} in one definition"
                self._report.add("PCDC225", reference.at, subject, "follows too many references", limit)
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

    def _kinds(self, subject: str, node: Object) -> frozenset[str] | None:
        declared = node.get("type")
        scalars = declared.items if isinstance(declared, Array) else (declared,) if declared else ()
        words = [(str(s.value), s.at) for s in scalars if isinstance(s, Scalar)]
        unknown = [(word, at) for word, at in words if word not in TYPES]
        for word, at in unknown:
            known = _SYNONYMS.get(word.lower())
            hint = f"did you mean `{known}`?" if known else suggestion(word, TYPES)
            limit = "fields are `boolean` or `enum`"
            self._report.add("PCDC210", at, subject, f"has the unknown type {quoted(word)}", limit, hint)
        return None if unknown else frozenset(word for word, _ in words)

    def _is_open(self, subject: str, node: Object, kinds: frozenset[str], at: int) -> bool:
        """Whether the answers have no list: nested values, free text, open numbers."""
        has_source = any(key in node.members for key in (*CHOICE_SOURCES, "allOf", "$ref"))
        nests = not has_source and not kinds and any(key in node.members for key in NESTING)
        if nests or kinds & {"object", "array"}:
            kind = "an array" if "array" in kinds or "items" in node.members else "a nested object"
            if "array" in kinds:
                help = "split it: one boolean field per item, or one field per position"
            else:
                help = FLAT
            self._report.add("PCDC207", at, subject, f"is {kind}", "schemas are flat", help)
            return True
        if has_source:
            return False
        if kinds & {"string", "number", "integer"}:
            is_text = "string" in kinds
            fact = "is free text" if is_text else "is an open number"
            limit = "a field has a list of answers"
            self._report.add("PCDC208", at, subject, fact, limit, ELSEWHERE if is_text else BUCKETS)
            return True
        if not kinds & {"boolean", "null"}:
            help = 'add `"choices": [...]`, or `"type": "boolean"`'
            self._report.add(
                "PCDC211", at, subject, "declares no choices", "a field has a list of answers", help
            )
            return True
        return False

    def _choices(
        self,
        subject: str,
        node: Object,
        pointer: str,
        kinds: frozenset[str],
        trail: tuple[str, ...],
        level: int,
    ) -> Expanded | None:
        sources = [key for key in (*CHOICE_SOURCES, "allOf", "$ref") if key in node.members]
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
            return self.expand(subject, found[0], found[1], value.at, (*trail, found[1]), level + 1)
        if key == "const":
            literal = self._literal(subject, value, "`const`", at, _note(node))
            return None if literal is None else _expanded([literal])
        assert isinstance(value, Array)
        if len(value.items) > MAX_CHOICES:
            return Expanded((), len(value.items))
        if key in ("choices", "enum"):
            literals = [
                self._described(subject, item, f"{below}/{i - 1}", f"item {i} of `{key}`")
                if key == "choices"
                else self._literal(subject, item, f"item {i} of `{key}`", item.at)
                for i, item in enumerate(value.items, 1)
            ]
            known = [literal for literal in literals if literal is not None]
            return _expanded(known) if len(known) == len(literals) else None
        branches = [
            self.expand(subject, item, f"{below}/{i}", item.at, trail, level + 1)
            for i, item in enumerate(value.items)
        ]
        return _union(branches)

    def _described(self, subject: str, node: Node, pointer: str, place: str) -> Declared | None:
        if not isinstance(node, Object) or "value" not in node.members:
            return self._literal(subject, node, place, node.at)
        check_keywords(f"{place} of {subject}", node, pointer, CHOICE_KEYWORDS, self._report)
        if not self._has_shape(f"{place} of {subject}", node):
            return None
        value = node.members["value"].value
        return self._literal(subject, value, place, value.at, _text(node.get("description")))

    def _literal(self, subject: str, node: Node, place: str, at: int, note: str = "") -> Declared | None:
        if isinstance(node, Scalar):
            return Declared(self._choice(node.value, node.at, note), node.at, node.spelling)
        limit = "a choice is text, a number, a boolean or null"
        help = (
            'describe a choice with {"value": ..., "description": ...} in `choices`, or `oneOf` with `const`'
        )
        self._report.add("PCDC214", at, f"{place} of {subject}", f"is {kind_of(node)}", limit, help)
        return None

    def _choice(self, value: Value, at: int, note: str) -> Choice:
        return Choice(value, label_of(value), note, self._report.source.locate(at))

    def _fits(self, subject: str, node: Object, kinds: frozenset[str], found: Expanded) -> bool:
        if not kinds or "enum" in kinds or found.total > MAX_CHOICES:
            return True
        at = node.members["type"].value.at
        named = " or ".join(sorted(kinds))
        wrong = [d for d in found.choices if not kinds & _kinds_of(d.choice.value)]
        for declared in wrong:
            value = declared.choice.value
            shown = (
                quoted(value)
                if isinstance(value, str)
                else "null"
                if value is None
                else declared.choice.label
            )
            help = (
                "write `true` and `false` without quotes"
                if kinds == {"boolean"}
                else "change the type or the choice"
            )
            self._report.add(
                "PCDC215", declared.at, subject, f"has the choice {shown}", f"its type is {named}", help
            )
        if "null" in kinds and not any(d.choice.value is None for d in found.choices):
            help = "add null to the choices, or take it out of the type"
            self._report.add("PCDC215", at, subject, "has a type with null but no choice null", "", help)
            return False
        return not wrong


def kind_of(node: Node) -> str:
    """A node's kind in words."""
    if isinstance(node, Object):
        return "an object"
    if isinstance(node, Array):
        return "an array"
    if isinstance(node.value, str):
        return "text"
    if node.value is None:
        return "null"
    return "a boolean" if isinstance(node.value, bool) else "a number"


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


def _expanded(choices: list[Declared]) -> Expanded:
    return Expanded(tuple(choices), len(choices))


def _union(branches: list[Expanded | None]) -> Expanded | None:
    """Branches in order; the description is that of the one branch which is more than a single answer."""
    known = [branch for branch in branches if branch is not None]
    if len(known) < len(branches):
        return None
    total = sum(branch.total for branch in known)
    choices = tuple(d for branch in known for d in branch.choices) if total <= MAX_CHOICES else ()
    groups = [branch.description for branch in known if branch.total > 1]
    return Expanded(choices, total, groups[0] if len(groups) == 1 else "")


def _step(node: Node | None, token: str) -> Node | None:
    if isinstance(node, Object):
        return node.get(token)
    if isinstance(node, Array) and token.isascii() and token.isdigit() and int(token) < len(node.items):
        return node.items[int(token)]
    return None
