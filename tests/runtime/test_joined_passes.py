"""Prompt and tree in one forward: nothing but the number of forwards may change."""

import numpy as np
import pytest
from brute import Brute
from fakes import WIDTH, TableModel, byte_tokenizer, loaded, make_artifact, spelled
from fakes import seeded as table
from forest import tiny
from judging import compiled
from pcdc_runtime import prefix as prefix_module
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.models import DEFAULT, resolve
from pcdc_runtime.tokenizer import assemble_prompt
from pcdc_runtime.tree import CHUNK
from seeded import WINDOW

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target

FIELDS = {"level": spelled("low", "lower", "high"), "team": spelled("ops", "sales")}
ARTIFACT = make_artifact(FIELDS)
HEAD = len(ARTIFACT.prompt.head)
TEXTS = ("No invoice, and the parcel is late.", "No answer.", "", "No invoice, and the parcel is late.")
# A kernel may sum in another order for another number of rows; bfloat16 then rounds to the next step.
BOUND = {"float32": 1e-4, "bfloat16": 0.06}


def answers(artifact, model, texts=TEXTS):
    with Engine(artifact, model) as engine:
        return [engine.run(text) for text in texts]


def opened(family, dtype):
    opener = lambda: (tiny(family, dtype, vocab_size=WIDTH, chunk=CHUNK), byte_tokenizer())  # noqa: E731
    return LoadedModel(family, opener)


def separately(monkeypatch):
    """Every chunk as before, but no prompt waits for the tree."""
    honest = prefix_module.Prefix.advance
    monkeypatch.setattr(prefix_module.Prefix, "advance", lambda prefix, ids, nodes=0: honest(prefix, ids))


def largest_gap(left, right):
    return max(
        float(np.abs(np.subtract(a.log_scores, b.log_scores)).max())
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one.answers, other.answers, strict=True)
    )


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3_text", "cohere2"])
def test_one_forward_scores_as_two_do(family, dtype, monkeypatch):
    joined = answers(ARTIFACT, opened(family, dtype))
    separately(monkeypatch)
    apart = answers(ARTIFACT, opened(family, dtype))
    assert [result.forward_passes for result in joined] == [1] * 4
    assert [result.forward_passes for result in apart] == [2] * 4
    assert HEAD + len(TEXTS[0]) > 5 * WINDOW
    assert largest_gap(joined, apart) <= BOUND[dtype]


def test_one_forward_scores_as_two_do_on_the_embedded_model(monkeypatch):
    schema, _ = parse_mapping(
        {
            "team": {
                "type": "enum",
                "choices": ["billing", "support", "sales"],
                "description": "Whose is it?",
            },
            "urgent": {"type": "boolean", "description": "Is it urgent?"},
        }
    )
    target, _ = load_target(resolve(DEFAULT, weights=True))
    artifact = compiled(schema, target)
    texts = ("The invoice of May was charged twice.", "The site is down.", "The site is down again.")
    joined = answers(artifact, open_model(DEFAULT), texts)
    separately(monkeypatch)
    apart = answers(artifact, open_model(DEFAULT), texts)
    assert [result.sequential_forward_passes for result in joined] == [1] * 3
    assert [result.sequential_forward_passes for result in apart] == [2] * 3
    assert largest_gap(joined, apart) <= 1e-4


@pytest.mark.parametrize("context", ["", "abc", "x" * 400, "x" * 600, "x" * 1024, "x" * 1500])
def test_the_counts_say_what_ran(context):
    model = TableModel(table(1))
    with Engine(ARTIFACT, loaded(model)) as engine:
        before = len(model.appended)
        result = engine.run(context)
    ran = model.appended[before:]
    prompt = len(assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, context)) - 1 - HEAD
    assert sum(ran) == result.positions == prompt + result.nodes
    assert len(ran) == result.forward_passes
    assert max(ran) <= CHUNK
    joined = prompt % CHUNK + result.nodes <= CHUNK
    assert (ran[-1] == prompt % CHUNK + result.nodes) == joined
    alone = not (joined and prompt < CHUNK)
    assert result.sequential_forward_passes == 1 + alone
    assert (result.prefill_ms > 0) == alone


def test_what_a_joined_forward_leaves_is_the_prompt_and_nothing_else():
    model = TableModel(table(2))
    with Engine(ARTIFACT, loaded(model)) as engine:
        for context in ("abcdef", "abcdef", "abcxyz", "abc", ""):
            judge = Brute(ARTIFACT, table(2), assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, context))
            result = engine.run(context)
            for name, field in result.fields.items():
                expected, _ = judge.probabilities(name, "joint")
                values = [candidate.value for candidate in ARTIFACT.field(name).candidates]
                assert [dict(field.distribution)[v] for v in values] == pytest.approx(expected, rel=1e-6)
            with engine.model.prefixes.lease(ARTIFACT.digest, 0) as prefix:
                prompt = assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, context)
                assert [token for token, _ in prefix.sequence.slots] == prompt[:-1].tolist()
                assert prefix.advance(prompt[:-1]) == len(prompt) - 1


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_pass_that_fails_leaves_nothing_torn(failing, monkeypatch):
    """The first of two tree passes takes the prompt along; any of the three steps may fail."""
    model = TableModel(table(3))
    with Engine(ARTIFACT, loaded(model), node_budget=1) as engine:
        expected = engine.run("abd").answers
        left = [failing]
        honest = prefix_module.Prefix.branch

        def branch(*args):
            left[0] -= 1
            if not left[0]:
                raise ScoreError("made", "fails")
            return honest(*args)

        with monkeypatch.context() as patch:
            patch.setattr(prefix_module.Prefix, "branch", branch)
            for _ in range(failing):
                try:
                    engine.run("abc")
                except ScoreError:
                    break
            else:
                pytest.fail("nothing failed")
        assert engine.run("abd").answers == expected
