"""An artifact's columns of choices: what the compiler takes is taken, in its one spelling, and no more."""

import json

import pytest
from forged import ARTIFACT, FIELDS, changed, columns, ints, payload, refused
from pcdc_runtime.codec import loads
from pcdc_runtime.visible import MAX_CHOICE_CHARS


def test_columns_say_only_what_labels_and_forest_do_not():
    level, opened = FIELDS
    assert (level["labels"], level["valued"], level["values"]) == (["low", "lower", "high"], b"", "[]")
    assert (opened["valued"], opened["values"]) == (ints(0, 1, 2), "[true,false,null]")
    assert (opened["described"], opened["descriptions"]) == (b"", [])


def test_columns_come_back_at_their_choices():
    described = loads(columns(0, valued=ints(1), values="[7]", described=ints(0, 2), descriptions=["a", "b"]))
    candidates = described.fields[0].candidates
    assert [c.value for c in candidates] == ["low", 7, "high"]
    assert [c.description for c in candidates] == ["a", "", "b"]
    assert described.fields[1] == ARTIFACT.fields[1]


@pytest.mark.parametrize(
    "value",
    [
        *("[1]", "{}", "NaN", "Infinity", "", "nul", '"a" ', ' "a"', "1e999", "1e5", "1.50", "01"),
        *('"\\ud800"', '"\\u0061"', '"\\/"', "[" * 100_000, "1" * 100_000, "1,2", "1]["),
    ],
)
def test_a_choices_value_must_be_one_json_scalar_in_its_one_spelling(value):
    assert loads(columns(0, valued=ints(0), values="[1.5]")).fields[0].candidates[0].value == 1.5
    refused(columns(0, valued=ints(0), values=f"[{value}]"))


@pytest.mark.parametrize(
    "values", ["", "1", "null", "{}", '{"0":1}', "[1,]", "[ 1]", "[1] ", '"[1]"', b"[1]", 1, [1]]
)
def test_values_must_be_one_json_array_in_its_one_spelling(values):
    refused(columns(0, valued=ints(0), values=values))


@pytest.mark.parametrize(
    ("numbers", "texts", "fact"),
    [
        ((0, 1), ["a"], "has columns of unequal length"),
        ((0,), ["a", "b"], "has columns of unequal length"),
        ((), ["a"], "has columns of unequal length"),
        ((0,), [], "has columns of unequal length"),
        ((1, 0), ["a", "b"], "has a column whose choices are not in order"),
        ((1, 1), ["a", "b"], "has a column whose choices are not in order"),
        ((2**31 - 1, -(2**31)), ["a", "b"], "has a column whose choices are not in order"),
        ((-1,), ["a"], "has a column with an unknown choice"),
        ((3,), ["a"], "has a column with an unknown choice"),
        ((2**31 - 1,), ["a"], "has a column with an unknown choice"),
        ((-(2**31), 0), ["a", "b"], "has a column with an unknown choice"),
    ],
)
def test_a_column_names_each_choice_once_and_in_order(numbers, texts, fact):
    spelled_out = json.dumps(texts, separators=(",", ":"))
    assert refused(columns(0, valued=ints(*numbers), values=spelled_out)) == fact
    assert refused(columns(0, described=ints(*numbers), descriptions=texts)) == fact


def test_what_a_column_need_not_say_is_refused_in_it():
    assert refused(columns(0, valued=ints(0), values='["low"]')) == "has a value that is its label"
    assert refused(columns(0, described=ints(0), descriptions=[""])) == "has a description that is empty"
    # Another text than its label is a value of its own.
    assert loads(columns(0, valued=ints(1), values='["lowest"]')).fields[0].candidates[1].value == "lowest"
    assert refused(columns(1, valued=ints(0, 1), values='[true,"false"]')) == "has a value that is its label"


ESCAPE, BACKWARDS, COMPOSED, DECOMPOSED = "\x1b", "\u202e", "\u00e9", "e\u0301"


