"""A definition, from a file or from Python, to a checked schema or to everything that is wrong with it.

Two spellings mean one thing: a JSON Schema object whose properties are fields, and a plain map from
names to fields. `dialect.json` describes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcdc_runtime.rules import MAX_CHOICES, MAX_FIELDS, MIN_CHOICES

from .catalog import Catalogs
from .diagnostics import Diagnostic, has_errors, quoted, sort_diagnostics
from .examples import EXAMPLES, read_examples
from .expand import Expanded, Expansion
from .ignoring import IGNORE, read_ignored
from .keywords import (
    COMBINING,
    TOP_KEYWORDS,
    check_keywords,
    escape_pointer,
    looks_like_field,
    misplaced_index,
    suggestion,
)
from .labels import check_choices, check_length, check_name, check_names
from .likeness import catalog_for_definition
from .reader import read_json
from .schema import NULL_LABEL, CatalogUse, Example, Field, Ignored, Schema
from .shapes import SETTINGS, Shapes
from .source import (
    NOWHERE,
    Array,
    Member,
    Node,
    Object,
    Report,
    Scalar,
    SchemaSource,
    Unread,
    from_python,
    kind_of,
    read_source,
)

MAX_ALL_CHOICES = 20_000
NOT_FIELDS = frozenset(("$schema", "$id", "$comment", "$defs", SETTINGS, "x-catalog"))

Found = tuple[Schema | None, list[Diagnostic]]


def parse_file(path: Path, name: str | None = None) -> Found:
    """The schema of a definition file; its name is the file's stem unless one is given."""
    if catalog := catalog_for_definition(path):
        return None, catalog
    source, diagnostics = read_source(path)
    if source is None:
        return None, diagnostics
    report = Report(source)
    return _parse(read_json(report), report, path.stem if name is None else name, path.parent)


def catalogs_of(path: Path) -> tuple[CatalogUse, ...]:
    """The catalogs that a definition file names, whatever else is wrong with it; opens none of them."""
    source, _ = read_source(path)
    if source is None or "x-catalog" not in source.text:
        return ()
    report = Report(source)
    root = read_json(report)
    if not isinstance(root, Object):
        return ()
    uses = _declared(root, report, path.parent, reads=False).uses
    return tuple(replace(use, index=is_index(root)) for use in uses)


def is_index_file(path: Path) -> bool:
    """Whether a file declares an index and no schema, whatever else is wrong with it; opens no catalog."""
    source, _ = read_source(path)
    if source is None or SETTINGS not in source.text:
        return False
    root = read_json(Report(source))
    return isinstance(root, Object) and is_index(root)


def is_index(root: Object) -> bool:
    """Whether a definition declares an index."""
    settings = root.get(SETTINGS)
    asked = settings.get("index") if isinstance(settings, Object) else None
    return isinstance(asked, Scalar) and asked.value is True


def parse_mapping(declared: object, name: str = "schema", examples: object = ()) -> Found:
    """The schema of a mapping in either spelling, or of a class that has `model_json_schema()`.

    `examples` come after those of the mapping.
    """
    report = Report(SchemaSource("", ""))
    describe = getattr(declared, "model_json_schema", None)
    if callable(describe):
        try:
            declared = describe()
        except Exception as error:
            # Whatever a model class raises here is about the caller's model.
            report.add("PCDC108", NOWHERE, "model", f"has no JSON Schema ({error})")
            return None, report.diagnostics
    return _parse(from_python(declared, report), report, name, None, examples)


