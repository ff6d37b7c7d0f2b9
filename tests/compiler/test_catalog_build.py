"""Catalogs in a build: their rows decide what is stale, and a broken one leaves the artifact as it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path, PurePath

import pytest
from families import family_folder
from pcdc_runtime.codec import read
from typer.testing import CliRunner

from pcdc.build import build, find_sources
from pcdc.cli import app

MODEL = str(family_folder("smollm2"))
EXAMPLE = Path(__file__).resolve().parents[1] / "fixtures" / "catalogs"


@pytest.fixture
def folder(tmp_path):
    """The example, a schema beside it without a catalog, and where to build them."""
    schemas = tmp_path / "schemas"
    shutil.copytree(EXAMPLE, schemas)
    (schemas / "other.json").write_text('{"urgent": {"type": "boolean", "description": "Is it urgent?"}}')
    return schemas


@pytest.fixture
def command(folder, tmp_path):
    """Runs `pcdc build` on the folder."""

    def run(*more):
        call = ["build", str(folder), "--model", MODEL, "--out", str(tmp_path / "out"), *more]
        return CliRunner().invoke(app, call)

    return run


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def outcomes(report):
    return {Path(t.source).stem: t.outcome for t in report.targets}


def test_the_example_has_the_wanted_rows_with_their_descriptions(folder, tmp_path):
    build([folder / "department.json"], [MODEL], tmp_path / "out")
    (artifact,) = (tmp_path / "out").glob("*.pcdc")
    (field,) = read(artifact).fields
    assert [(c.label, c.description) for c in field.candidates] == [
        ("BILLING", "Invoices, refunds, charges"),
        ("TECH", "Outages, errors, how-to"),
        ("SALES", "Quotes and upgrades"),
    ]


def test_report_32_rows_decide_what_is_stale_and_nothing_else_does(folder, tmp_path):
    """Field report 32."""
    teams, out = folder / "teams.csv", tmp_path / "out"

    def built():
        return outcomes(build([folder], [MODEL], out))

    assert built() == {"department": "built", "other": "built"}
    times = teams.stat().st_atime_ns, teams.stat().st_mtime_ns
    edit(teams, "SALES", "SALEZ")
    os.utime(teams, ns=times)
    assert built() == {"department": "built", "other": "fresh"}
    os.utime(teams)
    edit(teams, "FAX,Paper", "FAX,No paper")
    teams.write_bytes(b"\xef\xbb\xbf" + teams.read_bytes().replace(b"\n", b"\r\n"))
    assert built() == {"department": "fresh", "other": "fresh"}
    edit(teams, "Quotes and", "Offers and")
    assert built() == {"department": "built", "other": "fresh"}


def test_explain_names_the_entries_that_were_added_removed_and_changed(folder, command):
    command()
    teams = folder / "teams.csv"
    edit(teams, "Paper only,no", "Paper only,yes")
    edit(teams, "SALES,Quotes and upgrades,yes\n", "")
    edit(teams, "Outages, errors, how-to", "Outages")
    done = command("--explain")
    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line for line in lines if line.startswith("- ")] == [
        "- field department: choice 'SALES' removed",
        "- field department: choice 'FAX' added",
        "- field department: description of choice 'TECH' changed",
    ]


def test_explain_says_that_rows_stand_in_another_order(folder, command):
    command()
    lines = (folder / "teams.csv").read_text(encoding="utf-8").splitlines()
    (folder / "teams.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]), encoding="utf-8")
    assert "- field department: choices reordered" in command("--explain").stdout


@pytest.mark.parametrize(
    ("content", "code", "status"),
    [
        (None, "PCDC101", 2),
        ("", "PCDC109", 1),
        ("code,label,active\n", "PCDC212", 1),
        ("code,label,active\nBILLING,x,yes\nTECH,y,ye", "PCDC212", 1),
        ("code,label,active\nBILLING,x,yes\nTECH,y,yes\nSALES", "PCDC109", 1),
        ("code,label,active\nBILLING,x,yes\nBILLING,y,yes\n", "PCDC219", 1),
    ],
)
def test_report_42_a_catalog_that_is_broken_or_gone_keeps_the_artifact(
    folder, command, tmp_path, content, code, status
):
    """Field report 42."""
    command()
    artifact = next((tmp_path / "out").glob("department*.pcdc"))
    before, good = artifact.read_bytes(), (folder / "teams.csv").read_text(encoding="utf-8")
    (folder / "teams.csv").unlink()
    if content is not None:
        (folder / "teams.csv").write_text(content, encoding="utf-8")
    done = command("--explain")
    assert (done.exit_code, done.stderr.count("error["), f"error[{code}]" in done.stderr) == (status, 1, True)
    assert "the schema has errors; the last good artifact stays" in done.stdout
    assert artifact.read_bytes() == before
    (folder / "teams.csv").write_text(good, encoding="utf-8")
    assert command().exit_code == 0
    assert artifact.read_bytes() == before


def test_report_57_one_broken_catalog_hides_nothing_and_the_worst_code_counts(folder, command):
    """Field report 57."""
    (folder / "gone.json").write_text(field("gone.txt"))
    (folder / "twice.json").write_text(field("twice.txt"))
    (folder / "twice.txt").write_text("a\nb\na\n")
    done = command("--format", "json")
    found = json.loads(done.stdout)
    assert {Path(t["source"]).stem: t["outcome"] for t in found["targets"]} == {
        "department": "built",
        "gone": "failed",
        "other": "built",
        "twice": "failed",
    }
    assert sorted(d["code"] for d in found["diagnostics"]) == ["PCDC101", "PCDC219"]
    assert (done.exit_code, done.stderr) == (2, "")
    (folder / "gone.json").unlink()
    assert command().exit_code == 1


def field(source):
    return json.dumps({"f": {"description": "?", "x-catalog": {"source": source}}})


def test_files_that_a_definition_names_as_its_catalog_are_no_definitions(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "schema.json").write_text(field("lists/teams.json"))
    (tmp_path / "lists" / "teams.json").write_text('["a", "b"]')
    (tmp_path / "lists" / "else.json").write_text('["a", "b"]')
    (tmp_path / "broken" / "schema.json").write_text(
        field("../named.json").replace("?", " ", 1)[:-1] + ', "g": 3}'
    )
    (tmp_path / "named.json").write_text("[")
    found, problems = find_sources([tmp_path], tmp_path / "out")
    assert [s.relative for s in found] == [
        PurePath("schema"),
        PurePath("broken/schema"),
        PurePath("lists/else"),
    ]
    assert problems == []
    by_name, _ = find_sources([tmp_path / "schema.json", tmp_path / "lists" / "teams.json"], tmp_path / "out")
    assert [s.path.name for s in by_name] == ["schema.json"]


def test_a_definition_that_names_itself_or_another_is_still_built_and_told(tmp_path):
    (tmp_path / "self.json").write_text(field("self.json"))
    (tmp_path / "one.json").write_text(field("two.json"))
    (tmp_path / "two.json").write_text(field("one.json"))
    report = build([tmp_path], [MODEL], tmp_path / "out")
    assert outcomes(report) == dict.fromkeys(["one", "self", "two"], "failed")
    assert [d.code for d in report.diagnostics] == ["PCDC105"] * 3
