"""`pcdc` at its edges: interrupts, streams that are closed, full or endless, names with commas."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from command_line import ENVIRONMENT, PROGRAM
from typer.testing import CliRunner

from pcdc.cli import MAX_CONTEXT_BYTES, app


def shell(redirection, *arguments):
    """The program behind a shell that redirects its streams."""
    line = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", line, "sh", *PROGRAM, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", ["/dev/zero", "-"])
def test_a_context_without_an_end_is_refused_with_the_limit(artifact, tiny, source):
    done = shell("</dev/zero", "run", artifact, "--model", tiny, "--context", source)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[PCDC710]" in done.stderr
    assert "16 MiB" in done.stderr


def test_a_context_is_refused_from_the_first_byte_above_the_limit(pcdc, artifact, tiny, tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b" " * MAX_CONTEXT_BYTES + b"\xff")
    assert "PCDC710" in pcdc("run", artifact, "--model", tiny, "--context", path).stderr
    path.write_bytes(b" " * (MAX_CONTEXT_BYTES - 1) + b"\xff")
    assert "PCDC702" in pcdc("run", artifact, "--model", tiny, "--context", path).stderr


def test_a_context_path_that_cannot_be_one_is_refused(pcdc, artifact, tiny):
    done = pcdc("run", artifact, "--model", tiny, "--context", "a\0b")
    assert (done.exit_code, "PCDC710" in done.stderr) == (2, True)


def test_a_closed_stdin_is_refused(artifact, tiny):
    done = shell("<&-", "run", artifact, "--model", tiny, "--context", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[PCDC710]: stdin is closed" in done.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(("redirection", "fact"), [(">&-", "is closed"), (">/dev/full", "cannot be written")])
def test_a_result_that_cannot_be_printed_is_an_error(artifact, tiny, redirection, fact, more):
    done = shell(redirection, "run", artifact, "--model", tiny, "--text", "x", *more)
    assert done.returncode == 2
    assert done.stderr.count("error") == 1
    assert f"error[PCDC711]: stdout {fact}" in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("redirection", [">&- 2>&-", ">/dev/full 2>/dev/full", "2>&-"])
def test_closed_streams_never_make_a_success_of_a_failure(artifact, tiny, redirection):
    assert (
        shell(redirection, "run", artifact, "--model", tiny, "--text", "x", "--fields", "no").returncode != 0
    )


def test_a_lone_surrogate_is_placed_in_the_text_of_the_caller(artifact, tiny):
    command = [*PROGRAM, "run", str(artifact), "--model", str(tiny), "--text", b"abc\xff"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"context has a lone surrogate U+DCFF at character 3" in done.stderr


@pytest.fixture(scope="module")
def commas(tiny, tmp_path_factory):
    """An artifact whose field names hold commas."""
    folder = tmp_path_factory.mktemp("commas")
    definition = {name: {"type": "boolean", "description": name} for name in ("a,b", "a", "b", "c")}
    (folder / "s.json").write_text(json.dumps(definition), encoding="utf-8")
    arguments = ["build", str(folder / "s.json"), "--model", str(tiny), "--out", str(folder)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return folder / "s.tiny.pcdc"


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        (["a,b"], ["a,b"]),
        (["a, b"], ["a", "b"]),
        (["a,b", "c"], ["a,b", "c"]),
        (["c", "a,c"], ["c", "a"]),
        (["b", "", "a"], ["b", "a"]),
    ],
)
def test_a_whole_field_name_wins_before_commas_split(pcdc, commas, tiny, given, answered):
    options = [part for name in given for part in ("--fields", name)]
    done = pcdc("run", commas, "--model", tiny, "--text", "x", "--json", *options)
    assert sorted(json.loads(done.stdout)["parsed_json"]) == sorted(answered)


def interrupted(command, ready):
    """A process gets Ctrl-C once `ready` is on stdout: exit code, stderr, how often `ready` came after."""
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.stdout.readline().strip() != ready:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    rest, stderr = process.communicate(timeout=60)
    return process.returncode, stderr, rest.count(ready)


ENDLESS = """
import sys, time
from pcdc_runtime.mlx_model import MlxSequence
append = MlxSequence.append
def slow(self, tokens, parents=None):
    if len(tokens) == 512:
        print("prefilling", flush=True)
        time.sleep(0.5)
        return append(self, tokens[:1].repeat(512), parents)
    return append(self, tokens, parents)
MlxSequence.append = slow
from pcdc.__main__ import main
main()
"""


def test_one_interrupt_ends_a_long_prefill(artifact, tiny):
    text = "word " * 3800
    command = [sys.executable, "-c", ENDLESS, "run", str(artifact), "--model", str(tiny), "--text", text]
    code, stderr, passes = interrupted(command, "prefilling")
    assert (code, stderr) == (130, "interrupted\n")
    assert passes < 4


@pytest.mark.parametrize("module", ["typer", "pcdc_runtime.errors", "pcdc.diagnostics"])
def test_an_interrupt_while_modules_are_imported_leaves_no_traceback(module):
    slow = f"""
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print("importing", flush=True)
            time.sleep(50)
sys.meta_path.insert(0, Slow())
from pcdc.__main__ import main
main()
"""
    assert interrupted([sys.executable, "-c", slow, "models"], "importing") == (130, "", 0)


def test_a_program_that_is_to_ignore_interrupts_ignores_them():
    code = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["pcdc", "--version"]
from pcdc.__main__ import main
try:
    main()
finally:
    print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"
