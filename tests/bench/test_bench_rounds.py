"""Laws of the rounds and of the figures made from them, on fakes whose times are written down."""

import itertools
import json
import math
from collections import Counter
from dataclasses import replace

import mlx.core as mx
import pytest
from fakes import ROOT, TableModel, loaded, make_artifact, seeded, spelled
from pcdc_runtime.errors import ExtraMissingError, ScoreError

from pcdc.bench import foresight
from pcdc.bench.figures import figures
from pcdc.bench.measured import Answer
from pcdc.bench.methods import ORACLE, Entry, entries
from pcdc.bench.ours import DEFAULT, WAYS, hold, maker
from pcdc.bench.rounds import MANY, MAX_ROUNDS, Tally, measure
from pcdc.bench.scenarios import Place, Scenario
from pcdc.bench.show import block
from pcdc.bench.sweep import Point, context_tokens

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

        def run(
            times,
            budget=1000.0,
            *,
            steps=None,
            making=None,
            make=None,
            own_scores=(),
            several_fields=(),
            artifact=ARTIFACT,
            pace=None,
            point=None,
            whole=math.inf,
            **settings,
        ):
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
                    lambda *_, key=key: (steps or {}).get(key, 1.0),
                    lambda _, key=key: (making or {}).get(key, 0.0),
                    key in own_scores,
                    key in several_fields,
                )
                for key in times
            ]
            place = Place("made", "Made up", 1.0, lambda: Scenario(artifact, CONTEXTS), point=point)
            tally = Tally(place, budget, whole)
            try:
                measure(tally, model, methods, lambda what: None, clock, pace)
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
    assert "left out, no time (" in block(found, terminal=False)
    assert not [key for key, _ in log if key == "endless"]
    assert found["seconds"] <= 30


def test_the_first_round_goes_by_importance_whatever_it_costs(bench):
    steps = {"ours": 1.0, "important": 9.0, "cheap": 0.1}
    _, log = bench({"ours": [1.0], "important": [9.0], "cheap": [0.1]}, 30, steps=steps)
    first = [key for key, text in log if text == CONTEXTS[0]][:3]
    assert first == ["ours", "important", "cheap"]


STEP = 0.25


def taught():
    """Has seen so many forwards, each of STEP seconds, that nothing changes its mind."""
    return foresight.Pace(STEP * 1e9, 1e9)


@pytest.mark.parametrize(("budget", "measured"), [(12, False), (40, True)])
def test_what_making_a_method_takes_is_foreseen(bench, budget, measured):
    made = []

    class Costly(Fake):
        def __init__(self, key, clock, *rest):
            super().__init__(key, clock, *rest)
            clock.now += 10.0
            made.append(key)

    found, _ = bench(
        {"ours": [1.0], "rows": [1.0]}, budget,
        steps={"ours": 1.0 / STEP, "rows": 1.0 / STEP}, making={"rows": 10.0 / STEP}, make={"rows": Costly},
        pace=taught(),
    )  # fmt: skip
    assert bool(made) == measured == ("rows" in {row["key"] for row in found["rows"]})
    assert found["seconds"] <= budget
    if not measured:
        assert found["left_out"][0]["reason"].startswith("one answer takes about 11 s")


def test_what_is_foreseen_is_the_work_at_the_pace_so_far(bench):
    found, _ = bench({"ours": [2.0], "other": [99.0]}, 20, steps={"other": 50.0 / STEP}, pace=taught())
    assert found["left_out"][0]["reason"].startswith("one answer takes about 50 s")


def test_a_warm_up_that_eats_a_twentieth_of_the_time_is_left_out(bench):
    def warmed(budget):
        steps = {"ours": 1.0 / STEP, "other": 2.0 / STEP}
        _, log = bench({"ours": [1.0], "other": [2.0]}, budget, steps=steps, pace=taught())
        return any(key == "other" and text not in (*CONTEXTS, "closed") for key, text in log)

    assert not warmed(39)
    assert warmed(41)


def test_what_is_cheap_has_several_rounds_before_what_is_expensive_has_its_second(bench):
    found, log = bench({"ours": [1.0], "slow": [12.0], "quick": [0.5]}, 60)
    rounds = {row["key"]: row["rounds"] for row in found["rows"]}
    assert rounds["slow"] == 1
    assert rounds["ours"] >= 4 <= rounds["quick"]
    counts = [key for key, text in log if text in CONTEXTS]
    assert counts.index("slow") < 3


