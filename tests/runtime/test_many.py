"""Many contexts as one forest: what each gets is what it gets alone, and what that takes."""

import random
from concurrent.futures import CancelledError
from itertools import count

import numpy as np
import pytest
from brute import Brute
from fakes import WIDTH, TableModel, byte_tokenizer, loaded, make_artifact, spelled
from fakes import seeded as seeded_table
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import Engine, load
from pcdc_runtime.errors import (
    ContextNotTextError,
    ContextTooLongError,
    EngineClosedError,
    ScoreError,
    TemperatureError,
    UnknownFieldError,
    UnknownScoringError,
)
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.many import Group
from pcdc_runtime.model import load_model
from pcdc_runtime.rules import MAX_CONTEXT_BYTES, RULES
from pcdc_runtime.tokenizer import assemble_prompt
from pcdc_runtime.tree import CHUNK
from seeded import WINDOW, write_folder

ARTIFACT = make_artifact(
    {
        "level": spelled("low", "lower", "high"),
        "open": {True: [(["t"], [","]), (['"', "t"], ['"'])], False: [(["f"], [","]), (['"', "f"], ['"'])]},
        "team": spelled("ops", "sales"),
    }
)
HEAD, NODES = len(ARTIFACT.prompt.head), len(ARTIFACT.nodes.token)
WORDS = ("invoice", "late", "twice", "card", "please", "refund", "Lisbon", "é", "no", "yes")


def texts(number, seed=0, most=12):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(0, most))) for _ in range(number)]


def prompt_of(context):
    return assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, context)


def drift(ones, others):
    """The largest difference between the scores of two lists of results, in nats."""
    pairs = zip(ones, others, strict=True)
    fields = [pair for one, other in pairs for pair in zip(one.answers, other.answers, strict=True)]
    assert all(a.name == b.name for a, b in fields)
    return max(np.abs(np.subtract(a.log_scores, b.log_scores)).max() for a, b in fields)


@pytest.fixture
def model():
    return TableModel(seeded_table(3))


@pytest.fixture
def engine(model):
    with Engine(ARTIFACT, loaded(model)) as engine:
        yield engine


def opened(tmp_path_factory, family, dtype):
    folder = write_folder(tmp_path_factory.mktemp(family), family, dtype, vocab_size=WIDTH)
    return Engine(ARTIFACT, LoadedModel(family, lambda: (load_model(folder), byte_tokenizer())))


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mistral", "cohere2", "qwen3_moe"])
def test_many_answer_as_one_at_a_time_does_in_every_kind_of_family(family, tmp_path_factory):
    contexts = texts(14)
    assert max(len(prompt_of(c)) for c in contexts) - HEAD > 5 * WINDOW
    with opened(tmp_path_factory, family, "float32") as engine:
        alone = [engine.run(context) for context in contexts]
        many = list(engine.run_many(contexts))
        assert max(one.contexts for one in many) > 2
        assert drift(alone, many) < 1e-4
        assert [one.values for one in many] == [one.values for one in alone]
        for one, other in zip(many, alone, strict=True):
            for a, b in zip(one.answers, other.answers, strict=True):
                assert a.legal_mass == pytest.approx(b.legal_mass, rel=1e-3)


def test_many_in_half_precision_answer_as_one_at_a_time_within_its_drift(tmp_path_factory):
    contexts = texts(8)
    with opened(tmp_path_factory, "gemma3_text", "bfloat16") as engine:
        alone = [engine.run(context) for context in contexts]
        assert drift(alone, list(engine.run_many(contexts))) < 0.25


@pytest.mark.parametrize("mass", [True, False])
@pytest.mark.parametrize("scoring", RULES)
def test_each_of_many_has_the_probabilities_of_brute_force(engine, model, scoring, mass):
    contexts = texts(6, seed=1)
    many = list(engine.run_many(contexts, scoring=scoring, legal_mass=mass))
    assert many[0].contexts == 6
    for context, result in zip(contexts, many, strict=True):
        judge = Brute(ARTIFACT, model.rule, prompt_of(context))
        for name, field in result.fields.items():
            expected, whole = judge.probabilities(name, scoring)
            values = [candidate.value for candidate in ARTIFACT.field(name).candidates]
            assert [dict(field.distribution)[v] for v in values] == pytest.approx(expected, rel=1e-4)
            assert field.legal_mass == (pytest.approx(whole, rel=1e-4) if mass else None)


def test_neither_order_nor_grouping_moves_a_score(engine):
    contexts = texts(20, seed=2)
    expected = {context: engine.run(context) for context in contexts}
    shuffled = random.Random(5).sample(contexts, 20)
    slots = [0, HEAD + 3 * NODES, HEAD + 200, 10**6]
    sizes = set()
    for limit in slots:
        many = list(engine.run_many(shuffled, kv_budget=limit * engine.model.language.kv_bytes_per_token))
        sizes.add(max(one.contexts for one in many))
        assert drift([expected[context] for context in shuffled], many) < 1e-6
    assert len(sizes) == len(slots)


