"""`pcdc build` and what all commands share: exit codes, streams, help."""

from __future__ import annotations

import json

import pytest
import typer.testing
from families import family_folder

from pcdc import build as building
from pcdc import cli
from pcdc.diagnostics import RULES, Diagnostic

MODEL = str(family_folder("smollm2"))
COMMANDS = ["build", "run", "inspect", "models", "doctor"]


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "support.json"
    path.write_text('{"team": {"type": "enum", "choices": ["A", "B"], "description": "Which?"}}')
    return path


@pytest.fixture
def run_build(pcdc, tmp_path):
    return lambda *arguments: pcdc("build", "--model", MODEL, "--out", tmp_path / "out", *arguments)


def test_a_clean_build_exits_0_and_says_what_it_did_on_stdout(run_build, schema):
    first, second = run_build(schema), run_build(schema, "--explain")
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout.startswith("built ")
    assert second.stdout.startswith("fresh ")
    assert "no input changed" in second.stdout
    assert first.stderr == second.stderr == ""


def test_explain_names_the_choice_that_changed(run_build, schema):
    run_build(schema)
    schema.write_text(schema.read_text().replace('"B"', '"C"'))
    done = run_build(schema, "--explain")
    assert "the schema changed" in done.stdout
    assert "field team: choice 'C' added" in done.stdout


def test_warnings_alone_exit_0(run_build, schema):
    schema.write_text('{"team": {"type": "enum", "choices": ["A", "B"]}}')
    done = run_build(schema)
    assert (done.exit_code, "warning[PCDC251]" in done.stderr) == (0, True)


def test_findings_exit_1_with_file_line_and_code_and_hide_no_other_file(run_build, schema, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{\n "team": {"type": "enum", "choices": ["only"], "description": "Which?"}}')
    done = run_build(bad, schema)
    assert done.exit_code == 1
    assert f"{bad}:2:" in done.stderr
    assert "error[PCDC212]" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["failed", "built"]
    assert "Traceback" not in done.output


def test_the_worst_exit_code_wins(run_build, schema, tmp_path):
    schema.write_text("[]")
    assert run_build(schema).exit_code == 1
    assert run_build(schema, tmp_path / "nowhere.json").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["build"],
        ["build", "x.json", "--no-such-flag"],
        ["build", "x.json", "--format", "xml"],
        ["no-such-command"],
        ["build", "nowhere.json"],
        ["run", "nowhere.pcdc", "--text", "x"],
        ["inspect", "nowhere.pcdc"],
    ],
)
def test_a_wrong_call_or_a_missing_file_exits_2_without_a_traceback(pcdc, arguments):
    done = pcdc(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_model_exits_2(pcdc, schema, tmp_path):
    done = pcdc("build", schema, "--model", "smollm2-135x", "--out", tmp_path)
    assert done.exit_code == 2
    assert "error[PCDC401]" in done.stderr
    assert "did you mean smollm2-135m" in done.stderr


def test_json_output_is_one_document_with_targets_and_diagnostics(program, schema, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("[]")
    arguments = ["--model", MODEL, "--out", tmp_path / "out", "--format", "json"]
    done = program("build", schema, bad, *arguments)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert [t["outcome"] for t in report["targets"]] == ["built", "failed"]
    assert [d["code"] for d in report["diagnostics"]] == ["PCDC202"]


def test_force_builds_what_is_fresh(run_build, schema):
    run_build(schema)
    assert run_build(schema, "--force").stdout.startswith("built")


def test_an_unexpected_fault_is_one_line_and_a_traceback_only_on_demand(pcdc, schema, monkeypatch):
    def broken(*_args, **_more):
        raise RuntimeError("something else")

    monkeypatch.setattr(building, "build", broken)
    quiet, loud = pcdc("build", schema), pcdc("--debug", "build", schema)
    assert quiet.exit_code == 2
    assert "internal error: RuntimeError: something else" in quiet.stderr
    assert isinstance(loud.exception, RuntimeError)


def test_ctrl_c_exits_130(pcdc, schema, monkeypatch):
    def interrupted(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "build", interrupted)
    done = pcdc("build", schema)
    assert (done.exit_code, "Traceback" in done.output) == (130, False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(pcdc, command):
    done = pcdc(command, "--help")
    assert done.exit_code == 0
    assert f"pcdc {command}" in done.stdout.split("Example")[1]


def test_every_command_is_known():
    names = {c.callback.__name__ for c in cli.app.registered_commands}
    assert set(COMMANDS) <= names


def test_the_version_is_the_distributions(pcdc):
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(cli.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert pcdc("--version").stdout == f"pcdc {project['version']}\n"


def test_completion_scripts_can_be_shown():
    done = typer.testing.CliRunner().invoke(cli.app, ["--show-completion", "bash"])
    assert "complete" in done.stdout


@pytest.mark.parametrize("code", RULES)
def test_every_code_has_an_exit_code(code):
    found = Diagnostic(code, RULES[code].severity, None, "x", "y")
    assert cli.exit_code([found]) in ((1, 2) if found.severity == "error" else (0,))


def test_the_command_lines_own_codes_are_registered():
    assert set(RULES) >= cli.CALL_CODES
