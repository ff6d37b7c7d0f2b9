"""Freshness of artifacts: what an artifact was made from, and whether that still holds.

An artifact carries its own input record, so nothing beside it decides: no time stamps, no index, no log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import msgpack
from pcdc_runtime.artifact import FORMAT_VERSION, Artifact, CompiledField
from pcdc_runtime.errors import ArtifactError

from . import __version__
from .schema import Field, Schema
from .wording import PROMPT_VERSION


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


class Made(Protocol):
    """An artifact or an index, as far as its freshness goes."""

    @property
    def name(self) -> str:
        """The definition's."""

    @property
    def model(self) -> str:
        """The model that it was made for."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """What it was made from."""


@dataclass(frozen=True)
class Terms:
    """How a kind of file, its definition, and changes of the inputs that only it has are called.

    `derived` inputs follow from the others and decide nothing.
    """

    file: str
    definition: str
    inputs: Mapping[str, str]
    derived: frozenset[str] = frozenset()


ARTIFACT = Terms(
    "artifact",
    "schema",
    {"scoring": "the scoring rule changed from {was} to {now}", "schema": "the schema changed"},
)
_SHARED_INPUTS = {
    "pcdc": "pcdc changed from {was} to {now}",
    "prompt": "the prompt changed from {was} to {now}",
    "tokenizer": "the tokenizer of {model} changed",
    "template": "the chat template of {model} changed",
}
_Old = TypeVar("_Old", bound=Made)


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
    changes = partial(schema_changes, schema=schema)
    return decide_by(ARTIFACT, old, (schema.name, model), record, changes, force=force)


def decide_by(
    terms: Terms,
    old: _Old | ArtifactError | None,
    owner: tuple[str, str],
    record: Mapping[str, str],
    changes: Callable[[_Old], tuple[str, ...]],
    *,
    force: bool,
) -> Decision:
    """The decision about a file of either kind; `owner` is the definition's name and the model's."""
    file, model = terms.file, owner[1]
    if force:
        return Decision(True, "a rebuild was asked for")
    if old is None:
        return Decision(True, f"there is no {file} yet")
    if isinstance(old, ArtifactError):
        return Decision(True, f"the {file} {old.fact}")
    if (old.name, old.model) != owner:
        return Decision(
            True, f"the {file} belongs to {terms.definition} {old.name!r} and model {old.model!r}"
        )
    was = {key: value for key, value in old.inputs.items() if key not in terms.derived}
    if was == record:
        return Decision(False, "no input changed")
    if was.keys() != record.keys():
        return Decision(True, f"the {file} has no complete input record")
    for key, reason in {**_SHARED_INPUTS, **terms.inputs}.items():
        if was[key] != record[key]:
            reason = reason.format(was=was[key], now=record[key], model=model)
            return Decision(True, reason, changes(old))
    return Decision(True, f"the {file}'s input record contradicts itself")


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
