"""An artifact as the map of plain values that its payload holds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .wire import canonical_json, int_bytes

if TYPE_CHECKING:
    from .artifact import Artifact, CompiledField
    from .indexed.index import Index

NODE_KEYS = ("token", "parent", "depth", "field", "reads")
FORM_KEYS = ("choice", "node", "end", "cut", "reads")
FIELD_KEYS = (
    *("name", "type", "description", "anchor", "suffix"),
    *("labels", "valued", "values", "described", "descriptions"),
)


def to_payload(a: Artifact) -> dict[str, object]:
    """The map that is packed, with its keys in the order of the format."""
    return {
        "name": a.name,
        "model": a.model,
        "schema": {
            "instructions": a.instructions,
            "scoring": a.scoring,
            "temperature": json.dumps(a.temperature),
            "fields": [_field(f) for f in a.fields],
            "examples": [{"context": e.context, "answers": _int_bytes(e.answers)} for e in a.examples],
        },
        **target_values(a),
        "nodes": {key: int_bytes(getattr(a.nodes, key)) for key in NODE_KEYS},
        "forms": {key: int_bytes(getattr(a.forms, key)) for key in FORM_KEYS},
        "ends": {"offset": int_bytes(a.ends.offset), "ids": int_bytes(a.ends.ids)},
        "inputs": {key: a.inputs[key] for key in sorted(a.inputs)},
    }


def target_values(a: Artifact | Index) -> dict[str, object]:
    """The members that say what something was compiled for; those of artifacts and of indexes are alike."""
    return {
        "tokenizer": {
            "fingerprint": a.fingerprint,
            "probes": [[text, _int_bytes(ids)] for text, ids in a.tokenizer_probes],
        },
        "prompt": {
            "version": a.prompt_version,
            "text": a.prompt_text,
            "head": int_bytes(a.prompt.head),
            "pre": a.prompt.pre,
            "post": a.prompt.post,
            "fence": a.prompt.fence,
            "shared": a.prompt.shared,
            "tail": int_bytes(a.prompt.tail),
            "tail_overlap": a.prompt.tail_overlap,
            "probes": list(a.prompt.probes),
        },
    }


def _field(f: CompiledField) -> dict[str, object]:
    valued = [(n, c.value) for n, c in enumerate(f.candidates) if c.value != c.label]
    described = [(n, c.description) for n, c in enumerate(f.candidates) if c.description]
    return {
        "name": f.name,
        "type": f.type,
        "description": f.description,
        "anchor": f.anchor,
        "suffix": f.suffix,
        "labels": [c.label for c in f.candidates],
        "valued": _int_bytes(n for n, _ in valued),
        "values": canonical_json([value for _, value in valued]),
        "described": _int_bytes(n for n, _ in described),
        "descriptions": [text for _, text in described],
    }


def _int_bytes(values: Iterable[object]) -> bytes:
    return int_bytes(np.array(tuple(values), dtype=np.int32))
