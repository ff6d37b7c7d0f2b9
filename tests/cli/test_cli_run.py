"""`pcdc run`: what is printed where, and what a wrong request says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from command_line import ENVIRONMENT, PROGRAM
from fakes import result_of
from pcdc_runtime import headfile
from pcdc_runtime.result import FieldResult

from pcdc.show import result_table


def test_json_on_a_pipe_is_one_pure_document(program, artifact, tiny):
    done = program("run", artifact, "--model", tiny, "--context", "-", "--json", input="My invoice is wrong.")
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(result["parsed_json"]) == ["department", "urgent"]
    assert result["is_valid_json"]
    assert result["schema_match"]
    assert result["model"] == "tiny"


def test_the_table_is_plain_aligned_text_off_a_terminal(pcdc, artifact, tiny, tmp_path):
    (tmp_path / "ticket.txt").write_text("My invoice is wrong.")
    done = pcdc("run", artifact, "--model", tiny, "--context", tmp_path / "ticket.txt")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0].split("  ")[0].strip() == "field"
    assert [line.split()[0] for line in lines[1:3]] == ["department", "urgent"]
    assert lines[1].index('"') == lines[0].index("value")
    assert lines[3].startswith("prefill and tree pass ")
    assert " 1 pass, " in lines[3]
    assert "model tiny" in lines[3]
    assert "\x1b" not in done.stdout


def test_a_file_stdin_and_the_text_itself_give_one_answer(pcdc, artifact, tiny, tmp_path):
    text = "Ünïcode\r\nand a second line"
    (tmp_path / "ticket.txt").write_bytes(text.encode())
    common = ["run", artifact, "--model", tiny, "--json"]
    runs = [
        pcdc(*common, "--context", tmp_path / "ticket.txt"),
        pcdc(*common, "--context", "-", input=text.encode()),
        pcdc(*common, "--text", text),
    ]
    answers = [json.loads(run.stdout)["parsed_json"] for run in runs]
    assert answers[0] == answers[1] == answers[2]


def test_a_warning_about_this_run_is_a_note_on_stderr(pcdc, artifact, tiny):
    done = pcdc("run", artifact, "--model", tiny, "--text", "", "--json")
    assert json.loads(done.stdout)["warnings"] == ["uncalibrated", "empty_context"]
    assert done.stderr.startswith("note: empty_context: the text is empty")


def test_what_is_true_of_every_run_stands_in_the_footer_and_not_on_stderr(pcdc, artifact, tiny):
    plain = pcdc("run", artifact, "--model", tiny, "--text", "x")
    hot = pcdc("run", artifact, "--model", tiny, "--text", "x", "--temperature", "0.5")
    assert plain.stderr == hot.stderr == ""
    assert ", scoring joint, uncalibrated, artifact " in plain.stdout.splitlines()[-1]
    assert ", scoring joint, temperature 0.5, uncalibrated, " in hot.stdout.splitlines()[-1]


@pytest.mark.parametrize("fields", ["department,urgent", " department , urgent", "department,,urgent,"])
def test_fields_may_be_written_with_blanks(pcdc, artifact, tiny, fields):
    done = pcdc("run", artifact, "--model", tiny, "--text", "x", "--json", "--fields", fields)
    assert list(json.loads(done.stdout)["parsed_json"]) == ["department", "urgent"]


def test_fields_scoring_and_temperature_are_passed_on(pcdc, artifact, tiny):
    asked = ["--fields", "urgent", "--scoring", "identify", "--temperature", "2"]
    result = json.loads(pcdc("run", artifact, "--model", tiny, "--text", "x", "--json", *asked).stdout)
    assert list(result["parsed_json"]) == ["urgent"]
    assert (result["scoring"], result["temperature"]) == ("identify", 2.0)


def test_a_bound_of_pruning_is_passed_on_and_told(pcdc, artifact, tiny):
    asked = ["run", artifact, "--model", tiny, "--text", "x", "--prune", "1e-3"]
    assert json.loads(pcdc(*asked, "--json").stdout)["pruning"] == 1e-3
    assert ", scoring joint, pruned within 0.001, uncalibrated, " in pcdc(*asked).stdout.splitlines()[-1]


def test_a_legal_mass_that_pruning_leaves_open_is_marked():
    closed, open_ = answer(legal_mass=0.25), answer(legal_mass=0.25, legal_mass_slack=0.01, pruned=3)
    assert " 0.2500 " in result_table(result_of(closed), None, terminal=False)
    assert " >=0.2500 " in result_table(result_of(open_), None, terminal=False)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--text", "x", "--temperature", "0"], 2, "PCDC703"),
        (["--text", "x", "--temperature", "nan"], 2, "PCDC703"),
        (["--text", "x", "--prune", "0"], 2, "PCDC709"),
        (["--text", "x", "--prune", "nan"], 2, "PCDC709"),
        (["--text", "x", "--prune", "1e-4", "--scoring", "trie"], 2, "PCDC709"),
        (["--contexts", "x.jsonl", "--prune", "1e-4"], 2, "--prune is for one text"),
        (["--text", "x", "--fields", "nope"], 2, "PCDC705"),
        (["--text", "x", "--fields", "urgnt"], 2, "did you mean 'urgent'?"),
        (["--text", "x", "--fields", ""], 2, "--fields names no field"),
        (["--text", "x", "--fields", " , "], 2, "--fields names no field"),
        (["--text", "x", "--scoring", "best"], 2, "best"),
        (["--text", "x", "--threshold", "7"], 2, "equal to 1"),
        (["--text", "x", "--threshold", "nan"], 2, "equal to 1"),
        (["--text", "x", "--context", "-"], 2, "either --context or --text"),
        ([], 2, "either --context or --text"),
        (["--context", "nowhere.txt"], 2, "PCDC710"),
        (["--text", "word " * 9000], 1, "PCDC701"),
    ],
)
def test_a_wrong_request_names_its_rule(pcdc, artifact, tiny, arguments, exit_code, said):
    done = pcdc("run", artifact, "--model", tiny, *arguments)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_context_that_is_not_utf8_is_refused_with_the_place(pcdc, artifact, tiny):
    done = pcdc("run", artifact, "--model", tiny, "--context", "-", input=b"caf\xe9")
    assert (done.exit_code, "byte 0xE9 at offset 3" in done.stderr) == (1, True)


def test_another_models_tokenizer_is_refused(pcdc, artifact):
    from families import family_folder

    done = pcdc("inspect", artifact)
    assert done.exit_code == 0
    done = pcdc("run", artifact, "--model", family_folder("qwen3"), "--text", "x")
    assert done.exit_code == 2


@pytest.mark.parametrize(("option", "written"), [([], True), (["--no-head-cache"], False)])
def test_a_head_is_kept_in_the_users_cache_unless_that_is_declined(
    pcdc, artifact, tiny, tmp_path, monkeypatch, option, written
):
    monkeypatch.setattr(headfile, "SAVING_S", -1e9)
    monkeypatch.setenv("PCDC_HEAD_CACHE", "1")
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    said = [pcdc("run", artifact, "--model", tiny, "--text", "x", "--json", *option) for _ in range(2)]
    assert [done.exit_code for done in said] == [0, 0], said[0].output
    first, second = (json.loads(done.stdout) for done in said)
    assert first["parsed_json"] == second["parsed_json"]
    assert (tmp_path / "heads").exists() == written


def test_a_damaged_artifact_exits_2(pcdc, artifact, tmp_path):
    (tmp_path / "a.pcdc").write_bytes(artifact.read_bytes()[:-1])
    done = pcdc("run", tmp_path / "a.pcdc", "--text", "x")
    assert (done.exit_code, "PCDC601" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [["run", "--text", "x"], ["inspect"]])
def test_a_definition_given_as_an_artifact_is_told_how_to_build_it(pcdc, tmp_path, command):
    path = tmp_path / "my route.json"
    path.write_text("{}")
    done = pcdc(command[0], path, *command[1:])
    assert done.exit_code == 2
    assert "is a definition file, not an artifact" in done.stderr
    assert f"pcdc build '{path}'" in done.stderr


def test_without_mlx_run_names_what_to_install_and_build_and_inspect_work(artifact, tiny, tmp_path):
    block = "import sys; sys.modules['mlx'] = None; sys.modules['mlx.core'] = None"

    def call(*arguments):
        command = [sys.executable, "-c", f"{block}; {PROGRAM[-1]}", *map(str, arguments)]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    run = call("run", artifact, "--model", tiny, "--text", "x")
    assert (run.returncode, "PCDC404" in run.stderr, "install" in run.stderr) == (2, True, True)
    assert "Traceback" not in run.stderr
    assert call("inspect", artifact).returncode == 0
    built = call("build", artifact.parent / "support.json", "--model", tiny, "--out", tmp_path)
    assert built.returncode == 0
    assert (tmp_path / artifact.name).read_bytes() == artifact.read_bytes()


def test_ctrl_c_while_waiting_for_the_context_exits_130_without_a_traceback(artifact, tiny):
    command = [*PROGRAM, "run", str(artifact), "--model", str(tiny), "--context", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        # Only a process that has reached its read of stdin takes more than a pipe's buffer from it.
        assert process.stdin is not None
        process.stdin.write(b"x" * 300_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in stderr


def answer(**changes):
    values = {
        "name": "department",
        "value": "BILLING\x1b[2J",
        "prob": 0.6,
        "legal_mass": None,
        "legal_mass_is_upper_bound": False,
        "margin": float("inf"),
        "tie": False,
        "near_tie": False,
        "distribution": (("BILLING\x1b[2J", 0.6), ("[bold]TECH", 0.4)),
        "log_scores": (0.0, -1.0),
    }
    return FieldResult(**{**values, **changes})


@pytest.mark.parametrize("terminal", [True, False])
def test_answers_below_the_threshold_and_ties_are_marked(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = result_of(answer(), answer(name="tone", prob=0.5, tie=True), answer(name="sure", prob=0.9))
    text = result_table(result, 0.75, terminal=terminal)
    assert text.count("below 0.75") == 2
    assert "below 0.75, tie" in text
    assert "0123456789ab" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_choice_never_acts_on_the_terminal(terminal):
    shown = result_table(result_of(answer(value="[bold]TECH\x1b[2J")), 0.5, terminal=terminal)
    assert "[bold]TECH" in shown
    assert "\x1b[2J" not in shown
