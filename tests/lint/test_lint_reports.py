"""What field reports say that lint has to tell, each input with its right value."""

from __future__ import annotations

import json

import pytest
from families import family_folder
from pcdc_runtime.models import DEFAULT

from pcdc.lint import lint


def linted(tmp_path, fields, model=DEFAULT):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(fields, ensure_ascii=False), encoding="utf-8")
    return lint([path], [model], tmp_path / "build").diagnostics


def enum(choices, description="Which one is it?"):
    return {"x": {"type": "enum", "description": description, "choices": choices}}


def of(code, diagnostics):
    """Facts of one code."""
    return [d.fact for d in diagnostics if d.code == code]


@pytest.mark.parametrize("family", ["smollm2", "qwen3", "mistral", "deepseek"])
def test_every_family_is_linted_without_its_weights(tmp_path, family):
    """Field reports 01 and 55."""
    found = linted(tmp_path, enum(["-1", "0", "1", "none of the above"]), str(family_folder(family)))
    assert not [d for d in found if d.severity == "error"]


@pytest.mark.parametrize("choice", ["-1", "/etc", ".NET", "(none)", "a)"])
def test_a_choice_that_merges_with_a_quote_is_named(tmp_path, choice):
    """Field report 01."""
    found = linted(tmp_path, enum([choice, "word", "none of the above"]))
    assert [fact.endswith(f': "{choice}"') for fact in of("PCDC516", found)] == [True]


@pytest.mark.parametrize(
    ("choices", "pair"),
    [
        (["BILLING", "BILLING_DISPUTE"], '"BILLING" of "BILLING_DISPUTE"'),
        (["1", "10", "100"], '"1" of "10"'),
        (["Approved", "Approved with conditions"], '"Approved" of "Approved with conditions"'),
        (["👍", "👍🏽"], '"👍" of "👍🏽"'),
    ],
)
def test_a_token_prefix_is_told_with_both_choices(tmp_path, choices, pair):
    """Field reports 04 and 12."""
    found = linted(tmp_path, enum(choices))
    assert [pair in fact for fact in of("PCDC514", found)] == [True]
    assert of("PCDC515", found) == []


def test_a_shared_first_token_is_told_with_ids_their_number_and_passes(tmp_path):
    """Field report 06."""
    found = linted(tmp_path, enum(["P0_CRITICAL", "P1_HIGH", "P2_NORMAL", "P3_LOW"]))
    (one,) = [d for d in found if d.code == "PCDC515"]
    assert "4 choices" in one.fact
    assert one.fact.endswith("share 1 token, 'P':64")
    assert "in 1 tree pass" in one.limit
    (fact,) = of("PCDC515", linted(tmp_path, enum(["0101.21", "0101.29"])))
    assert "share 6 tokens, '0':32 '1':33 '0':32 '1':33 '.':30 '2':34" in fact


def test_lengths_far_apart_are_told_with_their_counts_and_the_ratio(tmp_path):
    """Field report 08."""
    found = linted(tmp_path, enum(["gas", "department of gastroenterology and hepatology"]))
    (one,) = [d for d in found if d.code == "PCDC517"]
    assert one.fact.endswith('"gas" 1, "department of gastroenterology and hepatology" 7')
    assert one.limit == "within a field at most 4 times as many"


def test_canonically_equal_choices_are_an_error(tmp_path):
    """Field report 10."""
    found = linted(tmp_path, enum(["caf\u00e9", "cafe\u0301", "tea"]))
    assert [(d.code, d.severity) for d in found] == [("PCDC221", "error")]


