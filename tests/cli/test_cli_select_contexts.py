"""`pcdc select --contexts`: a line for each line, each as its text gets it alone, whatever it draws."""

from __future__ import annotations

import fcntl
import json
import os

import pytest
from texts_file import lines, records

from pcdc.cli.select_contexts import seed_of

WORDS = ("He took aspirin.", "Warfarin, then?", "é 开心", "metformin sodium")
TEXTS = [f"{WORDS[n % 4]} {n} " + "and so on " * (n % 3) for n in range(12)]
DRAWN = ("--method", "disc", "--k", "2")
TIMES = {"elapsed_ms", "prefill_ms", "search_ms"}


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(lines(TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def select(pcdc, index, tiny):
    def call(*arguments, **more):
        return pcdc("select", index, "--model", tiny, *arguments, **more)

    return call


def said(record):
    """What a record says of its text, but for times and for what an earlier text left in the cache."""
    about = {"id", "line", "key", "run_seed", "head_cached", "positions", "kv_bytes", "kv_added"}
    counts = {"forward_passes", "sequential_forward_passes", "warnings", *TIMES}
    return {name: value for name, value in record.items() if name not in about | counts}


def same(one, other):
    """Whether two selections are the same, but for the last digits that other passes give."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
    else:
        assert one == other


@pytest.mark.parametrize(
    "asked",
    [
        ("-k", "2"),
        ("--method", "trie", "--beam", "2"),
        ("--temperature", "2", "--top", "3", "--budget", "9"),
        (*DRAWN, "--seed", "7"),
        ("--method", "trie", "--seed", "7"),
    ],
    ids=["exact", "beam", "numbers", "disc", "drawn"],
)
def test_each_line_gets_the_answer_that_its_text_gets_alone(select, given, asked):
    done = select("--contexts", given, *asked)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "12 texts: 12 answered")
    found = records(done.stdout)
    assert [(r["line"], r["id"]) for r in found] == [(n + 1, f"id {n}") for n in range(12)]
    for number in (0, 5, 11):
        own = list(asked)
        if "--seed" in asked:
            assert found[number]["run_seed"] == 7
            own[-1] = str(found[number]["seed"])
        alone = select("--text", TEXTS[number], "--json", *own)
        same(said(found[number]), said(json.loads(alone.stdout)))


def test_a_run_without_a_seed_draws_one_and_every_line_has_its_own_from_it(select, given):
    one, other = (records(select("--contexts", given, *DRAWN).stdout) for _ in range(2))
    for found in (one, other):
        (run,) = {record["run_seed"] for record in found}
        assert [record["seed"] for record in found] == [seed_of(run, n + 1) for n in range(12)]
        assert len({record["seed"] for record in found}) == 12
    assert one[0]["run_seed"] != other[0]["run_seed"]
    again = records(select("--contexts", given, *DRAWN, "--seed", str(one[0]["run_seed"])).stdout)
    assert [r["answers"][0]["id"] for r in again] == [r["answers"][0]["id"] for r in one]


def test_where_nothing_is_drawn_no_seed_is_stated(select, given):
    for asked in ([], ["--method", "trie"]):
        for record in records(select("--contexts", given, *asked).stdout):
            assert "run_seed" not in record
            assert record["seed"] is None


@pytest.mark.parametrize("seed", [0, 7, 2**53 - 1])
def test_seeds_of_lines_are_seeds_that_a_selection_takes(select, seed):
    assert len({seed_of(seed, line) for line in range(1, 1000)}) == 999
    assert select("--text", "x", *DRAWN, "--seed", str(seed_of(seed, 1))).exit_code == 0


@pytest.mark.parametrize("wrong", [False, True])
def test_a_run_that_goes_on_goes_on_with_the_seed_it_drew(select, given, tmp_path, wrong):
    out, whole = tmp_path / "answers.jsonl", tmp_path / "whole.jsonl"
    if wrong:
        given.write_text("oops\n" + lines(TEXTS), encoding="utf-8")
    select("--contexts", given, *DRAWN, "--out", whole)
    kept = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(kept[:5]) + kept[5][:90])
    assert select("--contexts", given, *DRAWN, "--out", out).exit_code == int(wrong)
    assert out.read_bytes().startswith(b"".join(kept[:5]))
    found, first = (records(path.read_text(encoding="utf-8")) for path in (out, whole))
    for a, b in zip(found, first, strict=True):
        assert (a["key"], a["run_seed"], a.get("seed")) == (b["key"], b["run_seed"], b.get("seed"))
        assert [x["id"] for x in a.get("answers", ())] == [x["id"] for x in b.get("answers", ())]


def test_a_finished_file_is_left_as_it_is_and_loads_no_model(select, given, tmp_path, monkeypatch):
    out = tmp_path / "answers.jsonl"
    first = select("--contexts", given, *DRAWN, "--out", out)
    before = out.read_bytes()
    monkeypatch.setattr("pcdc_runtime.loaded.open_model", None)
    again = select("--contexts", given, *DRAWN, "--out", out)
    assert (first.exit_code, again.exit_code, out.read_bytes()) == (0, 0, before)
    assert again.stderr == "12 texts: 12 answered; all of them there already\n"


def test_more_texts_are_added_to_a_finished_file(select, given, tmp_path):
    out = tmp_path / "answers.jsonl"
    select("--contexts", given, "--out", out)
    before = out.read_bytes()
    given.write_text(lines([*TEXTS, "one more"]), encoding="utf-8")
    assert select("--contexts", given, "--out", out).exit_code == 0
    assert out.read_bytes().startswith(before)
    assert len(records(out.read_text(encoding="utf-8"))) == 13


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ([], ["-k", "2"]),
        ([], ["--method", "trie"]),
        ([], ["--temperature", "1"]),
        ([], ["--top", "9"]),
        ([], ["--budget", "9"]),
        (DRAWN, [*DRAWN, "--seed", "1"]),
        (DRAWN, ["--method", "disc", "--k", "3"]),
        (["--method", "trie", "--beam", "2"], ["--method", "trie", "--beam", "3"]),
    ],
)
def test_answers_of_other_options_are_refused_and_stay_as_they_are(select, given, tmp_path, asked, others):
    out = tmp_path / "answers.jsonl"
    given.write_text(lines(TEXTS[:2]), encoding="utf-8")
    select("--contexts", given, "--out", out, *asked)
    before = out.read_bytes()
    done = select("--contexts", given, "--out", out, *others)
    assert (done.exit_code, "PCDC713" in done.stderr, out.read_bytes()) == (2, True, before)
    assert "the same texts, index, model and options" in " ".join(done.stderr.split())


def test_answers_of_another_index_or_of_a_run_are_refused(
    pcdc, select, index, artifact, tiny, given, tmp_path
):
    other, catalog = tmp_path / "built", tmp_path / "other.txt"
    catalog.write_text("Aspirin\nWarfarin\n", encoding="utf-8")
    call = ["index", catalog, "--question", "Which drug is it?", "--model", tiny, "--out", other]
    assert pcdc(*call).exit_code == 0
    out = tmp_path / "answers.jsonl"
    select("--contexts", given, "--out", out)
    before = out.read_bytes()
    for command in (["select", *other.glob("*.pcdx")], ["run", artifact]):
        done = pcdc(*command, "--model", tiny, "--contexts", given, "--out", out)
        assert (done.exit_code, "PCDC713" in done.stderr, out.read_bytes()) == (2, True, before)


def test_wrong_lines_are_told_in_their_places_and_the_others_are_answered(select, tmp_path):
    path, out = tmp_path / "texts.jsonl", tmp_path / "answers.jsonl"
    given = ['"good"', '{"contxt": "x"}', json.dumps("word " * 9000), '{"context": 7}', '{"context": "b"}']
    path.write_text("".join(f"{line}\n" for line in given), encoding="utf-8")
    for _ in range(2):
        done = select("--contexts", path, *DRAWN, "--out", out)
        assert done.exit_code == 1
        assert f"{path}:2:1: error[PCDC720]" in done.stderr
        assert f"{path}:3:1: error[PCDC701]" in done.stderr
        assert f"{path}:4:13: error[PCDC720]" in done.stderr
        assert "5 texts: 2 answered, 3 with errors" in done.stderr
    found = records(out.read_text(encoding="utf-8"))
    assert [record.get("error", {}).get("code") for record in found] == [
        None,
        "PCDC720",
        "PCDC701",
        "PCDC720",
        None,
    ]


def test_a_warning_is_told_once_whatever_its_figures(select, given):
    done = select("--contexts", given, "--temperature", "0.5")
    found = records(done.stdout)
    masses = {note for record in found for note in record["warnings"] if note.startswith("low_legal_mass")}
    assert len(masses) > 1
    assert [note.split(":")[1].strip() for note in done.stderr.splitlines()[:-1]] == [
        "tempered",
        "low_legal_mass",
    ]


def test_texts_may_come_from_stdin_and_stdout_is_answers_only(program, index, tiny):
    call = ["select", index, "--model", tiny, "--contexts", "-"]
    done = program(*call, input='"one"\n{"context": "two"}\n')
    assert done.returncode == 0
    assert [(r["line"], r["method"], r["entries"]) for r in records(done.stdout)] == [
        (1, "exact", 5),
        (2, "exact", 5),
    ]


def test_an_interrupted_run_says_how_to_go_on(select, given, tmp_path, monkeypatch):
    def ends(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pcdc_runtime.loaded.open_model", ends)
    done = select("--contexts", given, "--out", tmp_path / "answers.jsonl")
    assert done.exit_code == 130
    assert "note: 0 of 12 answers are in" in done.stderr


def test_a_file_in_use_names_the_program(select, given, tmp_path):
    out = tmp_path / "answers.jsonl"
    with out.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = select("--contexts", given, "--out", out)
    assert (done.exit_code, "in use by another `pcdc select`" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--text", "x", "--contexts", "a.jsonl"], 2, "either --context or --text or --contexts"),
        (["--text", "x", "--out", "a.jsonl"], 2, "--out keeps the answers of --contexts"),
        (["--contexts", "nowhere.jsonl"], 2, "PCDC101"),
        (["--contexts", "nowhere.jsonl", "--method", "bream"], 2, "PCDC714"),
        (["--contexts", os.devnull, "--method", "exact", "--seed", "1"], 2, "PCDC716"),
    ],
)
def test_a_wrong_call_is_refused(select, arguments, code, said):
    done = select(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())
