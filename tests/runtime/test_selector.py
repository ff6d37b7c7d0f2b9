"""Selections on a loaded model: what every method answers, between true bounds, counted as it ran."""

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from fakes import TableModel, loaded, make_artifact, seeded, spelled
from fielded import index_of
from pcdc_runtime.engine import Engine
from pcdc_runtime.selecting import bound, model_beliefs
from pcdc_runtime.selecting.outcome import Sampling
from pcdc_runtime.selecting.selector import LOW_MASS, NOT_MUCH, Selector, _low_mass
from pcdc_runtime.tokenizer import assemble_prompt
from tables import forms_of

LABELS = ("ab", "abc", "b", "ca", "cab", "cc", "dd", "d")
ARTIFACT = make_artifact({"drug": spelled(*LABELS)})
INDEX = index_of(ARTIFACT, "drug")
TEXT = "some text"
SEEDS = range(6)


def likely(seed):
    """A model that writes labels and quotes most of the time, each time with other odds."""
    own = seeded(seed)

    def rule(path):
        logits = own(path).astype(np.float64)
        logits[[ord(c) for c in 'abcd"']] += 9
        return logits.astype(np.float32)

    return rule


def opened(rule, index=INDEX, **settings):
    return Selector(index, loaded(TableModel(rule, **settings)))


def enumerated(selector, context=TEXT, temperature=1.0):
    """P_L of every entry: a row of the table for each token of each form."""
    index, rule = selector.index, selector.model.language.rule
    prompt = tuple(assemble_prompt(selector.model.tokenizer, index.prompt, context).tolist())

    def after(path):
        logits = rule(prompt + path).astype(np.float64) / temperature
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    found = {}
    for entry, path, end in forms_of(index.rows):
        steps = math.prod(after(path[:at])[token] for at, token in enumerate(path))
        found[entry] = found.get(entry, 0.0) + steps * after(path)[list(end)].sum()
    return found


def by_label(selection):
    return {answer.label: math.exp(answer.log_probability) for answer in selection.answers}


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_gives_the_true_order_and_every_probability(seed):
    with opened(likely(seed)) as selector:
        truth = enumerated(selector)
        selection = selector.select(TEXT, k=len(LABELS))
    order = sorted(truth, key=lambda entry: -truth[entry])
    assert [answer.label for answer in selection.answers] == [LABELS[entry] for entry in order]
    assert by_label(selection) == pytest.approx({LABELS[entry]: p for entry, p in truth.items()})
    assert selection.certified
    assert selection.legal_mass == pytest.approx((sum(truth.values()),) * 2)
    shares = [truth[entry] / sum(truth.values()) for entry in order]
    assert [answer.probability for answer in selection.answers] == [pytest.approx((p, p)) for p in shares]
    assert (selection.bound, selection.lead) == (0, math.inf)


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_says_what_the_joint_rule_of_an_engine_says(seed):
    model = loaded(TableModel(likely(seed)))
    with Engine(ARTIFACT, model.share()) as engine, Selector(INDEX, model) as selector:
        answer = engine.run(TEXT).fields["drug"]
        selection = selector.select(TEXT, k=len(LABELS))
    assert [one.label for one in selection.answers] == [value for value, _ in answer.distribution]
    for one, (_, prob) in zip(selection.answers, answer.distribution, strict=True):
        assert one.log_probability == pytest.approx(answer.log_scores[LABELS.index(one.label)], abs=1e-5)
        assert one.probability == pytest.approx((prob, prob))


CALLS = [
    {"k": 2},
    {"k": 3, "top": 2},
    {"budget": 1},
    {"k": 2, "budget": 4},
    {"method": "trie"},
    {"method": "trie", "seed": 5},
    {"method": "trie", "beam": 3, "k": 2},
    {"method": "disc", "seed": 5},
    {"method": "disc", "seed": 5, "k": 1},
]


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_what_a_method_says_holds_for_the_true_probabilities(call, temperature):
    for seed in SEEDS:
        with opened(likely(seed)) as selector:
            truth = enumerated(selector, temperature=temperature)
            selection = selector.select(TEXT, temperature=temperature, **call)
        whole = sum(truth.values())
        given = [LABELS.index(answer.label) for answer in selection.answers]
        for entry, answer in zip(given, selection.answers, strict=True):
            low, high = answer.log_probability, answer.log_probability_high
            assert low - 1e-6 <= math.log(truth[entry]) <= high + 1e-6
            assert answer.probability[0] - 1e-6 <= truth[entry] / whole <= answer.probability[1] + 1e-6
        others = [p for entry, p in truth.items() if entry not in given]
        assert max(others) <= selection.bound * (1 + 1e-6)
        assert selection.legal_mass[0] - 1e-6 <= whole <= selection.legal_mass[1] + 1e-6
        if selection.certified:
            best = sorted(truth, key=lambda entry: -truth[entry])[: len(given)]
            assert given == best


