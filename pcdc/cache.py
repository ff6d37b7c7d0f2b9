"""Freshness of artifacts: what an artifact was made from, whether that still holds, where it lives.

An artifact carries its own input record, so nothing beside it decides: no time stamps, no index, no log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgpack
from pcdc_runtime.artifact import FORMAT_VERSION, Artifact, CompiledField
from pcdc_runtime.errors import ArtifactError

from . import __version__
from .prompt import PROMPT_VERSION
from .schema import Field, Schema


@dataclass(frozen=True)
class Decision:
    """Whether a target is compiled again, in one sentence, with the changes behind it."""

    rebuild: bool
    reason: str
    changes: tuple[str, ...] = ()


def input_record(schema: Schema, fingerprint: str, template_digest: str) -> Mapping[str, str]:
    """Everything that decides an artifact's bytes, each input with its own digest or version.

    `key` is the sha256 of the canonical msgpack of the others.
    """
    inputs = {
        "schema": sha256_of(_resolved(schema)),
        "tokenizer": fingerprint,
        "template": template_digest,
        "prompt": PROMPT_VERSION,
        "scoring": schema.scoring,
        "format": str(FORMAT_VERSION),
        "pcdc": __version__,
    }
    return inputs | {"key": sha256_of(sorted(inputs.items()))}


def decide(
    old: Artifact | ArtifactError | None,
    schema: Schema,
    model: str,
    record: Mapping[str, str],
    *,
    force: bool = False,
) -> Decision:
    """Compare the artifact on disk with what it would be made from now.

    `old` is None where there is none, and the error where it cannot be trusted.
    """
    if force:
        return Decision(True, "a rebuild was asked for")
    if old is None:
        return Decision(True, "there is no artifact yet")
    if isinstance(old, ArtifactError):
        return Decision(True, f"the artifact {old.fact}")
    if (old.name, old.model) != (schema.name, model):
        return Decision(True, f"the artifact belongs to schema {old.name!r} and model {old.model!r}")
    was = old.inputs
    if was == record:
        return Decision(False, "no input changed")
    if was.keys() != record.keys():
        return Decision(True, "the artifact has no complete input record")
    changes = schema_changes(old, schema)
    if was["pcdc"] != record["pcdc"]:
        return Decision(True, f"pcdc changed from {was['pcdc']} to {record['pcdc']}", changes)
    if was["prompt"] != record["prompt"]:
        return Decision(True, f"the prompt changed from {was['prompt']} to {record['prompt']}", changes)
    if was["tokenizer"] != record["tokenizer"]:
        return Decision(True, f"the tokenizer of {model} changed", changes)
    if was["template"] != record["template"]:
        return Decision(True, f"the chat template of {model} changed", changes)
    if was["scoring"] != record["scoring"]:
        return Decision(
            True, f"the scoring rule changed from {was['scoring']} to {record['scoring']}", changes
        )
    if was["schema"] != record["schema"]:
        return Decision(True, "the schema changed", changes)
    return Decision(True, "the artifact's input record contradicts itself")


def schema_changes(old: Artifact, schema: Schema) -> tuple[str, ...]:
    """What differs between the schema inside an artifact and a schema, one line each."""
    lines = []
    if old.instructions != schema.instructions:
        lines.append("instructions changed")
    if old.temperature != schema.temperature:
        lines.append(f"temperature changed from {old.temperature:g} to {schema.temperature:g}")
    lines += _example_changes(old, schema)
    before = {field.name: field for field in old.fields}
    after = {field.name: field for field in schema.fields}
    lines += [f"field {name} removed" for name in before if name not in after]
    for name, field in after.items():
        lines += _field_changes(before[name], field) if name in before else [f"field {name} added"]
    if not lines and list(before) != list(after):
        lines.append("fields reordered")
    return tuple(lines)


def _example_changes(old: Artifact, schema: Schema) -> list[str]:
    fields = {field.name: field for field in schema.fields}
    before = [
        (e.context, {old.fields[f].name: old.fields[f].candidates[c].label for f, c in e.answers})
        for e in old.examples
    ]
    after = [(e.context, {f: fields[f].choices[c].label for f, c in e.answers}) for e in schema.examples]
    if before == after:
        return []
    if len(before) != len(after):
        return [f"examples changed from {len(before)} to {len(after)}"]
    return ["examples changed"]


def _field_changes(old: CompiledField, new: Field) -> list[str]:
    lines = []
    if old.type != new.type:
        lines.append(f"field {new.name}: type changed from {old.type} to {new.type}")
    if old.description != new.description:
        lines.append(f"field {new.name}: description changed")
    before = {(c.label, json.dumps(c.value)): c.description for c in old.candidates}
    after = {(c.label, json.dumps(c.value)): c.description for c in new.choices}
    removed = [label for label, value in before if (label, value) not in after]
    added = [label for label, value in after if (label, value) not in before]
    lines += [f"field {new.name}: choice {label!r} removed" for label in removed]
    lines += [f"field {new.name}: choice {label!r} added" for label in added]
    lines += [
        f"field {new.name}: description of choice {key[0]!r} changed"
        for key, description in after.items()
        if before.get(key, description) != description
    ]
    if not removed and not added and list(before) != list(after):
        lines.append(f"field {new.name}: choices reordered")
    return lines


def _resolved(schema: Schema) -> object:
    """The schema as declared, catalog rows in place, without where it was written."""
    return [
        schema.name,
        schema.instructions,
        json.dumps(schema.temperature),
        [
            [
                field.name,
                field.type,
                field.description,
                [[c.label, json.dumps(c.value), c.description] for c in field.choices],
            ]
            for field in schema.fields
        ],
        [[example.context, example.answers] for example in schema.examples],
    ]


def sha256_of(value: object) -> str:
    """The sha256 of a value's canonical msgpack, as hexadecimal text."""
    return hashlib.sha256(msgpack.packb(value, use_bin_type=True)).hexdigest()
