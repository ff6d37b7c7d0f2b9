"""An engine that follows an artifact and the calibration beside it: one pair at a time, read as it was."""

import json
import logging
import subprocess
import sys
from functools import cache
from time import monotonic

import pytest
from fakes import TableModel, loaded, make_artifact, seeded, spelled
from fitted import calibration, fitted
from pcdc_runtime import calibration as calibration_file
from pcdc_runtime import codec, reload
from pcdc_runtime.calibration import calibration_path
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import Engine, load
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.storage import write_atomic
from versions import numbers, version


@cache
def fitting(number, temperature=None):
    """What was fitted to both fields of a version."""
    heat = temperature or 1 + number / 10
    made = version(number)
    return calibration(made, *(fitted(made, name, "temperature", heat) for name in ("team", "level")))


@pytest.fixture
def shared():
    with loaded(TableModel(seeded(1))) as shared:
        yield shared


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "made.table.pcdc"
    put(path, version(1), fitting(1))
    return path


@pytest.fixture
def engine(path, shared):
    with load(path, shared, reload=True) as engine:
        yield engine


def put(path, artifact=None, fitted_to=None):
    if artifact is not None:
        write_atomic(path, dumps(artifact))
    if fitted_to is not None:
        calibration_file.write(calibration_path(path), fitted_to)


def applied(result):
    return {answer.calibration and answer.calibration.id for answer in result.answers}


def ids(fitted_to):
    return {fitted_to.id_of(field.name) for field in fitted_to.fields}


def refusals(result):
    return [warning for warning in result.warnings if warning.startswith("reload_refused")]


def fresh(artifact, fitted_to):
    with Engine(artifact, loaded(TableModel(seeded(1))), calibration=fitted_to) as engine:
        return engine.run("abc").answers


def test_a_new_calibration_alone_answers_the_next_request(engine, path):
    assert applied(engine.run("abc")) == ids(fitting(1))
    put(path, None, fitting(1, 9.0))
    result = engine.run("abc")
    assert applied(result) == ids(fitting(1, 9.0)) != ids(fitting(1))
    assert result.answers == fresh(version(1), fitting(1, 9.0))
    assert engine.calibration == fitting(1, 9.0)


def test_a_calibration_that_appears_or_goes_away_is_noticed(engine, path):
    for _ in range(2):
        calibration_path(path).unlink()
        result = engine.run("abc")
        assert (applied(result), result.warnings) == ({None}, ("uncalibrated",))
        assert engine.run("abc").answers == result.answers == fresh(version(1), None)
        put(path, None, fitting(1))
        assert applied(engine.run("abc")) == ids(fitting(1))


def test_a_new_artifact_alone_keeps_what_was_fitted_to_fields_that_stayed(path, shared):
    before = make_artifact({"team": spelled("ops", "law"), "level": spelled("low", "high")})
    after = make_artifact({"team": spelled("ops", "law"), "level": spelled("low", "high", "top")})
    old = calibration(before, *(fitted(before, name, "temperature", 3.0) for name in ("team", "level")))
    put(path, before, old)
    with load(path, shared, reload=True) as engine:
        assert None not in applied(engine.run("abc"))
        put(path, after)
        result = engine.run("abc")
    assert result.artifact_digest == after.digest
    assert result.fields["team"].calibration.id == old.id_of("team")
    assert result.fields["level"].calibration_dropped


def test_a_damaged_calibration_keeps_the_pair_in_use_and_is_told_once(engine, path, caplog):
    before = engine.run("abc")
    with caplog.at_level(logging.WARNING, "pcdc_runtime"):
        calibration_path(path).write_bytes(b"{")
        first, later = engine.run("abc"), engine.run("abc")
        put(path, version(2))
        with_new_artifact = engine.run("abc")
    assert [len(refusals(result)) for result in (first, later, with_new_artifact)] == [1, 0, 0]
    assert "strict JSON" in refusals(first)[0]
    for result in (first, later, with_new_artifact):
        assert result.answers == before.answers
        assert result.artifact_digest == version(1).digest
    assert len(caplog.records) == 1
    put(path, None, fitting(2))
    result = engine.run("abc")
    assert numbers(result) == {2}
    assert applied(result) == ids(fitting(2))
    assert not refusals(result)


