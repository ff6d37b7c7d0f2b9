"""Scores of whole requests: known right values, and brute force over table models."""

import math
from itertools import permutations

import pytest
from brute import Brute
from fakes import TableModel, loaded, make_artifact, seeded, spelled, table
from pcdc_runtime.engine import Engine
from pcdc_runtime.rules import RULES
from pcdc_runtime.tokenizer import assemble_prompt

CONTEXT = "My order never came."


def ask(artifact, rule, **options):
    with Engine(artifact, loaded(TableModel(rule))) as engine:
        return engine.run(CONTEXT, **options)


def by_choice(field):
    return dict(field.distribution)


SHIPPING = {"SHIPPING": [(["SH", "IPPING"], ['"'])], "REFUND": [(["RE", "FUND"], ['"'])]}
LEAK = table(
    {
        (): {"SH": 0.6, "RE": 0.4},
        ("SH",): {"IPPING": 0.01},
        ("RE",): {"FUND": 0.9},
        ("SH", "IPPING"): {'"': 1.0},
        ("RE", "FUND"): {'"': 1.0},
    }
)


def test_whole_choice_scoring_is_not_fooled_by_a_first_token_that_leads_nowhere():
    """Field report 07."""
    field = ask(make_artifact({"f": SHIPPING}), LEAK).fields["f"]
    assert by_choice(field) == {
        "REFUND": pytest.approx(0.36 / 0.366),
        "SHIPPING": pytest.approx(0.006 / 0.366),
    }
    assert field.value == "REFUND"
    assert field.prob == pytest.approx(0.984, abs=5e-4)


def test_per_node_scoring_is_fooled_and_the_legal_mass_shows_the_leak():
    """Field report 07."""
    result = ask(make_artifact({"f": SHIPPING}), LEAK, scoring="trie")
    field = result.fields["f"]
    assert result.scoring == "trie"
    assert by_choice(field) == {"SHIPPING": pytest.approx(0.6), "REFUND": pytest.approx(0.4)}
    assert field.legal_mass == pytest.approx(0.366)


def test_a_long_choice_is_scored_by_its_plain_sum():
    """Field report 08."""
    gas = {"GAS": [(["GAS"], ['"'])], "GASTROENTEROLOGY": [(["GAS", "TRO", "ENTER", "OLOGY"], ['"'])]}
    first, second, third = math.exp(-3.7), math.exp(-0.003), math.exp(-0.002)
    rule = table(
        {
            (): {"GAS": math.exp(-3.1)},
            ("GAS",): {"TRO": first, '"': 1 - first},
            ("GAS", "TRO"): {"ENTER": second},
            ("GAS", "TRO", "ENTER"): {"OLOGY": third},
            ("GAS", "TRO", "ENTER", "OLOGY"): {'"': 1.0},
        }
    )
    field = ask(make_artifact({"f": gas}), rule).fields["f"]
    assert field.value == "GAS"
    assert field.log_scores == (
        pytest.approx(-3.1 + math.log(1 - first), abs=1e-6),
        pytest.approx(-3.1 - 3.7 - 0.003 - 0.002, abs=1e-6),
    )


PAPER = {
    "soccer gloves": [(["soccer", "gloves"], ['"'])],
    "used shirts": [(["used", "shirts"], ['"'])],
    "used soccer shoes": [(["used", "soccer", "shoes"], ['"'])],
}
PAPER_MODEL = table(
    {
        (): {"soccer": 0.6, "used": 0.4},
        ("soccer",): {"gloves": 0.1, "shoes": 0.9},
        ("used",): {"shirts": 0.1, "soccer": 0.9},
        ("used", "soccer"): {"shoes": 0.9, "gloves": 0.1},
        ("soccer", "gloves"): {'"': 1.0},
        ("used", "shirts"): {'"': 1.0},
        ("used", "soccer", "shoes"): {'"': 1.0},
    }
)


def test_the_papers_example_is_answered_by_what_the_model_believes():
    field = ask(make_artifact({"f": PAPER}), PAPER_MODEL).fields["f"]
    assert field.value == "used soccer shoes"
    assert field.legal_mass == pytest.approx(0.424)
    assert by_choice(field) == {
        "used soccer shoes": pytest.approx(0.324 / 0.424),
        "soccer gloves": pytest.approx(0.06 / 0.424),
        "used shirts": pytest.approx(0.04 / 0.424),
    }


