"""`pcdc lint` as a program: exit codes, formats, selection, what a definition ignores."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from lint_states import good
from typer.testing import CliRunner

from pcdc.cli import app
from pcdc.diagnostics import RULES, Location, finding
from pcdc.lint import UnknownCodeError, selection
from pcdc.lint.formats import github, sarif
from pcdc.lint.linting import IgnoredFinding, LintReport
from pcdc.lint.pages import opening

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
CLEAN = {"late": {"type": "boolean", "description": "Is a parcel late?"}}
WARNED = {"late": {"type": "boolean", "description": "lateness"}}
UNBUILT = ("--ignore", "PCDC53")
BROKEN = {"late": {"type": "string", "description": "What is late?"}}

# The part of SARIF 2.1.0 that a log of one run of one tool has.
TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/run"}},
    },
    "additionalProperties": False,
    "$defs": {
        "run": {
            "type": "object",
            "required": ["tool", "results"],
            "properties": {
                "tool": {
                    "type": "object",
                    "required": ["driver"],
                    "properties": {
                        "driver": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string"},
                                "version": {"type": "string"},
                                "rules": {
                                    "type": "array",
                                    "uniqueItems": True,
                                    "items": {"$ref": "#/$defs/rule"},
                                },
                            },
                            "additionalProperties": False,
                        }
                    },
                    "additionalProperties": False,
                },
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
            "additionalProperties": False,
        },
        "rule": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "string"},
                "shortDescription": TEXT,
                "fullDescription": TEXT,
                "help": TEXT | {"required": ["text", "markdown"]},
                "defaultConfiguration": {
                    "type": "object",
                    "properties": {"level": LEVEL},
                    "additionalProperties": False,
                },
            },
            "additionalProperties": False,
        },
        "result": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": LEVEL,
                "message": TEXT,
                "locations": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "physicalLocation": {
                                "type": "object",
                                "required": ["artifactLocation"],
                                "properties": {
                                    "artifactLocation": {
                                        "type": "object",
                                        "properties": {"uri": {"type": "string", "pattern": r"^[!-~]+$"}},
                                        "additionalProperties": False,
                                    },
                                    "region": {
                                        "type": "object",
                                        "properties": {
                                            "startLine": {"type": "integer", "minimum": 1},
                                            "startColumn": {"type": "integer", "minimum": 1},
                                        },
                                        "additionalProperties": False,
                                    },
                                },
                                "additionalProperties": False,
                            }
                        },
                        "additionalProperties": False,
                    },
                },
                "suppressions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["kind"],
                        "properties": {
                            "kind": {"enum": ["inSource", "external"]},
                            "justification": {"type": "string"},
                        },
                        "additionalProperties": False,
                    },
                },
            },
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `pcdc lint` on definitions by file name, in a folder of their own."""
    monkeypatch.chdir(tmp_path)

    def invoke(definitions, *arguments):
        for name, definition in definitions.items():
            (tmp_path / name).write_text(json.dumps(definition), encoding="utf-8")
        return CliRunner().invoke(app, ["lint", *definitions, *map(str, arguments)])

    return invoke


@pytest.mark.parametrize(
    ("definitions", "arguments", "code"),
    [
        ({"a.json": CLEAN}, [], 0),
        ({"a.json": CLEAN}, ["--strict"], 1),
        ({"a.json": CLEAN}, ["--strict", "--ignore", "PCDC53"], 0),
        ({"a.json": CLEAN}, ["--strict", "--ignore", "PCDC53", "--out", "mistyped"], 0),
        ({"a.json": CLEAN}, ["--strict", "--out", "mistyped"], 1),
        ({"a.json": WARNED}, [], 0),
        ({"a.json": WARNED}, ["--strict"], 1),
        ({"a.json": WARNED}, ["--strict", "--ignore", "PCDC501,PCDC53"], 0),
        ({"a.json": BROKEN}, [], 1),
        ({"a.json": BROKEN, "b.json": CLEAN}, [], 1),
        ({"a.json": BROKEN}, ["--ignore", "PCDC2", "--select", "PCDC5"], 1),
        ({"a.json": BROKEN}, ["missing.json"], 2),
        ({"a.json": CLEAN}, ["--model", "no-such-model-anywhere"], 2),
        ({"a.json": CLEAN}, ["--no-such-flag"], 2),
        ({"a.json": CLEAN}, ["--format", "xml"], 2),
        ({"a.json": CLEAN}, ["--select", "PCDC9"], 2),
    ],
)
def test_the_exit_code_is_the_worst_that_was_found(run, definitions, arguments, code):
    """Field report 57."""
    done = run(definitions, *arguments)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output


