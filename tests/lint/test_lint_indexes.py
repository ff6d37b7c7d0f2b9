"""Lint of index definitions: how they ask, what they cost, what of them is built."""

from __future__ import annotations

import json

import pytest
from families import family_folder
from pcdc_runtime.indexed.codec import open_index

from pcdc.build import build
from pcdc.indexing import emit
from pcdc.lint import lint
from pcdc.lint.formats import github, sarif
from pcdc.lint.show import summary

MODEL = str(family_folder("smollm2"))
EXAMPLE = {"context": "a box of dates", "answers": {"goods": "Dates, dried"}}


def definition(question="Which goods are these?", examples=(EXAMPLE,), **settings):
    field = {"choices": ["Dates, dried", "Figs, dried", "Vanilla"]}
    field |= {"description": question} if question else {}
    return {"x-pcdc": {"index": True, "examples": list(examples), **settings}, "goods": field}


@pytest.fixture
def source(tmp_path):
    return tmp_path / "tariff.json"


@pytest.fixture
def run_lint(source, tmp_path):
    def go(**declared):
        source.write_text(json.dumps(definition(**declared)), encoding="utf-8")
        return lint([source], [MODEL], tmp_path / "out")

    return go


def codes(report):
    return [d.code for d in report.diagnostics]


def test_a_good_index_that_is_built_has_no_findings(run_lint, source, tmp_path):
    assert codes(run_lint()) == ["PCDC535"]
    build([source], [MODEL], tmp_path / "out")
    assert codes(run_lint()) == []


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ({"question": "", "examples": ()}, "PCDC524"),
        ({"examples": ()}, "PCDC525"),
        ({"question": "", "examples": (), "instructions": "Name the goods."}, "PCDC525"),
        ({"question": "Goods in a parcel."}, "PCDC501"),
        ({"question": "If so, which goods are these?"}, "PCDC504"),
    ],
)
def test_a_rule_finds_what_an_index_does_not_say(run_lint, declared, code):
    assert code in codes(run_lint(**declared))
    assert code not in codes(run_lint())


def test_the_examples_that_one_rule_asks_for_are_too_many_for_no_other(run_lint):
    shown = [EXAMPLE | {"context": f"{n} boxes of dates"} for n in range(3)]
    report = run_lint(examples=shown)
    assert codes(report) == ["PCDC535"]
    (view,) = report.indexes
    assert view.example_tokens > view.prompt_tokens / 2


def test_rules_about_listed_choices_and_calibrations_say_nothing_of_an_index(run_lint, source, tmp_path):
    run_lint()
    build([source], [MODEL], tmp_path / "out")
    unlike = {"PCDC511", "PCDC512", "PCDC514", "PCDC515", "PCDC522", "PCDC531", "PCDC533"}
    assert unlike.isdisjoint(codes(run_lint()))


def test_an_index_out_of_date_is_told_with_the_reason(run_lint, source, tmp_path):
    run_lint()
    build([source], [MODEL], tmp_path / "out")
    report = run_lint(question="Which goods are in the parcel?")
    (found,) = report.diagnostics
    assert (found.code, found.fact) == ("PCDC534", "is out of date: the definition changed")


def test_labels_are_not_tokenized_where_the_index_is_up_to_date(run_lint, source, tmp_path, monkeypatch):
    run_lint()
    build([source], [MODEL], tmp_path / "out")

    def not_wanted(*_args, **_more):
        raise AssertionError("nothing changed")

    monkeypatch.setattr(emit, "tokenize_entries", not_wanted)
    (view,) = run_lint().indexes
    assert (view.labels, view.entries, view.rows) == (3, 3, 3)


def test_lint_says_of_labels_with_the_same_tokens_what_it_said_before_the_build(source, tmp_path):
    names = [f"caf\u00e9 {n}" for n in range(7)] + [f"cafe\u0301 {n}" for n in range(7)]
    model, out, reasons = str(family_folder("qwen3")), tmp_path / "out", {"PCDC309": "one dish"}
    declared = definition() | {
        "goods": {"description": "Which dish is this?", "choices": ["Dates, dried", *names]}
    }
    source.write_text(json.dumps(declared), encoding="utf-8")

    def said(report):
        return [d for d in report.diagnostics if d.code != "PCDC535"]

    before = said(lint([source], [model], out))
    assert [d.code for d in before] == ["PCDC309"]
    build([source], [model], out)
    assert said(lint([source], [model], out)) == before
    declared["x-pcdc"]["ignore"] = reasons
    source.write_text(json.dumps(declared), encoding="utf-8")
    report = lint([source], [model], out)
    assert said(report) == []
    assert [i.diagnostic.fact for i in report.ignored] == [d.fact for d in before]


def test_what_a_definition_ignores_is_kept_with_the_reason_and_idle_ones_are_told(run_lint):
    report = run_lint(examples=(), ignore={"PCDC525": "none are known", "PCDC524": "there is a question"})
    assert codes(report) == ["PCDC535", "PCDC541"]
    assert [(i.diagnostic.code, i.reason) for i in report.ignored] == [("PCDC525", "none are known")]


def test_a_report_counts_prompt_labels_and_rows_in_every_format(run_lint, source):
    report = run_lint(examples=())
    (view,) = report.indexes
    text = summary(report, explain=False, terminal=False)
    assert f"{source}: index of 3 labels; smollm2: {view.prompt_tokens} prompt tokens" in text
    assert "3 entries, 3 rows\n" in text
    (record,) = report.to_dict(explain=False)["indexes"]
    assert (record["index"], record["labels"], record["example_tokens"]) == ("tariff", 3, 0)
    assert "PCDC525 index without worked examples" in github(report.diagnostics)
    results = sarif(report)["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == codes(report)


def test_the_prompt_that_lint_counts_is_the_one_that_is_built(run_lint, source, tmp_path):
    (view,) = run_lint().indexes
    build([source], [MODEL], tmp_path / "out")
    cut = open_index(tmp_path / "out" / "tariff.smollm2.pcdx").prompt
    assert view.prompt_tokens == len(cut.head) + len(cut.tail)
    assert 0 < view.example_tokens < view.prompt_tokens


def test_errors_of_an_index_leave_it_unfinished(run_lint, source):
    report = run_lint(examples=({"context": "apples", "answers": {"goods": "Apples"}},))
    assert codes(report) == ["PCDC236"]
    assert report.unfinished == (str(source),)
