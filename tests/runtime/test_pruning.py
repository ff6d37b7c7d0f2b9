"""What pruning leaves out and what it may not: against runs of everything, and against brute force."""

import math

import numpy as np
import pytest
from brute import Brute
from fakes import WIDTH, TableModel, loaded, make_artifact, seeded, spelled, table
from fitted import calibration, fitted
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pcdc_runtime import pruning
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import PruningError, ScoreError
from pcdc_runtime.tokenizer import assemble_prompt

CONTEXT = "My order never came."
LETTERS = "abcd"
ROUNDING = 1e-9


@pytest.fixture
def eager(monkeypatch):
    """A pass costs nothing, and few branches are expected to survive."""
    monkeypatch.setattr(pruning, "PASS_NODES", {"cpu": 0, "gpu": 0})
    monkeypatch.setattr(pruning, "SURVIVORS", 0.01)


def tries():
    """Choices with one to seven forms each: paths of letters that may share beginnings, and end in others."""
    paths = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=2, max_size=14, unique=True)
    return st.tuples(paths, st.integers(2, 6)).map(_grouped)


def _grouped(drawn):
    paths, wanted = drawn
    count = min(wanted, len(paths))
    choices = {f"c{number}": [] for number in range(count)}
    for number, path in enumerate(paths):
        choices[f"c{number % count}"].append((list(path), ['"']))
    return choices


def uneven(seed, scale, leak, holes):
    """Logits that spread by `scale`, with `leak` for what no form has; one in `holes` is impossible."""
    legal = [ord(letter) for letter in LETTERS + '"']

    def rule(path):
        generator = np.random.default_rng([seed, *path[-8:]])
        row = np.full(WIDTH, -np.inf)
        row[legal] = generator.standard_normal(len(legal)) * scale
        row[[i for i in legal if holes and generator.integers(holes) == 0]] = -np.inf
        row[ord("?")] = leak
        return row.astype(np.float32)

    return rule


def assert_within(exact, found, bound):
    """All that pruning promises of one field."""
    probability, reported = dict(exact.distribution), dict(found.distribution)
    off = {value: abs(p - reported[value]) for value, p in probability.items()}
    assert found.value == exact.value
    assert (found.tie, found.distribution[0][0]) == (exact.tie, exact.value)
    assert found.prune_bound <= bound
    assert max(off.values()) <= found.prune_bound + ROUNDING
    assert sum(reported.values()) == pytest.approx(1)
    assert found.margin <= exact.margin + ROUNDING
    assert found.near_tie or not exact.near_tie
    assert len(probability) == len(reported) == len(found.log_scores)
    pairs = list(zip(exact.log_scores, found.log_scores, strict=True))
    assert all(part <= whole + ROUNDING for whole, part in pairs)
    assert sum(part < whole - ROUNDING for whole, part in pairs) <= found.pruned
    for value, p in probability.items():
        if p >= bound * (1 + ROUNDING):
            assert reported[value] > 0
    assert sum(p for value, p in probability.items() if reported[value] == 0) <= found.prune_bound + ROUNDING
    if exact.legal_mass is not None:
        assert found.legal_mass <= exact.legal_mass * (1 + 1e-6) + ROUNDING
        assert exact.legal_mass <= (found.legal_mass + found.legal_mass_slack) * (1 + 1e-6) + ROUNDING


