"""From raw logits to a decision: broken logits, ties, drift, bounded memory."""

import math
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from fakes import WIDTH, TableModel, make_artifact, seeded, spelled
from pcdc_runtime import score
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.plan import make_plans
from pcdc_runtime.rules import RULES

ABC = {"f": {"A": [(["A"], ['"'])], "B": [(["B"], ['"'])], "C": [(["C"], ['"'])]}}


def first_row(*logits, elsewhere=-40.0):
    """A model that gives A, B, C these logits after the anchor and closes any of them for sure."""

    def rule(path):
        row = np.full(WIDTH, elsewhere)
        if path[-1] == ord(":"):
            row[[ord(c) for c in "ABC"]] = logits
        else:
            row[ord('"')] = 0.0
        return row

    return rule


def answer(rule, scoring="joint", *, fields=ABC, temperature=1.0, band=1e-3, legal_mass=True):
    artifact = make_artifact(fields)
    (plan,) = make_plans(artifact, scoring, range(len(artifact.fields)), legal_mass, 4096)
    sequence = TableModel(rule).sequence()
    hidden = sequence.append(plan.token, plan.parent)
    weighed = score.weigh(plan, score.read(sequence, hidden, plan), artifact.fields)
    return [
        score.decide(field, scores, temperature, upper_bound=scoring == "identify", band=band)
        for field, scores in zip(artifact.fields, weighed, strict=True)
    ]


@pytest.mark.parametrize("scoring", RULES)
@pytest.mark.parametrize("legal_mass", [True, False])
@pytest.mark.parametrize(
    "logits",
    [(math.nan, 1, 2), (1, 2, math.nan), (math.inf, 1, 2), (1, math.inf, -math.inf), (-math.inf,) * 3],
)
def test_broken_logits_are_an_error_that_names_the_field(logits, scoring, legal_mass):
    """Field report 52."""
    with pytest.raises(ScoreError, match="field f"):
        answer(first_row(*logits), scoring, legal_mass=legal_mass)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_logit_outside_the_choices_is_an_error_too(broken):
    def rule(path):
        row = first_row(1, 2, 3)(path)
        row[5] = broken
        return row

    with pytest.raises(ScoreError, match="field f"):
        answer(rule)


def test_the_error_names_the_broken_field_among_others():
    def rule(path):
        return np.full(WIDTH, math.nan) if bytes(path[-2:]) == b"g:" else first_row(1, 2, 3)(path)

    with pytest.raises(ScoreError, match="field g"):
        answer(rule, fields={"f": ABC["f"], "g": ABC["f"], "h": ABC["f"]})


@pytest.mark.parametrize("scoring", RULES)
def test_one_impossible_choice_has_probability_zero(scoring):
    (field,) = answer(first_row(1, -math.inf, 2), scoring)
    assert field.value == "C"
    assert field.distribution[2] == ("B", 0.0)
    assert sum(p for _, p in field.distribution) == pytest.approx(1.0)


def test_a_lone_possible_choice_wins_by_an_infinite_margin():
    (field,) = answer(first_row(-math.inf, 1, -math.inf))
    assert (field.value, field.prob, field.margin, field.near_tie) == ("B", 1.0, math.inf, False)


def test_a_node_that_offers_nothing_possible_gives_its_choices_nothing():
    choices = {"f": {"A1": [(["A", "1"], ['"'])], "A2": [(["A", "2"], ['"'])], "B": [(["B"], ['"'])]}}

    def rule(path):
        return np.full(WIDTH, -math.inf) if path[-1] == ord("A") else first_row(9, 1, 1)(path)

    (field,) = answer(rule, "trie", fields=choices, legal_mass=False)
    assert dict(field.distribution) == {"A1": 0.0, "A2": 0.0, "B": 1.0}


@pytest.mark.parametrize("scoring", RULES)
@pytest.mark.parametrize("logits", [(2, 2, 2), (1, 2, 2), (0.0, -0.0, -5)])
def test_equal_scores_go_to_the_first_declared_and_are_flagged(logits, scoring):
    """Field report 51."""
    (field,) = answer(first_row(*logits), scoring)
    assert field.value == "ABC"[logits.index(max(logits))]
    assert (field.tie, field.near_tie, field.margin) == (True, True, 0.0)


