"""Labelled texts from JSON lines and CSV: the same rows, and every mistake in its place."""

import csv
import hashlib
import json

import pytest
from fakes import make_artifact, spelled
from families import family_folder

import pcdc
from pcdc.evaluation.rows import MAX_BYTES, MAX_FINDINGS, Row, read_data, read_rows, unlabelled

ARTIFACT = pcdc.compile(
    {
        "team": {"type": "enum", "description": "Who?", "choices": ["billing", "tech", 'a, "b" c']},
        "urgent": {"type": "boolean", "description": "Urgent?"},
        "count": {"type": "enum", "description": "How many?", "choices": [1, 2.5]},
        "language": {"type": "enum", "description": "Which?", "choices": ["English", None]},
    },
    str(family_folder("smollm2")),
)


def written(folder, text, name="data.jsonl"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def found(folder, text, name="data.jsonl"):
    """Code, line and column of every finding."""
    _, diagnostics = read_rows(written(folder, text, name), ARTIFACT)
    return [(d.code, d.location.line, d.location.column) for d in diagnostics]


def line(context="a text", **expected):
    return json.dumps({"context": context, "expected": expected})


def only(folder, text, name="data.jsonl"):
    """The one finding there is."""
    (finding,) = read_rows(written(folder, text, name), ARTIFACT)[1]
    return finding


def test_a_value_is_the_choice_of_its_json_type(tmp_path):
    text = line(team="tech", urgent=False, count=1, language=None) + "\n" + line(urgent=True, count=2.5)
    rows, diagnostics = read_rows(written(tmp_path, text), ARTIFACT)
    assert diagnostics == []
    assert rows == (
        Row(1, "a text", {"team": 1, "urgent": 1, "count": 0, "language": 1}),
        Row(2, "a text", {"urgent": 0, "count": 1}),
    )


def test_null_is_no_label_where_the_field_has_no_such_choice(tmp_path):
    rows, diagnostics = read_rows(written(tmp_path, line(team=None, urgent=True)), ARTIFACT)
    assert (dict(rows[0].expected), diagnostics) == ({"urgent": 0}, [])


def test_csv_and_json_lines_give_equal_rows(tmp_path):
    labels = {"team": "tech", "urgent": "true", "count": "2.5", "language": "not stated"}
    table = [
        ["context", *labels],
        ["one", *labels.values()],
        ['two, "quoted"', 'a, "b" c', "false", "1", "English"],
        ["three\nlines\nlong", "", "", "1", ""],
    ]
    with (tmp_path / "data.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(table)
    lines = [
        line("one", team="tech", urgent=True, count=2.5, language=None),
        line('two, "quoted"', team='a, "b" c', urgent=False, count=1, language="English"),
        line("three\nlines\nlong", count=1),
    ]
    from_json, problems = read_rows(written(tmp_path, "\n".join(lines)), ARTIFACT)
    from_csv, more = read_rows(tmp_path / "data.csv", ARTIFACT)
    assert problems == more == []
    assert [(r.context, r.expected) for r in from_json] == [(r.context, r.expected) for r in from_csv]
    assert [r.line for r in from_csv] == [2, 3, 4]


def test_every_mistake_of_a_file_is_told_at_once_in_its_place(tmp_path):
    lines = [
        line(teem="tech"),
        line(team="teck"),
        line(urgent="true"),
        "{broken",
        "[1]",
        '{"text": "x", "expected": {}}',
        '{"context": 3, "expected": {}}',
        '{"context": "x"}',
        '{"context": "x", "expected": {"team": "tech", "team": "tech"}}',
        '{"context": " ", "expected": {"team": ["tech"]}}',
        "",
        line(team="tech"),
    ]
    assert found(tmp_path, "\n".join(lines)) == [
        ("PCDC721", 1, 36),
        ("PCDC722", 2, 44),
        ("PCDC722", 3, 46),
        ("PCDC105", 4, 2),
        ("PCDC720", 5, 1),
        ("PCDC720", 6, 1),
        ("PCDC720", 7, 13),
        ("PCDC720", 8, 1),
        ("PCDC106", 9, 47),
        ("PCDC720", 10, 13),
        ("PCDC722", 10, 39),
        ("PCDC105", 11, 1),
    ]


@pytest.mark.parametrize(
    ("expected", "help"),
    [
        ({"team": "Tech"}, "did you mean `tech`?"),
        ({"urgent": "true"}, "the answer is a boolean: write `true` without quotes"),
        ({"count": "2.5"}, "the answer is a number: write `2.5` without quotes"),
        ({"language": "not stated"}, "the answer is null: write `null` without quotes"),
        ({"teams": "tech"}, "did you mean `team`?"),
        ({"urgent": 1}, "write `true` or `false`"),
        ({"urgent": "no"}, "write `true` or `false` without quotes"),
        ({"urgent": "True"}, "write `true` or `false` without quotes"),
        ({"language": "null"}, "the answer is null: write `null` without quotes"),
        ({"team": "None"}, "for no label write `null` without quotes"),
        ({"count": True}, ""),
    ],
)
def test_what_is_nearly_right_says_how_to_write_it(tmp_path, expected, help):
    assert only(tmp_path, line(**expected)).help == help


def test_a_number_in_place_of_its_text_says_how_to_write_it(tmp_path):
    artifact = make_artifact({"code": spelled("12", "13")})
    _, (finding,) = read_rows(written(tmp_path, line(code=12)), artifact)
    assert (finding.fact, finding.help) == ("is 12, a number", 'write it as text: "12"')


def test_the_answers_that_there_are_are_named(tmp_path):
    assert only(tmp_path, line(urgent="x")).limit == "its answers are true, false"
    assert only(tmp_path, line(language="x")).limit == 'its answers are "English", null'
    assert only(tmp_path, line(count=7)).limit == "its answers are 1, 2.5"


def test_the_answers_are_named_as_a_cell_spells_them(tmp_path):
    def limit(text):
        return only(tmp_path, text, "data.csv").limit

    assert limit("context,urgent\na,x\n") == "its answers are true, false"
    assert limit("context,language\na,x\n") == 'its answers are "English", "not stated"'


@pytest.mark.parametrize(("yes", "no"), [("TRUE", "FALSE"), ("True", "False"), ("true", "false")])
def test_a_boolean_cell_may_be_written_in_any_case(tmp_path, yes, no):
    text = f"context,urgent\na,{yes}\nb,{no}\n"
    rows, problems = read_rows(written(tmp_path, text, "data.csv"), ARTIFACT)
    assert ([dict(row.expected) for row in rows], problems) == ([{"urgent": 0}, {"urgent": 1}], [])


@pytest.mark.parametrize(
    ("column", "cell", "help"),
    [
        ("urgent", "no", "write `true` or `false`"),
        ("urgent", "0", "write `true` or `false`"),
        ("urgent", "null", "for no label leave the cell empty"),
        ("language", "null", "the answer is null: write `not stated`"),
        ("language", "None", "the answer is null: write `not stated`"),
        ("language", "Not stated", "did you mean `not stated`?"),
        ("team", "TECH", "did you mean `tech`?"),
    ],
)
def test_a_cell_that_is_nearly_right_says_how_to_write_it(tmp_path, column, cell, help):
    assert only(tmp_path, f"context,{column}\na,{cell}\n", "data.csv").help == help


def test_other_columns_and_keys_are_named_in_one_warning_and_not_read(tmp_path):
    table = "id,context,source,team\n1,a text,x,tech\n2,a text,x,billing\n"
    lines = [
        '{"id": 1, "context": "a text", "expected": {"team": "tech", "mood": "calm"}}',
        '{"id": 2, "context": "a text", "expected": {"team": "billing"}, "team": "old"}',
    ]
    from_csv, (told,) = read_rows(written(tmp_path, table, "data.csv"), ARTIFACT)
    from_json, (also,) = read_rows(written(tmp_path, "\n".join(lines)), ARTIFACT)
    assert (
        [row.expected for row in from_csv]
        == [row.expected for row in from_json]
        == [{"team": 1}, {"team": 0}]
    )
    assert (told.code, told.severity, told.location.column) == ("PCDC728", "warning", 1)
    assert told.fact == 'has columns that are not read: "id", "source"'
    assert also.fact == 'has keys that are not read: "id", "mood", "team"'
    assert told.limit == 'the artifact\'s fields are "team", "urgent", "count", "language"'


def test_a_field_outside_expected_is_no_label_unawares(tmp_path):
    beside = only(tmp_path, '{"context": "x", "expected": {"urgent": true}, "team": "tech"}')
    assert (beside.code, beside.fact, beside.help) == (
        "PCDC721",
        "is outside `expected`",
        "put it into `expected`",
    )
    misspelt = only(tmp_path, '{"context": "x", "expected": {"urgent": true}, "teem": "tech"}')
    assert misspelt.help == 'put it into `expected` as "team"'


def test_a_name_near_a_field_that_is_there_is_only_named(tmp_path):
    assert only(tmp_path, "context,team,team_2\na,tech,billing\n", "data.csv").code == "PCDC728"
    assert only(tmp_path, "context,team_2\na,billing\n", "data.csv").code == "PCDC721"
    assert only(tmp_path, line(team="tech", teem="tech")).code == "PCDC728"


@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        ("d.csv", "context;team\na;tech\nb;tech;\n", "has semicolons between its columns"),
        ("d.csv", '"context";"team"\n"a";"tech"\n', "has semicolons between its columns"),
        ("d.csv", "text;team\na;tech\n", "has semicolons between its columns"),
        ("d.csv", "context\tteam\na\ttech\n", "has tabs between its columns"),
        ("d.tsv", "context,team\na,tech\n", "has commas between its columns"),
    ],
)
def test_another_separator_is_told_once(tmp_path, name, text, fact):
    told = only(tmp_path, text, name)
    assert (told.code, told.fact) == ("PCDC720", fact)
    assert told.help == "save it as .csv with commas, or as .tsv with tabs"