def test_the_papers_example_is_biased_under_per_node_scoring():
    field = ask(make_artifact({"f": PAPER}), PAPER_MODEL, scoring="trie").fields["f"]
    assert by_choice(field) == {
        "soccer gloves": pytest.approx(0.6),
        "used soccer shoes": pytest.approx(0.36),
        "used shirts": pytest.approx(0.04),
    }
    assert field.legal_mass == pytest.approx(0.424)


def two_logits(path):
    import numpy as np

    row = np.full(320, -30.0)
    row[ord("t")], row[ord("f")] = 4.1, 1.8
    return row


BOOLEAN = {True: [(["t"], [","])], False: [(["f"], [","])]}


@pytest.mark.parametrize("scoring", ["trie", "identify"])
@pytest.mark.parametrize(("temperature", "sure"), [(0.5, 0.99005), (1, 0.90888), (2, 0.75951)])
def test_temperature_flattens_probabilities_and_keeps_the_answer(temperature, sure, scoring):
    """Field report 52."""
    field = ask(make_artifact({"f": BOOLEAN}), two_logits, scoring=scoring, temperature=temperature).fields[
        "f"
    ]
    assert field.value is True
    assert field.distribution == (
        (True, pytest.approx(sure, abs=2e-5)),
        (False, pytest.approx(1 - sure, abs=2e-5)),
    )
    assert field.margin == pytest.approx(2.3, abs=1e-5)