def test_no_round_takes_more_than_half_of_the_time_left(bench):
    # Each alone is a small part of what is left after the first round, all together are not.
    found, _ = bench({key: [2.0] for key in "abcdef"}, 50)
    assert [row["rounds"] for row in found["rows"]] == sorted(
        (row["rounds"] for row in found["rows"]), reverse=True
    )
    assert found["rows"][0]["rounds"] > found["rows"][-1]["rounds"] == 1


def test_rounds_of_the_default_alone_are_not_run(bench):
    found, _ = bench({"ours": [1.0], "slow": [30.0]}, 60, steps={"slow": 30.0 / STEP}, pace=taught())
    assert [row["rounds"] for row in found["rows"]] == [1, 1]
    assert found["seconds"] <= 35


def test_fields_one_by_one_are_left_out_where_there_is_one(bench):
    one = make_artifact({"team": spelled("ab", "ac", "b")})
    times = {"ours": [1.0], "fields": [1.0]}
    found, log = bench(times, artifact=one, several_fields={"fields"})
    (left_out,) = found["left_out"]
    assert (left_out["key"], left_out["reason"]) == ("fields", "one field")
    assert "  left out, one field: the way fields\n" in block(found, terminal=False)
    assert not [key for key, _ in log if key == "fields"]
    several, _ = bench(times, several_fields={"fields"})
    assert [row["key"] for row in several["rows"]] == ["ours", "fields"]


def test_a_point_without_time_for_ours_and_one_other_is_not_measured(bench):
    settings = {"steps": {"ours": 5.0 / STEP, "other": 5.0 / STEP}, "pace": taught(), "point": Point()}
    found, log = bench({"ours": [5.0], "other": [5.0]}, 9, **settings)
    assert found["rows"] == log == []
    assert {one["key"] for one in found["left_out"]} == {"ours", "other"}
    assert "not measured: needs about 1" in block(found, terminal=False)
    found, _ = bench({"ours": [5.0], "other": [5.0]}, 20, **settings)
    assert [row["key"] for row in found["rows"]] == ["ours", "other"]


def test_a_point_has_no_requests_together(bench):
    found, _ = bench({"ours": [1.0], "other": [1.0]}, make={"ours": FakeTogether}, point=Point())
    assert found["rows"][0]["per_second"]["many"] is None


def test_the_budget_decides_how_many_rounds_there_are(bench):
    few, _ = bench({"ours": [1.0], "other": [1.0]}, 16)
    many, _ = bench({"ours": [1.0], "other": [1.0]}, 32)
    assert 1 < few["rounds"] < many["rounds"]
    assert few["seconds"] <= 16
    assert f"{few['rounds']} rounds in" in block(few, terminal=False)


def test_the_default_is_measured_once_whatever_the_budget_where_the_whole_time_has_room(bench):
    found, _ = bench({"ours": [50.0], "other": [1.0]}, 1, steps={"ours": 50.0 / STEP}, pace=taught())
    assert found["rounds"] == 1


def test_a_place_whose_default_takes_more_than_the_whole_time_left_is_not_begun(bench):
    settings = {"steps": {"ours": 50.0 / STEP}, "pace": taught()}
    found, log = bench({"ours": [50.0], "other": [1.0]}, 1, whole=40.0, **settings)
    assert found["rows"] == log == []
    # The head is part of what it needs.
    assert "\n  not measured: needs about 50.4 s, 40 s left\n" in block(found, terminal=False)
    found, _ = bench({"ours": [50.0], "other": [1.0]}, 1, whole=60.0, **settings)
    assert [row["key"] for row in found["rows"]] == ["ours"]


def test_requests_together_begin_only_where_they_are_foreseen_to_fit(bench):
    settings = {"make": {"ours": FakeTogether}, "steps": {"ours": 4.0 / STEP}, "pace": taught()}
    for budget, fits in ((MANY * 4 + 3.0, False), (MANY * 4 + 60.0, True)):
        found, log = bench({"ours": [4.0]}, budget, **settings)
        assert (found["rows"][0]["per_second"]["many"] is not None) == fits
        assert any(isinstance(texts, tuple) for _, texts in log) == fits


def test_what_has_no_time_is_told_together_and_what_is_missing_alone(bench):
    steps = {"b": 90.0 / STEP, "c": 70.0 / STEP}
    gone = {"d": ValueError("no"), "e": ValueError("never")}
    times = {key: [1.0] for key in ("ours", *"bcde")}
    found, _ = bench(times, 30, steps=steps, make=gone, pace=taught())
    lines = " ".join(block(found, terminal=False).split())
    assert lines.count("left out") == 1
    assert "s left): the way b (about 90 s); the way c (about 70 s)" in lines
    assert "missing: the way d: ValueError: no missing: the way e: ValueError: never" in lines


