"""`pcdc bench` from the command line, on a tiny model."""

import json
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest
from command_line import ENVIRONMENT, PROGRAM

from pcdc.bench.methods import SWEPT, entries
from pcdc.bench.sweep import Point

# Every place is measured, however slow the machine is: it is the number of rounds that is small.
ENOUGH = ("--minutes", "60")
ROUNDS = 2
TEXT = "The invoice of May is wrong, and nobody answers."


def strict(text):
    """JSON as every reader takes it: no NaN, no infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.fixture
def ticket(tmp_path):
    file = tmp_path / "ticket.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


@pytest.fixture(scope="module", autouse=True)
def few_rounds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcdc.bench.rounds.MAX_ROUNDS", ROUNDS)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory, artifact, tiny):
    """One scenario of the user's and one axis, measured once as JSON and with files."""
    from typer.testing import CliRunner

    from pcdc.cli import app

    folder = tmp_path_factory.mktemp("bench")
    (folder / "ticket.txt").write_text(TEXT, encoding="utf-8")
    call = ["bench", "--scenario", artifact, "--context", folder / "ticket.txt", "--sweep", "length"]
    call += ["--model", tiny, *ENOUGH, "--json", "--out", folder / "out"]
    done = CliRunner().invoke(app, [str(part) for part in call])
    assert done.exit_code == 0, done.output
    return done, folder / "out"


def test_json_is_strict_and_alone_on_stdout(measured):
    done, out = measured
    report = strict(done.stdout)
    assert report == strict((out / "bench.json").read_text(encoding="utf-8"))
    assert report["interrupted"] is False
    assert report["machine"]["dtype"] == "float32"
    assert "note: " in done.stderr


def test_every_method_is_a_row_or_named_with_a_reason(measured):
    every = [entry.key for entry in entries()]
    for place in strict(measured[0].stdout)["places"]:
        wanted = list(SWEPT) if place["point"] not in (None, asdict(Point())) else every
        assert place["methods"] == wanted
        named = [row["key"] for kind in ("rows", "missing", "left_out") for row in place[kind]]
        assert sorted(named) == sorted(wanted)
        assert place["rows"][0]["key"] == "ours-joint-warm"
        assert all(one["reason"] for kind in ("missing", "left_out") for one in place[kind])


def test_joint_agrees_with_the_oracle_in_every_field(measured):
    agreements = {
        row["key"]: row["agreement"]
        for place in strict(measured[0].stdout)["places"]
        for row in place["rows"]
        if row["key"].startswith("ours-joint") and row["agreement"]
    }
    assert "ours-joint-warm" in agreements
    for key, agreement in agreements.items():
        assert agreement["same"] == agreement["of"] > 0
        # What pruning leaves out has no score of its own.
        assert key == "ours-joint-pruned" or agreement["largest_difference"] < 1e-3


def test_an_axis_is_drawn_as_png_and_svg_with_its_units(measured):
    _, out = measured
    assert {file.name for file in out.iterdir()} == {"bench.json", "latency-length.png", "latency-length.svg"}
    assert (out / "latency-length.png").read_bytes().startswith(b"\x89PNG")
    svg = (out / "latency-length.svg").read_text(encoding="utf-8")
    for text in ("tokens of a candidate", "milliseconds", "ours, joint, no pruning, head warm"):
        assert text in svg


def test_the_terminal_shows_the_references_lines_and_the_table(pcdc, artifact, tiny, ticket):
    done = pcdc("bench", "--scenario", artifact, "--context", ticket, "--model", tiny, *ENOUGH)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "float32 on " in lines[0]
    assert any(line.startswith("  Parallel       :") for line in lines)
    assert any(line.startswith("  SPEEDUP: ") and "over " in line for line in lines)
    headers = [number for number, line in enumerate(lines) if line.startswith("method ")]
    assert len(headers) == 3
    assert "peak MB" in lines[headers[1]]
    for header in headers:
        assert lines[header + 1].startswith("ours, joint, no pruning, head warm")


def test_the_compiler_and_a_start_are_measured_on_the_scenarios_own_artifact(pcdc, artifact, tiny, ticket):
    call = ("bench", "--compiler", "--scenario", artifact, "--context", ticket, "--model", tiny)
    done = pcdc(*call, "--minutes", "0.1", "--json")
    assert done.exit_code == 0, done.output
    report = strict(done.stdout)
    assert {"load artifact support", "pcdc --help"} <= {one["title"] for one in report["compiler"]}
    assert report["start"]["schema"] == "support"
    assert report["start"]["figures"][-1]["title"].startswith("pcdc run")
    assert report["interrupted"] is False


def test_a_baseline_that_cannot_be_imported_is_named(pcdc, artifact, tiny, ticket, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    done = pcdc("bench", "--scenario", artifact, "--context", ticket, "--model", tiny, *ENOUGH)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("  missing: writes JSON")]
    assert len(lines) == 3
    assert all("llguidance cannot be imported" in line for line in lines)


def test_an_artifact_chooses_no_folder_of_this_machine(pcdc, artifact, tiny, ticket, monkeypatch):
    monkeypatch.chdir(tiny.parent)
    done = pcdc("bench", "--scenario", artifact, "--context", ticket)
    assert done.exit_code == 2
    assert "PCDC401" in done.stderr


