"""Index files as selectors: opened, followed, and refused with a way out."""

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import TableModel, loaded, make_artifact, seeded, spelled
from fielded import index_of
from pcdc_runtime import codec, open_selector
from pcdc_runtime.errors import (
    ArtifactError,
    FingerprintMismatchError,
    IndexFileError,
    ModelNotFoundError,
    SelectionError,
)
from pcdc_runtime.headfile import HeadFiles
from pcdc_runtime.indexed.codec import write_index
from pcdc_runtime.selecting import source
from pcdc_runtime.selecting.selector import Selector

ARTIFACT = make_artifact({"drug": spelled("ab", "abc", "b")})
INDEX = index_of(ARTIFACT, "drug")
LARGER = index_of(make_artifact({"drug": spelled("ab", "abc", "b", "zz")}), "drug")
OTHER_PROMPT = replace(LARGER, prompt=replace(LARGER.prompt, tail=LARGER.prompt.tail[::-1].copy()))


@pytest.fixture
def path(tmp_path):
    write_index(tmp_path / "drugs.table.pcdx", INDEX)
    return tmp_path / "drugs.table.pcdx"


@pytest.fixture
def model():
    with loaded(TableModel(seeded(3))) as model:
        yield model


def test_a_file_answers_as_the_index_that_was_written(path, model):
    with open_selector(path, model) as mapped, Selector(INDEX, model.share()) as made:
        assert mapped.index == INDEX
        found = [selector.select("text", k=3) for selector in (mapped, made)]
    assert found[0].answers == found[1].answers
    assert found[0].index_digest == INDEX.digest


def test_a_path_may_be_text_and_nothing_else_is_one(path, model):
    open_selector(str(path), model).close()
    with pytest.raises(IndexFileError, match="is int, not a path"):
        open_selector(3, model)


def test_an_artifact_is_refused_with_the_command_that_answers_it(tmp_path, model):
    (tmp_path / "drugs.pcdc").write_bytes(codec.dumps(ARTIFACT))
    with pytest.raises(IndexFileError, match="pcdc run"):
        open_selector(tmp_path / "drugs.pcdc", model)


def test_a_damaged_file_is_refused_when_it_is_opened(path, model):
    damage(path)
    with pytest.raises(IndexFileError, match="between its sections"):
        open_selector(path, model)
    assert model.share() is model
    model.close()


def test_a_model_that_is_not_there_is_told_before_anything_runs(path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError):
        open_selector(path, "no-such-model")


def test_the_head_is_read_from_the_cache_where_it_is(path, model, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(HeadFiles, "restore", lambda self, model, prefix, head: asked.append(len(head)))
    with Selector(INDEX, model.share(), heads=HeadFiles(tmp_path / "heads")) as selector:
        selector.select("x")
    assert asked == [len(INDEX.prompt.head)] * 2


def test_a_new_file_answers_the_next_request_and_takes_over_the_head(path, model):
    with open_selector(path, model, reload=True) as selector:
        assert selector.select("text").entries == 3
        write_index(path, LARGER)
        again = selector.select("text", k=4)
        assert (again.entries, len(again.answers), again.index_digest) == (4, 4, LARGER.digest)
        assert again.head_cached >= len(LARGER.prompt.head)
        assert again.warnings == selector.select("text", k=4).warnings
        assert selector.index == LARGER


def test_without_reload_a_selector_keeps_what_it_opened(path, model):
    with open_selector(path, model) as selector:
        write_index(path, LARGER)
        assert selector.select("text").entries == 3
        path.unlink()
        assert selector.select("text").entries == 3


def test_an_unchanged_file_is_not_opened_again(path, model, monkeypatch):
    with open_selector(path, model, reload=True) as selector:
        monkeypatch.setattr(source, "open_index", lambda path: pytest.fail("opened again"))
        assert not refusals(selector.select("text"))


def refusals(selection):
    return [warning for warning in selection.warnings if warning.startswith("reload_refused: ")]


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    write_bytes(path, data)


def other_tokenizer(path):
    write_index(path, replace(LARGER, fingerprint="0" * 64))


@pytest.mark.parametrize(
    "break_it",
    [damage, other_tokenizer, Path.unlink, lambda path: write_bytes(path, b"nothing")],
    ids=["damaged", "another tokenizer", "missing", "no index"],
)
def test_a_file_that_cannot_be_used_is_told_once_and_the_last_good_one_stays(
    path, model, break_it, monkeypatch
):
    monkeypatch.setattr(source, "SETTLE_S", 0.0)
    with open_selector(path, model, reload=True) as selector:
        before = selector.select("text", k=3)
        break_it(path)
        told, silent = selector.select("text", k=3), selector.select("text", k=3)
        assert [len(refusals(one)) for one in (told, silent)] == [1, 0]
        assert told.answers == silent.answers == before.answers
        write_index(path, LARGER)
        mended = selector.select("text", k=3)
        assert (mended.entries, refusals(mended)) == (4, [])


def write_bytes(path, data):
    fresh = path.with_name("fresh")
    fresh.write_bytes(data)
    fresh.replace(path)


def test_a_file_that_was_broken_a_moment_ago_is_looked_at_again(path, model):
    with open_selector(path, model, reload=True) as selector:
        selector.select("text")
        damage(path)
        assert refusals(selector.select("text"))
        write_bytes(path, b"x" * path.stat().st_size)
        # What is there now is another fault.
        assert refusals(selector.select("text"))
        assert not refusals(selector.select("text"))


def test_another_prompt_of_a_new_file_is_used(path, model):
    with open_selector(path, model, reload=True) as selector:
        selector.select("text")
        write_index(path, OTHER_PROMPT)
        followed = selector.select("text", k=4)
    with Selector(OTHER_PROMPT, loaded(TableModel(seeded(3)))) as fresh:
        assert followed.answers == fresh.select("text", k=4).answers


def test_the_errors_are_those_of_artifacts_and_of_values():
    assert issubclass(IndexFileError, ArtifactError)
    assert issubclass(FingerprintMismatchError, ArtifactError)
    assert issubclass(SelectionError, ValueError)