@settings(max_examples=250)
@given(
    st.lists(tries(), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 4.0, 9.0, 9.0]),
    st.sampled_from([-30.0, 0.0, 12.0, 70.0]),
    st.sampled_from([0, 3, 12]),
    st.sampled_from([0.05, 0.4, 0.9, 1.0, 1.001, 2.0, 5.0, 50.0]),
    st.sampled_from([1e-9, 1e-4, 0.02, 0.3, 0.9]),
    st.sampled_from(["joint", "identify"]),
    st.sampled_from([0.01, 1, 2, 4]),
    st.lists(st.sampled_from([-20.0, -1.5, 0.0, 0.25, 3.0, 20.0]), min_size=18, max_size=18) | st.none(),
    st.booleans(),
)
def test_no_probability_is_off_by_the_bound_and_the_winner_is_the_same(
    fields, seed, scale, leak, holes, temperature, bound, scoring, survivors, biases, mass
):
    artifact = make_artifact({f"f{n}": choices for n, choices in enumerate(fields)}, scoring=scoring)
    fitting = None
    if biases:
        every = iter(biases)
        fitting = calibration(
            artifact,
            *(
                fitted(artifact, f.name, "bias", temperature, [next(every) for _ in f.candidates])
                for f in artifact.fields
            ),
            scoring=scoring,
        )
    options = {"legal_mass": mass, "temperature": None if biases else temperature}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "PASS_NODES", {"cpu": 0, "gpu": 0})
        patch.setattr(pruning, "SURVIVORS", survivors)
        model = loaded(TableModel(uneven(seed, scale, leak, holes)))
        with Engine(artifact, model, calibration=fitting) as engine:
            try:
                exact = engine.run(CONTEXT, **options)
            except ScoreError:
                with pytest.raises(ScoreError):
                    engine.run(CONTEXT, prune=bound, **options)
                return
            found = engine.run(CONTEXT, prune=bound, **options)
    assert found.pruning == bound
    assert found.nodes <= exact.nodes
    assert found.sequential_forward_passes <= (3 if temperature == 1 else 6)
    event("pruned" if any(answer.pruned for answer in found.answers) else "all run")
    for one, other in zip(exact.answers, found.answers, strict=True):
        assert_within(one, other, bound)


@pytest.mark.parametrize("scoring", ["joint", "identify"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_brute_force_stays_within_the_bound(eager, seed, temperature, scoring):
    words = ["aab", "aac", "abd", "b", "bac", "cab", "cabd", "cd", "dd", "da"]
    artifact = make_artifact({"f": _grouped((words, 7))}, scoring=scoring)
    rule, bound = uneven(seed, 5.0, 0.0, 0), 0.05
    model = loaded(TableModel(rule))
    with Engine(artifact, model) as engine:
        prompt = assemble_prompt(engine.model.tokenizer, artifact.prompt, CONTEXT)
        found = engine.run(CONTEXT, prune=bound, temperature=temperature).fields["f"]
    exact, mass = Brute(artifact, rule, prompt).probabilities("f", scoring, temperature)
    reported = [dict(found.distribution)[candidate.value] for candidate in artifact.fields[0].candidates]
    assert np.abs(np.array(reported) - exact).max() <= bound
    assert int(np.argmax(reported)) == int(np.argmax(exact))
    assert found.legal_mass <= mass * (1 + 1e-6) <= (found.legal_mass + found.legal_mass_slack) * (1 + 1e-5)


WIDE = {f"c{n}": [([*f"{n:02}", "x", "y"], ['"'])] for n in range(100)}


def peaked(path):
    """Digits 4 and 2 are all but sure; everything goes on to the end of a form."""
    row = np.full(WIDTH, -40.0)
    step = len(path) - path[::-1].index(ord(":")) if ord(":") in path else None
    last = chr(path[-1])
    if last == ":" or (step and len(path) - step == 1):
        row[[ord(c) for c in "0123456789"]] = 0.0
        row[ord("4" if last == ":" else "2")] = 12.0
    row[ord({"x": "y", "y": '"'}.get(last, "x"))] = 12.0 if step and len(path) - step >= 2 else -40.0
    return row


def ask(choices, rule, calibrated=None, **options):
    artifact = make_artifact({"f": choices})
    model = TableModel(rule)
    fitting = None
    if calibrated:
        fitting = calibration(artifact, fitted(artifact, "f", "bias", *calibrated))
    with Engine(artifact, loaded(model), calibration=fitting) as engine:
        return engine.run(CONTEXT, **options), engine.run(CONTEXT, prune=1e-4, **options)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.2])