@pytest.mark.parametrize(
    ("labels", "fact"),
    [
        (["low"] * 3, "has two choices with one label"),
        (["low", "high", "low"], "has two choices with one label"),
        (["", "a", "b"], "has a choice that is blank"),
        (["a", " \t\n", "b"], "has a choice that is blank"),
        (["a", "b", "\u2003"], "has a choice that is blank"),
        (["a", "b" * (MAX_CHOICE_CHARS + 1), "c"], "has a choice that is too long"),
        *(
            (["a", f"b{char}b", "c"], "has a choice with characters that do not show")
            for char in (ESCAPE, BACKWARDS, "\0", "\x7f", "\u200b", "\u2028", "\ue000", "\uffff", "\u3164")
        ),
        (["a\u200d", "\u200db", "c"], "has a choice with characters that do not show"),
        ([COMPOSED, "b", DECOMPOSED], "has choices that are canonically equal"),
    ],
)
def test_labels_that_the_compiler_refuses_are_refused(labels, fact):
    assert refused(columns(0, labels=labels)) == fact


@pytest.mark.parametrize(
    "labels",
    [
        ["a\tb", "a\nb", "a b"],
        [COMPOSED, "e", "\U0001f469\u200d\U0001f527"],
        ["b" * MAX_CHOICE_CHARS, " b", "b"],
    ],
)
def test_labels_that_the_compiler_takes_are_taken(labels):
    assert [one.label for one in loads(columns(0, labels=labels)).fields[0].candidates] == labels


@pytest.mark.parametrize(
    ("numbers", "values"),
    [
        ((0, 1), "[1,1]"),
        ((0, 1), "[1,1.0]"),
        ((0, 1), "[0,-0.0]"),
        ((0, 2), "[null,null]"),
        ((0, 2), "[true,true]"),
        ((1,), '["low"]'),
        ((0, 1), '["x","x"]'),
    ],
)
def test_two_choices_with_one_value_are_refused(numbers, values):
    assert refused(columns(0, valued=ints(*numbers), values=values)) == "has two choices with one value"


def test_values_are_equal_as_in_json():
    back = loads(columns(0, valued=ints(0, 1, 2), values='[1,true,"1"]'))
    assert [type(one.value) for one in back.fields[0].candidates] == [int, bool, str]


@pytest.mark.parametrize("values", ["[1,0,null]", "[1,1,null]", '[true,"no",null]', "[true,0,null]"])
def test_a_boolean_field_has_booleans_and_null_only(values):
    assert FIELDS[1]["type"] == "boolean"
    refused(columns(1, values=values))


def test_the_type_of_a_field_is_that_of_its_values():
    fact = "has a field whose values are not of its type"
    assert refused(columns(0, type="boolean")) == fact
    assert refused(columns(1, type="enum")) == fact
    assert refused(columns(1, valued=ints(0), values="[true]")) == fact
    assert refused(columns(1, values='[true,"yes",null]')) == fact


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, f"a{ESCAPE}", f"a{BACKWARDS}", "a\n"])
def test_names_that_the_compiler_refuses_are_refused(name):
    assert "name" in refused(columns(0, name=name))


def test_names_that_are_canonically_equal_are_refused():
    rows = payload()["schema"]["fields"]
    rows[0]["name"], rows[1]["name"] = COMPOSED, DECOMPOSED
    assert refused(changed("schema", "fields", value=rows)) == "has field names that are canonically equal"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("valued", value) for value in (b"\0", [0], None, "0")),
        *(("described", value) for value in (b"\0\0\0", [], 0, "")),
        *(("labels", value) for value in (None, "low", [], ["low", "lower", 1], ["low", "lower", None], {})),
        *(("descriptions", value) for value in (None, "", {}, b"")),
    ],
)
def test_a_column_of_another_kind_is_refused(member, value):
    refused(columns(0, **{member: value}))
