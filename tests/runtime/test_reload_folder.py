"""A folder of artifacts as engines by schema name."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fakes import TableModel, loaded, seeded
from pcdc_runtime import codec
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import load
from pcdc_runtime.errors import ArtifactError, EngineClosedError
from pcdc_runtime.storage import write_atomic
from versions import numbers, version


@pytest.fixture
def model():
    with loaded(TableModel(seeded(1))) as model:
        yield model


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "build"
    write(folder / "mail.table.pcdc", 1, "mail")
    write(folder / "sub" / "risk.table.pcdc", 2, "risk")
    return folder


@pytest.fixture
def engines(folder, model):
    with load(folder, model, reload=True) as engines:
        yield engines


@pytest.fixture
def log(caplog):
    with caplog.at_level(logging.WARNING, "pcdc_runtime"):
        yield caplog


def write(path, number, name):
    write_atomic(path, dumps(version(number, name)))


def test_every_artifact_below_the_folder_has_an_engine_by_its_schemas_name(engines):
    assert set(engines) == {"mail", "risk"}
    assert len(engines) == 2
    assert {name: numbers(engine.run("abc")) for name, engine in engines.items()} == {
        "mail": {1},
        "risk": {2},
    }
    assert "tariff" not in engines
    with pytest.raises(KeyError, match="tariff"):
        engines["tariff"]


def test_each_engine_follows_its_own_file(engines, folder):
    mail, risk = engines["mail"], engines["risk"]
    write(folder / "mail.table.pcdc", 3, "mail")
    assert numbers(mail.run("abc")) == {3}
    assert numbers(risk.run("abc")) == {2}
    assert engines["mail"] is mail


@pytest.mark.parametrize("find", [lambda e: e["late"], lambda e: dict(e)["late"], lambda e: e.get("late")])
def test_a_file_that_appears_is_found(engines, folder, find):
    write(folder / "late.table.pcdc", 4, "late")
    assert numbers(find(engines).run("abc")) == {4}


def test_an_empty_folder_may_fill_later(tmp_path, model):
    with load(tmp_path, model, reload=True) as engines:
        assert dict(engines) == {}
        write(tmp_path / "new" / "late.table.pcdc", 4, "late")
        assert numbers(engines["late"].run("abc")) == {4}


def test_a_file_that_goes_away_keeps_its_engine(engines, folder):
    (folder / "mail.table.pcdc").unlink()
    assert numbers(engines["mail"].run("abc")) == {1}
    assert set(engines) == {"mail", "risk"}
    write(folder / "mail.table.pcdc", 5, "mail")
    assert numbers(engines["mail"].run("abc")) == {5}


def test_a_wrong_file_is_left_out_and_logged_once_and_hides_no_other(folder, model, log):
    write_atomic(folder / "bad.table.pcdc", b"")
    other = replace(version(1, "other"), fingerprint="0" * 64)
    write_atomic(folder / "other.table.pcdc", dumps(other))
    with load(folder, model, reload=True) as engines:
        for _ in range(3):
            assert set(engines) == {"mail", "risk"}
        messages = [record.getMessage() for record in log.records]
        assert len(messages) == 2
        assert "bad.table.pcdc" in messages[0]
        assert "tokenizer" in messages[1]
        write(folder / "bad.table.pcdc", 6, "bad")
        assert numbers(engines["bad"].run("abc")) == {6}


def test_a_second_file_of_one_schema_is_left_out_and_said(folder, model, log):
    write(folder / "sub" / "mail.table.pcdc", 7, "mail")
    with load(folder, model, reload=True) as engines:
        assert numbers(engines["mail"].run("abc")) == {1}
        assert set(engines) == {"mail", "risk"}
    (record,) = log.records
    assert str(folder / "mail.table.pcdc") in record.getMessage()
    assert str(folder / "sub" / "mail.table.pcdc") in record.getMessage()


def test_an_engine_never_answers_another_schema(engines, folder):
    mail = engines["mail"]
    write(folder / "mail.table.pcdc", 8, "post")
    result = mail.run("abc")
    assert numbers(result) == {1}
    assert any("'post'" in warning for warning in result.warnings)
    assert numbers(engines["post"].run("abc")) == {8}
    assert set(engines) == {"mail", "post", "risk"}


def test_hidden_files_and_folders_are_not_looked_at(folder, model, log):
    write(folder / "..2" / "mail.table.pcdc", 9, "mail")
    write_atomic(folder / ".half.pcdc", b"half")
    with load(folder, model, reload=True) as engines:
        assert set(engines) == {"mail", "risk"}
    assert not log.records


def test_threads_that_ask_for_a_new_name_at_once_get_one_engine(engines, folder):
    write(folder / "late.table.pcdc", 4, "late")
    start = threading.Barrier(8)

    def ask(_):
        start.wait(20)
        return engines["late"]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1


def test_a_callback_on_the_owner_thread_may_ask_for_a_new_name(engines, folder):
    write(folder / "late.table.pcdc", 4, "late")
    answered, done = [], threading.Event()

    def ask(_):
        answered.append(engines["late"].run("abc"))
        done.set()

    engines["mail"].submit("abc").add_done_callback(ask)
    len(engines)
    assert done.wait(20)
    assert numbers(answered[0]) == {4}


def test_a_model_that_is_missing_now_is_asked_for_again(folder, log):
    with load(folder, reload=True) as engines:
        assert set(engines) == set()
        assert "PCDC401" in log.records[0].getMessage()
        assert len(log.records) == 4


def test_a_closed_folder_closes_its_engines_and_opens_no_more(folder, model):
    engines = load(folder, model, reload=True)
    mail = engines["mail"]
    engines.close()
    with pytest.raises(EngineClosedError):
        mail.run("abc")
    write(folder / "late.table.pcdc", 4, "late")
    assert "late" not in engines


def test_a_folder_is_refused_without_reload(folder, model):
    with pytest.raises(ArtifactError, match="is a folder"):
        load(folder, model)


def test_a_file_that_breaks_its_reader_hides_no_other_and_is_told_once(folder, model, log, monkeypatch):
    read = codec.loads

    def breaks(data, subject):
        if subject.endswith("mail.table.pcdc"):
            raise OverflowError("no luck")
        return read(data, subject)

    monkeypatch.setattr(codec, "loads", breaks)
    with load(folder, model, reload=True) as engines:
        assert set(engines) == {"risk"}
        assert set(engines) == {"risk"}
    assert [record.getMessage() for record in log.records] == [f"{folder / 'mail.table.pcdc'} cannot be used"]
