"""From an artifact back to its schema, to compile a variant of it for the same model."""

from __future__ import annotations

from dataclasses import replace

from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.models import resolve

from pcdc.diagnostics import SchemaError
from pcdc.emit import compile_schema
from pcdc.prompt import Target, load_target
from pcdc.schema import Choice, Example, Field, Schema


def schema_of(artifact: Artifact) -> Schema:
    """The schema that an artifact was compiled from; rows of catalogs are written choices here."""
    fields = tuple(
        Field(
            f.name,
            f.type,
            f.description,
            tuple(Choice(c.value, c.label, c.description) for c in f.candidates),
        )
        for f in artifact.fields
    )
    examples = tuple(
        Example(e.context, tuple((artifact.fields[field].name, choice) for field, choice in e.answers))
        for e in artifact.examples
    )
    return Schema(
        artifact.name, fields, artifact.instructions, artifact.scoring, artifact.temperature, examples
    )


def target_of(artifact: Artifact, model: str | None) -> Target:
    """The model that an artifact was compiled for, or another one, as a target.

    Raises ArtifactError where this version compiles the artifact's schema to something else: then a variant
    would differ by more than what was varied. Raises PcdcError where the model's files are missing.
    """
    files = resolve(model or artifact.model, weights=False, folders=model is not None)
    target, problems = load_target(files)
    if target is None:
        raise SchemaError(problems)
    target = replace(target, model=artifact.model)
    if compiled(schema_of(artifact), target) != artifact:
        raise ArtifactError(
            f"artifact {artifact.name}",
            "was compiled by another version of pcdc, or for another model",
            "variants are compared with what they were made from",
            "build it again with `pcdc build`",
        )
    return target


def compiled(schema: Schema, target: Target) -> Artifact:
    """The schema's artifact. Raises SchemaError."""
    artifact, problems = compile_schema(schema, target)
    if artifact is None:
        raise SchemaError(problems)
    return artifact
