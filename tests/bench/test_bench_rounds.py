"""Laws of the rounds and of the figures made from them, on fakes whose times are written down."""

import itertools
import json
import math
from collections import Counter

import mlx.core as mx
import pytest
from fakes import ROOT, TableModel, loaded, make_artifact, seeded, spelled
from pcdc_runtime.errors import ExtraMissingError, ScoreError

from pcdc.bench.figures import figures
from pcdc.bench.measured import Answer
from pcdc.bench.methods import ORACLE, Entry, entries
from pcdc.bench.ours import DEFAULT, WAYS, maker
from pcdc.bench.rounds import MANY, MAX_ROUNDS, Tally, measure
from pcdc.bench.scenarios import Place, Scenario
from pcdc.bench.show import block

ARTIFACT = make_artifact({"team": spelled("ab", "ac", "b"), "urgent": spelled("x", "y")})
CONTEXTS = tuple(f"the {word} ticket, " * 20 for word in ("first", "second", "third"))
assert chr(ROOT) not in "".join(CONTEXTS)


class Clock:
    """Stands still but for what methods take."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """Answers at once and says that it took the next of its times, in seconds."""

    def __init__(self, key, clock, times, log, values=None, scores=None):
        self.key, self.title = key, f"the way {key}"
        self._clock, self._times, self._log = clock, itertools.cycle(times), log
        self._values, self._scores = values or {"team": "ab", "urgent": "x"}, scores

    def answer(self, context):
        seconds = next(self._times)
        self._clock.now += seconds
        self._log.append((self.key, context))
        return Answer(self._values, self._scores, 2, 3, 40, 1000, 10, seconds * 1000)

    def close(self):
        self._log.append((self.key, "closed"))


class FakeTogether(Fake):
    def answer_many(self, contexts):
        self._clock.now += 2.0
        self._log.append((self.key, tuple(contexts)))
        return [self._values for _ in contexts]


@pytest.fixture
def bench():
    """Measures fakes given by key with their times, steps and settings; gives the figures and a log."""
    with loaded(TableModel(seeded(1))) as model:

        def run(times, budget=1000.0, *, steps=None, make=None, own_scores=(), **settings):
            clock, log = Clock(), []
            kinds = {key: (make or {}).get(key) for key in times}

            def maker_of(key):
                def made(artifact, loaded_model):
                    if isinstance(kinds[key], Exception):
                        raise kinds[key]
                    return (kinds[key] or Fake)(key, clock, times[key], log, *settings.get(key, ()))

                return made

            methods = [
                Entry(
                    key,
                    f"the way {key}",
                    maker_of(key),
                    lambda _, key=key: (steps or {}).get(key, 1.0),
                    key in own_scores,
                )
                for key in times
            ]
            place = Place("made", "Made up", 1.0, lambda: Scenario(ARTIFACT, CONTEXTS))
            tally = Tally(place, budget)
            try:
                measure(tally, model, methods, lambda what: None, clock)
            except KeyboardInterrupt:
                log.append(("interrupted", ""))
            return figures(tally, methods), log

        yield run


def counted(log, key):
    """The texts of a method's answers, without the short one that warms it up."""
    return [text for name, text in log if name == key and text in CONTEXTS]


def test_the_defaults_row_stands_first_and_is_in_every_round(bench):
    found, _ = bench({"ours": [1.0], "quick": [0.1], "slow": [3.0]})
    assert [row["key"] for row in found["rows"]] == ["ours", "quick", "slow"]
    assert found["rows"][0]["rounds"] == found["rounds"] == MAX_ROUNDS
    assert found["rows"][0]["ratio"] == {"median": 1.0, "lower": 1.0, "upper": 1.0}


def test_every_method_answers_the_same_texts_in_turn(bench):
    _, log = bench({"ours": [1.0], "quick": [0.1], "slow": [3.0]})
    wanted = list(itertools.islice(itertools.cycle(CONTEXTS), MAX_ROUNDS))
    assert counted(log, "ours") == counted(log, "quick") == counted(log, "slow") == wanted


def test_the_order_rotates_so_that_each_method_goes_first(bench):
    _, log = bench({"ours": [1.0], "b": [1.0], "c": [1.0]})
    answers = [key for key, text in log if text in CONTEXTS]
    firsts = Counter(answers[::3])
    assert set(firsts) == {"ours", "b", "c"}
    assert max(firsts.values()) - min(firsts.values()) <= 1