def test_one_broken_file_hides_no_other(run):
    done = run({"a.json": BROKEN, "b.json": WARNED})
    assert ["error[PCDC208]" in done.stdout, "warning[PCDC501]" in done.stdout] == [True, True]


def test_interrupting_leaves_with_130(run, monkeypatch):
    monkeypatch.setattr("pcdc.lint.linting.find_sources", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run({"a.json": CLEAN}).exit_code == 130


def test_text_counts_tokens_for_every_schema_and_explain_lists_them(run):
    done = run({"a.json": CLEAN}, *UNBUILT)
    assert "a.json: 1 field, 2 choices; smollm2-135m: " in done.stdout
    assert done.stdout.endswith("0 errors, 0 warnings\n")
    listed = run({"a.json": CLEAN}, "--explain", *UNBUILT).stdout
    assert "late   true    1      ' true':2629\n" in listed
    assert "late   boolean  2        1       5" in listed


def test_json_is_one_document_with_findings_tokens_and_what_is_ignored(run):
    ignoring = {"x-pcdc": {"ignore": {"PCDC501": "a label is enough here"}}, **WARNED}
    done = run({"a.json": WARNED, "b.json": ignoring}, "--format", "json", "--explain", *UNBUILT)
    data = json.loads(done.stdout)
    assert [(d["path"], d["code"]) for d in data["diagnostics"]] == [("a.json", "PCDC501")]
    assert [(d["path"], d["code"], d["reason"]) for d in data["ignored"]] == [
        ("b.json", "PCDC501", "a label is enough here")
    ]
    assert [t["source"] for t in data["targets"]] == ["a.json", "b.json"]
    assert data["targets"][0]["fields"][0]["choices"][1] == [{"id": 7065, "text": " false"}]
    assert data["targets"][0]["passes"] == 1
    short = json.loads(run({"a.json": WARNED}, "--format", "json").stdout)
    assert set(data["targets"][0]["fields"][0]) - set(short["targets"][0]["fields"][0]) == {"choices"}


def test_the_example_schemas_are_clean_and_give_reasons_for_what_they_ignore(run):
    done = run({}, SCHEMAS, "--strict", "--ignore", "PCDC53")
    assert done.exit_code == 0, done.stdout
    assert "0 errors, 0 warnings, " in done.stdout


def test_lint_writes_nothing(run, tmp_path):
    run({"a.json": WARNED})
    assert [path.name for path in tmp_path.rglob("*")] == ["a.json"]


def test_sarif_is_valid_and_carries_what_is_ignored_with_its_reason(run):
    ignoring = {"x-pcdc": {"ignore": {"PCDC501": "a label is enough here"}}, **WARNED}
    done = run({"a ü.json": WARNED, "b.json": ignoring, "c.json": BROKEN}, "--format", "sarif", *UNBUILT)
    log = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SARIF).validate(log)
    (log_run,) = log["runs"]
    rules, results = log_run["tool"]["driver"]["rules"], log_run["results"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in results)
    described = {r["id"]: (r.get("fullDescription"), "help" in r) for r in rules}
    assert described == {
        "PCDC501": ({"text": opening("PCDC501")}, True),
        "PCDC208": (None, False),
    }
    places = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results]
    assert places == ["a%20%C3%BC.json", "c.json", "b.json"]
    assert [r.get("suppressions") for r in results] == [
        None,
        None,
        [{"kind": "inSource", "justification": "a label is enough here"}],
    ]


def test_sarif_of_places_that_are_no_lines_of_a_file_has_no_location():
    row = finding("PCDC232", Location("sqlite:///ops.db", 3, 0), "x", "y")
    call = finding("PCDC612", None, "x", "y")
    absolute = finding("PCDC501", Location("/a b/c.json", 2, 3), "x", "y", help="z")
    log = sarif(LintReport((row, call, absolute), (IgnoredFinding(absolute, "why"),), ()))
    jsonschema.Draft202012Validator(SARIF).validate(log)
    results = log["runs"][0]["results"]
    assert ["locations" in r for r in results] == [False, False, True, True]
    place = results[2]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "file:///a%20b/c.json"
    assert place["region"] == {"startLine": 2, "startColumn": 3}
    assert results[2]["message"]["text"] == "x y\nhelp: z"


