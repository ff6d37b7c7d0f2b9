"""The law on real model code: compiled plans against one plain full forward per token sequence."""

import json

import mlx.core as mx
import numpy as np
import pytest
from families import family_folder
from forest import tiny
from judging import compiled, largest_difference, target_of
from oracle import Oracle, log_softmax
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.tokenizer import load_tokenizer
from seeded import EXPERTS, FAMILIES, WINDOW, seeded

from pcdc.parse import parse_mapping

FOLDER = family_folder("smollm2")
VOCAB = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))["vocab_size"]
CONTEXT = "The gateway rejects every second card since 09:14. " * 3
SCHEMA, _ = parse_mapping(
    {
        "department": {
            "type": "enum",
            "choices": ["BILLING", "BILLING_DISPUTE", "-1", "C#"],
            "description": "Which?",
        },
        "urgent": {"type": "boolean", "description": "Is it urgent?"},
    }
)
MIXTURES = {name for name, changes in FAMILIES.items() if EXPERTS.items() <= changes.items()}
BOUNDS = {"float32": 1e-4, "bfloat16": 0.06, "4-bit": 1e-4, "4-bit bfloat16": 0.06}
"""Nats. On a CPU every kind stays within 1e-5; half precision may round differently on other devices."""

CASES = [
    pytest.param(family, kind, id=f"{family}-{kind}")
    for family in FAMILIES
    for kind in BOUNDS
    if not (kind == "bfloat16" and family in MIXTURES)  # MLX has no such product on a CPU
]


def plain_oracle(family, dtype, bits):
    model = seeded(family, dtype, bits=bits, vocab_size=VOCAB, max_position_embeddings=4096)

    def log_probs(path, first):
        logits = np.array(model(mx.array([path]))[0, first:].astype(mx.float32))
        return log_softmax(logits.astype(np.float64))

    return Oracle(FOLDER / "tokenizer.json", log_probs)


def difference(family, kind):
    dtype = "bfloat16" if "bfloat16" in kind else "float32"
    bits = 4 if "4-bit" in kind else None
    artifact = compiled(SCHEMA, target_of("smollm2"))
    settings = {"bits": bits, "vocab_size": VOCAB, "max_position_embeddings": 4096}
    opener = lambda: (tiny(family, dtype, **settings), load_tokenizer(FOLDER))  # noqa: E731
    with Engine(artifact, LoadedModel(family, opener)) as engine:
        engine.run("Another context first.")
        result = engine.run(CONTEXT)
    assert result.context_tokens + len(artifact.prompt.head) > 5 * WINDOW
    return largest_difference(artifact, result, plain_oracle(family, dtype, bits), CONTEXT)


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_scores_equal_plain_forwards_of_every_family(family, kind):
    assert difference(family, kind) < BOUNDS[kind]


if __name__ == "__main__":
    for case in CASES:
        print(f"{case.id:32} {difference(*case.values):.2e}", flush=True)
