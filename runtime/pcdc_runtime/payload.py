"""An artifact as the map of plain values that its payload holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from .wire import int_bytes

if TYPE_CHECKING:
    from .artifact import Artifact

NODE_KEYS = ("token", "parent", "depth", "field", "reads")
FORM_KEYS = ("choice", "node", "end", "cut", "reads")
CANDIDATE_KEYS = ("label", "value", "description", "ids", "is_single_token", "forms")


def to_payload(a: Artifact) -> dict[str, object]:
    """The map that is packed, with its keys in the order of the format."""
    return {
        "name": a.name,
        "model": a.model,
        "schema": {
            "instructions": a.instructions,
            "scoring": a.scoring,
            "temperature": json.dumps(a.temperature),
            "fields": [
                {
                    "name": f.name,
                    "type": f.type,
                    "description": f.description,
                    "anchor": f.anchor,
                    "suffix": f.suffix,
                    "candidates": [
                        {
                            "label": c.label,
                            "value": json.dumps(c.value, ensure_ascii=False),
                            "description": c.description,
                            "ids": int_bytes(np.array(c.ids, dtype=np.int32)),
                            "is_single_token": c.is_single_token,
                            "forms": c.forms[1] - c.forms[0],
                        }
                        for c in f.candidates
                    ],
                }
                for f in a.fields
            ],
            "examples": [
                {"context": e.context, "answers": int_bytes(np.array(e.answers, dtype=np.int32))}
                for e in a.examples
            ],
        },
        "tokenizer": {
            "fingerprint": a.fingerprint,
            "probes": [[text, int_bytes(np.array(ids, dtype=np.int32))] for text, ids in a.tokenizer_probes],
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
        "nodes": {key: int_bytes(getattr(a.nodes, key)) for key in NODE_KEYS},
        "forms": {key: int_bytes(getattr(a.forms, key)) for key in FORM_KEYS},
        "ends": {"offset": int_bytes(a.ends.offset), "ids": int_bytes(a.ends.ids)},
        "inputs": {key: a.inputs[key] for key in sorted(a.inputs)},
    }
