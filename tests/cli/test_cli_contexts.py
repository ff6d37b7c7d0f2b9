"""`pcdc run --contexts`: a line for each line, whatever ends the run in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from command_line import ENVIRONMENT, PROGRAM
from texts_file import lines, records

from pcdc.cli.common import Terminated

WORDS = ("My invoice is wrong.", "Nothing works!", "Please call me back today.", "é 开心")
TEXTS = [f"{WORDS[n % 4]} {n} " + "and so on " * (n % 5) for n in range(24)]


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(lines(TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def answer(pcdc, artifact, tiny):
    def call(*arguments, **more):
        return pcdc("run", artifact, "--model", tiny, *arguments, **more)

    return call


def same(one, other):
    """Whether two outputs say the same, but for times, counts, and the last digits of other groups."""
    assert [(r["line"], r.get("id"), r.get("error")) for r in one] == [
        (r["line"], r.get("id"), r.get("error")) for r in other
    ]
    for a, b in zip(one, other, strict=True):
        if "error" in a:
            continue
        for name, answer in a["parsed_json"].items():
            assert answer["value"] == b["parsed_json"][name]["value"]
            assert answer["prob"] == pytest.approx(b["parsed_json"][name]["prob"], abs=1e-4)


def test_each_line_gets_the_answer_that_its_text_gets_alone(answer, given):
    done = answer("--contexts", given)
    assert (done.exit_code, done.stderr) == (0, "24 texts: 24 answered\n")
    found = records(done.stdout)
    assert [(r["line"], r["id"]) for r in found] == [(n + 1, f"id {n}") for n in range(24)]
    assert max(r["contexts"] for r in found) > 1
    for number in (0, 11, 23):
        alone = json.loads(answer("--text", TEXTS[number], "--json").stdout)
        for name, value in alone["parsed_json"].items():
            assert found[number]["parsed_json"][name]["value"] == value["value"]
            assert found[number]["parsed_json"][name]["prob"] == pytest.approx(value["prob"], abs=1e-4)


def test_a_file_holds_what_stdout_does_with_a_key_before_it(answer, given, tmp_path):
    shown = answer("--contexts", given)
    kept = answer("--contexts", given, "--out", tmp_path / "answers.jsonl")
    assert (kept.exit_code, kept.stdout) == (0, "")
    found = records((tmp_path / "answers.jsonl").read_text(encoding="utf-8"))
    same(found, records(shown.stdout))
    assert [next(iter(record)) for record in found] == ["key"] * 24
    assert set(found[0]) - set(records(shown.stdout)[0]) == {"key"}


def test_texts_may_be_bare_and_come_from_stdin(program, artifact, tiny):
    done = program("run", artifact, "--model", tiny, "--contexts", "-", input='"one"\n{"context": "two"}\n')
    assert done.returncode == 0
    assert [(r["line"], "id" in r) for r in records(done.stdout)] == [(1, False), (2, False)]


def test_options_hold_for_every_line(answer, given):
    asked = ["--fields", "urgent", "--scoring", "identify", "--temperature", "2"]
    for record in records(answer("--contexts", given, *asked).stdout):
        assert list(record["parsed_json"]) == ["urgent"]
        assert (record["scoring"], record["temperature"]) == ("identify", 2.0)


BAD = [
    ('{"contxt": "x"}', "PCDC720", 1, "rename"),
    ("[1]", "PCDC720", 1, "is an array"),
    ('{"context": 7}', "PCDC720", 13, "that is a number"),
    ('{"id": [1], "context": "x"}', "PCDC720", 8, "`id`"),
    ('{"context": "x"', "PCDC105", 16, "ends before"),
    ("", "PCDC105", 1, "line is blank; a line is `{"),
    ('{"context": "a", "context": "b"}', "PCDC106", 18, "twice on line 14, in column 2 and in column 18"),
    ('"\\ud800"', "PCDC105", 2, "surrogate"),
    ("not json", "PCDC105", 1, "or is the text as a JSON string"),
]


def test_all_bad_lines_are_told_at_once_and_the_good_ones_are_answered(answer, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f'"good {n}"\n{bad}\n' for n, (bad, *_) in enumerate(BAD)), encoding="utf-8")
    done = answer("--contexts", path)
    found = records(done.stdout)
    assert done.exit_code == 1
    assert [record["line"] for record in found] == list(range(1, 2 * len(BAD) + 1))
    assert ["error" in record for record in found] == [False, True] * len(BAD)
    for number, (_, code, column, said) in enumerate(BAD):
        assert f"{path}:{2 * number + 2}:{column}: error[{code}]" in done.stderr
        assert found[2 * number + 1]["error"]["code"] == code
        assert said in done.stderr


def test_a_text_that_is_too_long_has_its_error_in_its_place(answer, tmp_path):
    path, out = tmp_path / "texts.jsonl", tmp_path / "answers.jsonl"
    path.write_text(lines(["a", "word " * 9000, "b"]), encoding="utf-8")
    for done in (answer("--contexts", path, "--out", out), answer("--contexts", path, "--out", out)):
        assert done.exit_code == 1
        assert f"{path}:2:1: error[PCDC701]" in done.stderr
    found = records(out.read_text(encoding="utf-8"))
    assert ["error" in record for record in found] == [False, True, False]
    assert (found[1]["id"], found[1]["error"]["code"]) == ("id 1", "PCDC701")


def test_keys_that_are_not_read_are_named_in_one_warning(answer, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"context": "a", "tag": 1, "expected": {}}\n' * 3, encoding="utf-8")
    done = answer("--contexts", path)
    assert (done.exit_code, done.stderr.count("PCDC728"), '"tag"' in done.stderr) == (0, 1, True)
    assert "expected" not in done.stderr.splitlines()[0]


def test_a_file_of_nothing_but_mistakes_is_not_read_to_its_end(answer, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("oops\n" * 1500, encoding="utf-8")
    done = answer("--contexts", path)
    assert (done.exit_code, done.stdout, done.stderr.count("error[")) == (1, "", 1000)
    assert done.stderr.endswith(f"note: {path} is not read on, and nothing of it is answered\n")


def test_mistakes_and_warnings_are_told_in_the_order_of_the_lines(answer, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('oops\n{"context": "a", "tag": 1}\n[1]\n{"id": [1], "context": 2}\n', encoding="utf-8")
    told = [line for line in answer("--contexts", path).stderr.splitlines() if line.startswith(str(path))]
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in told] == ["1", "2", "3", "4", "4"]


@pytest.mark.parametrize("name", ["texts.ndjson", "texts", "texts.yaml", "texts.jsonl.txt"])
def test_a_file_of_texts_may_have_any_name(answer, tmp_path, name):
    (tmp_path / name).write_text(lines(TEXTS[:2]), encoding="utf-8")
    done = answer("--contexts", tmp_path / name)
    assert (done.exit_code, [r["line"] for r in records(done.stdout)]) == (0, [1, 2])


def test_texts_may_come_from_a_pipe_that_can_be_read_once(program, artifact, tiny):
    end, start = os.pipe()
    os.write(start, lines(TEXTS[:2]).encode())
    os.close(start)
    done = program("run", artifact, "--model", tiny, "--contexts", f"/dev/fd/{end}", pass_fds=[end])
    os.close(end)
    assert (done.returncode, [r["id"] for r in records(done.stdout)]) == (0, ["id 0", "id 1"])


def test_what_was_read_of_stdin_before_is_not_read_again(program, artifact, tiny, given):
    with given.open("rb", buffering=0) as file:
        os.lseek(file.fileno(), len(lines(TEXTS[:1]).encode()), os.SEEK_SET)
        done = program("run", artifact, "--model", tiny, "--contexts", "-", stdin=file)
    assert (done.returncode, [r["id"] for r in records(done.stdout)]) == (
        0,
        [f"id {n}" for n in range(1, 24)],
    )


def test_texts_may_come_from_a_socket(program, artifact, tiny):
    here, there = socket.socketpair()
    with here, there:
        here.sendall(lines(TEXTS[:2]).encode())
        here.shutdown(socket.SHUT_WR)
        done = program("run", artifact, "--model", tiny, "--contexts", "-", stdin=there)
    assert (done.returncode, [r["id"] for r in records(done.stdout)]) == (0, ["id 0", "id 1"])


def test_a_carriage_return_alone_is_a_blank(answer, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_bytes(b'{"context":\r"a"}\r\n\r"b"\roops\n"c"\r')
    done = answer("--contexts", path)
    assert [(r["line"], "error" in r) for r in records(done.stdout)] == [(1, False), (2, True), (3, False)]
    assert f"{path}:2:6: error[PCDC105]" in done.stderr


@pytest.mark.parametrize("given", ["7", "-1", "1.5", "true", "null", '"\u00e9"', "9" * 400])
def test_an_id_comes_back_as_it_was_given(answer, tmp_path, given):
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"id": {given}, "context": "a"}}\n', encoding="utf-8")
    (line,) = answer("--contexts", path).stdout.splitlines()
    assert line.startswith(f'{{"line": 1, "id": {given}, ')


@pytest.mark.parametrize("given", ["0.1000000000000000055511151231257827", "1E+2", "1.50", "-0", "1e400"])
def test_an_id_that_would_come_back_otherwise_is_refused_in_its_place(answer, tmp_path, given):
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"id": {given}, "context": "a"}}\n', encoding="utf-8")
    done = answer("--contexts", path)
    assert (done.exit_code, "error" in records(done.stdout)[0]) == (1, True)
    assert f"{path}:1:8: error[PCDC" in done.stderr


@pytest.mark.parametrize("kept", [False, True])
def test_a_path_that_is_no_unicode_leaves_the_output_json(answer, given, tmp_path, monkeypatch, kept):
    out = tmp_path / "answers.jsonl"
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("PCDC_HEAD_CACHE", "1")
    monkeypatch.setenv("PCDC_CACHE", os.fsdecode(bytes(tmp_path / "cache") + b"/\xff"))
    monkeypatch.setattr("pcdc_runtime.headfile.SAVING_S", -1e9)
    done = answer("--contexts", given, *(["--out", out] if kept else []))
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "24 texts: 24 answered")
    found = records((out.read_bytes() if kept else done.stdout_bytes).decode("utf-8"))
    assert [r["id"] for r in found] == [f"id {n}" for n in range(24)]
    assert any("\udcff" in warning for warning in found[0]["warnings"])


def test_a_full_stderr_costs_no_answer(program, artifact, tiny, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('"a"\noops\n"b"\n', encoding="utf-8")
    with Path("/dev/full").open("w") as full:
        done = program("run", artifact, "--model", tiny, "--contexts", path, stderr=full)
    assert (done.returncode, [r["line"] for r in records(done.stdout)]) == (1, [1, 2, 3])


@pytest.mark.parametrize("there", [0, 1, 2, 3, 4])
def test_a_run_says_what_was_answered_and_what_was_there_already(answer, tmp_path, there):
    path, out = tmp_path / "texts.jsonl", tmp_path / "answers.jsonl"
    given = ['"a"\n', "oops\n", json.dumps("word " * 9000) + "\n", '"b"\n']
    path.write_text("".join(given[:there]), encoding="utf-8")
    answer("--contexts", path, "--out", out)
    path.write_text("".join(given), encoding="utf-8")
    before = ["", "; 1 of them there already", "; 2 of them there already", "; 3 of them there already"]
    last = answer("--contexts", path, "--out", out).stderr.splitlines()[-1]
    assert last == "4 texts: 2 answered, 2 with errors" + [*before, "; all of them there already"][there]


def test_a_run_that_is_finished_loads_no_model_and_says_the_same(answer, given, tmp_path, monkeypatch):
    out = tmp_path / "answers.jsonl"
    given.write_text(lines(["a", "word " * 9000]), encoding="utf-8")
    first = answer("--contexts", given, "--out", out)
    monkeypatch.setattr("pcdc_runtime.loaded.open_model", None)
    again = answer("--contexts", given, "--out", out)
    assert again.exit_code == first.exit_code == 1
    assert again.stderr == first.stderr.removesuffix("\n") + "; all of them there already\n"


@pytest.mark.parametrize("end", [KeyboardInterrupt, Terminated])
def test_a_run_that_ends_while_the_model_loads_says_how_to_go_on(answer, given, tmp_path, monkeypatch, end):
    def ends(*_, **__):
        raise end

    monkeypatch.setattr("pcdc_runtime.loaded.open_model", ends)
    done = answer("--contexts", given, "--out", tmp_path / "answers.jsonl")
    assert done.exit_code == {KeyboardInterrupt: 130, Terminated: 143}[end]
    assert "note: 0 of 24 answers are in" in done.stderr
    assert "the same command goes on from there" in done.stderr


def test_an_empty_file_is_answered_by_nothing(answer, tmp_path):
    (tmp_path / "texts.jsonl").write_text("")
    done = answer("--contexts", tmp_path / "texts.jsonl")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "0 texts: 0 answered\n")


@pytest.mark.parametrize("cut", [1, 40, 75, 500])
def test_a_torn_last_line_is_cut_and_answered_again(answer, given, tmp_path, cut):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "answers.jsonl"
    answer("--contexts", given, "--out", whole)
    data = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(data[:5]) + data[5][:cut])
    assert answer("--contexts", given, "--out", out).exit_code == 0
    assert out.read_bytes().startswith(b"".join(data[:5]))
    same(records(out.read_text(encoding="utf-8")), records(whole.read_text(encoding="utf-8")))


def test_a_finished_file_is_left_as_it_is_and_more_texts_are_added_to_it(answer, given, tmp_path):
    out = tmp_path / "answers.jsonl"
    answer("--contexts", given, "--out", out)
    before = out.read_bytes()
    assert answer("--contexts", given, "--out", out).exit_code == 0
    assert out.read_bytes() == before
    given.write_text(lines([*TEXTS, "one more"]), encoding="utf-8")
    assert answer("--contexts", given, "--out", out).exit_code == 0
    assert out.read_bytes().startswith(before)
    assert len(records(out.read_text(encoding="utf-8"))) == 25


@pytest.mark.parametrize(
    "changed", ["rule", "temperature", "fields", "a text", "an id", "fewer texts", "order"]
)
def test_answers_of_another_run_are_refused_and_stay_as_they_are(answer, given, tmp_path, changed):
    out = tmp_path / "answers.jsonl"
    answer("--contexts", given, "--out", out)
    before = out.read_bytes()
    texts = {
        "a text": [*TEXTS[:3], "other", *TEXTS[4:]],
        "fewer texts": TEXTS[:-1],
        "order": TEXTS[::-1],
    }.get(changed, TEXTS)
    content = lines(texts)
    given.write_text(
        content.replace('"id 7"', '"id seven"') if changed == "an id" else content, encoding="utf-8"
    )
    more = {
        "rule": ["--scoring", "trie"],
        "temperature": ["--temperature", "1"],
        "fields": ["--fields", "urgent"],
    }
    done = answer("--contexts", given, "--out", out, *more.get(changed, []))
    assert (done.exit_code, "PCDC713" in done.stderr) == (2, True)
    assert out.read_bytes() == before


WRONG = ["oops", '{"context": 7}', '{"context": 8}', '"\\ud800"', json.dumps("word " * 9000)]
MENDED = '"mended"'


@pytest.mark.parametrize("there", [3, 5, 7])
@pytest.mark.parametrize(
    "mended",
    [
        {1: MENDED},
        {1: '""', 4: MENDED},
        {1: '{"context": 8}'},
        {0: MENDED, 1: MENDED, 2: MENDED, 3: MENDED, 4: MENDED},
    ],
)
def test_a_line_that_had_an_error_may_be_mended_and_costs_no_answer(answer, tmp_path, there, mended):
    path, out, whole = (tmp_path / name for name in ("texts.jsonl", "answers.jsonl", "whole.jsonl"))
    given = ['"a"', *WRONG, '"b"']
    path.write_text("".join(f"{line}\n" for line in given[:there]), encoding="utf-8")
    answer("--contexts", path, "--out", out)
    before = out.read_bytes().splitlines()
    for index, line in mended.items():
        given[index + 1] = line
    path.write_text("".join(f"{line}\n" for line in given), encoding="utf-8")
    done = answer("--contexts", path, "--out", out)
    fresh = answer("--contexts", path, "--out", whole)
    assert done.exit_code == fresh.exit_code
    assert done.stderr.splitlines()[:-1] == fresh.stderr.splitlines()[:-1]
    same(records(out.read_text("utf-8")), records(whole.read_text("utf-8")))
    after = out.read_bytes().splitlines()
    kept = [n for n in range(there) if n - 1 not in mended]
    assert [after[n] for n in kept] == [before[n] for n in kept]
    assert answer("--contexts", path, "--out", out).stderr.endswith("; all of them there already\n")
    assert sorted(tmp_path.glob("*answers*")) == [out]


def test_a_mended_file_keeps_its_rights_and_stays_where_a_link_points(answer, tmp_path):
    path, out, link = (tmp_path / name for name in ("texts.jsonl", "answers.jsonl", "link.jsonl"))
    path.write_text("oops\n", encoding="utf-8")
    link.symlink_to(out)
    answer("--contexts", path, "--out", link)
    out.chmod(0o640)
    path.write_text(MENDED + "\n", encoding="utf-8")
    assert answer("--contexts", path, "--out", link).exit_code == 0
    assert (link.is_symlink(), out.stat().st_mode & 0o777) == (True, 0o640)
    assert "error" not in records(out.read_text("utf-8"))[0]


def test_a_run_that_ends_before_mended_lines_are_answered_leaves_the_file_as_it_was(
    answer, tmp_path, monkeypatch
):
    path, out = tmp_path / "texts.jsonl", tmp_path / "answers.jsonl"
    path.write_text('"a"\noops\n"b"\n', encoding="utf-8")
    answer("--contexts", path, "--out", out)
    before = out.read_bytes()
    path.write_text('"a"\n"mended"\n"b"\n', encoding="utf-8")

    def ends(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pcdc_runtime.loaded.open_model", ends)
        assert answer("--contexts", path, "--out", out).exit_code == 130
    assert out.read_bytes() == before
    assert answer("--contexts", path, "--out", out).exit_code == 0
    assert [r["line"] for r in records(out.read_text("utf-8"))] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"something else\n", b'{"key": "x"}\n', b"PK"])
def test_a_file_of_another_kind_is_refused_and_stays_as_it_is(answer, given, tmp_path, content):
    out = tmp_path / "answers.jsonl"
    out.write_bytes(content)
    done = answer("--contexts", given, "--out", out)
    assert (done.exit_code, "PCDC711" in done.stderr) == (2, True)
    assert out.read_bytes() == content


def test_the_texts_themselves_are_never_written_over(answer, given):
    before = given.read_bytes()
    assert answer("--contexts", given, "--out", given).exit_code == 2
    assert given.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--text", "x", "--contexts", "a.jsonl"], "either --context or --text or --contexts"),
        (["--context", "-", "--contexts", "a.jsonl"], "either --context or --text or --contexts"),
        (["--text", "x", "--out", "a.jsonl"], "--out keeps the answers of --contexts"),
        (["--contexts", "a.jsonl", "--threshold", "0.5"], "--threshold marks rows of a table"),
        (["--contexts", "a.jsonl", "--prune", "1e-4"], "--prune is for one text: leave it out, or"),
        (["--contexts", "nowhere.jsonl"], "PCDC101"),
        (["--contexts", "-", "--fields", "nope"], "PCDC705"),
    ],
)
def test_a_wrong_call_is_refused(program, artifact, tiny, arguments, said):
    done = program("run", artifact, "--model", tiny, *arguments, input='"x"\n')
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


def started(artifact, tiny, given, out):
    command = [
        *PROGRAM,
        "run",
        str(artifact),
        "--model",
        str(tiny),
        "--contexts",
        str(given),
        "--out",
        str(out),
    ]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe)
    while not (out.exists() and out.stat().st_size) and process.poll() is None:
        time.sleep(0.002)
    return process


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_ended_goes_on_to_the_same_file(answer, artifact, tiny, given, tmp_path, end):
    given.write_text(lines(TEXTS * 8), encoding="utf-8")
    out, whole = tmp_path / "answers.jsonl", tmp_path / "whole.jsonl"
    with started(artifact, tiny, given, out) as process:
        os.kill(process.pid, end)
        _, stderr = process.communicate()
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[end]
    assert b"Traceback" not in stderr
    if end != signal.SIGKILL:
        assert b"the same command goes on from there" in stderr
        assert out.read_bytes().endswith(b"\n")
    before = out.read_bytes().splitlines(keepends=True)
    assert 0 < len(before) < 192
    assert [answer("--contexts", given, "--out", path).exit_code for path in (out, whole)] == [0, 0]
    assert out.read_bytes().startswith(b"".join(line for line in before if line.endswith(b"\n")))
    same(records(out.read_text(encoding="utf-8")), records(whole.read_text(encoding="utf-8")))


def test_two_runs_never_write_one_file(answer, artifact, tiny, given, tmp_path):
    given.write_text(lines(TEXTS * 8), encoding="utf-8")
    with started(artifact, tiny, given, tmp_path / "answers.jsonl") as process:
        done = answer("--contexts", given, "--out", tmp_path / "answers.jsonl")
        process.kill()
    assert (done.exit_code, "in use by another `pcdc run`" in done.stderr) == (2, True)
