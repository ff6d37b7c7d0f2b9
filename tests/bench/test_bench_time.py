"""Laws of the time: what is foreseen, what is begun, and what is left out."""

import pytest
from timed import CONTEXTS, STEP, Fake, FakeTogether, taught

from pcdc.bench.rounds import MANY
from pcdc.bench.show import block
from pcdc.bench.sweep import Point


def test_what_does_not_fit_the_time_is_left_out_and_named(bench):
    found, log = bench({"ours": [1.0], "endless": [500.0]}, 30, steps={"endless": 500})
    assert [row["key"] for row in found["rows"]] == ["ours"]
    assert [one["key"] for one in found["left_out"]] == ["endless"]
    assert "one answer takes about " in found["left_out"][0]["reason"]
    assert "left out, no time (" in block(found, terminal=False)
    assert not [key for key, _ in log if key == "endless"]
    assert found["seconds"] <= 30


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


def test_a_point_without_time_for_ours_and_one_other_is_not_measured(bench):
    settings = {"steps": {"ours": 5.0 / STEP, "other": 5.0 / STEP}, "pace": taught(), "point": Point()}
    found, log = bench({"ours": [5.0], "other": [5.0]}, 9, **settings)
    assert found["rows"] == log == []
    assert {one["key"] for one in found["left_out"]} == {"ours", "other"}
    assert "not measured: needs about 1" in block(found, terminal=False)
    found, _ = bench({"ours": [5.0], "other": [5.0]}, 20, **settings)
    assert [row["key"] for row in found["rows"]] == ["ours", "other"]


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
