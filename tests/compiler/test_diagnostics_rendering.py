"""The registry of codes and the two renderings of diagnostics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcdc_runtime import errors

import pcdc
from pcdc.diagnostics import (
    RULES,
    Diagnostic,
    Location,
    code_points,
    from_error,
    quoted,
    registry_table,
    render_json,
    render_text,
    sort_diagnostics,
)

FULL = Diagnostic(
    "PCDC213",
    "error",
    Location("s.json", 3, 7),
    'field "f"',
    "has 256 choices",
    "at most 255",
    "split it",
    "    3 | x\n      | ^",
)
BARE = Diagnostic("PCDC251", "warning", None, 'field "f"', "has no description")


def sources():
    folder = Path(pcdc.__file__).parent
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*.py")}


def test_every_code_in_the_compiler_is_registered():
    used = {code for text in sources().values() for code in re.findall(r"PCDC\d{3}", text)}
    assert used - RULES.keys() == set()


def test_every_source_and_schema_code_is_used_outside_the_registry():
    text = "".join(text for name, text in sources().items() if name != "diagnostics.py")
    unused = {r.code for r in RULES.values() if r.stage in ("source", "schema") and r.code not in text}
    assert unused == {"PCDC200"}


def test_every_runtime_exception_is_registered_under_its_own_title():
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PcdcError)]
    assert {k.code: k.title for k in kinds} == {k.code: RULES[k.code].title for k in kinds}
    assert len({k.code for k in kinds}) == len(kinds)


def test_codes_are_of_their_stage_and_titles_are_distinct():
    assert all(rule.code == code for code, rule in RULES.items())
    assert {code[4]: rule.stage for code, rule in RULES.items()} == {
        **{
            "1": "source",
            "2": "schema",
            "3": "compile",
            "4": "model",
            "5": "lint",
            "6": "artifact",
            "7": "request",
        },
    }
    assert len({rule.title for rule in RULES.values()}) == len(RULES)


def test_the_table_has_one_row_for_each_rule_in_order():
    head, line, *rows = registry_table().splitlines()
    assert [c.strip() for c in head.strip("|").split("|")] == ["Code", "Title", "Stage", "Severity"]
    assert set(line) == set("| -")
    cells = [[c.strip() for c in row.strip("|").split("|")] for row in rows]
    assert cells == [[r.code, r.title, r.stage, r.severity] for r in RULES.values()]
    assert cells == sorted(cells)


def test_the_text_form_has_place_code_subject_fact_limit_excerpt_and_help():
    assert render_text([FULL, BARE]) == (
        's.json:3:7: error[PCDC213]: field "f" has 256 choices; at most 255\n'
        "    3 | x\n"
        "      | ^\n"
        "  help: split it\n"
        'warning[PCDC251]: field "f" has no description\n'
    )


def test_color_changes_nothing_but_escape_sequences():
    colored = render_text([FULL, BARE], color=True)
    assert "\x1b[1;31merror[PCDC213]\x1b[0m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render_text([FULL, BARE])


def test_the_json_form_holds_every_part_and_is_ascii():
    diagnostic = Diagnostic("PCDC201", "error", Location("开.json", 1, 2), "s", "f\udcff", "l", "h")
    text = render_json([diagnostic, BARE])
    assert text.isascii()
    first, second = json.loads(text)
    assert first == {
        **{"code": "PCDC201", "severity": "error", "path": "开.json", "line": 1, "column": 2},
        **{"subject": "s", "fact": "f\udcff", "limit": "l", "help": "h"},
    }
    assert (second["path"], second["line"], second["column"]) == (None, None, None)
    assert render_json([]) == "[]\n"


def test_diagnostics_sort_by_file_line_and_column_and_keep_their_order_in_one_place():
    def at(path, line, column, fact):
        return Diagnostic("PCDC201", "error", Location(path, line, column), "s", fact)

    ordered = [
        BARE,
        at("a", 1, 2, "z"),
        at("a", 1, 2, "a"),
        at("a", 2, 1, ""),
        at("a", 10, 1, ""),
        at("b", 1, 1, ""),
    ]
    shuffled = [ordered[i] for i in (5, 4, 1, 3, 2, 0)]
    assert sort_diagnostics(shuffled) == ordered


def test_an_exception_of_the_runtime_prints_as_a_diagnostic():
    error = errors.UnknownFieldError("field 'x'", "is not in the artifact", "known are a, b", "ask for a")
    assert render_text([from_error(error)]) == f"{error}\n"


@given(st.text())
def test_no_text_reaches_a_terminal_as_a_control_sequence(text):
    name = quoted(text)
    shown = render_text([Diagnostic("PCDC201", "error", Location(text, 1, 1), name, text, text, text)])
    assert all(c.isprintable() for c in name)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown.count("\n") == (2 if text else 1)
    shown.encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('say "hi"', r'"say \"hi\""'),
        ("a\tb\u202e", r'"a\tb<U+202E>"'),
        ("开", '"开"'),
        ("x" * 99, '"' + "x" * 60 + '…"'),
    ],
)
def test_a_user_s_text_is_quoted_escaped_and_cut(text, expected):
    assert quoted(text) == expected


def test_code_points_have_numbers_and_names():
    assert code_points("\u200bA\x00") == "U+200B ZERO WIDTH SPACE, U+0041 LATIN CAPITAL LETTER A, U+0000"