def test_a_ratio_is_the_median_of_the_ratios_within_rounds(bench):
    # The first of each warms up. The ratio of the medians, 1.5, is not the median of the ratios.
    found, _ = bench({"ours": [9.0, 1.0, 2.0, 4.0], "other": [9.0, 3.0, 2.0, 16.0]})
    assert [row["ms"]["median"] for row in found["rows"]] == [2000.0, 3000.0]
    ratios = [3 / 1, 2 / 2, 16 / 4, 9 / 9, 3 / 1, 2 / 2, 16 / 4, 9 / 9, 3 / 1]
    assert found["rows"][1]["ratio"]["median"] == sorted(ratios)[4]


def test_what_does_not_fit_the_time_is_left_out_and_named(bench):
    found, log = bench({"ours": [1.0], "endless": [500.0]}, 30, steps={"endless": 500})
    assert [row["key"] for row in found["rows"]] == ["ours"]
    assert [one["key"] for one in found["left_out"]] == ["endless"]
    assert "one answer takes about " in found["left_out"][0]["reason"]
    assert "left out: the way endless: " in block(found, terminal=False)
    assert not [key for key, _ in log if key == "endless"]
    assert found["seconds"] <= 30


def test_the_budget_decides_how_many_rounds_there_are(bench):
    few, _ = bench({"ours": [1.0], "other": [1.0]}, 8)
    many, _ = bench({"ours": [1.0], "other": [1.0]}, 16)
    assert 1 <= few["rounds"] < many["rounds"]
    assert few["seconds"] <= 8
    assert f"{few['rounds']} rounds in" in block(few, terminal=False)


def test_the_default_is_measured_once_whatever_the_budget(bench):
    found, _ = bench({"ours": [50.0], "other": [1.0]}, 1)
    assert found["rounds"] == 1


REASON = "its package is not installed; it is needed; install it"


def test_a_method_that_cannot_be_made_is_named_with_its_reason(bench):
    missing = ExtraMissingError("its package", "is not installed", "it is needed", "install it")
    found, _ = bench({"ours": [1.0], "gone": [1.0]}, make={"gone": missing})
    assert [row["key"] for row in found["rows"]] == ["ours"]
    assert found["missing"] == [{"key": "gone", "title": "the way gone", "reason": REASON}]
    assert f"missing: the way gone: {REASON}" in block(found, terminal=False)


def test_a_baseline_that_fails_stops_no_other(bench):
    class Breaks(Fake):
        def answer(self, context):
            raise ValueError("no idea")

    found, _ = bench({"ours": [1.0], "broken": [1.0], "fine": [1.0]}, make={"broken": Breaks})
    assert [row["key"] for row in found["rows"]] == ["ours", "fine"]
    assert found["missing"][0]["reason"] == "ValueError: no idea"


def test_a_default_that_fails_is_the_places_own_failure(bench):
    class Breaks(Fake):
        def answer(self, context):
            raise ScoreError("made", "got no scores")

    found, _ = bench({"ours": [1.0], "fine": [1.0]}, make={"ours": Breaks})
    assert found["rows"] == []
    assert "got no scores" in found["refused"]
    assert "not measured" in block(found, terminal=False)


def test_an_interrupt_keeps_what_was_measured_and_closes_every_method(bench):
    class Interrupted(Fake):
        def answer(self, context):
            if len([1 for key, _ in self._log if key == "ours"]) > 4:
                raise KeyboardInterrupt
            return super().answer(context)

    found, log = bench({"ours": [1.0], "other": [1.0]}, make={"other": Interrupted})
    assert found["rows"][0]["rounds"] >= 3
    assert log[-1] == ("interrupted", "")
    assert {("ours", "closed"), ("other", "closed")} <= set(log)


def test_requests_together_are_timed_where_a_method_takes_them(bench):
    found, log = bench({"ours": [1.0], "other": [1.0]}, make={"ours": FakeTogether})
    assert found["rows"][0]["per_second"] == {"one": 1.0, "many": MANY / 2.0}
    assert found["rows"][1]["per_second"] == {"one": 1.0, "many": None}
    (together,) = (texts for key, texts in log if isinstance(texts, tuple))
    assert len(set(together)) == MANY


RIGHT = {"team": "ab", "urgent": True}
SCORES = {"team": (-1.0, -2.0, -math.inf), "urgent": (-0.5, -3.0)}


