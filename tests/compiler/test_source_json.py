"""The JSON reader: strict, with places, equal to the standard library on everything both accept."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pcdc.reader import read_json
from pcdc.source import MAX_DEPTH, MAX_REPEATS, MAX_VALUES, Array, Object, Report, SchemaSource

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def read(text):
    report = Report(SchemaSource("t.json", text))
    return read_json(report), report.diagnostics


def plain(node):
    if isinstance(node, Object):
        return {key: plain(member.value) for key, member in node.members.items()}
    return [plain(item) for item in node.items] if isinstance(node, Array) else node.value


def exactly(value):
    """A value with its types, so that 1, 1.0 and true are three things."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    return [exactly(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


class Refused(Exception):
    pass


def refuse(_):
    raise Refused


def unique(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused
    return dict(pairs)


def standard(text):
    """What the standard library reads, without its extensions to JSON."""
    value = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    if "inf" in repr(exactly(value)):
        raise Refused
    json.dumps(value, ensure_ascii=False).encode()
    return value


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
@settings(max_examples=200)
def test_every_json_value_is_read_as_the_standard_library_reads_it(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    node, diagnostics = read(text)
    assert diagnostics == []
    assert exactly(plain(node)) == exactly(json.loads(text))


WORDS = ["true", "True", "null", "NaN", "-Infinity", "1", "01", "-", "1.", ".5", "1e3", "-0", "1E+2"]
MARKS = ["{", "}", "[", "]", ",", ":", " ", "\r\n", "\ufeff", "'", "/*"]
STRINGS = ['"a"', '"b"', r'"\ud83d\udc4d"', r'"\ud800"', r'"\x"', '"\n"']
PIECES = st.sampled_from([*WORDS, *MARKS, *STRINGS])


@given(st.lists(PIECES, max_size=9).map("".join))
@example('{"a":1,"a":2}')
@example("[1,]")
@example('"\\ud83d\\u0041"')
@settings(max_examples=500)
def test_text_is_refused_exactly_where_the_strict_standard_library_refuses_it(text):
    node, diagnostics = read(text)
    try:
        value = standard(text)
    except (ValueError, Refused):
        assert diagnostics, text
    else:
        assert diagnostics == []
        assert exactly(plain(node)) == exactly(value)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", (1, 1), "is empty"),
        ('{"a": [1, 2,]}', (1, 12), "comma before"),
        ('{\n "a": 1,\n}', (2, 8), "comma before"),
        ('{\r\n "a": 1\r\n "b": 2}', (3, 2), "where a comma"),
        ("{'a': 1}", (1, 2), "where a key in double quotes belongs"),
        ("{a: 1}", (1, 2), "where a key in double quotes belongs"),
        ('{"a" 1}', (1, 6), "where the colon after a key belongs"),
        ('{"a": [NaN]}', (1, 8), "bare word"),
        ('{"a": -Infinity}', (1, 7), "bare word"),
        ('{"a": True}', (1, 7), "bare word"),
        ('{"a": [0101.21]}', (1, 8), "leading zero"),
        ('{"a": 1.}', (1, 7), "is not JSON"),
        ('{"a": 0x1F}', (1, 7), "is not JSON"),
        ('{"a": 1e999}', (1, 7), "out of range"),
        ('{"a": ' + "9" * 1001 + "}", (1, 7), "1001 digits"),
        ('{"a": "b\n"}', (1, 9), "raw control character U+000A"),
        ('{"a": "b', (1, 7), "never closed"),
        (r'{"a": "\q"}', (1, 8), "unknown escape"),
        (r'{"a": "\u12G4"}', (1, 8), "four hexadecimal digits"),
        (r'{"a": "x\ud800"}', (1, 9), "lone surrogate U+D800"),
        (r'{"a": "\udc4d\ud83d"}', (1, 8), "lone surrogate U+DC4D"),
        ('{"a": 1} {"b": 2}', (1, 10), "after its end"),
        ('{"a": 1} // note', (1, 10), "after its end"),
        ('{"a": 1, // note\n "b": 2}', (1, 10), "where a key"),
        ('{"a": [1}', (1, 9), "where a comma"),
        ('{"a": 1', (1, 8), "the end of the text"),
    ],
)
def test_a_syntax_error_has_its_place_and_its_reason(text, place, words):
    node, (diagnostic,) = read(text)
    assert node is None
    assert diagnostic.code == "PCDC105"
    assert (diagnostic.location.line, diagnostic.location.column) == place
    assert words in diagnostic.fact


