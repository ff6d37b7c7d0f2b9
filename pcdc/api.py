"""The Python interface: compile in memory, and answer a context in one call."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pcdc_runtime import models
from pcdc_runtime.artifact import Artifact

from .diagnostics import SchemaError
from .emit import compile_schema
from .prompt import Target, load_target
from .schema import FieldDefinition, Schema, StructuredSchema

if TYPE_CHECKING:
    from pcdc_runtime.engine import Engine

ENGINES_KEPT = 32


def compile(schema: object, model: str = models.DEFAULT, *, name: str = "schema") -> Artifact:
    """Compile a schema for a model's tokenizer, in memory.

    `schema` is a StructuredSchema, or what one takes: a mapping, a Pydantic model class, FieldDefinitions.
    A StructuredSchema's field definitions know their candidate tokens afterwards. `name` is for what has
    none of its own. Raises SchemaError with every mistake, and PcdcError where the model's files are missing.
    """
    declared = _declared(schema, name)
    artifact = _compiled(declared.schema if isinstance(declared, StructuredSchema) else declared, model)
    if isinstance(declared, StructuredSchema):
        declared.bind(artifact)
    return artifact


def run_parallel_generation(
    context: str, schema: object, model: str = models.DEFAULT, temperature: float = 1.0
) -> dict[str, Any]:
    """Answer every field of a schema for one context, in the published response shape.

    `schema` as in `compile`; a schema seen before is not compiled again, and a model is loaded once and
    stays loaded. Here `temperature` is always the argument's, as published; an engine uses the schema's. The
    dictionary is the caller's own. Raises SchemaError and PcdcError.
    """
    declared = _declared(schema, "schema")
    if not isinstance(declared, StructuredSchema):
        return _engine(declared, model).run(context, temperature=temperature).to_dict()
    engine = _engine(declared.schema, model)
    declared.bind(engine.artifact)
    return engine.run(context, temperature=temperature).to_dict()


def _declared(schema: object, name: str) -> StructuredSchema | Schema:
    if isinstance(schema, StructuredSchema | Schema):
        return schema
    return StructuredSchema([schema] if isinstance(schema, FieldDefinition) else schema, name=name)


def _compiled(schema: Schema, model: str) -> Artifact:
    artifact, problems = compile_schema(schema, _target(models.resolve(model, weights=False)))
    if artifact is None:
        raise SchemaError(problems)
    return artifact


@lru_cache(maxsize=4)
def _target(files: models.ModelFiles) -> Target:
    target, problems = load_target(files)
    if target is None:
        raise SchemaError(problems)
    return target


# An engine that falls out is not closed, another thread may be using it; it holds nothing but its artifact.
@lru_cache(maxsize=ENGINES_KEPT)
def _engine(schema: Schema, model: str) -> Engine:
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.loaded import open_model

    artifact = _compiled(schema, model)
    return Engine(artifact, open_model(model))