@pytest.mark.parametrize("kind", [OverflowError, RecursionError, MemoryError, KeyError])
@pytest.mark.parametrize("step", ["_artifact _read", "_artifact _parse", "_calibration _parse", "bind"])
def test_whatever_taking_a_pair_raises_the_old_one_answers_and_it_is_told_once(
    engine, path, monkeypatch, step, kind
):
    def fails(*_, **__):
        raise kind("no luck")

    before = engine.run("abc")
    file, _, name = step.rpartition(" ")
    with monkeypatch.context() as failing:
        failing.setattr(getattr(engine._source._file, file) if file else reload, name, fails)
        put(path, version(2), fitting(2))
        results = [engine.run("abc") for _ in range(3)]
    assert [len(refusals(result)) for result in results] == [1, 0, 0]
    assert "no luck" in refusals(results[0])[0]
    assert all(result.answers == before.answers for result in results)
    put(path, version(3), fitting(3))
    assert applied(engine.run("abc")) == ids(fitting(3))


def test_a_number_larger_than_any_float_keeps_the_pair_in_use(engine, path):
    before = engine.run("abc")
    body = json.loads(calibration_path(path).read_bytes())
    body["fields"][0]["before"] = {"rows": 1, "accuracy": 1, "log_loss": 10**400, "brier": 0, "ece": 0}
    calibration_path(path).write_text(json.dumps(body))
    results = [engine.run("abc") for _ in range(2)]
    assert [len(refusals(result)) for result in results] == [1, 0]
    assert all(result.answers == before.answers for result in results)
    put(path, None, fitting(1, 9.0))
    assert applied(engine.run("abc")) == ids(fitting(1, 9.0))


def test_an_interrupted_look_forgets_nothing(engine, path, monkeypatch):
    """What broke off is read again: no old content under a new name."""

    def interrupted(_):
        raise KeyboardInterrupt

    file = engine._source._file
    with monkeypatch.context() as breaking:
        breaking.setattr(file._artifact, "_parse", interrupted)
        put(path, version(2), fitting(2))
        with pytest.raises(KeyboardInterrupt):
            file.changed()
    assert numbers(engine.run("abc")) == {2}


def restless_files(monkeypatch):
    """Let every reading of an artifact replace the pair behind it; gives the paths read so far."""
    read, counted = codec.read_bytes, []

    def never_still(path):
        data = read(path)
        counted.append(path)
        number = 2 + len(counted) % 2
        put(path, version(number), fitting(number))
        return data

    monkeypatch.setattr(codec, "read_bytes", never_still)
    return counted


def test_files_that_never_rest_are_not_loaded_at_first(path, shared, monkeypatch):
    with monkeypatch.context() as restless:
        restless_files(restless)
        for following in (False, True):
            with pytest.raises(ArtifactError, match="replaced all the time"):
                load(path, shared, reload=following)
    with load(path, shared) as engine:
        assert numbers(engine.run("abc")) <= {2, 3}


def test_a_calibration_whose_biases_do_not_fit_keeps_the_pair_in_use(engine, path):
    made = version(1)
    put(path, None, calibration(made, fitted(made, "team", "bias", 1.0, [0.0, 1.0])))
    result = engine.run("abc")
    assert "2 biases for the 4 choices" in refusals(result)[0]
    assert applied(result) == ids(fitting(1))


def test_a_damaged_artifact_keeps_the_old_one_with_its_calibration(engine, path):
    put(path, None, fitting(2))
    write_atomic(path, b"")
    result = engine.run("abc")
    assert numbers(result) == {1}
    assert (applied(result), len(refusals(result))) == (ids(fitting(1)), 1)
    put(path, version(2))
    assert applied(engine.run("abc")) == ids(fitting(2))


def test_a_pair_that_is_replaced_while_it_is_read_is_read_again(path, shared, monkeypatch):
    read, coming = codec.read_bytes, [2, 3]

    def replaced_behind(path):
        data = read(path)
        if coming:
            number = coming.pop(0)
            put(path, version(number), fitting(number))
        return data

    monkeypatch.setattr(codec, "read_bytes", replaced_behind)
    with load(path, shared, reload=True) as engine:
        assert (engine.artifact, engine.calibration) == (version(3), fitting(3))
        coming += [4, 5, 6]
        put(path, version(1))
        result = engine.run("abc")
        assert numbers(result) == {6}
        assert applied(result) == ids(fitting(6))