def test_more_answers_than_there_are_labels_are_all_of_them():
    with opened(likely(1)) as selector:
        assert len(selector.select(TEXT, k=1000).answers) == len(LABELS)


def test_a_budget_is_kept_and_what_is_left_is_told():
    gaps = []
    with opened(likely(2)) as selector:
        for budget in range(1, 14):
            selection = selector.select(TEXT, k=2, budget=budget)
            assert selection.nodes <= budget
            assert selection.budget == budget
            gaps.append(selection.bound)
            if not selection.certified:
                assert not selection.answers or selection.lead <= 0
    assert gaps == sorted(gaps, reverse=True)
    assert selection.certified


def test_labels_with_equal_forms_are_one_answer_with_all_ids():
    labels = ("ab", "b", "ca")
    artifact = make_artifact({"drug": spelled(*labels)})
    grouped = index_of(artifact, "drug", ids=["A1", "B1", "A2"], entries=[0, 1, 0])
    with opened(likely(3), grouped) as selector:
        truth = enumerated(selector)
        selection = selector.select(TEXT, k=2)
    found = {answer.id: answer for answer in selection.answers}
    assert {key: (answer.ids, answer.label) for key, answer in found.items()} == {
        "A1": (("A1", "A2"), "ab"),
        "B1": (("B1",), "b"),
    }
    assert math.exp(found["A1"].log_probability) == pytest.approx(truth[0])


@pytest.mark.parametrize(
    "call", [{"method": "disc"}, {"method": "trie", "seed": 0}, {"method": "disc", "k": 9}]
)
def test_a_seed_gives_the_same_selection_again(call):
    with opened(likely(4)) as selector:
        for seed in range(5):
            first, again = (selector.select(TEXT, **(call | {"seed": seed})) for _ in range(2))
            assert (first.answers, first.sampling, first.seed) == (again.answers, again.sampling, seed)


def test_without_a_seed_disc_draws_one_and_says_which():
    with opened(likely(4)) as selector:
        drawn = [selector.select(TEXT, method="disc") for _ in range(8)]
        assert len({selection.seed for selection in drawn}) > 1
        again = selector.select(TEXT, method="disc", seed=drawn[0].seed)
    assert again.answers == drawn[0].answers
    assert (again.k, again.sampling.seed) == (4, drawn[0].seed)


def test_greedy_and_beam_are_not_certified_and_exact_is_at_least_as_good():
    with opened(likely(5)) as selector:
        best = selector.select(TEXT).best
        for call in ({}, {"beam": 1}, {"beam": 2}):
            selection = selector.select(TEXT, method="trie", **call)
            assert not selection.certified
            assert not selection.best.near_tie
            assert selection.best.log_probability <= best.log_probability + 1e-9


def test_the_index_has_a_temperature_and_a_request_may_have_another():
    with opened(likely(1), replace(INDEX, temperature=2.0)) as selector:
        own, given = selector.select(TEXT, k=8), selector.select(TEXT, k=8, temperature=1)
        tempered = enumerated(selector, temperature=2.0)
    assert (own.temperature, given.temperature) == (2.0, 1.0)
    assert by_label(own) == pytest.approx({LABELS[entry]: p for entry, p in tempered.items()})
    assert [w.split(":")[0] for w in own.warnings] == ["tempered"]
    assert given.warnings == ()


def low_mass_of(selection):
    said = [warning for warning in selection.warnings if warning.startswith("low_legal_mass: ")]
    return said[0] if said else ""


def test_a_low_legal_mass_names_the_question():
    with opened(seeded(1)) as selector:
        selection = selector.select(TEXT, k=8)
        assert selection.legal_mass[1] < LOW_MASS
        assert "question" in low_mass_of(selection)
        assert low_mass_of(selector.select(TEXT, method="disc", k=64))
    with opened(likely(1)) as selector:
        assert selector.select(TEXT, k=8).warnings == ()


def rarely(seed, shift):
    """A model that begins a label rarely, and then with odds that draws miss."""
    own = likely(seed)

    def rule(path):
        logits = own(path).astype(np.float64)
        if path[-1] == ord(":"):
            logits[ord("#")] = logits.max() + shift
        return logits.astype(np.float32)

    return rule


@pytest.mark.parametrize("shift", [0, 4, 6, 8, 12])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_no_note_on_the_legal_mass_has_a_figure_outside_its_bounds(call, shift):
    for seed in SEEDS:
        with opened(rarely(seed, shift)) as selector:
            selection = selector.select(TEXT, **call)
        low, high = selection.legal_mass
        said = low_mass_of(selection)
        assert not said or low < LOW_MASS
        assert said or high >= LOW_MASS
        certain = said.partition(";")[0].rpartition("certainly ")[2]
        figures = [float(figure) for figure in re.findall(r"\d\.\de[-+]\d+", certain)]
        assert bool(figures) == bool(said)
        if figures:
            assert (figures[0], figures[-1]) == (pytest.approx(low, rel=0.06), pytest.approx(high, rel=0.06))
        assert ("estimated from" in said) == bool(said and high >= NOT_MUCH)
        assert "estimated" not in said or call["method"] == "disc"


