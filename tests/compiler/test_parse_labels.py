"""Choices as text: what they may hold, when two are one, when two are hard to tell apart."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcdc.labels import MAX_CHOICE_CHARS
from pcdc.parse import parse_file, parse_mapping

NUMBERS = '{"f": {"enum": [N, 5], "description": "d"}}'


def found(*choices, **more):
    _, diagnostics = parse_mapping({"f": {"enum": list(choices), "description": "d", **more}})
    return diagnostics


def codes(*choices):
    return [d.code for d in found(*choices)]


def labels(*choices):
    schema, _ = parse_mapping({"f": {"enum": list(choices)}})
    return [c.label for c in schema.fields[0].choices]


@pytest.mark.parametrize("choice", ["", " ", "\n\t", "\u00a0", "\u3000"])
def test_report_16_an_empty_or_blank_choice_is_refused_for_an_explicit_label(choice):
    (diagnostic,) = found(choice, "A", "B")
    assert diagnostic.code == "PCDC216"
    assert '"not stated"' in diagnostic.help


def test_report_17_the_length_of_a_choice_is_limited():
    assert codes("x" * MAX_CHOICE_CHARS, "y") == []
    (diagnostic,) = found("x" * 20_000, "y")
    assert diagnostic.code == "PCDC217"
    assert "20000 characters" in diagnostic.fact
    assert str(MAX_CHOICE_CHARS) in diagnostic.limit


@pytest.mark.parametrize(
    "point",
    ["200B", "200E", "202E", "2066", "2060", "FEFF", "00AD", "E0041", "061C", "0000", "001B", "0085", "3164"],
)
def test_report_13_an_invisible_or_control_character_is_an_error_with_its_code_point(point):
    (diagnostic,) = found(f"A{chr(int(point, 16))}B", "C")
    assert diagnostic.code == "PCDC218"
    assert f"U+{point}" in diagnostic.fact


@pytest.mark.parametrize(
    "choice",
    [
        *(
            "سلام",
            "שלום",
            "نمی\u200cخواهم",
            "क्\u200dष",
            "👩\u200d💻",
            "👍🏽",
            "❤\ufe0f",
            "\u06dd1",
            "é",
            "e\u0301",
        ),
        *("line\nbreak", "tab\there", "ｆｕｌｌ"),
    ],
)
def test_report_13_genuine_words_of_any_script_are_not_flagged(choice):
    assert codes(choice, "other") == []
    assert labels(choice, "other") == [choice, "other"]


def test_report_10_canonically_equal_choices_are_an_error_and_one_form_alone_is_kept_as_it_is():
    (diagnostic,) = found("caf\u00e9", "cafe\u0301", "tea")
    assert diagnostic.code == "PCDC221"
    assert "U+0301" in diagnostic.fact
    assert labels("cafe\u0301", "tea") == ["cafe\u0301", "tea"]


@given(st.text(min_size=1, max_size=4), st.sampled_from(["NFC", "NFD"]))
@settings(max_examples=100)
def test_report_10_no_two_accepted_choices_are_canonically_equal(text, form):
    other = unicodedata.normalize(form, text)
    schema, _ = parse_mapping({"f": {"enum": [text, other, "zzzzz"]}})
    assert schema is None


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (("open", "OPEN", "Open"), "only in case"),
        (("yes", "yes "), "only in blanks (U+0020 SPACE)"),
        (("a\u00a0b", "a b"), "only in blanks (U+0020 SPACE, U+00A0 NO-BREAK SPACE)"),
        (("a  b", "a b"), "only in blanks (U+0020 SPACE)"),
        (("paid", "p\u0430id"), "U+0430 CYRILLIC SMALL LETTER A"),
        (("ABC", "\uff21BC"), "U+FF21 FULLWIDTH LATIN CAPITAL LETTER A"),
        (("OP", "\u039f\u03a1"), "U+039F GREEK CAPITAL LETTER OMICRON"),
    ],
)
def test_report_13_choices_hard_to_tell_apart_are_a_warning_and_kept(choices, words):
    diagnostics = found(*choices)
    assert {d.code for d in diagnostics} == {"PCDC252"}
    assert len(diagnostics) == len(choices) - 1
    assert words in diagnostics[0].fact
    assert labels(*choices) == list(choices)


@pytest.mark.parametrize(
    "choices",
    [
        ("SHIPPING", "REFUND"),
        ("он", "она"),
        ("GPL-3.0", "GPL-3.0+"),
        ("👍", "👍🏽"),
        ("a", "b", "ab"),
        ("0", "O"),
    ],
)
def test_report_13_different_choices_are_not_flagged(choices):
    assert codes(*choices) == []


def test_report_21_a_repeated_choice_is_an_error_with_both_positions():
    (diagnostic,) = found("A", "B", "A")
    assert diagnostic.code == "PCDC219"
    assert diagnostic.subject == 'choice 3 of field "f"'
    assert "choice 1 again" in diagnostic.fact


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ((1, True, "1", 1.0), ["PCDC220", "PCDC219"]),
        ((1, 1.0), ["PCDC219"]),
        ((0, -0.0), ["PCDC219"]),
        ((1, True), []),
        ((0, False), []),
        ((True, "true"), ["PCDC220"]),
        ((False, "false"), ["PCDC220"]),
        ((1, "1"), ["PCDC220"]),
        ((1.5, "1.5"), ["PCDC220"]),
        ((None, "not stated"), ["PCDC220"]),
        ((None, "null"), []),
        ((None, None, "a"), ["PCDC219"]),
        ((None, "Not stated"), ["PCDC252"]),
    ],
)
def test_report_22_equality_knows_types_and_labels_are_distinct(choices, expected):
    assert codes(*choices) == expected


@pytest.mark.parametrize(
    "spelling", ["8471.30", "1e3", "1E2", "-0", "100.0e0", "0.10", "12345678901234567890.5"]
)
def test_report_19_a_number_that_would_lose_its_spelling_must_be_quoted(tmp_path, spelling):
    path = tmp_path / "schema.json"
    path.write_text(NUMBERS.replace("N", spelling), encoding="utf-8")
    schema, (diagnostic,) = parse_file(path)
    assert schema is None
    assert diagnostic.code == "PCDC222"
    assert f'"{spelling}"' in diagnostic.help
    assert diagnostic.location.column == 17


@pytest.mark.parametrize("spelling", ["8471.3", "0", "-1", "1.0", "1e+16", "123456789012345678901234567890"])
def test_report_19_a_number_in_its_plain_spelling_is_its_label(tmp_path, spelling):
    path = tmp_path / "schema.json"
    path.write_text(NUMBERS.replace("N", spelling), encoding="utf-8")
    schema, diagnostics = parse_file(path)
    assert diagnostics == []
    assert schema.fields[0].choices[0].label == spelling


def test_a_null_that_meets_a_declared_not_stated_is_an_error_in_a_union_too():
    field = {"anyOf": [{"enum": ["not stated", "b"]}, {"type": "null"}]}
    _, diagnostics = parse_mapping({"f": {**field, "description": "d"}})
    assert [d.code for d in diagnostics] == ["PCDC220"]


@given(st.lists(st.text(max_size=5), min_size=2, max_size=5))
@settings(max_examples=200)
def test_an_accepted_choice_is_the_declared_text_and_labels_are_distinct(choices):
    schema, _ = parse_mapping({"f": {"choices": choices}})
    if schema is None:
        assert found(*choices)
    else:
        assert [c.value for c in schema.fields[0].choices] == choices
        assert len({c.label for c in schema.fields[0].choices}) == len(choices)
