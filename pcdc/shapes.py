"""Kinds of keyword values, checked against the dialect, and the settings of `x-pcdc`.

`dialect.json` says which kinds a keyword takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import ValidationError  # type: ignore[import-untyped]

from .diagnostics import quoted
from .keywords import suggestion
from .labels import check_length
from .source import Array, Node, Object, Report, Scalar, Unread, kind_of, plain

SETTINGS = "x-pcdc"


class Shapes:
    """Kinds of keyword values, by the dialect; an object is checked once however often it is referred to."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen = dict[int, frozenset[str]]()

    def of_field(self, subject: str, node: Object) -> frozenset[str]:
        """Report and name a field's keywords whose values are of the wrong kind."""
        if id(node) not in self._seen:
            self._seen[id(node)] = self._check(subject, node, "fieldShape", _outline(node, "type"))
        return self._seen[id(node)]

    def of_top(self, node: Object) -> frozenset[str]:
        """The same for the keywords of a JSON Schema definition."""
        return self._check("definition", node, "topShape", _outline(node, "required"))

    def of_catalog(self, subject: str, node: Object) -> frozenset[str]:
        """The same for what stands in an `x-catalog`."""
        return self._check(subject, node, "catalogShape", _outline(node, "where"))

    def of_example(self, subject: str, node: Object) -> frozenset[str]:
        """The same for an example."""
        return self._check(subject, node, "exampleShape", _outline(node, ""))

    def settings(self, root: Object) -> dict[str, Any]:
        """The values of `x-pcdc`; none where it is absent or has mistakes."""
        member = root.members.get(SETTINGS)
        if member is None:
            return {}
        subject = f"`{SETTINGS}`"
        if isinstance(member.value, Unread):
            return {}
        if not isinstance(member.value, Object):
            fact = f"is {kind_of(member.value)}"
            self._report.add("PCDC201", member.at, subject, fact, "must be an object")
            return {}
        value: dict[str, Any] = plain(member.value)
        if isinstance(value.get("instructions"), str):
            check_length("`instructions`", value["instructions"], member.at, self._report)
        return {} if self._check(subject, member.value, "settingsShape", value) else value

    def _check(self, subject: str, node: Object, part: str, value: object) -> frozenset[str]:
        malformed = {key for key, member in node.members.items() if isinstance(member.value, Unread)}
        for error in _validator(part).iter_errors(value):
            if error.validator == "additionalProperties":
                malformed |= self._tell_unknown(subject, node, error)
            else:
                malformed.add(self._tell(subject, node, error))
        return frozenset(malformed)

    def _tell(self, subject: str, node: Object, error: ValidationError) -> str:
        key, *inner = error.absolute_path
        wrong = node.members[str(key)].value
        for index in inner:
            assert isinstance(wrong, Array | Object)
            wrong = wrong.members[str(index)].value if isinstance(wrong, Object) else wrong.items[int(index)]
        assert not isinstance(wrong, Unread)
        rule = str(error.validator)
        fact = f"{'an item of ' if inner else ''}`{key}` is {_told(wrong, rule)}"
        limit = f"must {_LIMITS[rule](error.validator_value)}"
        self._report.add("PCDC201", wrong.at, subject, fact, limit, _HELP.get(rule, ""))
        return str(key)

    def _tell_unknown(self, subject: str, node: Object, error: ValidationError) -> frozenset[str]:
        known = frozenset(error.schema["properties"])
        for key, member in node.members.items():
            if key not in known:
                hint = suggestion(key, known) or f"the keywords are {', '.join(sorted(known))}"
                self._report.add(
                    "PCDC205", member.at, subject, f"has the unknown keyword {quoted(key)}", "", hint
                )
        return frozenset(node.members.keys() - known)


@cache
def _validator(part: str) -> Draft202012Validator:
    dialect = json.loads(files(__package__).joinpath("dialect.json").read_bytes())
    return Draft202012Validator(dialect["$defs"][part])


_KINDS = {
    "array": "an array",
    "boolean": "true or false",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "text",
}
_LIMITS: dict[str, Callable[[Any], str]] = {
    "const": lambda value: f"be {json.dumps(value)}",
    "enum": lambda values: f"be one of {', '.join(map(json.dumps, values))}",
    "exclusiveMinimum": lambda value: f"be above {value}",
    "maximum": lambda _: "be finite",
    "maxItems": lambda _: "hold exactly one schema",
    "minItems": lambda _: "hold exactly one schema",
    "pattern": lambda _: "stay inside the file, as in `#/$defs/name`",
    "type": lambda kinds: (
        f"be {' or '.join(_KINDS[k] for k in ([kinds] if isinstance(kinds, str) else kinds))}"
    ),
}
_HELP = {
    "const": 'put the field under a name: {"type": "object", "properties": {"name": {...}}}',
    "maxItems": "merge the schemas into one, or use `anyOf` for a union",
    "pattern": "copy the definition under `$defs`",
}


def _told(node: Scalar | Array | Object, rule: str) -> str:
    """A wrong value in words: its kind where the kind is wrong, else the value itself."""
    if isinstance(node, Array) and rule in ("minItems", "maxItems"):
        return f"an array of {len(node.items)}"
    if not isinstance(node, Scalar) or rule == "type":
        return kind_of(node)
    return quoted(node.value) if isinstance(node.value, str) else node.spelling or kind_of(node)


def _outline(node: Object, whole: str) -> dict[str, Any]:
    """An object as plain data one level deep; only the member called `whole` keeps what is inside it."""

    def outline(key: str, value: Node) -> Any:
        if isinstance(value, Scalar) or key == whole:
            return plain(value)
        return [None] * len(value.items) if isinstance(value, Array) else {}

    read = {key: m.value for key, m in node.members.items() if not isinstance(m.value, Unread)}
    return {key: outline(key, value) for key, value in read.items()}
