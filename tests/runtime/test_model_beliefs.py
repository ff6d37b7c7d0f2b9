"""Beliefs of a real model below one prompt: nodes extend earlier ones, each against a full forward."""

import mlx.core as mx
import numpy as np
import pytest
from fakes import TableModel, seeded
from forest import gap, log_softmax, tiny
from pcdc_runtime import score
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.prefix import Prefix
from pcdc_runtime.selecting.model_beliefs import ModelBeliefs
from seeded import VOCAB
from seeded import seeded as plain_model

PROMPT = np.random.default_rng(11).integers(0, VOCAB, 41).astype(np.int32)
PASSES = [([0, 0, 1, 3], [5, 6, 7, 8]), ([2, 4, 0, 5], [9, 10, 11, 12]), ([8, 1, 10], [13, 14, 15])]
"""Parents and tokens: below node 0, below nodes of earlier passes, and below nodes of the same pass."""
FAMILIES = ("llama", "mistral", "gemma2", "cohere2", "qwen3_moe", "gpt_oss")


def prefix(sequence):
    return Prefix(sequence, lambda: None)


def grown(beliefs):
    for parents, tokens in PASSES:
        beliefs.grow(parents, tokens)
    return beliefs


def paths():
    found = [()]
    for parents, tokens in PASSES:
        for parent, token in zip(parents, tokens, strict=True):
            found.append((*found[parent], token))
    return found


def by_full_forwards(family, prompt=PROMPT, temperature=1.0):
    model = plain_model(family)
    rows = [model(mx.array([[*prompt.tolist(), *path]]))[0, -1:] for path in paths()]
    return np.concatenate([log_softmax(row / temperature) for row in rows])


def log_probs(read):
    return np.array(read.logit, dtype=np.float64) - read.norm[:, None]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_node_believes_what_its_own_full_forward_says(family):
    beliefs = grown(ModelBeliefs(prefix(tiny(family).sequence()), PROMPT))
    read = beliefs.read(range(beliefs.nodes))
    assert gap(log_probs(read), by_full_forwards(family)) < 1e-4


@pytest.mark.parametrize("temperature", [0.25, 3.0])
def test_a_temperature_divides_the_logits_of_every_token(temperature):
    beliefs = grown(ModelBeliefs(prefix(tiny("llama").sequence()), PROMPT, temperature))
    read = beliefs.read([4, 0, 11, 2])
    assert gap(log_probs(read), by_full_forwards("llama", temperature=temperature)[[4, 0, 11, 2]]) < 1e-4


@pytest.mark.parametrize("temperature", [1e-308, 1e308])
def test_no_temperature_makes_a_belief_no_number(temperature):
    read = ModelBeliefs(prefix(tiny("llama").sequence()), PROMPT, temperature).read([0])
    expected = np.zeros(VOCAB) if temperature < 1 else np.full(VOCAB, -np.log(VOCAB))
    best = int(log_probs(read)[0].argmax())
    assert log_probs(read)[0, best] == pytest.approx(expected[best], abs=1e-5)
    assert np.exp(log_probs(read)[0]).sum() == pytest.approx(1)


def test_nodes_of_different_passes_are_read_in_the_order_asked(monkeypatch):
    beliefs = grown(ModelBeliefs(prefix(tiny("llama").sequence()), PROMPT))
    whole = log_probs(beliefs.read(range(beliefs.nodes)))
    asked = [10, 3, 0, 7, 3, 11]
    assert gap(log_probs(beliefs.read(asked)), whole[asked]) < 1e-5
    monkeypatch.setattr(score, "CHUNK_BYTES", 8 * VOCAB)
    monkeypatch.setattr(score, "CHUNK_BYTES_X86", 8 * VOCAB)
    assert gap(log_probs(beliefs.read(asked)), whole[asked]) < 1e-5


def test_a_read_before_any_growth_runs_node_0_alone():
    model = TableModel(seeded(3))
    beliefs = ModelBeliefs(prefix(model.sequence()), np.arange(9, dtype=np.int32))
    beliefs.read([0])
    assert (beliefs.nodes, beliefs.passes) == (1, 1)
    assert beliefs.grow([0, 1], [40, 41]) == [1, 2]
    assert (beliefs.nodes, beliefs.passes) == (3, 2)
    beliefs.read([2, 0])
    assert model.rows_read[-2:] == [(*range(9), 40, 41), tuple(range(9))]


def test_a_short_prompt_goes_in_one_forward_with_the_first_pass():
    model = TableModel(seeded(3))
    beliefs = ModelBeliefs(prefix(model.sequence()), np.arange(9, dtype=np.int32))
    assert beliefs.grow([0], [40]) == [1]
    assert model.appended == [10]
    assert (beliefs.prefilled, beliefs.prefill_ms) == (False, 0.0)
    assert (beliefs.nodes, beliefs.passes) == (2, 1)


def test_a_long_prompt_has_forwards_of_its_own():
    model = TableModel(seeded(3))
    beliefs = ModelBeliefs(prefix(model.sequence()), np.arange(1200, dtype=np.int32) % 200)
    beliefs.read([0])
    assert model.appended == [512, 512, 176]
    assert beliefs.prefilled


def test_what_a_sequence_holds_of_a_prompt_is_not_run_again():
    model = TableModel(seeded(3))
    kept = prefix(model.sequence())
    grown(ModelBeliefs(kept, np.arange(9, dtype=np.int32)))
    beliefs = ModelBeliefs(kept, np.array([0, 1, 2, 3, 4, 5, 20, 21], dtype=np.int32))
    assert beliefs.cached == 6
    beliefs.read([0])
    assert model.appended[-1] == 2
    assert model.rows_read[-1] == (0, 1, 2, 3, 4, 5, 20, 21)


def test_with_room_nothing_is_copied_and_without_only_growth_copies():
    for room, copied in ((600, 0), (1, 256)):
        model = tiny("llama", chunk=512)
        beliefs = ModelBeliefs(prefix(model.sequence()), PROMPT, room=room)
        for _ in range(28):
            beliefs.grow([0] * 8, list(range(8)))
        assert beliefs._prefix.sequence.bytes_copied <= copied * model.kv_bytes_per_token
        assert (beliefs._prefix.sequence.bytes_copied == 0) == (copied == 0)


def test_what_the_caller_raises_before_a_pass_ends_the_search():
    class GivenUpError(Exception):
        pass

    def go_on():
        raise GivenUpError

    beliefs = ModelBeliefs(Prefix(TableModel(seeded(3)).sequence(), go_on), np.arange(9, dtype=np.int32))
    with pytest.raises(GivenUpError):
        beliefs.read([0])


@pytest.mark.parametrize("row", [np.nan, np.inf, -np.inf])
def test_a_model_that_gives_no_number_is_told_of_by_name(row):
    model = TableModel(lambda path: np.full(320, row))
    beliefs = ModelBeliefs(prefix(model.sequence()), np.arange(3, dtype=np.int32), subject="index drugs")
    with pytest.raises(ScoreError, match="index drugs"):
        beliefs.read([0])


def test_only_nodes_that_ran_can_be_parents_or_read():
    beliefs = ModelBeliefs(prefix(TableModel(seeded(3)).sequence()), np.arange(3, dtype=np.int32))
    for parents, tokens in (([1], [5]), ([-1], [5]), ([], []), ([0], [5, 6])):
        with pytest.raises(ValueError, match=r"parent|nodes"):
            beliefs.grow(parents, tokens)
    for nodes in ([1], [-1], []):
        with pytest.raises(ValueError, match="nodes"):
            beliefs.read(nodes)