@pytest.mark.parametrize("continues", [0.9, 0.2])
@pytest.mark.parametrize("scoring", RULES)
def test_closing_competes_with_continuing_where_one_choice_begins_another(continues, scoring):
    """Field report 04."""
    choices = {"BILLING": [(["BILLING"], ['"'])], "BILLING_DISPUTE": [(["BILLING", "_DISPUTE"], ['"'])]}
    rule = table(
        {
            (): {"BILLING": 1.0},
            ("BILLING",): {'"': 1 - continues, "_DISPUTE": continues},
            ("BILLING", "_DISPUTE"): {'"': 1.0},
        }
    )
    field = ask(make_artifact({"f": choices}), rule, scoring=scoring).fields["f"]
    assert field.value == ("BILLING_DISPUTE" if continues > 0.5 else "BILLING")
    assert by_choice(field)["BILLING"] == pytest.approx(1 - continues)
    assert sum(by_choice(field).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("scoring", RULES)
def test_choices_that_share_their_first_tokens_are_told_apart_by_the_rest(scoring):
    """Field report 06."""
    rule = table(
        {
            (): {"P": 0.5},
            ("P",): {"0": 0.1, "1": 0.2, "2": 0.3, "3": 0.4},
            **{("P", d): {'"': 0.5} for d in "0123"},
        }
    )
    field = ask(make_artifact({"f": spelled("P0", "P1", "P2", "P3")}), rule, scoring=scoring).fields["f"]
    assert field.value == "P3"
    assert [value for value, _ in field.distribution] == ["P3", "P2", "P1", "P0"]
    assert [p for _, p in field.distribution] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert field.legal_mass == pytest.approx(0.5 if scoring == "identify" else 0.25)
    assert field.legal_mass_is_upper_bound == (scoring == "identify")


def test_a_distribution_that_holds_almost_no_mass_says_so():
    """Field report 56."""
    tiny = table({(): {"A": 0.99e-6, "B": 0.01e-6}, ("A",): {'"': 1.0}, ("B",): {'"': 1.0}})
    field = ask(make_artifact({"f": {"A": [(["A"], ['"'])], "B": [(["B"], ['"'])]}}), tiny).fields["f"]
    assert field.prob == pytest.approx(0.99)
    assert field.legal_mass == pytest.approx(1e-6)


@pytest.mark.parametrize("labels", ["ABC", "CAB", "BCA"])
def test_report_56_the_order_of_choices_decides_nothing_that_the_model_does_not_see(labels):
    rule = table({(): {"A": 0.2, "B": 0.5, "C": 0.1}, **{(label,): {'"': 1.0} for label in labels}})
    field = ask(make_artifact({"f": spelled(*labels)}), rule).fields["f"]
    assert [value for value, _ in field.distribution] == ["B", "A", "C"]
    assert [p for _, p in field.distribution] == pytest.approx([0.625, 0.25, 0.125])
    assert field.legal_mass == pytest.approx(0.8)


MIXED = {
    "urgent": {
        True: [([" ", "t"], [",", "}"]), ([" ", '"', "t"], ['"', '",'])],
        False: [([" ", "f"], [",", "}"]), ([" ", '"', "f"], ['"', '",'])],
        None: [([" ", '"', "n", "o"], ['"'])],
    },
    "licence": {
        "GPL": [(["G", "P", "L"], ['"', '",']), (["GPL"], ['"'])],
        "GPL+": [(["G", "P", "L"], ['+"']), (["G", "P", "L", "+"], ['"']), (["GP", "L", "+"], ['"', '"}'])],
        "MIT": [(["M"], ["IT"]), (["M", "I", "T"], ['"'])],
        "|": [([], ['|"']), (["|"], ['"'])],
    },
    "level": spelled("low", "lower", "lowest", "high"),
}


@pytest.mark.parametrize("scoring", RULES)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_scores_equal_brute_force(seed, scoring, temperature):
    artifact = make_artifact(MIXED)
    model = TableModel(seeded(seed))
    with Engine(artifact, loaded(model)) as engine:
        result = engine.run(CONTEXT, scoring=scoring, temperature=temperature)
        prompt = assemble_prompt(engine.model.tokenizer, artifact.prompt, CONTEXT)
    judge = Brute(artifact, model.rule, prompt)
    for name, field in result.fields.items():
        expected, mass = judge.probabilities(name, scoring, temperature)
        values = [candidate.value for candidate in artifact.field(name).candidates]
        assert [by_choice(field)[value] for value in values] == pytest.approx(expected, rel=1e-5, abs=1e-12)
        assert field.legal_mass == pytest.approx(mass, rel=1e-5)


def test_legal_mass_is_the_same_under_joint_and_trie_and_bounded_under_identify():
    masses = {}
    for scoring in RULES:
        result = ask(make_artifact(MIXED), seeded(11), scoring=scoring)
        masses[scoring] = [field.legal_mass for field in result.answers]
    assert masses["trie"] == masses["joint"]
    assert all(bound >= mass for bound, mass in zip(masses["identify"], masses["joint"], strict=True))


@pytest.mark.parametrize("scoring", RULES)
def test_any_subset_of_fields_in_any_order_gives_the_same_scores(scoring):
    """Field report 49 and field report 51."""
    artifact = make_artifact(MIXED)
    with Engine(artifact, loaded(TableModel(seeded(3)))) as engine:
        whole = engine.run(CONTEXT, scoring=scoring).fields
        for size in (1, 2, 3):
            for names in permutations(MIXED, size):
                result = engine.run(CONTEXT, scoring=scoring, fields=names)
                assert tuple(result.fields) == names
                assert all(result.fields[name] == whole[name] for name in names)


@pytest.mark.parametrize("scoring", RULES)
def test_leaving_out_legal_mass_never_changes_a_probability(scoring):
    artifact = make_artifact(MIXED)
    with Engine(artifact, loaded(TableModel(seeded(4)))) as engine:
        with_mass = engine.run(CONTEXT, scoring=scoring)
        without = engine.run(CONTEXT, scoring=scoring, legal_mass=False)
    for a, b in zip(with_mass.answers, without.answers, strict=True):
        assert b.legal_mass is None
        assert not b.legal_mass_is_upper_bound
        assert a.log_scores == b.log_scores


@pytest.mark.parametrize("scoring", RULES)
def test_a_small_node_budget_splits_whole_fields_and_never_changes_a_score(scoring):
    artifact = make_artifact(MIXED)
    with Engine(artifact, loaded(TableModel(seeded(5)))) as engine:
        whole = engine.run(CONTEXT, scoring=scoring)
    with Engine(artifact, loaded(TableModel(seeded(5))), node_budget=1) as engine:
        split = engine.run(CONTEXT, scoring=scoring)
    assert split.answers == whole.answers
    assert (whole.sequential_forward_passes, split.sequential_forward_passes) == (1, 3)
    assert (whole.forward_passes, split.forward_passes) == (1, 3)
