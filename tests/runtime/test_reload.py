"""An engine that follows its file: which artifact a request gets, and what happens to the old one."""

import logging
import threading
from dataclasses import replace

import pytest
from fakes import WIDTH, TableModel, loaded, make_artifact, seeded, spelled
from pcdc_runtime import codec, reload
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import Engine, load
from pcdc_runtime.errors import ArtifactError, UnknownFieldError
from pcdc_runtime.storage import write_atomic
from versions import SHARED, numbers, version

HEAD = len(version(1).prompt.head)


@pytest.fixture
def model():
    return TableModel(seeded(1))


@pytest.fixture
def shared(model):
    with loaded(model) as shared:
        yield shared


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "made.table.pcdc"
    write(path, version(1))
    return path


@pytest.fixture
def engine(path, shared):
    with load(path, shared, reload=True) as engine:
        yield engine


def write(path, artifact):
    write_atomic(path, dumps(artifact))


def refusals(result):
    return [warning for warning in result.warnings if warning.startswith("reload_refused")]


def test_a_new_artifact_answers_the_next_request(engine, path):
    assert numbers(engine.run("abc")) == {1}
    write(path, version(2))
    result = engine.run("abc")
    assert numbers(result) == {2}
    assert result.artifact_digest == version(2).digest == engine.artifact.digest
    assert not refusals(result)


@pytest.mark.parametrize("scoring", ["joint", "identify", "trie"])
def test_scores_after_a_reload_are_those_of_a_fresh_engine(engine, path, scoring):
    for number in (2, 1, 3):
        engine.run("abc", scoring=scoring)
        write(path, version(number))
        with Engine(version(number), loaded(TableModel(seeded(1)))) as fresh:
            assert engine.run("abc", scoring=scoring).answers == fresh.run("abc", scoring=scoring).answers


def test_the_common_prefix_of_both_prompts_is_not_computed_again(engine, path, model):
    engine.run("abc")
    write(path, version(2))
    assert engine.run("abc").head_cached == len("Answer 00")
    write(path, version(111))
    assert engine.run("abc").head_cached == SHARED
    assert engine.run("abd").head_cached == HEAD + 2
    assert model.sequences == 1


def test_the_kv_of_old_artifacts_is_released(engine, path, shared, model):
    engine.run("abc")
    held = shared.prefixes.bytes_held
    for number in range(2, 52):
        write(path, version(number))
        assert numbers(engine.run("abc")) == {number}
        assert shared.prefixes.bytes_held == held
    assert model.sequences == 1


def test_another_engine_of_the_old_artifact_keeps_its_answers(engine, path, shared):
    with Engine(version(1), shared.share()) as other:
        before = other.run("abc").answers
        write(path, version(2))
        assert numbers(engine.run("abc")) == {2}
        assert other.run("abc").answers == before


def test_two_engines_of_one_file_go_on_together(engine, path, shared, model):
    with load(path, shared, reload=True) as other:
        write(path, version(2))
        assert engine.run("abc").answers == other.run("abc").answers
        assert numbers(other.run("abc")) == {2}
    assert model.sequences == 1


def test_a_request_keeps_the_artifact_it_began_with(tmp_path):
    path = tmp_path / "made.pcdc"
    write(path, version(1))
    running, changed = threading.Event(), threading.Event()

    def rule(prompt):
        running.set()
        assert changed.wait(20)
        return seeded(1)(prompt)

    with loaded(TableModel(rule)) as shared, load(path, shared, reload=True) as engine:
        first, second = engine.submit("abc"), engine.submit("abc")
        assert running.wait(20)
        write(path, version(2))
        assert engine.artifact.digest == version(1).digest
        changed.set()
        assert numbers(first.result()) == {1}
        assert first.result().artifact_digest == version(1).digest
        assert numbers(second.result()) == {2}


def test_fields_are_looked_up_in_the_artifact_that_answers(engine, path):
    write(path, make_artifact({"topic": spelled("x", "y")}))
    assert list(engine.run("abc", fields="topic").values) == ["topic"]
    with pytest.raises(UnknownFieldError, match="topic"):
        engine.run("abc", fields=["team"])
    assert list(engine.run("abc", fields=(name for name in ["topic"])).values) == ["topic"]


def test_the_rule_and_the_temperature_are_those_of_the_artifact_that_answers(engine, path):
    write(path, replace(version(1), scoring="trie", temperature=2.5))
    result = engine.run("abc")
    assert (result.scoring, result.temperature) == ("trie", 2.5)
    assert engine.run("abc", scoring="joint", temperature=1).scoring == "joint"