@pytest.mark.parametrize(
    ("name", "text", "help"),
    [
        ("d.csv", "text,team\na,tech\n", 'rename "text" to `context`'),
        ("d.csv", "id,message,team\n1,a,tech\n", "name the column of the texts `context`"),
        ("d.jsonl", '{"text": "a", "expected": {"team": "tech"}}', 'rename "text" to `context`'),
        ("d.jsonl", '{"body": "a", "expected": {"team": "tech"}}', "name the key of the text `context`"),
        ("d.jsonl", '{"context": "a", "expect": {"team": "tech"}}', 'rename "expect" to `expected`'),
        ("d.jsonl", '{"context": "a", "team": "tech"}', 'put "team" into an object `expected`'),
        ("d.jsonl", '{"context": "a"}', "put the labels into an object `expected`"),
    ],
)
def test_what_a_row_lacks_is_one_mistake_with_one_help(tmp_path, name, text, help):
    told = only(tmp_path, text, name)
    assert (told.code, told.help) == ("PCDC720", help)


@pytest.mark.parametrize("kept", range(1, len(line(team="tech"))))
def test_a_line_cut_short_is_one_mistake_and_the_next_is_read(tmp_path, kept):
    rows, (told,) = read_rows(
        written(tmp_path, line(team="tech")[:kept] + "\n" + line("next", urgent=True)), ARTIFACT
    )
    assert (told.code, told.location.line, told.location.column) == ("PCDC105", 1, kept + 1)
    assert told.fact == "ends before its value does"
    assert [row.context for row in rows] == ["next"]


