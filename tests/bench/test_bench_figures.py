"""Laws of the figures made from the rounds, on fakes whose times are written down."""

import json
import math
from dataclasses import replace

import mlx.core as mx
import pytest
from timed import Fake, FakeTogether

from pcdc.bench.methods import ORACLE
from pcdc.bench.rounds import MANY, MAX_ROUNDS
from pcdc.bench.show import block


def test_a_ratio_is_the_median_of_the_ratios_within_rounds(bench):
    # The first of each warms up. The ratio of the medians, 1.5, is not the median of the ratios.
    found, _ = bench({"ours": [9.0, 1.0, 2.0, 4.0], "other": [9.0, 3.0, 2.0, 16.0]})
    assert [row["ms"]["median"] for row in found["rows"]] == [2000.0, 3000.0]
    ratios = [3 / 1, 2 / 2, 16 / 4, 9 / 9, 3 / 1, 2 / 2, 16 / 4, 9 / 9, 3 / 1]
    assert found["rows"][1]["ratio"]["median"] == sorted(ratios)[4]


def test_a_single_round_has_no_quartiles(bench):
    def quartiles(times):
        found, _ = bench({"ours": times, "other": [1.0]}, 30, make={"other": ValueError("no")})
        text = block(found, terminal=False)
        line = next(line for line in text.split("quartiles")[1].splitlines() if line.startswith("the way"))
        return found["rounds"], line.split()[4]

    assert quartiles([25.0]) == (1, "-")
    assert quartiles([1.0]) == (MAX_ROUNDS, "1000-1000")


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
