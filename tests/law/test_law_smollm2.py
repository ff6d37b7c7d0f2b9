"""The law on the embedded model: tree pass and cached head against plain full forwards of SmolLM2."""

import mlx.core as mx
import numpy as np
import pytest
from judging import compiled, largest_difference
from oracle import Oracle, log_softmax
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import open_model
from pcdc_runtime.models import DEFAULT, resolve

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target

CONTEXTS = ("The invoice of May was charged twice.", "Checkout fails for every customer, we lose orders!")


def plain_oracle(folder):
    from mlx_lm.utils import dequantize_model, load_model

    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    model = dequantize_model(model)
    model.set_dtype(mx.float32)

    def log_probs(path, first):
        logits = np.array(model(mx.array([path]))[0, first:].astype(mx.float32))
        return log_softmax(logits.astype(np.float64))

    return Oracle(folder / "tokenizer.json", log_probs)


EXAMPLES = [
    {"context": "Where is my invoice?", "answers": {"department": "BILLING", "urgent": False}},
    {"context": "The site is down!", "answers": {"urgent": True}},
]


@pytest.mark.parametrize("examples", [[], EXAMPLES], ids=["no examples", "examples"])
def test_the_embedded_model_answers_as_its_plain_forwards_do(examples):
    schema, problems = parse_mapping(
        {
            "x-pcdc": {"examples": examples},
            "department": {
                "type": "enum",
                "choices": ["BILLING", "BILLING_DISPUTE", "TECH"],
                "description": "Which?",
            },
            "urgent": {"type": "boolean", "description": "Is it urgent?"},
        }
    )
    assert schema is not None, problems
    files = resolve(DEFAULT, weights=True)
    target, problems = load_target(files)
    assert target is not None, problems
    artifact = compiled(schema, target)
    oracle = plain_oracle(files.folder)
    with Engine(artifact, open_model(DEFAULT)) as engine:
        results = [engine.run(context) for context in CONTEXTS]
        many = list(engine.run_many(CONTEXTS))
    # The head, examples and all, is computed when the engine starts: a request pays for its own text.
    assert all(result.head_cached >= len(artifact.prompt.head) for result in results)
    assert [one.contexts for one in many] == [len(CONTEXTS)] * len(CONTEXTS)
    for one, result in zip(many, results, strict=True):
        for a, b in zip(one.answers, result.answers, strict=True):
            assert np.abs(np.subtract(a.log_scores, b.log_scores)).max() < 1e-4
    for context, result in zip(CONTEXTS, results, strict=True):
        worst = largest_difference(artifact, result, oracle, context)
        print(f"largest difference from brute force: {worst:.1e} nats")
        assert worst < 1e-3