def test_a_comment_is_met_with_what_json_offers_instead():
    (diagnostic,) = read('{"a": 1, // note\n "b": 2}')[1]
    assert "comments" in diagnostic.help


def test_report_21_a_repeated_key_names_both_lines_and_the_rest_is_still_read():
    node, (diagnostic,) = read('{\n "a": 1,\n "b": 2,\n\n "a": 3,\n "c": 4\n}')
    assert diagnostic.code == "PCDC106"
    assert "line 2 and again on line 5" in diagnostic.fact
    assert (diagnostic.location.line, diagnostic.location.column) == (5, 2)
    assert plain(node) == {"a": 1, "b": 2, "c": 4}


def test_a_key_that_is_repeated_on_one_line_is_told_by_its_columns():
    (diagnostic,) = read('{\n "a": 1, "b": 2, "a": 3}')[1]
    assert diagnostic.fact == "is declared twice on line 2, in column 2 and in column 18"
    assert (diagnostic.location.line, diagnostic.location.column) == (2, 18)


def test_report_21_keys_are_compared_after_their_escapes():
    (diagnostic,) = read('{"a": 1, "\\u0061": 2}')[1]
    assert diagnostic.code == "PCDC106"


def test_report_21_repeated_keys_are_named_up_to_a_stated_number():
    node, diagnostics = read("{" + '"a": 1, ' * 1000 + '"b": 2}')
    assert node is None
    assert {d.code for d in diagnostics} == {"PCDC106"}
    assert len(diagnostics) == MAX_REPEATS + 1


def test_the_number_of_values_is_limited():
    node, (diagnostic,) = read("[" + "1," * MAX_VALUES + "1]")
    assert node is None
    assert diagnostic.code == "PCDC102"
    assert str(MAX_VALUES) in diagnostic.limit


def test_report_27_five_thousand_levels_are_a_normal_error():
    node, (diagnostic,) = read("[" * 5000 + "]" * 5000)
    assert node is None
    assert diagnostic.code == "PCDC107"
    assert diagnostic.location.column == MAX_DEPTH + 1
    assert str(MAX_DEPTH) in diagnostic.limit


def test_the_deepest_allowed_nest_is_read():
    node, diagnostics = read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert diagnostics == []
    assert isinstance(node, Array)


@given(VALUES)
@settings(max_examples=50)
def test_every_place_is_where_its_value_begins(value):
    text = json.dumps({"wrapped": value}, indent=1, ensure_ascii=False)
    node, _ = read(text)

    def check(part):
        decoded, _ = json.JSONDecoder().raw_decode(text, part.at)
        assert exactly(decoded) == exactly(plain(part))
        if isinstance(part, Object):
            for key, member in part.members.items():
                assert json.JSONDecoder().raw_decode(text, member.at)[0] == key
                check(member.value)
        elif isinstance(part, Array):
            for item in part.items:
                check(item)

    check(node)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_count_the_same_under_every_line_break(newline):
    text = newline.join(['{"a": 1,', ' "b": 2,', ' "a": 3}'])
    (diagnostic,) = read(text)[1]
    assert (diagnostic.location.line, diagnostic.location.column) == (3, 2)
    assert diagnostic.excerpt.splitlines()[0].endswith(' "a": 3}')


def test_the_caret_stands_below_the_place_also_behind_wide_and_invisible_characters():
    (diagnostic,) = read('{"开心\u202e": nope}')[1]
    line, caret = diagnostic.excerpt.splitlines()
    assert line == '    1 | {"开心<U+202E>": nope}'
    # Two wide characters take two columns each.
    assert len(caret) - 1 == line.index("nope") + 2


def test_the_caret_at_the_end_of_a_line_stands_behind_it():
    (diagnostic,) = read('{"a": 1\n')[1]
    assert diagnostic.excerpt == "    2 | \n      | ^"
    (diagnostic,) = read('{"a": 1')[1]
    assert diagnostic.excerpt == '    1 | {"a": 1\n      |        ^'


def test_a_long_line_is_cut_around_the_place():
    (diagnostic,) = read('{"a": "' + "x" * 5000 + '", "b": nope, "c": "' + "y" * 5000 + '"}')[1]
    line, caret = diagnostic.excerpt.splitlines()
    assert len(line) < 120
    assert line[len(caret) - 1 :].startswith("nope")