def test_texts_that_begin_alike_run_their_common_beginning_once(engine):
    contexts = ["Dear support, the card", "Dear support, the bill", "Dear support, the car"]
    expected = [engine.run(context) for context in contexts]
    engine.run("")
    many = list(engine.run_many(contexts))
    assert drift(expected, many) < 1e-6
    whole = sum(len(prompt_of(context)) - 1 - HEAD + NODES for context in contexts)
    assert sum(one.positions for one in many) == whole - 2 * len("Dear support, the ")


def test_identical_texts_run_their_chain_once(engine, model):
    many = list(engine.run_many(["the same"] * 3))
    assert many[0].positions - NODES == len(prompt_of("the same")) - 1 - HEAD
    assert [one.positions for one in many[1:]] == [NODES, NODES]


def test_many_take_fewer_forwards_and_the_positions_that_are_counted(engine, model):
    contexts = texts(30, seed=3)
    before, calls = sum(model.appended), len(model.appended)
    many = list(engine.run_many(contexts))
    assert sum(one.positions for one in many) == sum(model.appended) - before
    assert sum(one.kv_added for one in many) == 8 * sum(one.positions for one in many)
    assert sum(one.kv_copied for one in many) == 0
    groups = sum(1 / one.contexts for one in many)
    assert len(model.appended) - calls == pytest.approx(groups)
    assert groups < 15
    assert {one.sequential_forward_passes for one in many} == {1}
    assert all(size <= CHUNK for size in model.appended)


def test_nothing_is_copied_once_the_buffer_has_its_size(tmp_path_factory):
    with opened(tmp_path_factory, "llama", "float32") as engine:
        list(engine.run_many(texts(12)))
        assert [one.kv_copied for one in engine.run_many(texts(12, seed=9))] == [0] * 12


@pytest.mark.parametrize("slots", [HEAD + NODES, HEAD + 2 * NODES, HEAD + 4 * NODES])
def test_keys_and_values_stay_within_the_budget(engine, slots):
    contexts = texts(12, seed=4, most=2)
    budget = slots * engine.model.language.kv_bytes_per_token
    for one in engine.run_many(contexts, kv_budget=budget):
        assert one.kv_bytes <= budget or one.contexts == 1
        assert engine.model.prefixes.bytes_held <= max(budget, one.kv_bytes)


def test_a_text_longer_than_a_forward_is_answered_as_run_does(engine):
    contexts = ["a", "b " * CHUNK, "c", "d"]
    many = list(engine.run_many(contexts))
    assert [one.contexts for one in many] == [1, 1, 2, 2]
    assert drift([engine.run(context) for context in contexts], many) < 1e-6


def test_fields_of_several_passes_are_answered_as_run_does(model):
    with Engine(ARTIFACT, loaded(model), node_budget=12) as engine:
        many = list(engine.run_many(["a", "b"]))
        assert [one.contexts for one in many] == [1, 1]
        assert many[0].sequential_forward_passes > 1
        assert drift([engine.run("a"), engine.run("b")], many) < 1e-6


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("\ud800", ContextNotTextError),
        (7, ContextNotTextError),
        ("x" * 400, ContextTooLongError),
        ("x" * (MAX_CONTEXT_BYTES + 1), ContextTooLongError),
    ],
)
def test_a_text_that_is_refused_stands_as_its_error_and_leaves_its_neighbours_their_scores(bad, error):
    with Engine(ARTIFACT, loaded(TableModel(seeded_table(1), window=300))) as engine:
        many = list(engine.run_many(["a", bad, "b", bad]))
        assert [type(one) for one in (many[1], many[3])] == [error, error]
        assert many[0].contexts == many[2].contexts == 2
        assert drift([engine.run("a"), engine.run("b")], [many[0], many[2]]) < 1e-6


@pytest.mark.parametrize("neighbours", [["a", "b"], []])
def test_a_text_that_the_model_has_no_scores_for_leaves_its_neighbours_theirs(neighbours):
    usual = seeded_table(1)

    def rule(path):
        return np.full(WIDTH, np.nan) if ord("!") in path else usual(path)

    with Engine(ARTIFACT, loaded(TableModel(rule))) as engine:
        many = list(engine.run_many([*neighbours, "!"]))
        assert isinstance(many[-1], ScoreError)
        assert [one.values for one in many[:-1]] == [engine.run(text).values for text in neighbours]


def test_nothing_asked_is_nothing_answered(engine):
    assert list(engine.run_many([])) == []


