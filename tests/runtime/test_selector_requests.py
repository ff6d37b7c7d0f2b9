"""What a selector refuses, and that a refused or failed request leaves it as it was."""

import numpy as np
import pytest
from fakes import TableModel, byte_tokenizer, loaded, make_artifact, seeded, spelled
from fielded import index_of
from pcdc_runtime.errors import (
    ContextNotTextError,
    ContextTooLongError,
    EngineClosedError,
    FingerprintMismatchError,
    LogitsWidthError,
    NoAnswerError,
    ScoreError,
    SelectionError,
    SelectionMismatchError,
    TemperatureError,
    UnknownMethodError,
)
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.selecting.request import BUDGET, LARGEST_SEED, MOST_ANSWERS, requested
from pcdc_runtime.selecting.selector import Selector
from tokenizers import Tokenizer

INDEX = index_of(make_artifact({"drug": spelled("ab", "abc", "b")}), "drug")


@pytest.fixture
def selector():
    with Selector(INDEX, loaded(TableModel(seeded(3)))) as selector:
        yield selector


@pytest.mark.parametrize("method", ["exakt", "EXACT ", "greedy", "", None, 3, ["exact"]])
def test_an_unknown_method_names_those_that_there_are(selector, method):
    with pytest.raises(UnknownMethodError, match="known methods: exact, trie, disc") as refused:
        selector.select("x", method=method)
    assert (refused.value.help == "did you mean 'exact'?") == (method in ("exakt", "EXACT "))


@pytest.mark.parametrize(
    "call",
    [{"k": value} for value in (0, -1, 1.5, True, "3", MOST_ANSWERS + 1)]
    + [{"method": "trie", "beam": value} for value in (0, 2.0, MOST_ANSWERS + 1)]
    + [{"method": "disc", "seed": value} for value in (-1, LARGEST_SEED + 1, "1", 0.5)]
    + [{"top": 0}, {"top": False}, {"budget": 0}, {"budget": 10**9}],
    ids=str,
)
def test_a_number_out_of_range_is_named_with_its_range(selector, call):
    name = next(key for key in call if key != "method")
    with pytest.raises(SelectionError, match=rf"PCDC715\]: {name} is .*; it must be a whole number from"):
        selector.select("x", **call)


@pytest.mark.parametrize(
    "call",
    [
        {"seed": 1},
        {"beam": 2},
        {"method": "disc", "beam": 2},
        {"method": "disc", "budget": 9},
        {"method": "trie", "budget": 9},
        {"method": "trie", "k": 2},
        {"method": "trie", "k": 3, "beam": 2},
        {"method": "trie", "seed": 1, "beam": 2},
        {"method": "trie", "seed": 1, "k": 2},
    ],
    ids=str,
)
def test_arguments_that_do_not_go_together_are_refused_with_a_way_out(selector, call):
    with pytest.raises(SelectionMismatchError, match="PCDC716") as refused:
        selector.select("x", **call)
    assert refused.value.help


def test_what_a_budget_is_mistaken_for_is_named_by_what_it_counts(selector):
    for method, said in (("disc", "how many candidates"), ("trie", "how many prefixes")):
        with pytest.raises(SelectionMismatchError, match=said):
            selector.select("x", method=method, budget=9)


def test_a_selection_that_a_budget_ended_has_no_best_answer_and_says_so(selector):
    selection = selector.select("x", budget=1)
    assert (selection.answers, selection.certified) == ((), False)
    with pytest.raises(NoAnswerError, match=r"PCDC717\]: .* no label was closed with budget=1") as none:
        selection.best  # noqa: B018
    assert "a larger `budget`" in none.value.help
    assert isinstance(none.value, IndexError)


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_temperature_is_a_number_above_0(selector, temperature):
    with pytest.raises(TemperatureError, match="can change the answer"):
        selector.select("x", temperature=temperature)


def test_numbers_of_numpy_are_numbers():
    asked = requested("exact", np.int64(3), None, None, None, np.int32(5), None)
    assert (asked.k, type(asked.k), asked.top, asked.budget) == (3, int, 5, BUDGET)


def test_faults_of_the_arguments_are_raised_before_the_future(selector):
    for call, error in (({"method": "x"}, UnknownMethodError), ({"k": 0}, SelectionError)):
        with pytest.raises(error):
            selector.submit("x", **call)
    with pytest.raises(ContextNotTextError):
        selector.submit(b"x")
    assert selector.submit("x").result().best.label


@pytest.mark.parametrize("context", [b"x", None, "\ud800"])
def test_a_context_is_text(selector, context):
    with pytest.raises(ContextNotTextError):
        selector.select(context)


def test_a_prompt_must_fit_the_window_with_the_deepest_row():
    fits = loaded(TableModel(seeded(3), window=100))
    with Selector(INDEX, fits) as selector:
        size = selector.select("x").context_tokens
        room = 100 - len(INDEX.prompt.head) - len(INDEX.prompt.tail) - size - 3
        selector.select("x" * (1 + room))
        with pytest.raises(ContextTooLongError, match="101 with the deepest path"):
            selector.select("x" * (2 + room))


def test_an_index_whose_prompt_alone_exceeds_the_window_is_refused():
    with pytest.raises(ContextTooLongError, match="index made"):
        Selector(INDEX, loaded(TableModel(seeded(3), window=10)))


def test_another_tokenizer_is_refused():
    changed = Tokenizer.from_str(byte_tokenizer().to_str())
    changed.add_special_tokens(["<new>"])
    model = LoadedModel("other", lambda: (TableModel(seeded(3)), changed))
    with pytest.raises(FingerprintMismatchError, match="pcdc build --model other"):
        Selector(INDEX, model)
    with pytest.raises(EngineClosedError):
        model.share()


def test_a_model_whose_logits_end_before_a_token_is_refused():
    with pytest.raises(LogitsWidthError, match="uses token 120"):
        Selector(INDEX, loaded(TableModel(seeded(3), logits_width=100)))


def test_a_selector_takes_a_loaded_model_only():
    with pytest.raises(TypeError, match="not on str"):
        Selector(INDEX, "smollm2-135m")


def test_a_closed_selector_refuses_and_frees_its_model():
    selector = Selector(INDEX, loaded(TableModel(seeded(3))))
    queued = selector.submit("x")
    selector.close()
    selector.close()
    assert queued.result().best.label
    with pytest.raises(EngineClosedError, match="selector of made is closed"):
        selector.select("x")
    with pytest.raises(EngineClosedError):
        selector.model.share()


def test_closing_one_selector_leaves_others_of_the_model_open():
    model = loaded(TableModel(seeded(3)))
    with Selector(INDEX, model.share()) as other:
        Selector(INDEX, model).close()
        assert other.select("x").best.label


def test_a_request_that_fails_changes_nothing_for_those_after_it():
    broken = []
    rule = seeded(3)
    model = TableModel(lambda path: np.full(320, np.nan) if broken else rule(path))
    with Selector(INDEX, loaded(model)) as selector:
        before = selector.select("x", k=3)
        broken.append(True)
        with pytest.raises(ScoreError, match="index made"):
            selector.select("x", k=3)
        broken.clear()
        assert selector.select("x", k=3).answers == before.answers


def test_a_selector_and_what_it_says_have_short_names(selector):
    assert repr(selector).startswith("Selector(Index('made', model='table'")
    assert "method='exact', certified" in repr(selector.select("x"))
