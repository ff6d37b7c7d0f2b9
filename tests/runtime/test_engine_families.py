"""The engine on real mlx-lm code: tiny seeded models behind the byte tokenizer."""

from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from brute import Brute
from fakes import WIDTH, byte_tokenizer, forked, make_artifact, spelled
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.model import load_model
from pcdc_runtime.rules import RULES
from pcdc_runtime.score import drift_band
from pcdc_runtime.tokenizer import assemble_prompt
from seeded import seeded, write_folder

ARTIFACT = make_artifact(
    {
        "level": spelled("low", "lower", "high"),
        "open": {True: [(["t"], [","]), (['"', "t"], ['"'])], False: [(["f"], [","]), (['"', "f"], ['"'])]},
        "team": spelled("ops", "sales"),
    }
)
CONTEXT = "No invoice."


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def engine(family, tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp(family), family, vocab_size=WIDTH)
    with Engine(ARTIFACT, LoadedModel(family, lambda: (load_model(folder), byte_tokenizer()))) as engine:
        yield engine


@pytest.mark.parametrize("scoring", RULES)
def test_scores_of_a_tree_pass_equal_one_full_forward_per_path(engine, family, scoring):
    plain = seeded(family, vocab_size=WIDTH)

    @cache
    def rule(path):
        return np.array(plain(mx.array([path]))[0, -1].astype(mx.float32))

    judge = Brute(ARTIFACT, rule, assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, CONTEXT))
    result = engine.run(CONTEXT, scoring=scoring)
    for name, field in result.fields.items():
        expected, mass = judge.probabilities(name, scoring)
        values = [candidate.value for candidate in ARTIFACT.field(name).candidates]
        assert [dict(field.distribution)[v] for v in values] == pytest.approx(expected, rel=1e-3)
        assert field.legal_mass == pytest.approx(mass, rel=1e-3)


@pytest.mark.parametrize("scoring", RULES)
def test_company_order_and_reuse_move_a_score_by_less_than_the_drift_band(engine, scoring):
    """Field report 51."""
    whole = engine.run(CONTEXT, scoring=scoring).fields
    engine.run("Something else entirely.")
    for names in (["team"], ["open", "level"], ["team", "open", "level"]):
        for name, field in engine.run(CONTEXT, scoring=scoring, fields=names).fields.items():
            drift = np.abs(np.subtract(field.log_scores, whole[name].log_scores)).max()
            assert drift < drift_band("float32") / 10
            assert field.value == whole[name].value


def test_no_request_copies_a_prefix(engine):
    engine.run(CONTEXT + " " * 300)
    with engine.model.prefixes.lease(ARTIFACT.digest, 0) as prefix:
        copied = prefix.sequence.bytes_copied
    for context in (CONTEXT, "Another.", CONTEXT):
        engine.run(context)
    with engine.model.prefixes.lease(ARTIFACT.digest, 0) as prefix:
        assert prefix.sequence.bytes_copied == copied


def test_a_fork_beside_a_real_model_is_an_error_not_a_hang(engine):
    engine.run(CONTEXT)
    assert forked(engine) == 0
    assert engine.run(CONTEXT).values
