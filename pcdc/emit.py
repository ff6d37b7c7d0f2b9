"""Schema and target in, artifact out: the last arrow of the compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pcdc_runtime.artifact import Artifact, CompiledField, Nodes, WorkedExample
from pcdc_runtime.candidates import Candidates
from pcdc_runtime.tokenizer import probe_encodings

from .cache import input_record
from .diagnostics import Diagnostic, finding, quoted
from .prompt import Target
from .schema import Schema
from .tokenization import TokenizedSchema, tokenize_schema
from .trie import Forest, grow_forest
from .wording import PROMPT_VERSION

MAX_FIELD_NODES = 8192


def compile_schema(schema: Schema, target: Target) -> tuple[Artifact | None, list[Diagnostic]]:
    """Compile one schema for one target; equal inputs give byte-equal artifacts."""
    tokenized, problems = tokenize_schema(schema, target)
    if tokenized is None:
        return None, problems
    tail = np.concatenate([tokenized.prompt.cut.tail, np.array(tokenized.opening, dtype=np.int32)])
    forest = grow_forest(tokenized, int(tail[-1]), target.vocabulary)
    fixed = len(tokenized.prompt.cut.head) + len(tail)
    problems = [*_too_large(schema, forest.nodes), *_too_long(schema, fixed, forest.nodes, target)]
    if problems:
        return None, problems
    return (
        Artifact(
            name=schema.name,
            model=target.model,
            instructions=schema.instructions,
            scoring=schema.scoring,
            temperature=schema.temperature,
            fields=_compiled_fields(tokenized, forest),
            examples=_worked_examples(schema),
            fingerprint=target.fingerprint,
            tokenizer_probes=probe_encodings(target.tokenizer),
            prompt_version=PROMPT_VERSION,
            prompt_text=tokenized.prompt.text,
            prompt=replace(tokenized.prompt.cut, tail=tail),
            nodes=forest.nodes,
            forms=forest.forms,
            ends=forest.ends,
            inputs=input_record(schema, target.fingerprint, target.template_digest),
        ),
        [],
    )


def _too_large(schema: Schema, nodes: Nodes) -> list[Diagnostic]:
    counts = np.bincount(nodes.field[1:], minlength=len(schema.fields))
    return [
        finding(
            "PCDC306",
            location=field.location,
            subject=f"field {quoted(field.name)}",
            fact=f"needs {count} nodes in this model's tokens",
            limit=f"at most {MAX_FIELD_NODES} a field",
            help="shorten its choices, or split the field in two",
        )
        for field, count in zip(schema.fields, counts.tolist(), strict=True)
        if count > MAX_FIELD_NODES
    ]


def _too_long(schema: Schema, fixed: int, nodes: Nodes, target: Target) -> list[Diagnostic]:
    whole = fixed + int(nodes.depth.max())
    if target.window is None or whole <= target.window:
        return []
    return [
        finding(
            "PCDC307",
            None,
            "schema",
            f"makes a prompt of {fixed} tokens before any text is in it, {whole} with the deepest path",
            f"the window of {target.model} is {target.window} tokens",
            ("show fewer examples, " if schema.examples else "")
            + "split the schema in two, shorten its descriptions, or use a model with a longer window",
        )
    ]


def _worked_examples(schema: Schema) -> tuple[WorkedExample, ...]:
    number = {field.name: index for index, field in enumerate(schema.fields)}
    return tuple(
        WorkedExample(e.context, tuple((number[name], choice) for name, choice in e.answers))
        for e in schema.examples
    )


def _compiled_fields(tokenized: TokenizedSchema, forest: Forest) -> tuple[CompiledField, ...]:
    fields, first = [], 0
    for one, anchor, suffix in zip(tokenized.fields, forest.anchors, forest.suffixes, strict=True):
        field, choices = one.field, one.field.choices
        labels, values = [c.label for c in choices], [c.value for c in choices]
        descriptions = [c.description for c in choices]
        candidates = Candidates(labels, values, descriptions, first, suffix, forest.nodes, forest.forms)
        fields.append(
            CompiledField(
                name=field.name,
                type=field.type,
                description=field.description,
                anchor=anchor,
                suffix=suffix,
                candidates=candidates,
            )
        )
        first += len(choices)
    return tuple(fields)