def test_files_that_never_rest_leave_the_pair_in_use_until_they_do(engine, path, monkeypatch):
    with monkeypatch.context() as restless:
        counted = restless_files(restless)
        put(path, version(4))
        assert numbers(engine.run("abc")) == {1}
    assert len(counted) == reload.LOOKS
    put(path, version(2), fitting(2))
    assert applied(engine.run("abc")) == ids(fitting(2))


def test_files_that_stay_are_read_no_more_once_their_stamps_are_old(engine, path, monkeypatch):
    monkeypatch.setattr(reload, "SETTLE_S", 0.0)
    reads = []
    for module in (codec, calibration_file):
        read = module.read_bytes
        monkeypatch.setattr(module, "read_bytes", lambda path, read=read: reads.append(path) or read(path))
    bound = engine._source.bound
    for _ in range(5):
        engine.run("abc")
    assert reads.count(path) == 1
    assert engine._source.bound is bound


def test_without_calibration_the_file_beside_is_never_looked_at(path, shared, monkeypatch):
    def touched(_):
        raise AssertionError("the file was looked at")

    monkeypatch.setattr(calibration_file, "read_bytes", touched)
    for following in (False, True):
        with load(path, shared, reload=following, calibration=False) as engine:
            assert applied(engine.run("abc")) == {None}


def test_the_engines_of_a_folder_follow_calibrations_too(path, shared):
    with load(path.parent, shared, reload=True) as engines:
        engine = engines["made"]
        assert applied(engine.run("abc")) == ids(fitting(1))
        put(path, version(2), fitting(2))
        assert applied(engine.run("abc")) == ids(fitting(2))
    with load(path.parent, shared, reload=True, calibration=False) as engines:
        assert applied(engines["made"].run("abc")) == {None}


WRITER = """
import sys, time
from pathlib import Path
folder, path, stop = map(Path, sys.argv[1:])
count = len(list(folder.iterdir())) // 2
def put(target, data):
    {write}
turn = 0
while turn % count or not stop.exists():
    number = 1 + turn % count
    put(path, (folder / f"{{number}}.pcdc").read_bytes())
    time.sleep(0.001 * (turn % 3))
    put(path.with_name(path.name + ".calibration.json"), (folder / f"{{number}}.json").read_bytes())
    time.sleep(0.001 * (turn % 5))
    turn += 1
"""
WAYS = {
    "atomically": """
    beside = target.with_name("beside.tmp")
    beside.write_bytes(data)
    beside.replace(target)
""",
    "in chunks": """
    with target.open("wb", buffering=0) as file:
        for start in range(0, len(data), len(data) // 4):
            file.write(data[start : start + len(data) // 4])
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_answer_mixes_pairs_that_another_process_writes_in_turn(engine, path, tmp_path, way):
    contents = tmp_path / "contents"
    contents.mkdir()
    for number in (1, 2, 3, 4):
        (contents / f"{number}.pcdc").write_bytes(dumps(version(number)))
        (contents / f"{number}.json").write_bytes(calibration_file.dumps(fitting(number)))
    digests = {version(number).digest: number for number in (1, 2, 3, 4)}
    script, stop = WRITER.format(write=WAYS[way].strip()), tmp_path / "stop"
    seen, calibrated, deadline = set(), set(), monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", script, str(contents), str(path), str(stop)]) as writer:
        while monotonic() < deadline and (len(seen) < 3 or len(calibrated) < 6):
            for _ in range(50):
                result = engine.run("abc")
                number = digests[result.artifact_digest]
                assert numbers(result) == {number}
                assert applied(result) in (ids(fitting(number)), {None})
                seen.add(number)
                calibrated |= applied(result)
        stop.touch()
    assert writer.returncode == 0
    assert len(seen) >= 3
    assert len(calibrated) >= 6
    last = engine.run("abc")
    assert (numbers(last), applied(last)) == ({4}, ids(fitting(4)))
    assert last.answers == fresh(version(4), fitting(4))
