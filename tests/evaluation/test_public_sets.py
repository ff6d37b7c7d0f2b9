"""The public sets: what is read of a source, how texts are drawn from it, and that definitions fit them."""

from __future__ import annotations

import itertools
import json
import sys
import zipfile
from pathlib import Path

import pytest

from pcdc.parse import parse_file

FOLDER = Path(__file__).resolve().parents[2] / "evaluation"
sys.path.insert(0, str(FOLDER))

import fetch  # noqa: E402
import table  # noqa: E402

MEMBER = "rows.tab"
HEADER = "Category\tText\nd\tstring\nclass\t\n"


def source(words=5):
    return fetch.Source(fetch.Wheel("none==0", ""), (MEMBER,), fetch.tab_rows, "topic", words)


@pytest.fixture
def rows_of(tmp_path, monkeypatch):
    """What is drawn from a file with these lines."""

    def drawn(*lines):
        path = tmp_path / "set.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(MEMBER, HEADER + "\n".join(lines) + "\n")
        monkeypatch.setattr(fetch, "download", lambda wheel: path)
        return fetch.labelled(source())

    return drawn


@pytest.mark.parametrize("name", fetch.SETS)
def test_every_set_has_a_definition_that_asks_for_its_label(name):
    schema, problems = parse_file(FOLDER / f"{name}.json")
    assert not problems
    assert [field.name for field in schema.fields] == [fetch.SETS[name].field]
    assert all(choice.description for choice in schema.fields[0].choices)


def test_texts_are_cut_and_their_blanks_are_one_each(rows_of):
    assert rows_of("a\tone  two three four five six") == [("one two three four five", "a")]


def test_a_text_is_drawn_once_and_never_with_two_labels(rows_of):
    rows = rows_of("a\tsame text", "a\tSame  TEXT", "a\ttwo labels", "b\tTwo labels", "b\tanother")
    assert sorted(rows) == [("another", "b"), ("same text", "a")]


def test_the_order_depends_on_the_texts_alone(rows_of):
    lines = [f"{label}\ttext {number}" for number, label in enumerate("abcd")]
    assert len({tuple(rows_of(*order)) for order in itertools.permutations(lines)}) == 1


def test_parts_share_no_text(rows_of, tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "PARTS", {"fit": 3, "judge": 4, "train": 2})
    rows_of(*(f"a\ttext {number}" for number in range(20)))
    fetch.write_parts("set", source())
    parts = {
        part: [json.loads(line) for line in fetch.part_file("set", part).read_text().splitlines()]
        for part in fetch.PARTS
    }
    assert {part: len(rows) for part, rows in parts.items()} == fetch.PARTS
    assert len({row["context"] for rows in parts.values() for row in rows}) == 9


def test_a_tweet_needs_agreement_and_undamaged_text():
    data = (
        "sentiment,confidence,text\nneutral,0.6,plain\nneutral,0.59,doubted\nneutral,,unknown\n"
        "neutral,1,caf\u00e9\n"
    ).encode() + b"neutral,1,caf\xe9\n"
    assert list(fetch.tweet_rows(data)) == [("plain", "neutral")]


def test_a_package_with_another_hash_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))

    def pip(command, **_):
        (Path(command[command.index("-d") + 1]) / "some.whl").write_bytes(b"other")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    with pytest.raises(SystemExit, match="not the file"):
        fetch.download(fetch.Wheel("none==0", "00"))
    assert not list(tmp_path.rglob("*.whl"))


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, ".500"), (0.0, ".000"), (1.0, "1.00"), (0.9996, "1.000"), (0.005, ".005")]
)
def test_shares_are_shown_without_their_zero(value, shown):
    assert table.share(value) == shown