def test_a_sure_answer_runs_few_nodes_in_one_more_pass(monkeypatch, temperature):
    monkeypatch.setattr(pruning, "SURVIVORS", 4)
    exact, found = ask(WIDE, peaked, temperature=temperature)
    assert found.values == exact.values == {"f": "c42"}
    assert exact.nodes == 313
    assert found.nodes < 150
    assert found.sequential_forward_passes == exact.sequential_forward_passes + 1
    field = found.fields["f"]
    assert field.pruned == 100 - sum(score > -math.inf for score in field.log_scores) > 60
    assert field.distribution[0][0] == "c42"
    assert len(field.distribution) == 100
    assert_within(exact.fields["f"], field, 1e-4)


def test_positions_nodes_and_kv_are_those_that_were_run(monkeypatch):
    monkeypatch.setattr(pruning, "SURVIVORS", 4)
    model = TableModel(peaked)
    with Engine(make_artifact({"f": WIDE}), loaded(model)) as engine:
        engine.run(CONTEXT)
        before = len(model.appended)
        found = engine.run(CONTEXT, prune=1e-4)
        assert sum(model.appended[before:]) == found.nodes == found.positions
        assert len(model.appended) - before == found.forward_passes == found.sequential_forward_passes == 2
        assert found.kv_added == found.nodes * model.kv_bytes_per_token
        assert found.kv_copied == 0
        again = engine.run(CONTEXT)
        assert (again.nodes, again.positions) == (313, 313)


def test_without_a_bound_nothing_is_pruned(eager):
    exact, _ = ask(WIDE, peaked)
    assert exact.pruning is None
    assert {(a.pruned, a.prune_bound, a.legal_mass_slack) for a in exact.answers} == {(0, 0.0, 0.0)}
    assert exact.to_dict()["pruning"] is None


def test_what_was_left_out_is_told_in_the_response(eager):
    _, found = ask(WIDE, peaked)
    shown = found.to_dict()
    assert shown["pruning"] == 1e-4
    telemetry = shown["field_telemetry"]["f"]
    field = found.fields["f"]
    assert telemetry["pruned"] == field.pruned > 0
    assert telemetry["prune_bound"] == field.prune_bound <= 1e-4
    assert telemetry["legal_mass_slack"] == field.legal_mass_slack > 0


@pytest.mark.parametrize("choices", [spelled("yes", "no"), spelled("low", "mid", "high"), WIDE])
def test_fields_where_it_cannot_pay_are_run_as_if_there_was_no_bound(choices, monkeypatch):
    monkeypatch.setattr(pruning, "PASS_NODES", {"cpu": 1000, "gpu": 1000})
    exact, found = ask(choices, seeded(4))
    assert found.fields["f"] == exact.fields["f"]
    assert (found.nodes, found.sequential_forward_passes) == (exact.nodes, exact.sequential_forward_passes)


def test_an_attractive_beginning_that_leads_nowhere_is_seen_through(eager):
    choices = {"SHIPPING": [(["SH", "IPPING"], ['"'])], "REFUND": [(["RE", "FUND"], ['"'])]}
    rule = table(
        {
            (): {"SH": 0.999999, "RE": 0.000001},
            ("SH",): {"IPPING": 1e-12},
            ("RE",): {"FUND": 0.9},
            ("SH", "IPPING"): {'"': 1.0},
            ("RE", "FUND"): {'"': 1.0},
        }
    )
    exact, found = ask(choices, rule)
    assert found.values == exact.values == {"f": "REFUND"}
    assert found.sequential_forward_passes == exact.sequential_forward_passes + 2
    assert_within(exact.fields["f"], found.fields["f"], 1e-4)


TWICE = {
    "one": [(["a", "x"], ['"']), (["b", "x"], ['"'])],
    "two": [(["c", "x"], ['"'])],
    "rare": [(["d", "x"], ['"'])],
}


