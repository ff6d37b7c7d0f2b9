"""`pcdc build` and what all commands share: exit codes, streams, help."""

from __future__ import annotations

import json

import pytest
import typer.testing
from families import family_folder

from pcdc import build as building
from pcdc import cli
from pcdc.diagnostics import RULES, finding

MODEL = str(family_folder("smollm2"))
COMMANDS = ["build", "watch", "index", "run", "bench", "inspect", "models", "doctor"]


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


@pytest.mark.parametrize(
    ("name", "content", "exit_code"),
    [
        ("s.yaml", b"a: 1", 1),
        ("s.json", b"", 1),
        ("s.json", b"caf\xe9", 1),
        ("s.json", b'{"f": {}}', 1),
        ("nowhere.json", None, 2),
        ("empty", None, 2),
    ],
)
def test_a_files_content_exits_1_and_a_missing_file_2(run_build, tmp_path, name, content, exit_code):
    (tmp_path / "empty").mkdir()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run_build(tmp_path / name).exit_code == exit_code


def test_an_artifact_given_as_a_definition_is_told_apart(pcdc, artifact):
    done = pcdc("build", artifact)
    assert (done.exit_code, "is an artifact; definitions are JSON" in done.stderr) == (1, True)
    assert "pcdc run" in done.stderr


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

    project = tomllib.loads((Path(cli.__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert pcdc("--version").stdout == f"pcdc {project['version']}\n"


def test_completion_scripts_can_be_shown():
    done = typer.testing.CliRunner().invoke(cli.app, ["--show-completion", "bash"])
    assert "complete" in done.stdout


CONTENT = "102 103 104 105 106 107 108 109 303 304 305 306 307 618 701 702 720 721 722 723"
FILES_AND_MODELS = "101 110 111 229 301 302 308 401 402 403 404 601 602 603 604 611 612 617"
REQUESTS = "700 703 704 705 706 707 708 709 710 711 712 713 714 715 716 717"
SCHEMA = [code for code, rule in RULES.items() if rule.stage == "schema"]
LINT = [code for code, rule in RULES.items() if rule.stage == "lint"]
EXIT_CODES = {
    **dict.fromkeys([code for code in SCHEMA if RULES[code].severity == "error"], 1),
    **{f"PCDC{number}": 1 for number in CONTENT.split()},
    **{f"PCDC{number}": 2 for number in (*FILES_AND_MODELS.split(), *REQUESTS.split())},
    **dict.fromkeys(LINT, 0),
    **{
        f"PCDC{number}": 0
        for number in (251, 252, 253, 254, 309, 610, 613, 614, 615, 616, 619, 724, 725, 726, 727, 728)
    },
}


def test_content_exits_1_and_the_call_files_models_and_artifacts_exit_2():
    found = {code: finding(code, None, "x", "y") for code in RULES}
    assert {code: cli.exit_code([one]) for code, one in found.items()} == EXIT_CODES
    assert cli.exit_code([]) == 0
    assert cli.exit_code(list(found.values())) == 2
