"""The schema as a value, and the two public classes that declare one from Python."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pcdc_runtime.artifact import Artifact, CompiledField, FieldType, Value
from pcdc_runtime.errors import PcdcError

from .diagnostics import Diagnostic, Location, SchemaError, has_errors, quoted

NULL_LABEL = "not stated"
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def label_of(value: Value) -> str:
    """The text that stands for a value in the prompt."""
    if value is None:
        return NULL_LABEL
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Choice:
    """One allowed answer: the value a result returns and the text that stands for it."""

    value: Value
    label: str
    description: str = ""
    location: Location | None = field(default=None, compare=False)

    @property
    def literals(self) -> tuple[str, ...]:
        """The JSON literals that spell this answer, the usual one first."""
        quoted_label = _quoted(self.label)
        if self.value is None:
            return quoted_label, "null"
        if isinstance(self.value, bool):
            return self.label, quoted_label
        return (quoted_label,) if isinstance(self.value, str) else (self.label,)


@dataclass(frozen=True)
class Field:
    """One closed question; choices stand in declaration order.

    `location` is that of its name, `asked` that of its description.
    """

    name: str
    type: FieldType
    description: str
    choices: tuple[Choice, ...]
    location: Location | None = field(default=None, compare=False)
    asked: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CatalogUse:
    """Where a field's choices come from: the file at `path`, or a database where that is None.

    `source` is for people and never holds a password. `url` is the database as declared, variables not
    expanded, and `query` what it is asked; `changes` is a cheap query whose answer changes when the rows do.
    That of an `index` may have any number of rows.
    """

    field: str
    path: Path | None
    source: str
    changes: str | None = None
    url: str = dataclasses.field(default="", repr=False)
    query: str = ""
    index: bool = False


@dataclass(frozen=True)
class Example:
    """A text with the answers that are right for it, which the prompt shows before the text of a request.

    An answer is a field's name and the position of its choice; they stand in the order of the fields, of
    which some may be left out.
    """

    context: str
    answers: tuple[tuple[str, int], ...]
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Ignored:
    """A rule that a definition ignores, and why; `code` is a warning's, no `field` means all of them."""

    code: str
    reason: str
    field: str = ""
    location: Location | None = dataclasses.field(default=None, compare=False)


@dataclass(frozen=True)
class Schema:
    """A checked definition. Every field is answered in every result.

    Choices that came from `catalogs` stand in the fields like written ones. What is ignored changes what is
    said of a schema, never what it compiles to.
    """

    name: str
    fields: tuple[Field, ...]
    instructions: str
    scoring: str = "joint"
    temperature: float = 1.0
    examples: tuple[Example, ...] = ()
    catalogs: tuple[CatalogUse, ...] = field(default=(), compare=False)
    ignored: tuple[Ignored, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        # An int is a legal float to the type checker, but is written differently into an artifact.
        object.__setattr__(self, "temperature", float(self.temperature))


class NotCompiledError(PcdcError):
    """A field was asked for its tokens before its schema was compiled."""

    code = "PCDC229"
    title = "field not compiled yet"


@dataclass(eq=False, frozen=True)
class FieldDefinition:
    """One field declared from Python, for choices that are known at run time only.

    `field_type` is "enum" or "boolean"; a choice is a value or `{"value": ..., "description": ...}`.
    Choices that are no list are read once, in their order. Checked when a StructuredSchema takes it; cannot
    be changed, which would not reach a schema that took it before.
    """

    name: str
    field_type: str
    description: str = ""
    choices: Iterable[object] = ()
    _compiled: CompiledField | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        given: object = self.choices
        if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | set | frozenset):
            object.__setattr__(self, "choices", tuple(given))

    def has_multi_token_candidates(self) -> bool:
        """Whether some choice takes more than one token. Raises NotCompiledError before compilation."""
        return not all(c.is_single_token for c in self._tokens().candidates)

    def candidate_token_ids(self) -> tuple[tuple[int, ...], ...]:
        """Token ids of each choice below the field's suffix, in declaration order.

        Raises NotCompiledError before compilation. After several, the last one counts.
        """
        return tuple(c.ids for c in self._tokens().candidates)

    def _tokens(self) -> CompiledField:
        if self._compiled is None:
            raise NotCompiledError(
                f"field {quoted(self.name)}",
                "has no tokens yet",
                "candidates are tokens of one model",
                "compile its schema for a model first",
            )
        return self._compiled

    def _declaration(self) -> dict[str, object]:
        declared = {"type": self.field_type, "description": self.description, "choices": self.choices}
        # Another kind of value, such as an array, may not be comparable; it is for the parser to refuse.
        return {k: v for k, v in declared.items() if not isinstance(v, str | tuple) or v}


class StructuredSchema:
    """A schema declared from Python; `schema` is its checked value.

    Takes a mapping in either spelling of a definition file, a Pydantic model class, or FieldDefinitions;
    `examples` is a list as under `x-pcdc`, shown after those that a mapping declares itself.
    Raises SchemaError with every mistake; `diagnostics` keeps the warnings of an accepted one.
    """

    schema: Schema
    fields: tuple[FieldDefinition, ...]
    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, declared: object, *, name: str = "schema", examples: object = ()) -> None:
        # parse builds the values above, so it can be imported only once they exist.
        from .parse import parse_fields, parse_mapping

        named: object = name
        if not isinstance(named, str):
            fact = f"is a {type(named).__name__}"
            raise PcdcError(
                "argument `name`", fact, "a schema's name is text", 'leave it out, or write name="..."'
            )
        given = _definitions(declared)
        if given is None:
            schema, diagnostics = parse_mapping(declared, name=name, examples=examples)
        else:
            pairs = [(d.name, d._declaration()) for d in given]
            schema, diagnostics = parse_fields(pairs, name=name, examples=examples)
        if schema is None or has_errors(diagnostics):
            raise SchemaError(diagnostics)
        self.schema = schema
        self.fields = given if given is not None else tuple(_definition(f) for f in schema.fields)
        self.diagnostics = tuple(diagnostics)

    def bind(self, artifact: Artifact) -> None:
        """Give every field definition the tokens it has in an artifact compiled from this schema."""
        for definition in self.fields:
            object.__setattr__(definition, "_compiled", artifact.field(definition.name))


def _definitions(declared: object) -> tuple[FieldDefinition, ...] | None:
    if isinstance(declared, Mapping | str | bytes | type) or not isinstance(declared, Iterable):
        return None
    items: Sequence[object] = tuple(declared)
    definitions = tuple(item for item in items if isinstance(item, FieldDefinition))
    return definitions if len(definitions) == len(items) else None


def _definition(checked: Field) -> FieldDefinition:
    choices = [
        {"value": c.value, "description": c.description} if c.description else c.value
        for c in checked.choices
    ]
    return FieldDefinition(checked.name, checked.type, checked.description, choices)