def test_a_workflow_command_is_one_line_whatever_the_text_holds():
    place = Location("a,b:c%/d\n.json", 2, 3)
    one = finding("PCDC501", place, 'field "100%"', "has\r\na :: break,", help="mend: it, so")
    assert github([one]) == (
        "::warning file=a%2Cb%3Ac%25/d%0A.json,line=2,col=3,title=PCDC501 description asks nothing"
        '::field "100%25" has%0D%0Aa :: break,%0Ahelp: mend: it, so\n'
    )
    error = finding("PCDC612", None, "x", "y")
    assert github([error]) == "::error title=PCDC612 no definition to build::x y\n"


def test_github_prints_a_line_for_each_finding_and_nothing_else(run):
    done = run({"a.json": WARNED, "b.json": BROKEN}, "--format", "github", *UNBUILT)
    assert [line.split(" ")[0] for line in done.stdout.splitlines()] == ["::warning", "::error"]
    assert run({"a.json": CLEAN}, "--format", "github", *UNBUILT).stdout == ""


WARNINGS = {code for code, rule in RULES.items() if rule.severity == "warning"}


@pytest.mark.parametrize(
    ("select", "ignore", "kept"),
    [
        ([], [], WARNINGS),
        (["PCDC515"], [], {"PCDC515"}),
        (["PCDC515, PCDC252"], [], {"PCDC515", "PCDC252"}),
        (["PCDC515", "PCDC53"], [], {"PCDC515", *(f"PCDC53{n}" for n in range(1, 8))}),
        (["PCDC53"], ["PCDC534"], {f"PCDC53{n}" for n in (1, 2, 3, 5, 6, 7)}),
        ([], ["PCDC"], set()),
    ],
)
def test_codes_and_their_beginnings_select(select, ignore, kept):
    assert selection(select, ignore).codes == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("PCDC555", "no code of a warning; did you mean `PCDC5"),
        ("pcdc515", "did you mean `PCDC515`?"),
        ("515", "no code"),
        ("PCDC219", "PCDC219 is an error, and errors are always told"),
        (",", "names no code"),
    ],
)
def test_what_is_no_code_of_a_warning_is_refused_with_advice(run, given, said):
    with pytest.raises(UnknownCodeError, match=r".") as raised:
        selection([given], [])
    assert said in str(raised.value)
    assert run({"a.json": CLEAN}, "--ignore", given).exit_code == 2


def test_an_error_is_told_whatever_is_selected():
    refused = finding("PCDC219", None, "x", "y")
    assert selection(["PCDC515"], []).wants(refused)


def test_two_models_tell_what_is_not_about_tokens_once(run, tmp_path):
    from families import family_folder

    models = [arg for name in ("smollm2", "qwen3") for arg in ("--model", family_folder(name))]
    done = run({"a.json": WARNED}, *models, "--format", "json", *UNBUILT)
    data = json.loads(done.stdout)
    assert [d["code"] for d in data["diagnostics"]] == ["PCDC501"]
    assert [t["model"] for t in data["targets"]] == ["smollm2", "qwen3"]


def test_what_was_built_and_evaluated_and_is_fresh_is_clean(run, tmp_path):
    run({"a.json": CLEAN})
    good(tmp_path / "a.json", tmp_path / "build")
    assert "0 errors, 0 warnings" in run({"a.json": CLEAN}, "--strict").stdout


@pytest.mark.parametrize("wrong", ["cut", "huge"])
def test_a_damaged_calibration_is_told_as_itself_and_hides_no_other_file(run, tmp_path, wrong):
    run({"a.json": CLEAN})
    good(tmp_path / "a.json", tmp_path / "build")
    path = next((tmp_path / "build").glob("*.calibration.json"))
    body = json.loads(path.read_bytes())
    body["fields"][0]["before"] = {"rows": 1, "accuracy": 1, "log_loss": 10**400, "brier": 0, "ece": 0}
    path.write_text("{" if wrong == "cut" else json.dumps(body), encoding="utf-8")
    done = run({"a.json": CLEAN, "b.json": "{"})
    assert "b.json:1" in done.stdout
    assert (done.exit_code, "PCDC604" in done.stdout, "PCDC531" in done.stdout) == (2, True, False)