def parse_fields(
    declared: Iterable[tuple[object, object]], name: str = "schema", examples: object = ()
) -> Found:
    """The schema of fields in the short spelling, given as pairs so that a repeated name shows."""
    report = Report(SchemaSource("", ""))
    members, positions = dict[str, Member](), dict[str, int]()
    for position, (key, value) in enumerate(declared, 1):
        if not isinstance(key, str):
            fact = f"has a name that is a {type(key).__name__}"
            report.add("PCDC108", NOWHERE, f"field {position}", fact, "names are text")
            continue
        node = from_python({key: value}, report)
        for label, member in node.members.items() if isinstance(node, Object) else ():
            first = positions.setdefault(label, position)
            if first != position:
                fact = f"is declared at position {first} and again at {position}"
                report.add(
                    "PCDC106", NOWHERE, f"field {quoted(label)}", fact, "a name stands once in a schema"
                )
            members.setdefault(label, member)
    if not members and report.diagnostics:
        return None, report.diagnostics
    shapes = Shapes(report)
    catalogs = Catalogs(report, None, shapes.of_catalog)
    expansion = Expansion(Object(NOWHERE, members), report, shapes.of_field, catalogs)
    fields = _fields(members, "", expansion, report)
    return _checked(_with_examples(fields, None, examples, shapes, report), report, name)


@dataclass(frozen=True)
class _Declared:
    """What a definition declares, checked or not: where there are errors, only `uses` is to be trusted.

    `asked` has every field by its name, None where its choices are not all known.
    """

    fields: tuple[Field, ...] = ()
    uses: tuple[CatalogUse, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Field | None] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    ignored: tuple[Ignored, ...] = ()


def _parse(root: Node | None, report: Report, name: str, folder: Path | None, examples: object = ()) -> Found:
    if root is None or isinstance(root, Unread):
        return None, sort_diagnostics(report.diagnostics)
    if not isinstance(root, Object):
        limit, help = "a definition is an object", 'start with {"field name": {"type": "boolean"}}'
        report.add("PCDC202", root.at, "definition", f"is {kind_of(root)}", limit, help)
        return None, sort_diagnostics(report.diagnostics)
    if is_index(root):
        settings = root.members[SETTINGS]
        limit = "a schema has fields of at most 255 choices, an index has one field of any number"
        file = report.source.path or "FILE"
        help = f"run `pcdc index {file}` and ask it with `pcdc select`, or take `index` out of `{SETTINGS}`"
        help = help if report.source.path else f"write it to a file; {help}"
        report.add("PCDC240", settings.at, "definition", "is that of an index", limit, help)
        return None, sort_diagnostics(report.diagnostics)
    return _checked(_declared(root, report, folder, examples=examples), report, name)


def _declared(
    root: Object, report: Report, folder: Path | None, reads: bool = True, examples: object = ()
) -> _Declared:
    shapes = Shapes(report)
    catalogs = Catalogs(report, folder, shapes.of_catalog, reads)
    expansion = Expansion(root, report, shapes.of_field, catalogs)
    if "x-catalog" in root.members:
        at = root.members["x-catalog"].at
        catalogs.misplaced("definition", at, "is in no field", "a catalog has the choices of one field")
    settings = shapes.settings(root)
    members = members_of(root, expansion, shapes, report)
    declared = _fields(*members, expansion, report) if members else _Declared()
    own = root.get(SETTINGS)
    ignored = read_ignored(own.get(IGNORE) if isinstance(own, Object) else None, declared.asked, report)
    declared = replace(declared, settings=settings, ignored=ignored)
    return _with_examples(declared, own, examples, shapes, report)


def _with_examples(
    declared: _Declared, settings: Node | None, more: object, shapes: Shapes, report: Report
) -> _Declared:
    own = settings.get(EXAMPLES) if isinstance(settings, Object) else None
    added = from_python(more, report, EXAMPLES)
    if isinstance(added, Scalar | Object):
        fact = f"is {kind_of(added)}"
        report.add("PCDC201", NOWHERE, f"`{EXAMPLES}`", fact, "must be an array")
    items = [item for node in (own, added) if isinstance(node, Array) for item in node.items]
    return replace(declared, examples=read_examples(items, declared.asked, report, shapes.of_example))


