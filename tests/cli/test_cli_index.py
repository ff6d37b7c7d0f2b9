"""`pcdc index`: a definition or a catalog, one line of figures, exit codes, streams."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest
from command_line import ENVIRONMENT, PROGRAM
from families import family_folder
from pcdc_runtime.indexed.codec import open_index

from pcdc.indexing import building

MODEL = str(family_folder("smollm2"))
LABELS = ["Dates, dried", "Figs, dried", "Vanilla"]
ROWS = "code,name\n0804,Dates\n0805,Figs\n0905,Vanilla\n"


def definition(labels=LABELS):
    settings = {"index": True, "examples": [{"context": "dates", "answers": {"goods": labels[0]}}]}
    return {"x-pcdc": settings, "goods": {"description": "Which goods?", "choices": labels}}


@pytest.fixture
def write(tmp_path):
    def go(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return go


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def run_index(pcdc, out):
    return lambda *arguments: pcdc("index", "--model", MODEL, "--out", out, *arguments)


def labels(path):
    index = open_index(path)
    return [index.labels.label(n) for n in range(len(index.labels))]


def test_a_definition_gives_one_line_with_figures_and_is_fresh_then(run_index, write, out):
    source, path = write("tariff.json", definition()), out / "tariff.smollm2.pcdx"
    first, second = run_index(source), run_index(source, "--explain")
    assert (first.exit_code, second.exit_code) == (0, 0)
    (line,) = first.stdout.splitlines()
    index, size = open_index(path), path.stat().st_size
    assert line.startswith(f"built   {path}  ")
    raw = size / (4 * len(index.rows.token))
    figures = f"3 entries, {len(index.rows)} rows, {size / 1e3:.1f} kB ({raw:.2f} times the raw ids)"
    assert line.endswith(figures)
    line, why = second.stdout.splitlines()
    assert (line.startswith("fresh "), line.endswith(figures)) == (True, True)
    assert why.strip() == f"{source}: no input changed"
    assert first.stderr == second.stderr == ""


def test_build_and_index_make_one_file_of_a_definition(run_index, pcdc, write, out, tmp_path):
    source = write("tariff.json", definition())
    run_index(source)
    pcdc("build", source, "--model", MODEL, "--out", tmp_path / "other")
    name = "tariff.smollm2.pcdx"
    assert (out / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "more", "ids"),
    [
        ("goods.txt", "Dates\nFigs\nVanilla\n", [], ["Dates", "Figs", "Vanilla"]),
        ("goods.json", '\n ["Dates", "Figs", "Vanilla"]', [], ["Dates", "Figs", "Vanilla"]),
        ("goods.csv", ROWS, ["--value", "name", "--id", "code"], ["0804", "0805", "0905"]),
        (
            "goods.jsonl",
            '{"n": "Dates", "c": "1"}\n{"n": "Figs", "c": "2"}\n{"n": "Vanilla", "c": "3"}\n',
            ["--value", "n", "--id", "c"],
            ["1", "2", "3"],
        ),
    ],
)
def test_a_catalog_becomes_an_index_of_what_the_options_ask(run_index, write, out, name, content, more, ids):
    asked = ["--question", "Which goods are these?", "--example", "dried dates => Dates", "--field", "goods"]
    done = run_index(write(name, content), *asked, "--instructions", "Sort the parcel.", *more)
    assert (done.exit_code, done.stderr) == (0, "")
    index = open_index(out / "goods.smollm2.pcdx")
    assert (index.name, index.field, index.question) == ("goods", "goods", "Which goods are these?")
    assert (index.instructions, index.examples) == ("Sort the parcel.", (("dried dates", "Dates"),))
    assert labels(out / "goods.smollm2.pcdx") == ["Dates", "Figs", "Vanilla"]
    assert [index.labels.id(n) for n in range(3)] == ids


def test_the_last_arrow_parts_an_example(run_index, write, out):
    source = write("steps.txt", "b\nc\n")
    run_index(source, "-q", "Which step?", "--example", "a => b => c")
    assert open_index(out / "steps.smollm2.pcdx").examples == (("a => b", "c"),)


def test_an_index_without_a_question_is_made_with_a_warning(run_index, write):
    done = run_index(write("goods.txt", "Dates\nFigs\n"))
    assert (done.exit_code, "warning[PCDC524]" in done.stderr) == (0, True)
    assert "--question" in done.stderr


def test_a_question_and_examples_that_a_call_does_not_give_again_are_dropped_with_a_warning(run_index, write):
    source = write("goods.txt", "Dates\nFigs\n")
    shown = ["--example", "sweet => Dates", "--example", "purple => Figs"]
    run_index(source, "-q", "Which goods?", *shown)
    fewer = run_index(source, "-q", "Which goods, please?", *shown[:2])
    assert (fewer.exit_code, fewer.stderr) == (0, "")
    run_index(source, "-q", "Which goods?", *shown)
    done = run_index(source)
    assert (done.exit_code, "warning[PCDC619]" in done.stderr) == (0, True)
    assert "had a question and 2 examples, which" in done.stderr
    assert "PCDC619" not in run_index(source).stderr


def test_what_a_definition_file_no_longer_says_is_no_surprise(run_index, write):
    run_index(write("tariff.json", definition()))
    done = run_index(write("tariff.json", definition() | {"x-pcdc": {"index": True}}))
    assert (done.exit_code, done.stderr) == (0, "")


def test_options_of_a_catalog_do_not_fit_a_definition(run_index, write, out):
    done = run_index(write("tariff.json", definition()), "--question", "Which?", "--example", "a => b")
    assert done.exit_code == 2
    told = " ".join(done.stderr.replace("│", " ").split())
    assert "--question, --example" in told
    assert "begins with {, as a definition does, which says this itself" in told
    assert "one of JSON is an array, which begins with [" in told
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "content", "code", "fact"),
    [
        ("wishes.md", "# Wishes\n", "PCDC230", 'is of no known kind: "wishes.md"'),
        ("s.sqlite", "SQLite format 3\0", "PCDC230", 'is of no known kind: "s.sqlite"'),
        ("x.yaml", "a: b\n", "PCDC230", 'is of no known kind: "x.yaml"'),
        ("gone.json", None, "PCDC101", "cannot be read"),
        ("text.json", "Dates\n", "PCDC105", "catalog"),
    ],
)
def test_what_is_asked_of_a_file_that_is_no_object_is_asked_of_a_catalog(
    run_index, write, tmp_path, name, content, code, fact
):
    done = run_index(tmp_path / name if content is None else write(name, content), "-q", "Which?")
    assert done.exit_code in (1, 2)
    assert f"error[{code}]" in done.stderr
    assert fact in done.stderr
    assert "as a definition does" not in done.stderr


@pytest.mark.parametrize(
    ("example", "code"),
    [
        ("no arrow", "PCDC237"),
        (" => Dates", "PCDC237"),
        ("dates => ", "PCDC236"),
        ("dates => Apples", "PCDC236"),
    ],
)
def test_an_example_without_a_query_or_a_label_of_the_catalog_is_a_finding(run_index, write, example, code):
    done = run_index(write("goods.txt", "Dates\nFigs\n"), "-q", "Which?", "--example", example)
    assert (done.exit_code, f"error[{code}]" in done.stderr) == (1, True)
    assert done.stdout.startswith("failed  ")


def test_a_schema_is_told_to_be_built(run_index, write):
    done = run_index(write("support.json", {"late": {"type": "boolean", "description": "Is it late?"}}))
    assert done.exit_code == 1
    assert "error[PCDC241]" in done.stderr
    assert "pcdc build" in done.stderr
    assert "support.smollm2.pcdx" in done.stdout


@pytest.mark.parametrize("name", ["missing.txt", "missing.json", "a\0b.txt", "x" * 5000 + ".json"])
def test_what_cannot_be_read_exits_2_in_one_diagnostic(run_index, tmp_path, name):
    done = run_index(tmp_path / name)
    assert done.exit_code == 2
    assert done.stderr.count("error[") == 1
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("given", "told"),
    [(".", "is a folder"), ("postgresql://me:secret@host/db", "it is a URL"), ("", "empty")],
)
def test_what_is_no_file_is_a_usage_error(run_index, given, told):
    done = run_index(given)
    assert (done.exit_code, told in done.stderr, "secret" in done.output) == (2, True, False)


def test_a_broken_catalog_exits_1_and_keeps_the_last_good_index(run_index, write, out):
    source = write("goods.txt", "Dates\nFigs\n")
    run_index(source, "-q", "Which?")
    good = (out / "goods.smollm2.pcdx").read_bytes()
    source.write_bytes(b"Dates\nFigs\xff\n")
    done = run_index(source, "-q", "Which?")
    assert (done.exit_code, "error[PCDC104]" in done.stderr) == (1, True)
    assert done.stdout.startswith("failed  ")
    assert (out / "goods.smollm2.pcdx").read_bytes() == good


def test_explain_says_how_many_entries_came_went_and_were_reused(run_index, write):
    source = write("tariff.json", definition())
    run_index(source)
    write("tariff.json", definition([*LABELS[:2], "Walnuts", "Hazelnuts"]))
    lines = [line.strip() for line in run_index(source, "--explain").stdout.splitlines()[1:]]
    assert lines == [
        f"{source}: the catalog changed",
        "- entries: 2 added, 1 removed",
        "- tokens of 2 of 4 labels reused",
    ]


def test_json_has_the_targets_of_a_build_and_their_figures(run_index, write, out):
    done = run_index(write("tariff.json", definition()), "--format", "json")
    report = json.loads(done.stdout)
    (target,) = report["targets"]
    path = out / "tariff.smollm2.pcdx"
    assert (target["outcome"], target["artifact"]) == ("built", str(path))
    assert target["figures"]["entries"] == target["figures"]["labels"] == 3
    assert target["figures"]["file_bytes"] == path.stat().st_size
    assert report["diagnostics"] == []
    failed = json.loads(run_index(write("bad.txt", "one\n"), "--format", "json").stdout)
    assert (failed["targets"][0]["outcome"], failed["targets"][0]["figures"]) == ("failed", None)


def test_several_models_make_an_index_each(pcdc, write, out):
    other = str(family_folder("qwen3"))
    done = pcdc("index", write("tariff.json", definition()), "-m", MODEL, "-m", other, "--out", out)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 2)
    assert len(list(out.glob("*.pcdx"))) == 2


def test_ctrl_c_exits_130_and_leaves_nothing_half_written(pcdc, write, out, monkeypatch):
    def interrupted(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "build_sources", interrupted)
    done = pcdc("index", write("tariff.json", definition()), "--model", MODEL, "--out", out)
    assert (done.exit_code, "Traceback" in done.output) == (130, False)
    assert not out.exists()


def test_progress_is_for_terminals_only(write, out):
    source = write("goods.txt", "".join(f"part {n}\n" for n in range(2000)))
    command = [*PROGRAM, "index", str(source), "-q", "Which?", "--model", MODEL, "--out", str(out)]
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "120"}
    leader, follower = pty.openpty()
    seen = b""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=follower) as process:
        os.close(follower)
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        stdout = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert b"2000/2000" in seen
    assert len(stdout.splitlines()) == 1
    quiet = subprocess.run([*command, "--force"], env=environment, capture_output=True, check=True)
    assert quiet.stderr == b""
