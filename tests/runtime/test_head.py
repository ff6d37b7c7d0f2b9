"""The head at some token ids says what the whole head says there, by every verified family's own code."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from fakes import TableModel, make_artifact, spelled
from fakes import seeded as table
from forest import IDS, gap, tiny
from pcdc_runtime import score
from pcdc_runtime.mlx_model import MlxModel
from pcdc_runtime.plan import make_plans
from seeded import FAMILIES, VOCAB, seeded

SOME = np.array([0, 3, 4, 50, VOCAB - 1], dtype=np.int32)
ROWS = [5, 0, 5, 11]


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_some_columns_are_those_of_the_whole_head_and_nothing_else_is_computed(family, bits):
    model = tiny(family, bits=bits)
    sequence = model.sequence()
    hidden = sequence.append(IDS[:12])
    whole = np.array(sequence.logits(hidden, ROWS))
    some = sequence.logits(hidden, ROWS, SOME)
    assert some.dtype == mx.float32
    assert gap(np.array(some), whole[:, SOME]) <= 1e-4
    # A product with all columns would have another width before the last step.
    assert model.head._at(mx.array(SOME))(hidden[None]).shape == (1, 12, len(SOME))


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_heads_of_one_family(tied):
    sequence = tiny("llama", tie_word_embeddings=tied).sequence()
    hidden = sequence.append(IDS[:12])
    whole = np.array(sequence.logits(hidden, ROWS))
    assert gap(np.array(sequence.logits(hidden, ROWS, SOME)), whole[:, SOME]) <= 1e-4


def wider(language):
    """A head that adds something of its own to each column."""
    honest = type(language).__call__

    class Shifted(type(language)):
        def __call__(self, inputs, cache=None):
            return honest(self, inputs, cache) + mx.arange(VOCAB)[-self.model.embed_tokens.weight.shape[0] :]

    return Shifted


def projected(language):
    """A head whose columns are mixed after the product."""
    honest = type(language).__call__
    mixing = mx.array(np.random.default_rng(1).permutation(np.eye(VOCAB, dtype=np.float32)))

    class Mixed(type(language)):
        def __call__(self, inputs, cache=None):
            return honest(self, inputs, cache) @ mixing

    return Mixed


@pytest.mark.parametrize("change", [wider, projected])
def test_a_head_that_cannot_be_narrowed_is_computed_whole(change):
    language = seeded("llama")
    language.__class__ = change(language)
    model = MlxModel(language, "odd", [None, None])
    sequence = model.sequence()
    hidden = sequence.append(IDS[:12])
    whole = np.array(sequence.logits(hidden, ROWS))
    assert gap(np.array(sequence.logits(hidden, ROWS, SOME)), whole[:, SOME]) == 0


def test_the_models_own_weights_stay_whole():
    model = tiny("llama", tie_word_embeddings=False)
    sequence = model.sequence()
    sequence.logits(sequence.append(IDS[:3]), [0], SOME)
    layers = [
        m for m in model.language.modules() if isinstance(m, nn.Embedding) or m is model.language.lm_head
    ]
    assert [layer.weight.shape[0] for layer in layers] == [VOCAB, VOCAB]


def test_trie_without_legal_mass_asks_for_the_columns_of_its_picks_only():
    artifact = make_artifact({"f": spelled("low", "lower", "high"), "g": spelled("yes", "no", "nope")})
    asked = []

    class Asked:
        def __init__(self, sequence):
            self.sequence = sequence

        def logits(self, hidden, rows, ids=None):
            asked.append(ids)
            return self.sequence.logits(hidden, rows, ids)

    reads = {}
    for legal_mass in (False, True):
        (plan,) = make_plans(artifact, "trie", (0, 1), legal_mass, 4096)
        sequence = TableModel(table(2)).sequence()
        hidden = sequence.append(plan.token, plan.parent)
        reads[legal_mass] = score.weigh(plan, score.read(Asked(sequence), hidden, plan), artifact.fields)
    assert [set(bytes(ids.tolist())) for ids in asked if ids is not None] == [set(b'lhynep"')]
    for narrow, whole in zip(reads[False], reads[True], strict=True):
        assert narrow.log_score.tolist() == pytest.approx(whole.log_score.tolist(), abs=1e-12)
