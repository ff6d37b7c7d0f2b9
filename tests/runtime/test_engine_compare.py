"""Several rules from one pass: the same answers as one run for each."""

import pytest
from fakes import TableModel, loaded, make_artifact, seeded, spelled
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import ContextNotTextError, EngineClosedError, UnknownFieldError, UnknownScoringError
from pcdc_runtime.rules import RULES

CONTEXT = "My order never came."
FIELDS = {
    "urgent": {
        True: [([" ", "t"], [",", "}"]), ([" ", '"', "t"], ['"', '",'])],
        False: [([" ", "f"], [",", "}"]), ([" ", '"', "f"], ['"', '",'])],
    },
    "licence": {
        "GPL": [(["G", "P", "L"], ['"', '",']), (["GPL"], ['"'])],
        "GPL+": [(["G", "P", "L"], ['+"']), (["G", "P", "L", "+"], ['"'])],
        "MIT": [(["M"], ["IT"]), (["M", "I", "T"], ['"'])],
    },
    "level": spelled("low", "lower", "lowest", "high"),
}
ARTIFACT = make_artifact(FIELDS)


@pytest.mark.parametrize("budget", [4096, 1])
@pytest.mark.parametrize("seed", range(4))
def test_compared_rules_score_as_runs_of_their_own(seed, budget):
    with Engine(ARTIFACT, loaded(TableModel(seeded(seed))), node_budget=budget) as engine:
        compared = engine.compare(CONTEXT)
        alone = {rule: engine.run(CONTEXT, scoring=rule) for rule in RULES}
    assert list(compared) == list(RULES)
    for rule, result in compared.items():
        assert result.scoring == rule
        assert result.values == alone[rule].values
        for one, other in zip(result.answers, alone[rule].answers, strict=True):
            assert one.log_scores == pytest.approx(other.log_scores, abs=1e-6)
            assert one.legal_mass == pytest.approx(other.legal_mass, abs=1e-6)
            assert one.legal_mass_is_upper_bound == other.legal_mass_is_upper_bound


def test_all_rules_cost_one_tree_pass_over_the_union_of_their_nodes():
    model = TableModel(seeded(1))
    with Engine(ARTIFACT, loaded(model)) as engine:
        before = len(model.appended)
        compared = engine.compare(CONTEXT)
        assert len(model.appended) - before == 1
        read = model.rows_read[:]
        assert len(set(read)) >= len(read) - 1
        nodes = {rule: engine.run(CONTEXT, scoring=rule).nodes for rule in RULES}
    assert {result.nodes for result in compared.values()} == {max(nodes.values())}
    assert {result.sequential_forward_passes for result in compared.values()} == {1}
    assert nodes["identify"] < nodes["joint"]


def test_compared_rules_and_fields_are_those_asked_for_in_the_order_asked():
    with Engine(ARTIFACT, loaded(TableModel(seeded(2)))) as engine:
        compared = engine.compare(CONTEXT, ["trie", "joint", "trie"], fields=["level", "urgent"])
        assert list(compared) == ["trie", "joint"]
        assert all(list(result.fields) == ["level", "urgent"] for result in compared.values())
        assert list(engine.compare(CONTEXT, "identify")) == ["identify"]


def test_a_comparison_refuses_what_a_run_refuses():
    with Engine(ARTIFACT, loaded(TableModel(seeded(2)))) as engine:
        for rules in (["best"], [], [3]):
            with pytest.raises(UnknownScoringError):
                engine.compare(CONTEXT, rules)
        with pytest.raises(ContextNotTextError):
            engine.compare(3)
        with pytest.raises(UnknownFieldError):
            engine.compare(CONTEXT, fields=["colour"])
    with pytest.raises(EngineClosedError):
        engine.compare(CONTEXT)
