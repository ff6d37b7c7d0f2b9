"""Where artifacts go: names that every disk takes, files that are whole or not there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path, PurePath

import pytest
from command_line import ENVIRONMENT
from hypothesis import example, given
from hypothesis import strategies as st
from pcdc_runtime.storage import sweep, write_atomic

from pcdc import output


def names_in(folder):
    return [path.name for path in folder.iterdir()]


HOSTILE = [
    "../../x",
    "a/b",
    "CON",
    "con",
    "nul.v2",
    "x" * 300,
    "é",
    "e\u0301",
    "..",
    ".",
    "",
    "-rf",
    "开心",
    "a\0b",
]


@pytest.mark.parametrize("plain", ["support", "support.v2", "a_b-c", "qwen2.5-1.5b", "console"])
def test_a_plain_name_stays_as_it_is(plain):
    assert output.safe_part(plain) == plain


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_becomes_a_safe_component(name):
    """Field report 36."""
    part = output.safe_part(name)
    assert re.fullmatch(r"[a-z0-9_][a-z0-9._-]*-[0-9a-f]{8}", part)
    assert len(part) <= 100
    assert part.split(".")[0] not in output.RESERVED


def test_names_that_reduce_to_the_same_stay_apart_even_without_case():
    names = [*HOSTILE, "risk", "Risk", "RISK", "risk ", "r?sk", "r*sk"]
    assert len({output.safe_part(name).lower() for name in names}) == len(names)


@given(st.text(max_size=200), st.text(max_size=60), st.lists(st.text(min_size=1), max_size=3))
@example(".", "", [])
def test_no_name_leaves_the_output_folder(schema, model, folders):
    """Field report 36."""
    parts = [p.replace("/", "|").replace("\0", "|") for p in [*folders, schema or "x"]]
    (name,) = output.artifact_names([(PurePath(*parts), model, "source")])
    assert not name.is_absolute()
    assert ".." not in name.parts
    assert all(re.fullmatch(r"[a-z0-9._-]{1,255}", part) for part in name.parts)


def test_subfolders_are_mirrored():
    (name,) = output.artifact_names([(PurePath("teams/emea/support"), "smollm2-135m", "s")])
    assert name == PurePath("teams/emea/support.smollm2-135m.pcdc")


def test_names_that_meet_at_the_dot_are_kept_apart():
    names = output.artifact_names([(PurePath("a.b"), "c", "one"), (PurePath("a"), "b.c", "two")])
    assert len(set(names)) == 2
    assert PurePath("a.b.c.pcdc") not in names


def test_one_file_name_in_two_folders_gives_two_artifacts():
    names = output.artifact_names([(PurePath("x"), "m", "a/x.json"), (PurePath("x"), "m", "b/x.json")])
    assert len(set(names)) == 2


def test_writing_replaces_the_whole_file_and_leaves_no_litter(tmp_path):
    path = tmp_path / "deep" / "a.pcdc"
    write_atomic(path, b"first")
    write_atomic(path, b"2")
    assert path.read_bytes() == b"2"
    assert names_in(path.parent) == ["a.pcdc"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_file_gets_the_rights_that_the_umask_allows(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "a.pcdc", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a.pcdc").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_any_step_keeps_the_old_file_and_removes_the_new(tmp_path, monkeypatch, step):
    path = tmp_path / "a.pcdc"
    write_atomic(path, b"old")

    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.pcdc"]


def test_a_real_write_that_hits_a_limit_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.pcdc"
    write_atomic(path, b"old")
    script = (
        "import resource, pathlib\nfrom pcdc_runtime.storage import write_atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"write_atomic(pathlib.Path({str(path)!r}), b'n' * 5000)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True)
    assert "OSError" in done.stderr
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.pcdc"]


def test_a_killed_writer_leaves_only_what_the_next_sweep_removes(tmp_path):
    """Field report 34."""
    path = tmp_path / "a.pcdc"
    write_atomic(path, b"old")
    script = (
        "import os, pathlib, time\nfrom pcdc_runtime.storage import write_atomic\n"
        "os.fsync = lambda _: (print('writing', flush=True), time.sleep(60))\n"
        f"write_atomic(pathlib.Path({str(path)!r}), b'new')"
    )
    with subprocess.Popen([sys.executable, "-c", script], env=ENVIRONMENT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        sweep(tmp_path)
        in_use = len(names_in(tmp_path))
        writer.kill()
    assert in_use == 2
    assert len(names_in(tmp_path)) == 2
    sweep(tmp_path)
    assert names_in(tmp_path) == ["a.pcdc"]
    assert path.read_bytes() == b"old"


def test_a_writer_whose_temporary_file_was_swept_makes_another(tmp_path, monkeypatch):
    lock, swept = fcntl.flock, []

    def sweep_first(descriptor, operation):
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    write_atomic(tmp_path / "a.pcdc", b"whole")
    assert swept
    assert (tmp_path / "a.pcdc").read_bytes() == b"whole"
    assert names_in(tmp_path) == ["a.pcdc"]


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path):
    path = tmp_path / "a.pcdc"
    script = (
        "import sys, pathlib\nfrom pcdc_runtime.storage import sweep, write_atomic\n"
        "for _ in range(20):\n"
        f"    sweep(pathlib.Path({str(tmp_path)!r}))\n"
        f"    write_atomic(pathlib.Path({str(path)!r}), sys.argv[1].encode() * 10000)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(n)], env=ENVIRONMENT) for n in range(6)]
    seen = set()
    while any(w.poll() is None for w in writers):
        if path.exists():
            data = path.read_bytes()
            seen.add((len(data), len(set(data))))
        time.sleep(0.01)
    assert [w.returncode for w in writers] == [0] * 6
    assert seen <= {(10000, 1)}
    assert names_in(tmp_path) == ["a.pcdc"]


def test_log_lines_are_only_appended(tmp_path):
    output.append_log(tmp_path / "out", {"reason": "there is no artifact yet"})
    output.append_log(tmp_path / "out", {"reason": "é"})
    lines = (tmp_path / "out" / output.LOG_NAME).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["there is no artifact yet", "é"]


def test_the_log_never_outgrows_its_limit_and_keeps_its_latest_past(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "MAX_LOG", 200)
    for number in range(100):
        output.append_log(tmp_path, {"number": number})
    kept = [(tmp_path / name).read_text("utf-8") for name in (output.OLD_LOG_NAME, output.LOG_NAME)]
    assert all(len(text) < 200 + len('{"number": 99}\n') + 1 for text in kept)
    lines = "".join(kept).splitlines()
    assert lines[-1] == '{"number": 99}'
    assert lines == [f'{{"number": {n}}}' for n in range(100 - len(lines), 100)]


def test_a_pipe_in_the_logs_place_is_an_error_and_nobody_waits(tmp_path):
    os.mkfifo(tmp_path / output.LOG_NAME)
    with pytest.raises(OSError, match="No such device"):
        output.append_log(tmp_path, {"number": 1})