def test_a_line_break_inside_text_says_how_to_write_it(tmp_path):
    told = read_rows(written(tmp_path, '{"context": "one\ntwo"}'), ARTIFACT)[1][0]
    assert told.help == "a line holds one whole JSON value; in text, `\\n` is a line break"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("context,team\na,tec\n", [("PCDC722", 2, 3)]),
        ("context,urgent\na,yes\n", [("PCDC722", 2, 3)]),
        ('context,team\n"a\nb",x\nc,tech,\n', [("PCDC722", 3, 4), ("PCDC720", 4, 1)]),
        ("context,team,urgnt,team\na,tech,true,tech\n", [("PCDC721", 1, 14), ("PCDC106", 1, 20)]),
        ("text,tem\na,tech\n", [("PCDC720", 1, 1)]),
        ("", [("PCDC720", 1, 1)]),
        ("context,team\n,tech\n", [("PCDC720", 2, 1)]),
        ('context,team\n"a,tech\n', [("PCDC720", 2, 1)]),
        ("context,team\na,\n", [("PCDC723", 1, 1)]),
    ],
)
def test_mistakes_of_a_table_are_located(tmp_path, text, expected):
    assert found(tmp_path, text, "data.csv") == expected


def test_a_cell_may_be_longer_than_the_csv_module_wants(tmp_path):
    before = csv.field_size_limit()
    path = written(tmp_path, f"context,team\n{'long ' * 40_000},tech\n", "data.csv")
    rows, diagnostics = read_rows(path, ARTIFACT)
    assert (len(rows[0].context), diagnostics) == (200_000, [])
    assert csv.field_size_limit() == before