def test_a_gate_passes_only_what_was_built_for_the_model_it_names(run, tmp_path):
    from families import family_folder

    run({"a.json": CLEAN})
    good(tmp_path / "a.json", tmp_path / "build")
    assert run({"a.json": CLEAN}, "--strict").exit_code == 0
    other = run({"a.json": CLEAN}, "--strict", "--model", family_folder("qwen3"))
    assert (other.exit_code, "schema is not built for qwen3" in other.stdout) == (1, True)
    moved = run({"a.json": CLEAN}, "--strict", "--out", "elsewhere")
    assert (moved.exit_code, "there is no elsewhere/a.smollm2-135m.pcdc" in moved.stdout) == (1, True)


def test_what_was_measured_of_every_field_is_in_the_explanation(run, tmp_path):
    run({"a.json": CLEAN})
    good(tmp_path / "a.json", tmp_path / "build")
    rows = [line.split() for line in run({"a.json": CLEAN}, "--explain").stdout.splitlines()]
    assert ["late", "200", "0.900", "0.800", "0.950", "0.950", "0.600"] in rows
    (field,) = json.loads(run({"a.json": CLEAN}, "--format", "json").stdout)["targets"][0]["judged"]
    assert (field["name"], field["rows"], field["precision"], field["confidence"]) == (
        "late",
        200,
        0.95,
        0.95,
    )


def test_the_rules_that_did_not_run_are_named_with_the_file_whose_errors_hide_them(run):
    done = run({"a.json": BROKEN, "b.json": WARNED})
    assert "a.json: has errors; further rules run once they are gone\n" in done.stdout
    assert "b.json: has errors" not in done.stdout
    assert json.loads(run({"a.json": BROKEN}, "--format", "json").stdout)["unfinished"] == ["a.json"]


def test_only_what_is_selected_counts_as_ignored(run):
    ignoring = {"x-pcdc": {"ignore": {"PCDC501": "a label is enough here"}}, **WARNED}
    assert "1 ignored" in run({"a.json": ignoring}, "--select", "PCDC50").stdout
    assert "ignored" not in run({"a.json": ignoring}, "--select", "PCDC53").stdout
    assert json.loads(run({"a.json": ignoring}, "--format", "json", *UNBUILT).stdout)["diagnostics"] == []


TWO = {**WARNED, "early": {"type": "boolean", "description": "earliness"}}


def test_a_rule_is_ignored_for_the_fields_that_are_named_and_told_for_the_others(run):
    ignoring = {"x-pcdc": {"ignore": {"PCDC501": {"late": "a label is enough here"}}}, **TWO}
    log = json.loads(run({"a.json": ignoring}, "--format", "sarif", *UNBUILT).stdout)
    told = [
        (r["message"]["text"].partition(" has ")[0], r.get("suppressions")) for r in log["runs"][0]["results"]
    ]
    assert told == [
        ('field "early"', None),
        ('field "late"', [{"kind": "inSource", "justification": "a label is enough here"}]),
    ]


def test_a_field_for_which_nothing_is_found_is_told_like_a_code(run):
    idle = {"x-pcdc": {"ignore": {"PCDC501": {"late": "given", "early": "given"}}}, **WARNED}
    idle["early"] = {"type": "boolean", "description": "Is it early?"}
    found = json.loads(run({"a.json": idle}, "--format", "json", *UNBUILT).stdout)["diagnostics"]
    assert [(d["code"], d["fact"]) for d in found] == [
        ("PCDC541", 'names PCDC501 of field "early", which finds nothing here')
    ]


def test_a_finding_shows_the_line_it_is_about(run, tmp_path):
    (tmp_path / "a.json").write_text(
        '{\n "late": {\n  "type": "boolean",\n  "description": "lateness"\n }\n}', encoding="utf-8"
    )
    lines = CliRunner().invoke(app, ["lint", "a.json", *UNBUILT]).stdout.splitlines()
    assert lines[0].startswith("a.json:4:18: warning[PCDC501]")
    assert lines[1:3] == ['    4 |   "description": "lateness"', "      |                  ^"]


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("PCDC515", 0, "# PCDC515: choices share a first token\n"),
        ("PCDC219", 0, "PCDC219: choice declared twice (error"),
        ("PCDC51", 2, "'PCDC51' is no code"),
    ],
)
def test_the_page_of_a_rule_is_printed_without_a_schema(code, exit_code, said):
    done = CliRunner().invoke(app, ["lint", "--help-rule", code])
    assert (done.exit_code, said in done.output) == (exit_code, True)
