"""Scores of texts: kept as they come, never computed twice, equal to what an engine says."""

import errno
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from pcdc_runtime.artifact import RULES
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import open_model

from pcdc.evaluation.kept import Kept, ReportError, key_of
from pcdc.evaluation.measure import CONTENT_FREE, Scored, TooLong, Written, measure, tabulate, write
from pcdc.evaluation.opening import Opening
from pcdc.evaluation.rows import Row, read_rows, same_text

TEXTS = ["The printer is on fire.", "Please refund me.", "Where is it?"]


def ignore(what, done, of):
    """Watches nothing."""


class Counting(Opening):
    """Counts the texts that a model had to read."""

    computed = 0

    def engine(self, artifact):
        type(self).computed += 1
        return super().engine(artifact)


@pytest.fixture
def opening(artifact, tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    Counting.computed = 0
    with Counting(artifact, str(tiny)) as opened:
        yield opened


def alike(one, other):
    """Whether two computations of one text agree; its last digits depend on what was in the same forward."""
    return all(
        np.allclose(a.log_scores, b.log_scores, atol=1e-4)
        and math.isclose(a.legal_mass, b.legal_mass, abs_tol=1e-4)
        for rule in RULES
        for a, b in zip(one.fields[rule], other.fields[rule], strict=True)
    )


def scored(artifact, texts, opening, path, **more):
    with Kept(path) as kept:
        return measure(artifact, texts, opening, kept, ignore, "data", **more)


def test_what_is_kept_is_what_an_engine_answers(artifact, tiny, opening, tmp_path):
    (one, *_) = scored(artifact, TEXTS, opening, tmp_path / "scores.jsonl")
    with Engine(artifact, open_model(tiny)) as engine:
        for rule in RULES:
            answers = engine.run(TEXTS[0], scoring=rule).answers
            for answer, kept in zip(answers, one.fields[rule], strict=True):
                assert np.allclose(answer.log_scores, kept.log_scores, atol=1e-6)
                assert math.isclose(answer.legal_mass, kept.legal_mass, abs_tol=1e-6)


def test_a_second_run_computes_nothing_and_gives_the_same(artifact, opening, tmp_path):
    first = scored(artifact, TEXTS, opening, tmp_path / "scores.jsonl")
    assert Counting.computed == len(TEXTS)
    assert scored(artifact, TEXTS, opening, tmp_path / "scores.jsonl") == first
    assert Counting.computed == len(TEXTS)


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_last_line_is_dropped_and_computed_again(artifact, opening, tmp_path, cut):
    path = tmp_path / "scores.jsonl"
    first = scored(artifact, TEXTS, opening, path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = scored(artifact, TEXTS, opening, path)
    assert Counting.computed == len(TEXTS) + 1
    assert all(map(alike, again, first))
    assert len([json.loads(line) for line in path.read_bytes().splitlines()]) == len(TEXTS)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record.pop("fields"),
        lambda record: record["fields"]["joint"].pop(),
        lambda record: record["fields"]["joint"][0][0].append(0.0),
        lambda record: record["fields"]["trie"][1].__setitem__(1, 7.0),
        lambda record: record.__setitem__("fields", 3),
    ],
)
def test_a_record_that_somebody_spoilt_is_computed_again(artifact, opening, tmp_path, spoil):
    path = tmp_path / "scores.jsonl"
    first = scored(artifact, TEXTS[:1], opening, path)
    record = json.loads(path.read_bytes())
    spoil(record)
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    (again,) = scored(artifact, TEXTS[:1], opening, path)
    assert Counting.computed == 2
    assert alike(again, first[0])


def test_another_text_rule_artifact_or_weight_is_another_record(artifact, opening, tmp_path):
    path = tmp_path / "scores.jsonl"
    scored(artifact, TEXTS[:1], opening, path)
    scored(artifact, [TEXTS[0] + " "], opening, path)
    scored(artifact, TEXTS[:1], opening, path, rules=("joint",))
    opening.weights = "0" * 64
    scored(artifact, TEXTS[:1], opening, path)
    assert Counting.computed == 4
    assert len(path.read_bytes().splitlines()) == 4


def test_a_text_longer_than_the_window_is_kept_as_such(artifact, opening, tmp_path):
    path = tmp_path / "scores.jsonl"
    results = scored(artifact, ["short", "long " * 5000], opening, path)
    assert isinstance(results[0], Scored)
    assert isinstance(results[1], TooLong)
    assert "window of tiny is 4096 tokens" in results[1].limit
    assert scored(artifact, ["short", "long " * 5000], opening, path) == results
    assert Counting.computed == 2


def test_one_file_is_written_by_one_process(tmp_path):
    path = tmp_path / "scores.jsonl"
    with Kept(path), pytest.raises(ReportError, match="in use by another"):
        Kept(path)
    with Kept(path) as kept:
        assert kept.get(key_of("x")) is None


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ReportError, match="cannot be written"):
        Kept(tmp_path / "file" / "scores.jsonl")