def test_ties_in_a_distribution_keep_declaration_order():
    (field,) = answer(first_row(1, 2, 1))
    assert [value for value, _ in field.distribution] == ["B", "A", "C"]


def test_logits_that_half_precision_cannot_tell_apart_are_a_tie():
    """Field report 51."""
    rounded = [float(x) for x in mx.array([10.01, 10.02, 0]).astype(mx.bfloat16).astype(mx.float32).tolist()]
    (field,) = answer(first_row(*rounded))
    assert (field.value, field.tie) == ("A", True)


@pytest.mark.parametrize(
    ("dtype", "near"), [("float32", False), ("bfloat16", True), ("mlx.core.float16", True)]
)
def test_a_margin_within_the_types_drift_is_a_near_tie(dtype, near):
    """Field report 51."""
    (field,) = answer(first_row(10.01, 10.03, 0), band=score.drift_band(dtype))
    assert (field.value, field.tie, field.near_tie) == ("B", False, near)
    assert field.margin == pytest.approx(0.02, abs=1e-5)


def test_an_unknown_type_gets_the_widest_band():
    assert score.drift_band("float8") == max(score.DRIFT_BAND.values())


@pytest.mark.parametrize("temperature", [1e-300, 1e-3, 0.5, 1, 7, 1e300])
def test_temperature_never_changes_the_answer_or_the_margin(temperature):
    plain = answer(seeded(9), fields={"f": spelled("ab", "ac", "b", "cab")})[0]
    heated = answer(seeded(9), fields={"f": spelled("ab", "ac", "b", "cab")}, temperature=temperature)[0]
    assert (heated.value, heated.margin) == (plain.value, plain.margin)
    assert [value for value, _ in heated.distribution] == [value for value, _ in plain.distribution]
    assert sum(p for _, p in heated.distribution) == pytest.approx(1.0)


def test_log_sum_exp_over_a_large_vocabulary_is_exact_to_a_few_millionths():
    logits = np.random.default_rng(0).standard_normal((2, 150_001)).astype(np.float32) * 5
    exact = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    assert np.abs(np.array(score.row_logsumexp(mx.array(logits))) - exact).max() < 1e-5


class Watched:
    """A sequence that notes how many rows of logits each call asks for."""

    def __init__(self, sequence):
        self.sequence = sequence
        self.asked = []

    def logits(self, hidden, rows, ids=None):
        self.asked.append(len(rows))
        return self.sequence.logits(hidden, rows, ids)


@pytest.mark.parametrize("rows_at_once", [1, 2, 5, 1000])
def test_logits_are_read_in_chunks_that_never_change_a_score(monkeypatch, rows_at_once):
    artifact = make_artifact({"f": spelled("low", "lower", "high"), "g": spelled("yes", "no", "nope")})
    (plan,) = make_plans(artifact, "joint", (0, 1), True, 4096)
    sequence = TableModel(seeded(2)).sequence()
    hidden = sequence.append(plan.token, plan.parent)
    whole = score.read(sequence, hidden, plan)
    for limit in ("CHUNK_BYTES", "CHUNK_BYTES_X86"):
        monkeypatch.setattr(score, limit, rows_at_once * WIDTH * 4)
    watched = Watched(sequence)
    chunked = score.read(watched, hidden, plan)
    assert max(watched.asked) <= rows_at_once
    assert chunked.pick.tolist() == whole.pick.tolist()
    assert chunked.vocabulary.tolist() == whole.vocabulary.tolist()


def test_mass_above_one_by_rounding_is_reported_as_one():
    artifact = make_artifact(ABC)
    (plan,) = make_plans(artifact, "joint", (0,), True, 4096)
    sequence = TableModel(first_row(1, 2, 3)).sequence()
    reads = score.read(sequence, sequence.append(plan.token, plan.parent), plan)
    nudged = replace(reads, vocabulary=reads.vocabulary - 1e-6)
    assert score.weigh(plan, nudged, artifact.fields)[0].legal_mass == 1.0
