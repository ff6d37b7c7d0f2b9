"""Whatever way a file is replaced, a request gets one whole artifact, and in the end the last one."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from fakes import TableModel, loaded, seeded
from pcdc_runtime import reload
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import load
from pcdc_runtime.storage import write_atomic
from versions import ATOMICALLY, IN_CHUNKS, numbers, version, written_by_another_process

DIGESTS = {version(number).digest: number for number in range(1, 10)}


@pytest.fixture
def model():
    with loaded(TableModel(seeded(1))) as model:
        yield model


@contextmanager
def following(path, model):
    with load(path, model, reload=True) as engine:
        assert numbers(engine.run("abc")) == {1}
        yield engine


def put(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dumps(version(number)))
    return path


def wait_for_the_clock(path):
    """Until a write leaves another time than that of the file."""
    probe = path.with_name("probe")
    probe.touch()
    while probe.stat().st_ctime_ns == path.stat().st_ctime_ns:
        probe.touch()


def test_a_file_overwritten_in_place_with_its_time_put_back(tmp_path, model, monkeypatch):
    """Field report 32."""
    monkeypatch.setattr(reload, "SETTLE_S", 0.0)
    path = put(tmp_path / "made.pcdc", 1)
    assert len(dumps(version(1))) == len(dumps(version(3)))
    times = path.stat()
    with following(path, model) as engine:
        wait_for_the_clock(path)
        with path.open("r+b") as file:
            file.write(dumps(version(3)))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert numbers(engine.run("abc")) == {3}


def test_a_file_renamed_away_and_made_again(tmp_path, model):
    """Field report 40."""
    path = put(tmp_path / "made.pcdc", 1)
    with following(path, model) as engine:
        for number in (2, 3, 4):
            path.replace(tmp_path / "made.pcdc~")
            assert numbers(engine.run("abc")) == {number - 1}
            put(path, number)
            assert numbers(engine.run("abc")) == {number}


def test_a_symbolic_link_set_to_another_file(tmp_path, model):
    files = [put(tmp_path / f"{number}.pcdc", number) for number in (1, 2)]
    path = tmp_path / "current"
    path.symlink_to(files[0])
    with following(path, model) as engine:
        for number in (2, 1, 2):
            beside = tmp_path / "beside"
            beside.symlink_to(files[number - 1])
            beside.replace(path)
            assert numbers(engine.run("abc")) == {number}


def test_a_mounted_folder_whose_inner_link_is_swapped(tmp_path, model):
    for number in (1, 2):
        put(tmp_path / f"..{number}" / "made.pcdc", number)
    (tmp_path / "..data").symlink_to("..1")
    path = tmp_path / "made.pcdc"
    path.symlink_to("..data/made.pcdc")
    with following(path, model) as engine:
        (tmp_path / "..beside").symlink_to("..2")
        (tmp_path / "..beside").replace(tmp_path / "..data")
        assert numbers(engine.run("abc")) == {2}


def test_a_folder_removed_and_made_again(tmp_path, model):
    path = put(tmp_path / "build" / "made.pcdc", 1)
    with following(path, model) as engine:
        path.unlink()
        path.parent.rmdir()
        assert numbers(engine.run("abc")) == {1}
        put(path, 2)
        assert numbers(engine.run("abc")) == {2}
        put(tmp_path / "next" / "made.pcdc", 3)
        path.parent.rename(tmp_path / "previous")
        (tmp_path / "next").rename(path.parent)
        assert numbers(engine.run("abc")) == {3}


@contextmanager
def unprivileged():
    """Nothing may be read here that its mode forbids, not even by root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_file_that_may_not_be_read_for_a_while(tmp_path, model):
    path = put(tmp_path / "made.pcdc", 1)
    with following(path, model) as engine:
        put(path, 2).chmod(0)
        with unprivileged():
            results = [engine.run("abc") for _ in range(3)]
        assert [numbers(result) for result in results] == [{1}] * 3
        reported = [warning for result in results for warning in result.warnings if "refused" in warning]
        assert [warning.rpartition("(")[2] for warning in reported] == ["Permission denied)"]
        path.chmod(0o600)
        assert numbers(engine.run("abc")) == {2}


@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_a_path_that_is_no_file_keeps_the_old_artifact(tmp_path, model, kind):
    path = put(tmp_path / "made.pcdc", 1)
    with following(path, model) as engine:
        path.unlink()
        path.mkdir() if kind == "folder" else path.symlink_to(path)
        assert numbers(engine.run("abc")) == {1}
        path.rmdir() if kind == "folder" else path.unlink()
        put(path, 2)
        assert numbers(engine.run("abc")) == {2}


@pytest.mark.parametrize(("write", "times"), [(ATOMICALLY, 100), (IN_CHUNKS, 40)], ids=["whole", "chunks"])
def test_requests_beside_a_writer_get_one_whole_version_each_and_the_last_in_the_end(
    tmp_path, model, write, times
):
    """Field reports 34 and 55."""
    for number in DIGESTS.values():
        put(tmp_path / "contents" / str(number), number)
    path = put(tmp_path / "made.pcdc", 1)
    ended = threading.Event()
    with following(path, model) as engine:

        def ask(thread):
            results = []
            while not ended.is_set():
                results.append(engine.run(f"context {thread}"))
            return results

        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask, thread) for thread in range(8)]
            writer = written_by_another_process(write, tmp_path / "contents", path, times)
            assert writer.wait(60) == 0
            ended.set()
            results = [result for thread in asking for result in thread.result()]
        last = engine.run("abc")
        assert numbers(last) == {(times - 1) % len(DIGESTS) + 1}
        assert last.artifact_digest == engine.artifact.digest
    assert all(numbers(result) == {DIGESTS[result.artifact_digest]} for result in results)
    assert len({result.artifact_digest for result in results}) > 1
    if write is ATOMICALLY:
        assert not any("refused" in warning for result in results for warning in result.warnings)


def test_answers_beside_a_writer_are_those_of_the_version_alone(tmp_path, model):
    path = put(tmp_path / "made.pcdc", 1)
    with following(path, model) as engine:
        alone = {}
        for digest, number in DIGESTS.items():
            write_atomic(path, dumps(version(number)))
            alone[digest] = engine.run("abc").answers
        with ThreadPoolExecutor(8) as pool:
            results = []
            for number in (*DIGESTS.values(), *DIGESTS.values()):
                asked = [pool.submit(engine.run, "abc") for _ in range(4)]
                write_atomic(path, dumps(version(number)))
                results += [future.result() for future in asked]
    assert all(result.answers == alone[result.artifact_digest] for result in results)


def test_a_pipe_in_the_files_place_keeps_the_old_artifact_and_nobody_waits(tmp_path, model):
    path = put(tmp_path / "made.pcdc", 1)
    with following(path, model) as engine:
        path.unlink()
        os.mkfifo(path)
        answer = engine.run("abc")
        assert numbers(answer) == {1}
        assert any("is not a regular file" in warning for warning in answer.warnings)
        path.unlink()
        put(path, 2)
        assert numbers(engine.run("abc")) == {2}