WRONG = {
    "damaged": (lambda: dumps(version(2))[:-1], "damaged or cut short"),
    "empty": (lambda: b"", "not a pcdc artifact"),
    "flipped": (lambda: dumps(version(2))[:-1] + b"\0", "checksum"),
    "for another tokenizer": (lambda: dumps(replace(version(2), fingerprint="0" * 64)), "tokenizer"),
    "beyond the logits": (lambda: dumps(_wide()), f"uses token {WIDTH}"),
    "too long": (lambda: dumps(_long()), "tokens"),
}


def _wide():
    made = version(2)
    ids = made.ends.ids.copy()
    ids[-1] = WIDTH
    return replace(made, ends=replace(made.ends, ids=ids))


def _long():
    made = version(2)
    head = made.prompt.head.repeat(1000)
    return replace(made, prompt=replace(made.prompt, head=head))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_keeps_the_old_artifact_and_is_reported_once(engine, path, wrong, caplog):
    content, fact = WRONG[wrong]
    before = engine.run("abc")
    write_atomic(path, content())
    with caplog.at_level(logging.WARNING, "pcdc_runtime"):
        first, later = engine.run("abc"), engine.run("abc")
        write_atomic(path, content())
        again = engine.run("abc")
    assert first.answers == later.answers == again.answers == before.answers
    assert again.artifact_digest == version(1).digest
    (refusal,) = refusals(first)
    assert fact in refusal
    assert refusals(later) == refusals(again) == []
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("pcdc_runtime", "WARNING")
    assert fact in record.getMessage()


def test_every_other_wrong_content_is_reported_too(engine, path):
    for length in (10, 20, 30):
        write_atomic(path, dumps(version(2))[:length])
        assert len(refusals(engine.run("abc"))) == 1


def test_a_mended_file_is_taken(engine, path):
    write_atomic(path, b"")
    assert refusals(engine.run("abc"))
    write(path, version(2))
    assert numbers(engine.run("abc")) == {2}


def test_the_same_artifact_again_costs_nothing(engine, path):
    engine.run("abc")
    bound = engine._source.bound
    write_atomic(path, b"")
    engine.run("abc")
    write(path, version(1))
    result = engine.run("abc")
    assert not refusals(result)
    assert result.sequential_forward_passes == 1
    assert engine._source.bound is bound


def test_a_deleted_file_keeps_the_old_artifact_until_there_is_one_again(engine, path):
    path.unlink()
    assert [len(refusals(engine.run("abc"))) for _ in range(3)] == [1, 0, 0]
    assert numbers(engine.run("abc")) == {1}
    write(path, version(2))
    assert numbers(engine.run("abc")) == {2}


def test_an_engine_that_does_not_reload_never_looks(path, shared, monkeypatch):
    with load(path, shared) as engine:
        write(path, version(2))

        def touched(*_):
            raise AssertionError("the file was looked at")

        monkeypatch.setattr(reload, "stamp_of", touched)
        monkeypatch.setattr(codec, "read_bytes", touched)
        assert numbers(engine.run("abc")) == {1}


def test_a_file_that_stays_is_read_no_more_once_its_stamp_is_old(engine, path, monkeypatch):
    monkeypatch.setattr(reload, "SETTLE_S", 0.0)
    reads = []
    read = codec.read_bytes
    monkeypatch.setattr(codec, "read_bytes", lambda path: reads.append(path) or read(path))
    for _ in range(5):
        engine.run("abc")
    assert reads == [path]
    write(path, version(2))
    for _ in range(5):
        assert numbers(engine.run("abc")) == {2}
    assert reads == [path, path]


def test_a_second_write_within_one_tick_of_the_clock_is_seen(engine, path, monkeypatch):
    monkeypatch.setattr(reload, "stamp_of", lambda _: (0, 0, 0, 0, 0))
    for number in (2, 3, 4):
        write(path, version(number))
        assert numbers(engine.run("abc")) == {number}


def test_a_file_that_cannot_be_read_is_tried_again_whatever_its_stamp(engine, path, monkeypatch):
    monkeypatch.setattr(reload, "SETTLE_S", 0.0)
    engine.run("abc")
    write(path, version(2))
    read = codec.read_bytes

    def failing(path):
        raise ArtifactError(str(path), "cannot be read (Input/output error)")

    monkeypatch.setattr(codec, "read_bytes", failing)
    assert [len(refusals(engine.run("abc"))) for _ in range(3)] == [1, 0, 0]
    monkeypatch.setattr(codec, "read_bytes", read)
    assert numbers(engine.run("abc")) == {2}


def test_a_wrong_file_is_refused_when_loading(path, shared):
    write_atomic(path, b"")
    with pytest.raises(ArtifactError):
        load(path, shared, reload=True)
    path.unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        load(path, shared, reload=True)