def weighted(**weights):
    entries = {(): weights}
    for letter in weights:
        entries[(letter,)] = {"x": 1.0}
        entries[(letter, "x")] = {'"': 1.0}
    return table(entries)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_forms_of_one_choice_count_together_wherever_they_are(eager, temperature):
    exact, found = ask(TWICE, weighted(a=0.3, b=0.3, c=0.4, d=1e-40), temperature=temperature)
    assert found.values == exact.values == {"f": "one"}
    assert_within(exact.fields["f"], found.fields["f"], 1e-4)
    assert found.fields["f"].pruned == (1 if temperature <= 1 else found.fields["f"].pruned)


def test_a_choice_with_a_form_left_out_keeps_the_score_of_its_others(eager):
    exact, found = ask(TWICE, weighted(a=0.6, b=1e-7, c=0.3))
    field = found.fields["f"]
    assert field.pruned == 2
    assert field.log_scores[0] == pytest.approx(math.log(0.6), abs=1e-6)
    assert field.log_scores[0] < exact.fields["f"].log_scores[0]
    assert field.log_scores[2] == -math.inf
    assert_within(exact.fields["f"], field, 1e-4)


def test_many_leaves_under_a_small_mass_count_at_a_high_temperature(eager):
    leaves = {f"c{n}": [(["b", f"leaf {n}"], ['"'])] for n in range(40)}
    choices = {"top": [(["a", "x"], ['"'])], **leaves}
    rule = table(
        {
            (): {"a": 0.999, "b": 0.001},
            ("a",): {"x": 1.0},
            ("a", "x"): {'"': 1.0},
            ("b",): {f"leaf {n}": 1 / 40 for n in range(40)},
            **{("b", f"leaf {n}"): {'"': 1.0} for n in range(40)},
        }
    )
    exact, found = ask(choices, rule, temperature=5.0)
    assert sum(p for value, p in exact.fields["f"].distribution if value != "top") > 0.8
    assert found.fields["f"].pruned == 0
    assert_within(exact.fields["f"], found.fields["f"], 1e-4)
    cold, pruned = ask(choices, rule, temperature=0.5)
    assert pruned.fields["f"].pruned == 40
    assert_within(cold.fields["f"], pruned.fields["f"], 1e-4)


def test_a_bias_makes_a_hidden_leaf_count(eager):
    choices = {"top": [(["a", "x"], ['"'])], "hidden": [(["b", "x"], ['"'])], "other": [(["c", "x"], ['"'])]}
    rule = weighted(a=1 - 2e-7, b=1e-7, c=1e-7)
    exact, found = ask(choices, rule, (1.0, (0.0, 20.0, 0.0)))
    assert exact.values == found.values == {"f": "hidden"}
    assert found.fields["f"].pruned == 1
    assert_within(exact.fields["f"], found.fields["f"], 1e-4)
    _, plain = ask(choices, rule)
    assert plain.values == {"f": "top"}
    assert plain.fields["f"].pruned == 2


def test_a_tiny_legal_mass_is_searched_to_the_end(eager):
    """What leaves for illegal tokens can never be told from what is legal without running it."""

    def rule(path):
        return uneven(3, 2.0, 70.0, 0)(path)

    choices = _grouped((["aab", "aac", "abd", "bac", "cab", "cabd", "cd", "dd", "da"], 6))
    exact, found = ask(choices, rule)
    assert exact.fields["f"].legal_mass < 1e-50
    assert_within(exact.fields["f"], found.fields["f"], 1e-4)
    assert found.nodes == exact.nodes


def test_impossible_branches_are_left_out_at_no_price(eager):
    exact, found = ask(TWICE, weighted(a=0.5, b=0.25, c=0.25))
    field = found.fields["f"]
    assert (field.pruned, field.prune_bound, field.legal_mass_slack) == (1, 0.0, 0.0)
    assert field.distribution == exact.fields["f"].distribution
    assert field.log_scores == exact.fields["f"].log_scores
    assert field.margin == exact.fields["f"].margin


def test_ties_stay_ties(eager):
    exact, found = ask(TWICE, weighted(a=0.4, c=0.4, d=0.2))
    assert exact.fields["f"].tie
    assert found.fields["f"].tie
    assert found.values == exact.values == {"f": "one"}


