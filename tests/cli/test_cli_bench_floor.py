"""`pcdc bench --floor` from the command line, on a tiny model."""

import json

import pytest

from pcdc.bench.asked import Options
from pcdc.bench.floor import HEAD, PYTHON, TREE
from pcdc.bench.floors import run_floors
from pcdc.bench.profile import KINDS


@pytest.fixture
def asked(artifact, tiny, tmp_path):
    ticket = tmp_path / "ticket.txt"
    ticket.write_text("The invoice of May is wrong, and nobody answers.", encoding="utf-8")
    return ["bench", "--floor", "--scenario", artifact, "--context", ticket, "--model", tiny]


def test_a_floor_is_a_table_of_stages_and_kinds_a_person_can_read(pcdc, asked):
    done = pcdc(*asked)
    assert done.exit_code == 0, done.output
    for word in (TREE, HEAD, PYTHON, "x above the floor", "warm request", "GFLOP/s", *KINDS):
        assert word in done.stdout


def test_json_holds_what_the_table_says_alone_on_stdout(pcdc, asked):
    done = pcdc(*asked, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    (place,) = report["places"]
    assert place["floor"]["floor_ms"] == pytest.approx(sum(s["floor_ms"] for s in place["floor"]["stages"]))
    assert set(place["profile_ms"]) == set(KINDS)
    assert report["machine"]["dtype"] == "float32"


def test_a_floor_has_no_files(pcdc, asked, tmp_path):
    done = pcdc(*asked, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--out" in done.stderr
    assert not (tmp_path / "out").exists()


def test_places_that_no_time_is_left_for_are_named(tiny):
    options = Options(model=str(tiny), scenarios=("fraud_routing",), contexts=(), axes=(), minutes=0)
    told = []
    outcome = run_floors(options, lambda what: None, told.append, lambda machine: None)
    assert "Fintech fraud routing: not measured" in told[0]
    assert outcome.report["places"] == [{"place": "fraud_routing", "missing": "the time was up"}]
    assert outcome.problems == ()
