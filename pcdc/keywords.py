"""Which keywords a definition may use, and what to say about the others."""

from __future__ import annotations

from difflib import get_close_matches

from .source import Array, Node, Object, Report, Scalar


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHOICE_SOURCES = ("choices", "enum", "const", "oneOf", "anyOf", "x-catalog")
FIELD_KEYWORDS = frozenset((*CHOICE_SOURCES, "type", "description", "allOf", "$ref"))
TOP_KEYWORDS = frozenset(
    ("type", "properties", "required", "additionalProperties", "$defs", "definitions", "$ref", "x-pcdc")
)
COMBINING = frozenset(("allOf", "anyOf", "oneOf"))
CHOICE_KEYWORDS = frozenset(("value", "description"))
NESTING = _words(
    "properties patternProperties propertyNames minProperties maxProperties items "
    "prefixItems additionalItems contains minContains maxContains minItems maxItems "
    "uniqueItems unevaluatedItems unevaluatedProperties additionalProperties required"
)
_ANNOTATIONS = _words(
    "title description default examples example deprecated readOnly writeOnly "
    "$comment $id $schema $anchor $defs definitions"
)
_DEPENDENT = _words("if then else dependentRequired dependentSchemas dependencies")
_CONSTRAINTS = NESTING | _words(
    "type enum const oneOf anyOf allOf $ref not pattern format minLength "
    "maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "divisibleBy disallow extends nullable discriminator contentEncoding "
    "contentMediaType contentSchema $dynamicRef $dynamicAnchor $recursiveRef "
    "$recursiveAnchor $vocabulary"
)
_ADVICE = {
    "nullable": 'write `"anyOf": [..., {"type": "null"}]`; null becomes the choice "not stated"',
    "required": "every field is always answered; leave `required` out of a field",
    "not": "list the choices that remain",
}
_SHORTEST = 3
TWO_CALLS = "use two calls: answer the first field, then put its value into the context of the second"


def looks_like_field(node: Node | None) -> bool:
    """Whether an object reads as one field, not as a map of fields."""
    if not isinstance(node, Object):
        return False
    if isinstance(node.get("type"), Scalar | Array):
        return True
    if any(isinstance(node.get(key), Scalar) for key in ("const", "$ref")):
        return True
    if isinstance(node.get("x-catalog"), Object):
        return True
    return any(isinstance(node.get(key), Array) for key in ("choices", "enum", "oneOf", "anyOf", "allOf"))


def suggestion(word: str, known: frozenset[str]) -> str:
    """`did you mean ...`, or nothing where no known word is near or begins with this one."""
    best = nearest(word, known)
    return "" if best is None else f"did you mean `{best}`?"


def nearest(word: str, known: frozenset[str], cutoff: float = 0.8) -> str | None:
    """The known word that this one may stand for, if any; `cutoff` is how alike, from 0 to 1."""
    low = word.lower()
    by_low = {k.lower(): k for k in sorted(known, reverse=True)}
    close = [by_low[k] for k in get_close_matches(low, sorted(by_low), n=1, cutoff=cutoff)]
    begun = [by_low[k] for k in sorted(by_low) if len(low) >= _SHORTEST and k.startswith(low)]
    return next(iter([*close, *begun]), None)


def check_keywords(
    subject: str, node: Object, pointer: str, allowed: frozenset[str], report: Report, closed: bool = True
) -> bool:
    """Report every keyword outside `allowed`: misspelt, meaning-changing, or unknown and ignored.

    Gives whether one was misspelt. Where a field is refused as open anyway (`closed` is false), what would
    have narrowed it is not told.
    """
    misspelt = False
    for key, member in node.members.items():
        if key in allowed or key in _ANNOTATIONS:
            continue
        place = f"`{key}` at {pointer}/{escape_pointer(key)}"
        near = suggestion(key, frozenset(k for k in allowed if k.startswith("x-") == key.startswith("x-")))
        if key in _DEPENDENT:
            limit = "fields are answered independently"
            report.add("PCDC209", member.at, subject, f"uses {place}", limit, TWO_CALLS)
        elif key in _CONSTRAINTS:
            if closed:
                limit = "it would change which answers are allowed"
                help = _ADVICE.get(key, f"leave `{key}` out and list exactly the choices that are allowed")
                report.add("PCDC206", member.at, subject, f"uses {place}", limit, help)
        elif near:
            misspelt = True
            report.add("PCDC205", member.at, subject, f"has the unknown keyword {place}", "", near)
        elif not key.startswith("x-"):
            report.add("PCDC253", member.at, subject, f"has the unknown keyword {place}", "it is ignored")
    return misspelt


def misplaced_index(root: Object, report: Report) -> bool:
    """Report an `index` that stands beside `x-pcdc` and not in it; gives whether there is one."""
    member = root.members.get("index")
    if member is None or not isinstance(member.value, Scalar) or not isinstance(member.value.value, bool):
        return False
    limit, help = "an index is declared under `x-pcdc`", 'write `"x-pcdc": {"index": true}`'
    report.add("PCDC205", member.at, "definition", "has `index` at the top level", limit, help)
    return True


def escape_pointer(key: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