def test_a_single_round_has_no_quartiles(bench):
    def quartiles(times):
        found, _ = bench({"ours": times, "other": [1.0]}, 30, make={"other": ValueError("no")})
        text = block(found, terminal=False)
        line = next(line for line in text.split("quartiles")[1].splitlines() if line.startswith("the way"))
        return found["rounds"], line.split()[4]

    assert quartiles([25.0]) == (1, "-")
    assert quartiles([1.0]) == (MAX_ROUNDS, "1000-1000")


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


def test_every_speedup_is_over_a_named_baseline(bench):
    found, _ = bench(
        {"ours": [1.0], "llguidance": [1.5], "stepwise": [4.0], "pcd-rlcd": [1.2], "free": [6.0]}
    )
    text = block(found, terminal=False)
    speedups = [line.strip() for line in text.splitlines() if "SPEEDUP" in line]
    assert speedups == [
        f"SPEEDUP: {times}x (step reduction 1x) over the way {key}"
        for times, key in ((4.0, "stepwise"), (1.5, "llguidance"), (1.2, "pcd-rlcd"), (6.0, "free"))
    ]
    assert shown(text, "Autoregressive").endswith("the way free")
    assert shown(text, "Constrained").endswith("the way llguidance")


def shown(text, label):
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {label}"))
    return line


class Invalid(Fake):
    def answer(self, context):
        return replace(super().answer(context), values=None)


def test_free_writing_that_is_not_valid_is_marked_and_stands_for_nothing(bench):
    times = {"ours": [1.0], "stepwise": [4.0], "free": [0.5]}
    found, _ = bench(times, make={"free": Invalid})
    text = block(found, terminal=False)
    assert shown(text, "Autoregressive").endswith("the way stepwise")
    assert "SPEEDUP: 0.5x (step reduction 1x) over the way free (not valid: 9/9)\n" in text
    assert "SPEEDUP: 4.0x (step reduction 1x) over the way stepwise\n" in text
    alone, _ = bench({"ours": [1.0], "free": [0.5]}, make={"free": Invalid})
    assert shown(block(alone, terminal=False), "Autoregressive").endswith("the way free (not valid: 9/9)")


@pytest.fixture
def ways():
    """Our own ways, all but the default with nothing else beside, on a model that is a table."""
    with loaded(TableModel(seeded(2))) as model:
        made = {way.key: maker(way)(ARTIFACT, model) for way in WAYS}
        yield made, model
        for method in made.values():
            method.close()


def test_every_round_pays_for_its_text_and_finds_the_head_warm():
    methods = [Entry(way.key, way.title, maker(way), lambda *_: 1.0) for way in WAYS]
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


def test_the_work_foreseen_for_ours_is_the_work_it_does(ways):
    made, model = ways
    text = context_tokens(model.tokenizer, ARTIFACT, CONTEXTS[0]) + len(ARTIFACT.prompt.tail)
    context = len(ARTIFACT.prompt.head) + text
    foreseen = {entry.key: entry.steps(ARTIFACT, text) for entry in entries()}
    for key in ("ours-joint-warm", "ours-identify-warm"):
        hold(ARTIFACT, model, len(ARTIFACT.prompt.head))
        answer = made[key].answer(CONTEXTS[0])
        counted = foresight.steps(answer.forwards, answer.positions, context)
        assert foreseen[key] == pytest.approx(counted, rel=0.02)
    cold = foreseen["ours-joint-cold"] - foreseen["ours-joint-warm"]
    assert cold == pytest.approx(foresight.head(ARTIFACT))


def test_ours_answers_many_as_it_answers_one(ways):
    made, _ = ways
    for key in ("ours-joint-warm", "ours-identify-warm"):
        together = made[key].answer_many(CONTEXTS)
        assert together == [made[key].answer(text).values for text in CONTEXTS]


def test_the_entries_are_distinct_and_the_defaults_is_first():
    found = entries()
    assert found[0].key == DEFAULT.key
    assert len({entry.key for entry in found}) == len({entry.title for entry in found}) == len(found)
    assert all(entry.steps(ARTIFACT, 50) > 0 for entry in found)


def test_the_entries_go_by_importance():
    assert [entry.key for entry in entries()] == [
        "ours-joint-warm", "ours-identify-warm", "llguidance", "ours-joint-pruned", "stepwise", "pcd-rlcd",
        "rows", "ours-joint-cold", "free", "ours-joint-fields", "branches", "oracle",
    ]  # fmt: skip


def test_making_is_foreseen_of_what_keeps_a_head_of_its_own():
    making = {entry.key for entry in entries() if entry.making(ARTIFACT) > 0}
    assert making == {"rows", "branches", "oracle"}
