"""Nothing in the folder of head files, and no failure to write there, can harm an answer."""

import os

import numpy as np
import pytest
from head_files import (
    ARTIFACT,
    CONTEXT,
    HEAD,
    answered,
    log_scores,
    notes,
    only,
    opened,
    restored,
)
from pcdc_runtime import headfile
from pcdc_runtime.engine import Engine
from pcdc_runtime.headfile import HeadFiles, head_files


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def halved(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def lengthened(path):
    path.write_bytes(path.read_bytes() + b"\0")


def replaced(old, new):
    def replace(path):
        data = path.read_bytes()
        assert data.count(old) >= 1
        path.write_bytes(data.replace(old, new, 1))

    return replace


def flipped(place):
    def flip(path):
        data = bytearray(path.read_bytes())
        data[place(data)] ^= 1
        path.write_bytes(data)

    return flip


def huge_header(path):
    path.write_bytes((2**60).to_bytes(8, "little") + path.read_bytes()[8:])


def foreign(path):
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def pickled(path):
    # Whoever unpickled this would end the process.
    path.write_bytes(b"cos\n_exit\n(I1\ntR.".ljust(path.stat().st_size, b"."))


def not_a_number(path):
    data = path.read_bytes()
    path.write_bytes(data[:-4] + np.float32("nan").tobytes())


def linked(path):
    copy = path.with_name("copy")
    path.rename(copy)
    path.symlink_to(copy)


def piped(path):
    path.unlink()
    os.mkfifo(path)


def header_end(data):
    return 8 + int.from_bytes(data[:8], "little")


DAMAGES = {
    "cut": cut,
    "halved": halved,
    "emptied": emptied,
    "lengthened": lengthened,
    "length of the header": flipped(lambda data: 0),
    "header": flipped(lambda data: header_end(data) // 2),
    "first number": flipped(header_end),
    "last number": flipped(lambda data: len(data) - 1),
    "huge header": huge_header,
    "other shape": replaced(b"[1,2,", b"[2,1,"),
    "other type": replaced(b'"F32"', b'"I32"'),
    "other digest": replaced(b'"content":"', b'"content":"0'),
    "other offsets": replaced(b'"data_offsets":[0,', b'"data_offsets":[1,'),
    "other name": replaced(b"layers.1.keys", b"layers.9.keys"),
    "not a number": not_a_number,
    "foreign": foreign,
    "pickle": pickled,
    "link": linked,
    "pipe": piped,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_told_of_once_and_replaced(folder, tmp_path, run_tokens, damage):
    good = answered(folder, HeadFiles(tmp_path))
    path = only(tmp_path)
    whole = path.read_bytes()
    damage(path)
    with Engine(ARTIFACT, opened(folder), heads=HeadFiles(tmp_path)) as engine:
        results = [engine.run(CONTEXT) for _ in range(2)]
    assert [log_scores(result) for result in results] == [log_scores(good)] * 2
    assert [len(notes(result)) for result in results] == [1, 0]
    assert str(path) in notes(results[0])[0]
    assert not path.is_symlink()
    assert path.read_bytes() == whole
    run_tokens.clear()
    assert not notes(answered(folder, HeadFiles(tmp_path)))
    assert len(HEAD) not in run_tokens


def test_a_folder_in_a_files_place_costs_a_warning_only(folder, tmp_path):
    good = answered(folder, HeadFiles(tmp_path))
    path = only(tmp_path)
    path.unlink()
    path.mkdir()
    result = answered(folder, HeadFiles(tmp_path))
    assert notes(result)
    assert log_scores(result) == log_scores(good)
    assert only(tmp_path).is_dir()


def test_a_damaged_file_leaves_no_number_behind(folder, tmp_path):
    """What was read before the damage showed is not what a later request attends to."""
    good = answered(folder, HeadFiles(tmp_path))
    not_a_number(only(tmp_path))
    heads = HeadFiles(tmp_path)
    with opened(folder) as model:
        assert not restored(model, heads, HEAD)
        with Engine(ARTIFACT, model.share(), heads=heads) as engine:
            assert log_scores(engine.run(CONTEXT)) == log_scores(good)


def test_where_nothing_can_be_written_the_answer_is_given_with_a_warning(folder, tmp_path):
    (tmp_path / "file").touch()
    result = answered(folder, HeadFiles(tmp_path / "file" / "heads"))
    (note,) = notes(result)
    assert "cannot be written" in note
    assert "PCDC_CACHE" in note
    assert log_scores(result) == log_scores(answered(folder, None))


def test_a_full_disk_costs_a_warning_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(file, *_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(headfile, "_write", full)
    result = answered(folder, HeadFiles(tmp_path))
    assert "No space left on device); free some space" in notes(result)[0]
    assert not list(tmp_path.iterdir())
    assert log_scores(result) == log_scores(answered(folder, None))


def test_a_user_without_a_home_has_no_head_files(monkeypatch):
    def homeless():
        raise FileNotFoundError

    monkeypatch.setattr(headfile, "cache_dir", homeless)
    assert head_files(True) is None