def test_a_file_that_is_no_data_is_refused(tmp_path, monkeypatch):
    assert found(tmp_path, "\n{}\xff".encode("latin-1")) == [("PCDC104", 2, 3)]
    assert found(tmp_path, "") == [("PCDC723", 1, 1)]
    assert only(tmp_path, "{}", "data.json").code == "PCDC710"
    (missing,) = read_rows(tmp_path / "no.jsonl", ARTIFACT)[1]
    assert missing.code == "PCDC101"
    monkeypatch.setattr("pcdc.evaluation.rows.MAX_BYTES", 20)
    assert MAX_BYTES > 20
    too_large = only(tmp_path, line(team="tech"))
    assert (too_large.code, too_large.limit) == ("PCDC102", "at most 20 bytes")
    assert "choices" not in too_large.help


def test_many_rows_have_no_limit_but_the_file_s(tmp_path, monkeypatch):
    monkeypatch.setattr("pcdc.reader.MAX_VALUES", 10)
    rows, diagnostics = read_rows(written(tmp_path, "\n".join([line(team="tech")] * 50)), ARTIFACT)
    assert (len(rows), diagnostics) == (50, [])


def test_a_field_without_labels_is_said_aloud(tmp_path):
    path = written(tmp_path, line(team="tech", urgent=True, language=None))
    rows, _ = read_rows(path, ARTIFACT)
    (finding,) = unlabelled(rows, ARTIFACT, path)
    assert (finding.code, finding.severity, finding.subject) == ("PCDC724", "warning", 'field "count"')


def test_a_text_with_a_byte_order_mark_reads_like_one_without(tmp_path):
    text = line(team="tech")
    assert read_rows(written(tmp_path, "\ufeff" + text), ARTIFACT) == read_rows(
        written(tmp_path, text), ARTIFACT
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("context," + "tam," * 20_000 + "id\n", "data.csv"),
        ("context," + "team," * 20_000 + "team\n", "data.csv"),
        ("context,team\n" + "a,tec\n" * 3000, "data.csv"),
        ("{}\n" * 3000, "data.jsonl"),
    ],
)
def test_a_file_with_too_many_mistakes_is_not_read_on(tmp_path, text, name):
    _, diagnostics = read_rows(written(tmp_path, text, name), ARTIFACT)
    assert len(diagnostics) == MAX_FINDINGS
    assert len({d.location for d in diagnostics}) >= MAX_FINDINGS // 2


def test_places_of_columns_are_found_in_one_pass(tmp_path, monkeypatch):
    scanned = []
    monkeypatch.setattr("pcdc.evaluation.rows.cell_at", lambda *place: scanned.append(place) or 0)
    text = "context," + ",".join(f"tea{n}" for n in range(500)) + "\n"
    assert found(tmp_path, text, "data.csv")[:2] == [("PCDC721", 1, 9), ("PCDC721", 1, 14)]
    assert scanned == []


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("break_", ["\n", "\r\n"])
def test_the_digest_is_of_the_bytes_that_were_read(tmp_path, mark, break_):
    path = written(tmp_path, mark + break_.join([line(team="tech")] * 2).encode())
    data, _ = read_data(path, ARTIFACT)
    assert len(data.rows) == 2
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_wrong_is_told_in_the_order_of_the_lines(tmp_path):
    unread = json.dumps({"context": "a", "expected": {"urgent": True}, "mood": 1})
    places = [at for _, at, _ in found(tmp_path, f"oops\n{unread}\n\n[1]\n")]
    assert places == [1, 2, 3, 4]


def test_a_carriage_return_alone_is_a_blank_of_json(tmp_path):
    text = b"\r".join([b'{"context":', b'"a", "expected":', b'{"urgent": true}}'])
    rows, diagnostics = read_rows(written(tmp_path, text + b"\r\n\r" + text + b"\r"), ARTIFACT)
    assert ([row.line for row in rows], diagnostics) == ([1, 2], [])
    assert found(tmp_path, text + b"\n\r\xff") == [("PCDC104", 2, 2)]
