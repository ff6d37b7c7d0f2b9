"""What a plan runs and reads."""

import numpy as np
import pytest
from fakes import ROOT, make_artifact, spelled
from pcdc_runtime.plan import make_plans
from pcdc_runtime.rules import RULES, rule_bit

ARTIFACT = make_artifact(
    {
        "level": spelled("low", "lower", "high"),
        "open": {True: [(["t"], [","]), (['"', "t"], ['"'])], False: [(["f"], [","]), (['"', "f"], ['"'])]},
        "team": spelled("a", "b"),
    }
)


def only(rule, fields, *, legal_mass=True):
    (plan,) = make_plans(ARTIFACT, rule, fields, legal_mass, 4096)
    return plan


def spelled_nodes(plan, nodes):
    paths = []
    for node in nodes:
        path = []
        while node > 0:
            path.insert(0, chr(plan.token[node]))
            node = int(plan.parent[node])
        paths.append("".join(path))
    return set(paths)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("fields", [(0,), (2, 0), (0, 1, 2)])
def test_parents_come_first_and_node_zero_is_the_last_prompt_token(rule, fields):
    plan = only(rule, fields)
    assert (plan.token[0], plan.parent[0]) == (ROOT, -1)
    assert (plan.parent[1:] < np.arange(1, len(plan.parent))).all()
    assert (plan.parent[1:] >= 0).all()


def test_identify_runs_fewest_nodes_and_reads_up_to_the_deciding_event():
    plan = only("identify", (0,))
    assert spelled_nodes(plan, plan.row) == {"level:", "level:l", "level:lo", "level:low"}
    joint = only("joint", (0,))
    assert spelled_nodes(joint, joint.row) == {
        *(f"level:{'lower'[:n]}" for n in range(6)),
        *(f"level:{'high'[:n]}" for n in range(5)),
    }


def test_trie_reads_only_nodes_with_a_choice_to_make():
    plan = only("trie", (0,), legal_mass=False)
    assert spelled_nodes(plan, plan.row) == {"level:", "level:low"}
    assert not plan.reads_vocabulary


def test_trie_with_legal_mass_runs_the_nodes_of_joint():
    joint, trie = only("joint", (0, 1)), only("trie", (0, 1))
    assert trie.token.tolist() == joint.token.tolist()
    assert trie.row.tolist() == joint.row.tolist()
    assert trie.reads_vocabulary


def test_nothing_of_other_fields_is_run():
    assert all(
        path.startswith("team:"[: len(path)]) for path in spelled_nodes(only("joint", (2,)), range(1, 6))
    )


def test_every_pick_is_taken_once_and_end_sets_once_each():
    plan = only("joint", (0, 1, 2))
    edges = list(zip(plan.pick_row[: len(plan.edge_token)].tolist(), plan.edge_token.tolist(), strict=True))
    assert len(edges) == len(set(edges))
    assert edges == sorted(edges)
    assert len(plan.ends) == len({tuple(end.ids.tolist()) for end in plan.ends})
    assert [end.first for end in plan.ends] == [len(edges), *(end.last for end in plan.ends)][:-1]
    assert plan.ends[-1].last == len(plan.pick_row)


@pytest.mark.parametrize("budget", [1, 5, 12, 20, 4096])
def test_a_budget_keeps_fields_whole_and_each_pass_within_it_where_a_field_fits(budget):
    plans = make_plans(ARTIFACT, "joint", (2, 1, 0), True, budget)
    assert [index for plan in plans for index in plan.fields] == [0, 1, 2]
    for plan in plans:
        assert len(plan.token) <= budget or len(plan.fields) == 1


@pytest.mark.parametrize("rule", RULES)
def test_marked_nodes_of_an_artifact_cover_what_its_rule_runs(rule):
    marked = {
        (int(t), int(d))
        for t, d, reads in zip(ARTIFACT.nodes.token, ARTIFACT.nodes.depth, ARTIFACT.nodes.reads, strict=True)
        if reads & rule_bit(rule)
    }
    plan = only(rule, (0, 1, 2), legal_mass=False)
    assert set(plan.token.tolist()) <= {token for token, _ in marked}
    assert plan.deepest <= max(depth for _, depth in marked)
