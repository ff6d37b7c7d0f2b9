"""Laws of the plots, on figures that are written down."""

import re

import pytest

from pcdc.bench.methods import entries
from pcdc.bench.plots import plots
from pcdc.bench.sweep import Point

METHODS = entries()


def place(fields, times, rounds):
    return {
        "axes": ["fields"],
        "point": {**vars(Point()), "fields": fields},
        "rows": [
            {
                "key": key,
                "title": next(entry.title for entry in METHODS if entry.key == key),
                "rounds": rounds,
                "ms": {"median": ms, "lower": ms, "upper": 1.2 * ms},
            }
            for key, ms in times.items()
        ],
    }


def svg(rounds=3):
    both = [place(1, {"ours-joint-warm": 210.0, "llguidance": 200.0, "rows": 300.0}, rounds)]
    both.append(place(28, {"ours-joint-warm": 6400.0, "llguidance": 9000.0}, rounds))
    drawn = dict(plots(both, METHODS, "a machine"))
    assert set(drawn) == {"latency-fields.png", "latency-fields.svg"}
    return drawn["latency-fields.svg"].decode()


def texts(picture):
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]


def test_ticks_are_plain_numbers():
    assert {"1", "28", "200", "500", "1,000", "2,000", "5,000"} <= set(texts(svg()))
    assert "10" not in texts(svg())
    assert "\u00d7" not in svg()


def test_a_method_without_a_line_is_named_with_the_reason():
    told = " ".join(texts(svg()))
    _, _, rest = told.partition("not measured: ")
    missing, _, lone = rest.partition("at one point only, not drawn: ")
    for entry in METHODS:
        assert (entry.title in lone) == (entry.key == "rows") or entry.key in (
            "ours-joint-warm",
            "llguidance",
        )
    assert "writes JSON, free" in missing


@pytest.mark.parametrize(("rounds", "bars"), [(1, 0), (3, 4)])
def test_a_single_round_has_no_spread(rounds, bars):
    assert len(re.findall(r'id="LineCollection_\d+"', svg(rounds))) == bars


def test_equal_figures_give_equal_bytes():
    assert svg() == svg()
