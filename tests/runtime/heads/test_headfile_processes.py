"""Head files of several processes and models."""

import signal
import subprocess
import sys

from command_line import ENVIRONMENT
from fakes import WIDTH
from head_files import (
    HEAD,
    answered,
    kept,
    log_scores,
    only,
    opened,
    restored,
    ticket,
)
from pcdc_runtime.codec import dumps
from pcdc_runtime.headfile import HeadFiles
from seeded import write_folder


def test_weights_that_are_replaced_under_a_running_model_are_not_taken_for_its_own(tmp_path):
    folder = write_folder(tmp_path / "model", "llama", vocab_size=WIDTH)
    heads = HeadFiles(tmp_path / "heads")
    with opened(folder) as old:
        write_folder(folder, "llama", seed=1, vocab_size=WIDTH)
        kept(old, heads, HEAD)
        assert not heads.folder.exists()
        assert not heads.notes
        expected = answered(folder, heads)
        assert not restored(old, heads, HEAD)
    assert log_scores(answered(folder, heads)) == log_scores(expected)


WRITER = """
import os, signal, sys
from pcdc_runtime import headfile, load
headfile.SAVING_S = -1e9
if sys.argv[3:] == ["die"]:
    def write(file, *_):
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    headfile._write = write
with load(sys.argv[1], sys.argv[2], head_cache=True) as engine:
    print(repr(engine.run("No invoice.").answers[0].log_scores))
"""


def writer(tmp_path, tiny, *more):
    path = tmp_path / "ticket.pcdc"
    if not path.exists():
        path.write_bytes(dumps(ticket("OPS", "SALES")))
    command = [sys.executable, "-c", WRITER, str(path), str(tiny), *more]
    environment = {**ENVIRONMENT, "PCDC_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_writers_that_are_killed_or_meet_do_no_harm(tmp_path, tiny):
    with writer(tmp_path, tiny, "die") as killed:
        killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert only(tmp_path / "cache" / "heads").name.startswith(".")
    processes = [writer(tmp_path, tiny) for _ in range(2)]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    path = only(tmp_path / "cache" / "heads")
    assert not path.name.startswith(".")
    number = path.stat().st_ino
    with writer(tmp_path, tiny) as process:
        said.append(process.communicate()[0])
    assert path.stat().st_ino == number
    assert len(set(said)) == 1
