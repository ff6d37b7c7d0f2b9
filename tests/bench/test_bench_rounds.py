"""Laws of the rounds: who answers which text when, and what becomes of who cannot."""

import itertools
from collections import Counter

from fakes import make_artifact, spelled
from pcdc_runtime.errors import ExtraMissingError, ScoreError
from timed import CONTEXTS, Fake, FakeTogether

from pcdc.bench.rounds import MAX_ROUNDS
from pcdc.bench.show import block
from pcdc.bench.sweep import Point


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


def test_the_first_round_goes_by_importance_whatever_it_costs(bench):
    steps = {"ours": 1.0, "important": 9.0, "cheap": 0.1}
    _, log = bench({"ours": [1.0], "important": [9.0], "cheap": [0.1]}, 30, steps=steps)
    first = [key for key, text in log if text == CONTEXTS[0]][:3]
    assert first == ["ours", "important", "cheap"]


def test_what_is_cheap_has_several_rounds_before_what_is_expensive_has_its_second(bench):
    found, log = bench({"ours": [1.0], "slow": [12.0], "quick": [0.5]}, 60)
    rounds = {row["key"]: row["rounds"] for row in found["rows"]}
    assert rounds["slow"] == 1
    assert rounds["ours"] >= 4 <= rounds["quick"]
    counts = [key for key, text in log if text in CONTEXTS]
    assert counts.index("slow") < 3


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


def test_a_point_has_no_requests_together(bench):
    found, _ = bench({"ours": [1.0], "other": [1.0]}, make={"ours": FakeTogether}, point=Point())
    assert found["rows"][0]["per_second"]["many"] is None


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