@pytest.mark.parametrize(
    ("choices", "code", "severity", "said"),
    [
        (["open", "OPEN", "Open"], "PCDC252", "warning", "only in case"),
        (["yes", "yes "], "PCDC252", "warning", "U+0020 SPACE"),
        (["paid", "p\u0430id"], "PCDC252", "warning", "U+0430 CYRILLIC SMALL LETTER A"),
        (["a\u00a0b", "a b"], "PCDC252", "warning", "U+00A0 NO-BREAK SPACE"),
        (["A\u200bB", "AB"], "PCDC218", "error", "U+200B ZERO WIDTH SPACE"),
        (["ok", "\u202eko"], "PCDC218", "error", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    ],
)
def test_choices_that_look_alike_are_told_with_code_points(tmp_path, choices, code, severity, said):
    """Field report 13."""
    found = [d for d in linted(tmp_path, enum(choices)) if d.code == code]
    assert found
    assert all((d.severity, said in d.fact) == (severity, True) for d in found)


def test_words_written_from_right_to_left_are_no_finding_of_their_own(tmp_path):
    """Field report 13."""
    codes = {d.code for d in linted(tmp_path, enum(["سلام", "שלום", "none of the above"]))}
    assert codes.isdisjoint({"PCDC218", "PCDC252"})


@pytest.mark.parametrize(
    "choices",
    [
        ["Dr. Smith", "Prof. Jones"],
        ["{}", "{0}", "%s", "{{x}}", "$HOME"],
        ["a|b", "a"],
        ['say "hi"', "line\nbreak", "C:\\new"],
    ],
)
def test_text_that_means_something_elsewhere_is_only_text(tmp_path, choices):
    """Field report 14."""
    report = linted(tmp_path, enum(choices))
    assert {d.severity for d in report} <= {"warning"}


@pytest.mark.parametrize(
    ("choices", "code"),
    [(["", "A"], "PCDC216"), ([" ", "A"], "PCDC216"), ([], "PCDC212"), (["x"], "PCDC212")],
)
def test_empty_and_lonely_choices_are_errors(tmp_path, choices, code):
    """Field report 16."""
    assert [(d.code, d.severity) for d in linted(tmp_path, enum(choices))] == [(code, "error")]


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ({"enum": [1, True, "1", 1.0]}, "PCDC219"),
        ({"enum": [{"a": 1}, "b"]}, "PCDC214"),
        ({"type": "boolean", "enum": ["true", "false"]}, "PCDC215"),
        ({"type": "boolean", "enum": [True]}, "PCDC212"),
        ({"type": "enum", "choises": ["a", "b"]}, "PCDC205"),
        ({"type": "integer", "enum": ["a", "b"]}, "PCDC215"),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, "PCDC207"),
    ],
)
def test_what_build_refuses_lint_refuses(tmp_path, field, code):
    """Field reports 22, 23 and 26."""
    found = linted(tmp_path, {"x": {"description": "Which?", **field}})
    assert code in [d.code for d in found if d.severity == "error"]


def test_an_optional_field_has_its_choice_for_an_absent_answer(tmp_path):
    """Field report 24, as Pydantic writes `Team | None`."""
    team = {"$ref": "#/$defs/Team"}
    schema = {
        "type": "object",
        "properties": {
            "owner": {"description": "Which team?", "anyOf": [team, {"type": "null"}]},
            "other": {"description": "Which other team?", "$ref": "#/$defs/Team"},
        },
        "$defs": {"Team": {"enum": ["billing", "sales"], "type": "string"}},
    }
    found = [d for d in linted(tmp_path, schema) if d.code == "PCDC511"]
    assert [d.subject for d in found] == ['field "other"']


def test_a_choice_for_an_absent_answer_is_asked_for(tmp_path):
    """Field report 56."""
    (one,) = [d for d in linted(tmp_path, enum(["refund", "exchange"])) if d.code == "PCDC511"]
    assert "not stated" in one.help


def test_a_finding_is_told_once(tmp_path):
    """Missing descriptions, look-alikes and SQL without order are told by build already, and not again."""
    found = linted(tmp_path, {"x": {"type": "enum", "choices": ["open", "OPEN", "none of the above"]}})
    assert [d.code for d in found if d.code in ("PCDC251", "PCDC501")] == ["PCDC251"]
    assert len({(d.code, d.location, d.fact) for d in found}) == len(found)