def test_tables_hold_each_label_once_with_its_scores(artifact, opening, tmp_path, labelled):
    path = tmp_path / "scores.jsonl"
    rows, problems = read_rows(labelled(tmp_path / "data.jsonl", 6), artifact)
    rows = (*rows, Row(7, rows[0].context.upper(), {"urgent": 1}))
    results = scored(artifact, [row.context for row in rows], opening, path)
    content_free = scored(artifact, CONTENT_FREE, opening, path)
    measured = tabulate(artifact, rows, results, content_free, None, data="d", weights=opening.weights)
    assert problems == []
    assert [table.name for table in measured.tables] == ["department", "urgent"]
    department, urgent = measured.tables
    assert department.row.tolist() == [0, 1, 2, 3, 4, 5]
    assert department.labels == ("BILLING", "BILLING_DISPUTE", "TECH", "not stated")
    assert department.expected.tolist() == [0, 1, 2, 3, 0, 1]
    assert urgent.row.tolist() == [1, 3, 5, 6]
    assert urgent.log_scores["joint"].shape == (4, 2)
    assert urgent.log_scores["trie"][1].tolist() == list(results[3].fields["trie"][1].log_scores)
    assert measured.group.tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert measured.prefill_ms.shape == measured.context_tokens.shape == (7,)
    assert np.isclose(np.exp(department.prior["joint"]).sum(), 1)
    shares = [np.exp(s.fields["joint"][0].log_scores) for s in content_free]
    mean = np.mean([share / share.sum() for share in shares], axis=0)
    assert np.allclose(np.exp(department.prior["joint"]), mean)


def test_texts_that_differ_by_blanks_and_case_are_the_same():
    assert same_text(" A  b\nC ") == same_text("a B c") != same_text("ab c")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("prefill_ms",), "NaN"),
        (("prefill_ms",), "1e999"),
        (("tree_ms",), "-1"),
        (("tree_ms",), "1" + "0" * 400),
        (("tree_ms",), "true"),
        (("context_tokens",), "1" + "0" * 30),
        (("context_tokens",), "2.5"),
        (("fields", "joint", 0, 0, 0), "1" + "0" * 400),
        (("fields", "joint", 0, 0, 0), "Infinity"),
        (("fields", "joint", 0, 0, 0), "NaN"),
        (("fields", "joint", 0, 0, 0), "-1e300"),
        (("fields", "joint", 0, 0, 0), '"1"'),
        (("fields", "joint", 0, 1), "NaN"),
        (("fields", "joint", 0, 1), "false"),
        (("fields",), "[" * 100_000 + "]" * 100_000),
        (("fields",), '{"joint": [], "joint": []}'),
    ],
)
def test_a_record_with_a_value_that_no_run_gives_is_computed_again(artifact, opening, tmp_path, place, value):
    path = tmp_path / "scores.jsonl"
    first = scored(artifact, TEXTS[:1], opening, path)
    record = json.loads(path.read_bytes())
    *outer, last = place
    inner = record
    for step in outer:
        inner = inner[step]
    inner[last] = "HERE"
    path.write_text(json.dumps(record).replace('"HERE"', value) + "\n", encoding="utf-8")
    (again,) = scored(artifact, TEXTS[:1], opening, path)
    assert Counting.computed == 2
    assert alike(again, first[0])


@pytest.mark.parametrize(
    "choices", [[0.5, 0, 0], [True, 0, 0], [9, 0, 0], [-2, 0, 0], [0, 0], ["0", 0, 0], None]
)
def test_a_record_of_choices_that_there_are_not_is_written_again(artifact, tmp_path, choices):
    class Wrote:
        weights = "0" * 64
        asked = 0

        def writer(self, _):
            self.asked += 1
            return SimpleNamespace(
                write=lambda _: SimpleNamespace(values={"urgent": True}, prefill_ms=1.0, write_ms=2.0)
            )

    path, wrote = tmp_path / "scores.jsonl", Wrote()

    def written():
        with Kept(path) as kept:
            return write(artifact, TEXTS[:1], wrote, kept, ignore)

    first = written()
    assert first == written() == [Written((-1, 0, -1), 3.0)]
    spoilt = {**json.loads(path.read_bytes()), "choices": choices}
    path.write_text(json.dumps(spoilt) + "\n", encoding="utf-8")
    assert written() == first
    spoilt = {"key": spoilt["key"], "too_long": ["a", "b"]}
    path.write_text(json.dumps(spoilt) + "\n", encoding="utf-8")
    assert written() == first
    assert wrote.asked == 3


@pytest.mark.parametrize(
    "content",
    [
        b'{"context": "x", "expected": {}}\n',
        b'{"context": "x", "expected": {}}',
        b'{"key": "of mine", "context": "x"}',
        b'{"key": "' + b"0" * 64 + b'", "ms": 1}\nnotes\n',
        b"\n",
    ],
)
def test_a_file_with_other_lines_than_records_stays_as_it_is(tmp_path, content):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(content)
    with pytest.raises(ReportError, match="is no record of an evaluation"):
        Kept(path)
    assert path.read_bytes() == content


def test_a_record_that_could_not_be_written_whole_leaves_no_trace(tmp_path, monkeypatch):
    path = tmp_path / "scores.jsonl"
    with Kept(path) as kept:
        kept.add(key_of(1), {"ms": 1})
        whole = path.read_bytes()
        pwrite = os.pwrite

        def full(file, data, place):
            if len(data) < 50:
                raise OSError(errno.ENOSPC, "No space left on device")
            return pwrite(file, data[:50], place)

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(ReportError, match="No space left"):
            kept.add(key_of(2), {"ms": 2})
    assert path.read_bytes() == whole


def test_a_pipe_in_the_place_of_the_records_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "scores.jsonl")
    with pytest.raises(ReportError, match="is not a regular file"):
        Kept(tmp_path / "scores.jsonl")