def test_a_definition_is_compiled_for_the_model(pcdc, tiny, ticket, tmp_path):
    definition = tmp_path / "mail.json"
    definition.write_text(json.dumps({"urgent": {"type": "boolean", "description": "Is it?"}}), "utf-8")
    call = ("bench", "--scenario", definition, "--context", ticket, "--model", tiny, *ENOUGH)
    done = pcdc(*call, "--json")
    assert done.exit_code == 0, done.output
    (place,) = strict(done.stdout)["places"]
    assert place["schema"]["name"] == "mail"


def test_a_definition_with_mistakes_is_told_with_their_places(pcdc, tiny, ticket, tmp_path):
    definition = tmp_path / "bad.json"
    definition.write_text(json.dumps({"urgent": {"type": "enum", "description": "Is it?"}}), "utf-8")
    done = pcdc("bench", "--scenario", definition, "--context", ticket, "--model", tiny)
    assert done.exit_code == 1
    assert "bad.json:1:" in done.stderr


def test_a_text_that_is_too_long_is_told(pcdc, artifact, tiny, ticket):
    ticket.write_text("word " * 5000, encoding="utf-8")
    done = pcdc("bench", "--scenario", artifact, "--context", ticket, "--model", tiny, *ENOUGH)
    assert done.exit_code == 1
    assert "PCDC701" in done.stderr


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("--scenario", "nowhere.json"), "is no file and none of the shipped"),
        (("--scenario", ""), "the path is empty"),
        (("--scenario", "."), "is a folder; give an artifact or a definition in it"),
        (("--context", "ticket.txt"), "it goes with --scenario PATH"),
        (("--sweep", "breadth"), "is no axis"),
        (("--sweep", ","), "is no axis"),
        (("--minutes", "nan"), "Invalid value for '--minutes'"),
        (("--minutes", "0"), "Invalid value for '--minutes'"),
        (("--out", ""), "the path is empty"),
        (("--compiler", "--floor"), "either --floor or --compiler"),
        (("--compiler", "--out", "plots"), "have no plots"),
        (("--compiler", "--sweep", "all"), "and no sweep"),
        (("--model", "no-such-model"), "PCDC401"),
    ],
)
def test_what_cannot_be_measured_exits_2_before_anything_is_loaded(pcdc, call, told):
    done = pcdc("bench", *call)
    assert done.exit_code == 2
    assert told in " ".join(done.output.replace("│", " ").split())


def test_a_scenario_of_ones_own_needs_a_text(pcdc, artifact):
    done = pcdc("bench", "--scenario", artifact)
    assert done.exit_code == 2
    assert "give --context" in " ".join(done.output.replace("│", " ").split())


def test_a_definition_without_a_text_is_told_its_mistakes_too(pcdc, tmp_path):
    definition = tmp_path / "bad.json"
    definition.write_text(json.dumps({"urgent": {"type": "enum", "description": "Is it?"}}), "utf-8")
    done = pcdc("bench", "--scenario", definition)
    assert done.exit_code == 2
    assert "bad.json:1:" in done.stderr
    assert "give --context" in " ".join(done.output.replace("│", " ").split())


def test_less_time_than_one_round_takes_is_told_at_the_start_and_bounds_the_run(pcdc, tiny, monkeypatch):
    monkeypatch.setattr("pcdc.bench.command.FORWARD", 1e-9)
    done = pcdc("bench", "--scenario", "fraud_routing", "--model", tiny, "--minutes", "0.1")
    assert done.exit_code in (0, 1), done.output
    assert done.stdout.splitlines()[1].startswith("One round of everything takes about ")


def test_a_folder_that_takes_no_files_is_told_before_anything_is_measured(
    pcdc, artifact, tiny, ticket, tmp_path
):
    (tmp_path / "taken").write_text("a file")
    call = ("bench", "--scenario", artifact, "--context", ticket, "--model", tiny, *ENOUGH)
    for out in (tmp_path / "taken", tmp_path / "taken" / "below"):
        done = pcdc(*call, "--out", out)
        assert done.exit_code == 2
        assert "PCDC712" in done.stderr
        assert done.stdout == ""


def test_files_that_cannot_be_written_are_told_after_the_figures(
    pcdc, artifact, tiny, ticket, tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pcdc.bench.command.write_atomic", full)
    call = ("bench", "--scenario", artifact, "--context", ticket, "--model", tiny, *ENOUGH)
    done = pcdc(*call, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "PCDC712" in done.stderr
    assert "Parallel" in done.stdout


def test_nothing_measured_is_not_success(pcdc, tiny, monkeypatch):
    monkeypatch.setattr("pcdc.bench.asked.perf_counter", iter([0.0, *[1e6] * 99]).__next__)
    done = pcdc("bench", "--scenario", "fraud_routing", "--model", tiny, "--minutes", "0.1")
    assert done.exit_code == 1, done.output
    assert "nothing was measured" in done.stderr


def test_an_interrupt_prints_what_was_measured_and_exits_130(artifact, tiny, ticket, tmp_path):
    out = tmp_path / "out"
    call = ["bench", "--scenario", artifact, "--context", ticket, "--model", tiny, "--sweep", "all"]
    command = [*PROGRAM, *map(str, call), *ENOUGH, "--out", str(out)]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if line.startswith("  Parallel"):
                break
        process.send_signal(signal.SIGINT)
        # Not `communicate`: what the loop above has read ahead would be lost.
        rest, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    report = strict((out / "bench.json").read_text(encoding="utf-8"))
    assert report["interrupted"] is True
    assert report["places"][0]["rows"]
    assert "method " in rest