def test_a_low_estimate_of_draws_is_told_as_one():
    sampling = Sampling(1, 2, False, 0, (1e-9, 3e-9))
    said = "less than 1e-03 as estimated from 2 draws, certainly 4.0e-09 to 5.0e-01"
    assert _low_mass((4e-9, 0.5), sampling) == said
    assert _low_mass((2e-3, 0.5), sampling) == _low_mass((4e-9, 0.5), None) == ""
    for low, high in ((3e-4, 4.4e-3), (1e-5, 2e-4)):
        assert _low_mass((low, high), sampling) == _low_mass((low, high), None) == f"{low:.1e} to {high:.1e}"


def test_an_empty_context_and_an_unknown_window_are_told():
    with opened(likely(1), window=None) as selector:
        assert selector.select(" \n").warnings == ("empty_context", "window_unknown")


def test_near_ties_are_those_within_the_drift_band():
    def rule(path):
        odds = {'"': 0.0, "a": 0.0, "b": -5e-4, "c": -0.5}
        logits = np.full(320, -30.0)
        for char, logit in odds.items():
            logits[ord(char)] = logit
        if path[-1] != ord(":"):
            logits[ord('"')] = 30
        return logits.astype(np.float32)

    with opened(rule, index_of(make_artifact({"drug": spelled("a", "b", "c")}), "drug")) as selector:
        selection = selector.select(TEXT, k=3)
    assert [(a.label, a.near_tie) for a in selection.answers] == [("a", True), ("b", False), ("c", False)]
    assert selection.answers[0].margin == pytest.approx(5e-4, rel=0.01)


def test_every_token_is_counted_where_it_ran():
    model = TableModel(likely(2))
    with Selector(INDEX, loaded(model)) as selector:
        head = len(INDEX.prompt.head)
        assert model.appended == [head]
        selection = selector.select(TEXT, k=3)
        prompt = len(assemble_prompt(selector.model.tokenizer, INDEX.prompt, TEXT))
        ran = model.appended[1:]
        assert selection.passes == selection.sequential_forward_passes == selection.forward_passes == len(ran)
        assert selection.positions == sum(ran)
        assert selection.nodes == sum(ran) - (prompt - 1 - selection.head_cached)
        assert selection.kv_bytes == (prompt - 1 + selection.nodes) * model.kv_bytes_per_token
        assert selection.kv_added == selection.positions * model.kv_bytes_per_token
        assert (selection.kv_copied, selection.prefill_ms) == (0, 0)
        assert selection.context_tokens == prompt - head - len(INDEX.prompt.tail)
        again = selector.select(TEXT, k=3)
        assert again.head_cached == prompt - 1
        long = selector.select("x" * 1000, k=1)
        assert long.sequential_forward_passes == long.passes + 1
        assert long.prefill_ms > 0


def test_a_selection_is_strict_json_and_a_new_dictionary_each_time():
    with opened(likely(1)) as selector:
        for call in CALLS:
            selection = selector.select(TEXT, **call)
            data = json.loads(selection.to_json(), parse_constant=pytest.fail)
            assert data == json.loads(json.dumps(selection.to_dict()))
            assert set(data) == set(selection.__dataclass_fields__)
            assert [a["label"] for a in data["answers"]] == [a.label for a in selection.answers]
            selection.to_dict()["answers"].clear()
            assert selection.to_dict() == selection.to_dict()


def test_threads_share_a_selector():
    with opened(likely(2)) as selector:
        texts = [f"text {n % 4}" for n in range(24)]
        alone = {text: selector.select(text, k=3).answers for text in set(texts)}
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda text: selector.select(text, k=3).answers, texts))
        futures = [selector.submit(text, k=3) for text in texts]
        assert found == [future.result().answers for future in futures] == [alone[text] for text in texts]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_logits_that_stay_on_a_device_give_the_same_selection(call, monkeypatch):
    with opened(likely(2)) as selector:
        here = selector.select(TEXT, **call)
    for module in (bound, model_beliefs):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    with opened(likely(2)) as selector:
        read = selector.model.call(lambda: read_of(selector))
        there = selector.select(TEXT, **call)
    assert isinstance(read.logit, mx.array)
    assert [a.label for a in there.answers] == [a.label for a in here.answers]
    for one, other in zip(there.answers, here.answers, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
    assert (there.nodes, there.passes, there.certified) == (here.nodes, here.passes, here.certified)


def read_of(selector):
    with selector.model.prefixes.lease("other", 9) as prefix:
        return model_beliefs.ModelBeliefs(prefix, np.arange(9, dtype=np.int32)).read([0])