def _checked(declared: _Declared, report: Report, name: str) -> Found:
    check_schema_name(name, report)
    diagnostics, settings = sort_diagnostics(unrepeated(report.diagnostics)), declared.settings
    if has_errors(diagnostics):
        return None, diagnostics
    instructions, scoring = settings.get("instructions", ""), settings.get("scoring", "joint")
    temperature = settings.get("temperature", 1.0)
    return (
        Schema(
            name=name,
            fields=declared.fields,
            instructions=instructions,
            scoring=scoring,
            temperature=temperature,
            examples=declared.examples,
            catalogs=declared.uses,
            ignored=declared.ignored,
        ),
        diagnostics,
    )


def check_schema_name(name: str, report: Report) -> None:
    """Report what keeps a text from being the name of a schema."""
    lone = next((c for c in name if "\ud800" <= c <= "\udfff"), None)
    if lone is not None:
        at = 0 if report.source.text else NOWHERE
        fact, limit = f"has U+{ord(lone):04X}, which is no character", "a schema's name is valid Unicode"
        help = "rename the file, or give the schema another name"
        report.add("PCDC228", at, f"schema name {quoted(name)}", fact, limit, help)


def unrepeated(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Without repeats: a mistake in a shared definition is told once, for the first field that uses it."""
    kept = dict[object, Diagnostic]()
    for d in diagnostics:
        kept.setdefault((d.code, d.location, "" if d.location else d.subject, d.fact), d)
    return list(kept.values())


def members_of(
    root: Object, expansion: Expansion, shapes: Shapes, report: Report
) -> tuple[dict[str, Member], str] | None:
    """The fields of a definition in either spelling and the pointer to them, None if that is told."""
    if misplaced_index(root, report):
        root = replace(root, members={k: m for k, m in root.members.items() if k != "index"})
    if _is_json_schema(root):
        return _properties(root, expansion, shapes, report)
    found = _shorthand(root, report)
    return None if found is None else (found, "")


def _is_json_schema(root: Object) -> bool:
    properties = root.get("properties")
    if isinstance(root.get("type"), Scalar | Array) or isinstance(root.get("$ref"), Scalar):
        return True
    return properties is not None and not looks_like_field(properties)


def _shorthand(root: Object, report: Report) -> dict[str, Member] | None:
    fields = dict[str, Member]()
    for key, member in root.members.items():
        if key in NOT_FIELDS:
            continue
        if key.startswith(("x-", "$")) and not looks_like_field(member.value):
            hint = suggestion(key, NOT_FIELDS)
            code, limit = ("PCDC205", "") if hint else ("PCDC253", "it is ignored")
            fact = f"has the unknown keyword {quoted(key)}"
            report.add(code, member.at, "definition", fact, limit, hint)
            continue
        if key in COMBINING and isinstance(member.value, Array):
            limit, help = "a definition is an object of fields", "declare each field under its name"
            report.add("PCDC206", member.at, "definition", f"uses `{key}` at /{key}", limit, help)
            continue
        fields[key] = member
    if not fields and not root.members.keys().isdisjoint(COMBINING):
        return None
    return fields


def _properties(
    root: Object, expansion: Expansion, shapes: Shapes, report: Report
) -> tuple[dict[str, Member], str] | None:
    """The members of `properties` and their pointer; a recursive model has a `$ref` at the top."""
    node, pointer, trail = root, "", tuple[str, ...]()
    while True:
        malformed = shapes.of_top(node)
        if "type" in malformed:
            return None
        check_keywords("definition", node, pointer, TOP_KEYWORDS, report)
        if malformed & {"properties", "$ref"}:
            return None
        reference = node.get("$ref")
        if not isinstance(reference, Scalar):
            break
        found = expansion.resolve("definition", reference, trail)
        if found is None:
            return None
        target, pointer = found
        if isinstance(target, Unread):
            return None
        if not isinstance(target, Object):
            fact = f"refers to {kind_of(target)}"
            report.add("PCDC201", reference.at, "definition", fact, "must be an object")
            return None
        node, trail = target, (*trail, pointer)
    properties = node.get("properties")
    members = properties.members if isinstance(properties, Object) else {}
    _check_required(node.get("required"), members, report)
    return members, f"{pointer}/properties"


def _check_required(required: Node | None, members: dict[str, Member], report: Report) -> None:
    for item in required.items if isinstance(required, Array) else ():
        name = item.value if isinstance(item, Scalar) else None
        if isinstance(name, str) and name not in members:
            hint = suggestion(name, frozenset(members)) or "declare it under `properties`"
            report.add("PCDC227", item.at, "`required`", f"names {quoted(name)}, which is no field", "", hint)


def _fields(members: dict[str, Member], prefix: str, expansion: Expansion, report: Report) -> _Declared:
    if not members:
        help = 'declare one: {"field name": {"type": "boolean", "description": "..."}}'
        report.add(
            "PCDC202", 0 if report.source.text else NOWHERE, "definition", "has no fields", "at least 1", help
        )
    asked = dict[str, Field | None].fromkeys(members)
    if len(members) > MAX_FIELDS:
        at = list(members.values())[MAX_FIELDS].at
        help = "split the definition; fields are answered independently"
        report.add("PCDC203", at, "definition", f"has {len(members)} fields", f"at most {MAX_FIELDS}", help)
        return _Declared(asked=asked)
    fields, uses, total = list[Field](), list[CatalogUse](), 0
    check_names({name: member.at for name, member in members.items()}, report)
    for name, member in members.items():
        check_name(name, member.at, report)
        subject = f"field {quoted(name)}"
        pointer = f"{prefix}/{escape_pointer(name)}"
        found = expansion.expand(subject, member.value, pointer, member.at)
        if found is not None:
            total += found.total if found.total <= MAX_CHOICES else 0
            if total > MAX_ALL_CHOICES:
                fact, limit = (
                    f"has more than {MAX_ALL_CHOICES} choices in all its fields",
                    "at most that many",
                )
                help = "split the definition; fields are answered independently"
                report.add("PCDC234", member.at, "definition", fact, limit, help)
                return _Declared(asked=asked)
            check_length(f"description of {subject}", found.description, member.at, report)
            _check_count(subject, found, member.at, report)
            check_choices(name, found.choices, report)
            fields.append(_field(name, found, member.at, report))
            if found.whole and len(found.known) == found.total:
                asked[name] = fields[-1]
            uses += [replace(use, field=name) for use in found.uses]
    return _Declared(tuple(fields), tuple(uses), asked=asked)


def _check_count(subject: str, found: Expanded, at: int, report: Report) -> None:
    if found.total > MAX_CHOICES:
        help = (
            "bucket the choices, split the decision over two fields or calls, or make an index of one field: "
        )
        help += '`"x-pcdc": {"index": true}` and `pcdc index`'
        report.add("PCDC213", at, subject, f"has {found.total} choices", f"at most {MAX_CHOICES}", help)
    elif found.total < MIN_CHOICES and found.whole and found.few:
        few, limit = found.few, f"at least {MIN_CHOICES} choices"
        report.add("PCDC212", few.at, f"catalog of {subject}", few.fact, limit, few.help)
    elif found.total < MIN_CHOICES and found.whole:
        many = "1 choice" if found.total else "no choices"
        if [type(d.choice.value) for d in found.known] == [bool]:
            help = "a boolean has the answers true and false: leave the list out"
        else:
            help = f'add the other answers, or an explicit "none of the above" or "{NULL_LABEL}"'
        report.add("PCDC212", at, subject, f"has {many}", f"at least {MIN_CHOICES}", help)


def _field(name: str, found: Expanded, at: int, report: Report) -> Field:
    if not found.description.strip():
        limit = "the description is the question the model reads"
        help = "add a `description` that asks the question plainly"
        report.add("PCDC251", at, f"field {quoted(name)}", "has no description", limit, help)
    choices = tuple(d.choice for d in found.known)
    kinds = {type(choice.value) for choice in choices if choice.value is not None}
    described = found.described_at
    return Field(
        name=name,
        type="boolean" if kinds == {bool} else "enum",
        description=found.description,
        choices=choices,
        location=report.source.locate(at),
        asked=report.source.locate(at if described == NOWHERE else described),
    )