@pytest.mark.parametrize(
    ("values", "scores", "expected"),
    [
        (RIGHT, SCORES, (1.0, 0.0)),
        (RIGHT, {**SCORES, "team": (-1.25, -2.0, -math.inf)}, (1.0, 0.25)),
        (RIGHT, {**SCORES, "team": (-1.0, -2.0, -9.0)}, (1.0, None)),
        ({"team": "ac", "urgent": True}, None, (0.5, None)),
        ({"team": "ab", "urgent": 1}, None, (0.5, None)),
        ({"team": "ab"}, None, (0.5, None)),
    ],
)
def test_agreement_counts_winners_and_finds_the_largest_difference(bench, values, scores, expected):
    found, _ = bench(
        {"ours": [1.0], ORACLE: [1.0]}, 30, **{"ours": (values, scores), ORACLE: (RIGHT, SCORES)}
    )
    agreement = found["rows"][0]["agreement"]
    assert (agreement["same"] / agreement["of"], agreement["largest_difference"]) == expected
    json.dumps(found, allow_nan=False)


def test_scores_of_another_rule_are_not_compared(bench):
    given = {"ours": (RIGHT, SCORES), ORACLE: (RIGHT, SCORES)}
    found, _ = bench({"ours": [1.0], ORACLE: [1.0]}, own_scores={"ours"}, **given)
    assert found["rows"][0]["agreement"] == {
        "same": 2 * MAX_ROUNDS,
        "of": 2 * MAX_ROUNDS,
        "largest_difference": None,
    }


def test_the_peak_is_what_an_answer_holds_on_top_of_what_was_held(bench):
    held = []

    class Takes(Fake):
        def answer(self, context):
            numbers = mx.zeros((100_000,)) + len(held)
            mx.eval(numbers)
            held.append(numbers)
            return super().answer(context)

    found, _ = bench({"ours": [1.0], "other": [1.0]}, make={"other": Takes})
    ours, other = (row["peak_bytes"] for row in found["rows"])
    assert ours < 400_000 <= other < 1_200_000


def test_without_the_oracle_no_agreement_is_claimed(bench):
    found, _ = bench({"ours": [1.0], "other": [1.0]})
    assert {row["key"]: row["agreement"] for row in found["rows"]} == {"ours": None, "other": None}


def test_the_speedup_is_over_a_named_baseline(bench):
    found, _ = bench({"ours": [1.0], "free": [6.0], "llguidance": [1.5]})
    text = block(found, terminal=False)
    assert "SPEEDUP: 6.0x (step reduction 1x) over autoregressive: the way free" in text
    assert "SPEEDUP: 1.5x (step reduction 1x) over constrained: the way llguidance" in text


@pytest.fixture
def ways():
    """Our own ways, all but the default with nothing else beside, on a model that is a table."""
    with loaded(TableModel(seeded(2))) as model:
        made = {way.key: maker(way)(ARTIFACT, model) for way in WAYS}
        yield made, model
        for method in made.values():
            method.close()


def test_every_round_pays_for_its_text_and_finds_the_head_warm():
    methods = [Entry(way.key, way.title, maker(way), lambda _: 1.0) for way in WAYS]
    place = Place("made", "Made up", 1.0, lambda: Scenario(ARTIFACT, CONTEXTS))
    tally = Tally(place, 1000.0)
    with loaded(TableModel(seeded(2))) as model:
        measure(tally, model, methods, lambda what: None)
    taken = {key: {one.text: one.answer for one in many} for key, many in tally.taken.items()}
    head = len(ARTIFACT.prompt.head)
    for text in CONTEXTS:
        warm, cold = (taken[key][text].positions for key in (DEFAULT.key, "ours-joint-cold"))
        assert cold - warm == head
    again = Counter((one.text, one.answer.positions) for one in tally.taken[DEFAULT.key])
    assert len(again) == len(CONTEXTS)


def test_ours_answers_alike_however_it_is_asked(ways):
    made, _ = ways
    answers = {key: method.answer(CONTEXTS[0]) for key, method in made.items()}
    default = answers[DEFAULT.key]
    for key in ("ours-joint-cold", "ours-joint-fields"):
        assert answers[key].values == default.values
        for name, scores in default.log_scores.items():
            assert answers[key].log_scores[name] == pytest.approx(scores)
    assert answers["ours-joint-fields"].passes > default.passes
    assert answers["ours-joint-pruned"].values == default.values
    for key in ("ours-identify-warm", "ours-joint-pruned"):
        # What they score is not whole choices: beside the oracle's it would say nothing.
        assert answers[key].log_scores is None


def test_ours_answers_many_as_it_answers_one(ways):
    made, _ = ways
    for key in ("ours-joint-warm", "ours-identify-warm"):
        together = made[key].answer_many(CONTEXTS)
        assert together == [made[key].answer(text).values for text in CONTEXTS]


def test_the_entries_are_distinct_and_the_defaults_is_first():
    found = entries()
    assert found[0].key == DEFAULT.key
    assert len({entry.key for entry in found}) == len({entry.title for entry in found}) == len(found)
    assert all(entry.steps(ARTIFACT) > 0 for entry in found)
