"""What a build finds in hostile folders, and what it says about the names of artifacts."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from command_line import ENVIRONMENT, PROGRAM
from families import family_folder

from pcdc.build import build, find_sources
from pcdc.output import artifact_names

MODEL = str(family_folder("smollm2"))


def definition(name="team"):
    return json.dumps({name: {"choices": ["A", "B"], "description": "Which?"}})


@pytest.fixture
def schemas(tmp_path):
    folder = tmp_path / "schemas"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.json").write_text(definition())
    (folder / "sub" / "two.json").write_text(definition())
    return folder


def pcdc(*arguments):
    command = [*PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


def codes(report):
    return [d.code for d in report.diagnostics]


def names(folder, out):
    return [s.relative.as_posix() for s in find_sources([folder], out)[0]]


def test_a_calibration_beside_an_artifact_is_no_definition(schemas):
    (schemas / "one.smollm2.pcdc.calibration.json").write_text("{}")
    (schemas / "my.calibration.json").write_text(definition())
    assert names(schemas, schemas) == ["my.calibration", "one", "sub/two"]


def test_a_folder_that_cannot_be_listed_is_told(schemas, tmp_path, monkeypatch):
    whole = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    sources, (problem,) = find_sources([schemas], tmp_path / "out")
    assert [s.relative.as_posix() for s in sources] == ["one"]
    assert (problem.code, problem.severity, problem.subject) == ("PCDC101", "error", str(schemas / "sub"))


def test_links_to_folders_are_followed_and_loops_end(schemas, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "three.json").write_text(definition())
    (schemas / "link").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(schemas)
    (schemas / "a-loop").symlink_to(schemas)
    (schemas / "a-second-name").symlink_to(schemas / "sub")
    (schemas / "self").symlink_to(schemas / "self")
    assert names(schemas, tmp_path / "out") == ["one", "sub/two", "link/three"]


def test_a_link_to_the_outputs_is_not_followed(schemas, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "x.json").write_text(definition())
    (schemas / "link").symlink_to(out)
    assert names(schemas, out) == ["one", "sub/two"]


def test_what_is_no_regular_file_is_refused_by_name_and_skipped_below_a_folder(schemas, tmp_path):
    os.mkfifo(schemas / "pipe.json")
    assert names(schemas, tmp_path / "out") == ["one", "sub/two"]
    sources, (problem,) = find_sources([schemas / "pipe.json"], tmp_path / "out")
    assert (sources, problem.code) == ([], "PCDC101")


def test_a_file_name_that_is_no_unicode_fails_alone(schemas, tmp_path):
    (schemas / os.fsdecode(b"m\xff.json")).write_text(definition())
    report = build([schemas], [MODEL], tmp_path / "out")
    assert sorted(t.outcome for t in report.targets) == ["built", "built", "failed"]
    assert codes(report) == ["PCDC228"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text("utf-8").splitlines()]
    assert sorted(line["outcome"] for line in lines) == ["built", "built", "failed"]


@pytest.mark.parametrize("how", ["--explain", "--format=json"])
def test_the_program_prints_a_file_name_that_is_no_unicode(schemas, tmp_path, how):
    (schemas / os.fsdecode(b"m\xff.json")).write_text(definition())
    done = pcdc("build", str(schemas), "--model", MODEL, "--out", str(tmp_path / "out"), how)
    assert done.returncode == 1
    assert "internal error" not in done.stderr
    if how == "--format=json":
        assert len(json.loads(done.stdout)["targets"]) == 3


@pytest.mark.parametrize("arguments", [["build", ""], ["build", ".", "--out", ""], ["watch", ""]])
def test_an_empty_path_is_a_usage_error(arguments):
    done = pcdc(*arguments)
    assert (done.returncode, "the path is empty" in done.stderr) == (2, True)


def test_an_output_folder_with_too_long_a_name_is_a_finding(schemas, tmp_path):
    report = build([schemas / "one.json"], [MODEL], tmp_path / ("x" * 300))
    assert [t.outcome for t in report.targets] == ["failed"]
    assert "PCDC611" in codes(report)
    assert "PCDC610" not in codes(report)


def test_an_artifact_of_other_fields_is_replaced_with_a_warning(schemas, tmp_path):
    build([schemas / "one.json"], [MODEL], tmp_path / "out")
    (schemas / "sub" / "one.json").write_text(definition("other"))
    report = build([schemas / "sub" / "one.json"], [MODEL], tmp_path / "out")
    assert ([t.outcome for t in report.targets], codes(report)) == (["built"], ["PCDC615"])
    (schemas / "sub" / "one.json").write_text(definition("other").replace('"B"', '"C"'))
    assert codes(build([schemas / "sub" / "one.json"], [MODEL], tmp_path / "out")) == []


def test_an_artifact_left_under_its_earlier_name_is_told(schemas, tmp_path):
    build([schemas / "one.json"], [MODEL], tmp_path / "out")
    (schemas / "sub" / "one.json").write_text(definition("other"))
    report = build([schemas / "one.json", schemas / "sub" / "one.json"], [MODEL], tmp_path / "out")
    assert set(codes(report)) == {"PCDC616"}


def test_a_name_does_not_depend_on_how_a_path_is_spelled(schemas, tmp_path, monkeypatch):
    def both(*spelled):
        found, _ = find_sources([type(schemas)(s) for s in spelled], tmp_path / "out")
        return artifact_names([(s.relative, "m", s.path.as_posix()) for s in found])

    (schemas / "sub" / "one.json").write_text(definition())
    first = both(schemas / "one.json", schemas / "sub" / "one.json")
    monkeypatch.chdir(schemas / "sub")
    assert both("../one.json", "one.json") == first
    assert len(set(first)) == 2