@pytest.mark.parametrize(("ahead", "winner"), [("b", "one"), ("d", "two")])
def test_a_form_that_would_break_a_tie_is_run(eager, ahead, winner):
    choices = {**TWICE, "two": [*TWICE["two"], *TWICE["rare"]], "rare": [(["e", "x"], ['"'])]}
    rule = weighted(**{"a": 0.4, "c": 0.4, "e": 0.2, ahead: 1e-6})
    exact, found = ask(choices, rule)
    assert found.values == exact.values == {"f": winner}
    assert (found.fields["f"].tie, exact.fields["f"].tie) == (False, False)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(eager, broken):
    def rule(path):
        row = np.zeros(WIDTH)
        row[ord("a")] = broken
        return row

    artifact = make_artifact({"f": TWICE})
    with Engine(artifact, loaded(TableModel(rule))) as engine:
        with pytest.raises(ScoreError, match="NaN or infinite"):
            engine.run(CONTEXT, prune=1e-4)
        with pytest.raises(ScoreError, match="NaN or infinite"):
            engine.run(CONTEXT)


def test_a_margin_is_the_least_that_it_can_be(eager):
    exact, found = ask(TWICE, weighted(a=0.999, d=1e-6, b=0.0005))
    field = found.fields["f"]
    assert field.log_scores[1:] == (-math.inf, -math.inf)
    assert field.margin == pytest.approx(math.log(0.9995 / 1e-6), abs=1e-3)
    assert field.margin <= exact.fields["f"].margin


@pytest.mark.parametrize("budget", [4096, 60, 1])
def test_fields_are_pruned_each_for_itself_and_share_passes(monkeypatch, budget):
    monkeypatch.setattr(pruning, "SURVIVORS", 4)
    fields = {"f": WIDE, "g": spelled("yes", "no"), "h": WIDE}
    with Engine(make_artifact(fields), loaded(TableModel(peaked)), node_budget=budget) as engine:
        exact, found = engine.run(CONTEXT), engine.run(CONTEXT, prune=1e-4)
        alone = engine.run(CONTEXT, prune=1e-4, fields=["h"])
    assert found.nodes < exact.nodes / 2
    assert alone.fields["h"].distribution == found.fields["h"].distribution
    for one, other in zip(exact.answers, found.answers, strict=True):
        assert_within(one, other, 1e-4)
    if budget == 4096:
        assert found.sequential_forward_passes == 2


def test_thresholds_of_a_calibration_read_the_pruned_probability(eager):
    artifact = make_artifact({"f": TWICE})
    fitting = calibration(artifact, fitted(artifact, "f", "temperature", 2.0))
    with Engine(artifact, loaded(TableModel(weighted(a=0.9, b=0.05, c=0.05))), calibration=fitting) as engine:
        found = engine.run(CONTEXT, prune=1e-4)
        exact = engine.run(CONTEXT)
    assert found.fields["f"].calibration == exact.fields["f"].calibration is not None
    assert found.route().apply.keys() == exact.route().apply.keys()


@pytest.mark.parametrize("bound", [0, 1, -0.1, 1.5, math.nan, math.inf, True, "0.1", 1j])
def test_a_bound_is_a_number_between_0_and_1(bound):
    with Engine(make_artifact({"f": TWICE}), loaded(TableModel(seeded(1)))) as engine:
        for call in (engine.run, engine.submit):
            with pytest.raises(
                PruningError, match=r"PCDC709\]: pruning has the bound .* above 0 and below 1"
            ):
                call(CONTEXT, prune=bound)


def test_the_rule_trie_is_refused():
    with Engine(make_artifact({"f": TWICE}, scoring="trie"), loaded(TableModel(seeded(1)))) as engine:
        with pytest.raises(PruningError, match="does not go with the rule trie"):
            engine.run(CONTEXT, prune=1e-4)
        assert engine.run(CONTEXT, prune=1e-4, scoring="joint").pruning == 1e-4
        with pytest.raises(PruningError, match="joint and identify can be pruned"):
            engine.submit(CONTEXT, prune=1e-4).result()