def test_results_come_before_the_texts_end_and_one_text_more_is_taken_at_most(engine):
    taken = []

    def endless():
        for number in count():
            taken.append(number)
            yield f"text {number}"

    results = engine.run_many(endless())
    assert taken == []
    first = next(results)
    assert len(taken) == first.contexts + 1
    assert next(results).values == engine.run("text 1").values


def test_what_is_done_is_told_after_each_group(engine):
    told = []
    many = list(engine.run_many([*texts(20), "\ud800"], progress=told.append))
    assert told == sorted(set(told))
    assert told[-1] == len(many) == 21


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fields": ["nope"]}, UnknownFieldError),
        ({"scoring": "best"}, UnknownScoringError),
        ({"temperature": 0}, TemperatureError),
    ],
)
def test_a_wrong_call_is_refused_before_a_text_is_taken(engine, arguments, error):
    with pytest.raises(error):
        engine.run_many(iter(int, 1), **arguments)


@pytest.mark.parametrize(
    ("budget", "error"),
    [(None, TypeError), ("x", TypeError), (float("nan"), TypeError), (True, TypeError), (-1, ValueError)],
)
def test_a_budget_that_is_no_number_of_bytes_is_refused_at_once(engine, budget, error):
    with pytest.raises(error, match="kv_budget is"):
        engine.run_many(iter(int, 1), kv_budget=budget)


@pytest.mark.parametrize("number", [0, 1, 7, 40])
def test_texts_that_were_taken_before_their_source_broke_are_answered(engine, number):
    contexts, broken, many = texts(number, seed=6), OSError("the source broke"), []

    def source():
        yield from contexts
        raise broken

    with pytest.raises(OSError, match="the source broke") as raised:
        many.extend(engine.run_many(source()))
    assert raised.value is broken
    assert [one.values for one in many] == [engine.run(text).values for text in contexts]


def test_one_text_is_not_taken_for_its_characters(engine):
    with pytest.raises(ContextNotTextError, match="run"):
        engine.run_many("one text")


def test_a_closed_engine_answers_no_group_more(model):
    engine = Engine(ARTIFACT, loaded(model))
    results = engine.run_many(texts(40))
    next(results)
    engine.close()
    with pytest.raises(EngineClosedError):
        list(results)


def test_results_left_alone_leave_the_cached_head_usable(engine):
    results = engine.run_many(texts(40))
    next(results)
    results.close()
    result = engine.run("x")
    assert result.head_cached >= HEAD
    assert result.values == engine.run("x").values


def test_a_run_that_is_interrupted_leaves_no_half_group_behind(engine, monkeypatch):
    expected = engine.run("x")
    results = engine.run_many(texts(40))
    next(results)
    prefix = engine.model.prefixes._kept[ARTIFACT.digest]

    def stop():
        raise CancelledError

    monkeypatch.setattr(prefix, "_go_on", stop)
    with pytest.raises(CancelledError):
        list(results)
    assert engine.model.prefixes.bytes_held == 0
    assert drift([expected], [engine.run("x")]) < 1e-6


def test_options_and_flags_of_run_hold_for_each(engine):
    one = next(engine.run_many([" "], fields="team", scoring="identify", temperature=2.0))
    assert (list(one.fields), one.scoring, one.temperature) == (["team"], "identify", 2.0)
    assert one.warnings == ("uncalibrated", "empty_context")
    assert one.answers == engine.run(" ", fields="team", scoring="identify", temperature=2.0).answers


def test_each_group_is_answered_from_one_artifact(tmp_path, model):
    other = make_artifact({"other": spelled("left", "right")})
    path = tmp_path / "made.pcdc"
    path.write_bytes(dumps(ARTIFACT))
    with load(path, loaded(model), reload=True) as engine:
        results = engine.run_many(texts(40))
        first = next(results)
        path.write_bytes(dumps(other))
        group = [first, *(next(results) for _ in range(first.contexts - 1))]
        assert {one.artifact_digest for one in group} == {ARTIFACT.digest}
        assert {one.artifact_digest for one in results} == {other.digest}


def test_times_of_a_group_are_shared_out(engine):
    many = list(engine.run_many(texts(4)))
    assert len({one.elapsed_ms for one in many}) == 1
    assert all(one.suffix_eval_ms <= one.elapsed_ms for one in many)


def test_a_group_never_holds_more_than_its_limits():
    chance = random.Random(1)
    for _ in range(50):
        group = Group(head=10, nodes=chance.randint(1, 300))
        slots = chance.randint(0, 1500)
        while True:
            prompt = np.array([*range(10), *chance.choices(range(5), k=chance.randint(1, 300))])
            joined = group.joined(prompt, slots)
            if joined is None:
                break
            group = joined
        assert len(group.prompts) >= 1
        if len(group.prompts) > 1:
            assert group.below + max(0, group.shared - 10) <= CHUNK
            assert group.below + group.shared <= slots
