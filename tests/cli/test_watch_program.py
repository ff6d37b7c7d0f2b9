"""`pcdc watch` as people run it: a process, its two streams, its end, what it costs while nothing happens."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time

import pytest
from command_line import ENVIRONMENT, PROGRAM
from families import family_folder
from watched import LONG, choices

MODEL = str(family_folder("smollm2"))
GOOD = '{"team": {"type": "enum", "choices": ["A", "%s"], "description": "Which?"}}'


class Running:
    """A process whose lines can be waited for."""

    def __init__(self, *arguments):
        command = [*PROGRAM, "watch", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines, self.notes = queue.Queue(), []
        streams = (self.process.stdout, self.lines.put), (self.process.stderr, self.notes.append)
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in streams]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(stream, put):
        for line in stream:
            put(line)

    def line(self):
        return self.lines.get(timeout=LONG)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LONG)

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rpartition(")")[2].split()  # noqa: PTH123, SIM115
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "schemas" / "support.json"
    path.parent.mkdir()
    path.write_text(GOOD % "B")
    return path


@pytest.fixture
def run(source, tmp_path):
    started = []

    def go(*more):
        started.append(Running(source.parent, "--model", MODEL, "--out", tmp_path / "out", *more))
        return started[-1]

    yield go
    for one in started:
        one.process.kill()
        one.process.wait(LONG)


def test_each_event_is_one_line_and_ctrl_c_ends_it_with_130(run, source, tmp_path):
    """Field reports 42 and 57."""
    program = run()
    artifact = tmp_path / "out" / "support.smollm2.pcdc"
    assert program.line().startswith(f"start: built {artifact} (there is no artifact yet)")
    source.write_text(GOOD % "C")
    line = program.line()
    assert line.startswith(
        f"{source}: built {artifact} (the schema changed: field team: choice 'B' removed, "
    )
    source.write_text("{")
    assert program.line().startswith(f"{source}: kept {artifact} (the schema has errors; the last good")
    assert program.interrupt() == 130
    assert program.lines.empty()
    assert choices(artifact) == ["A", "C"]
    notes = "".join(program.notes)
    assert notes.count("error[PCDC105]") == 1
    assert "Traceback" not in notes


def test_sigterm_ends_it_as_cleanly_with_143(run, tmp_path):
    program = run()
    program.line()
    before = sorted((tmp_path / "out").rglob("*"))
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(LONG) == 143
    program.readers[1].join(LONG)
    assert program.notes[-1] == "terminated\n"
    assert "Traceback" not in "".join(program.notes)
    assert sorted((tmp_path / "out").rglob("*")) == before


@pytest.mark.parametrize("more", [[], ["--poll", "0.2"]], ids=["events", "poll"])
def test_json_events_are_lines_of_json_and_nothing_else(run, source, more):
    """Field report 57."""
    program = run("--json", *more)
    assert json.loads(program.line())["event"] == "start"
    source.write_text("{")
    broken = json.loads(program.line())
    assert [d["code"] for d in broken["diagnostics"]] == ["PCDC105"]
    assert "last good artifact stays" in broken["kept"][0]["reason"]
    source.write_text(GOOD % "C")
    mended = json.loads(program.line())
    assert mended["changed"] == [str(source)]
    assert [t["outcome"] for t in mended["targets"]] == ["built"]
    assert program.interrupt() == 130


def test_waiting_costs_no_processor_time(run):
    """Field report 41."""
    program = run()
    program.line()
    before = program.cpu_seconds()
    time.sleep(3)
    assert program.cpu_seconds() - before < 0.15


def test_a_model_that_is_not_there_exits_2(pcdc, source, tmp_path):
    done = pcdc("watch", source, "--model", tmp_path / "none")
    assert (done.exit_code, "error[PCDC401]" in done.stderr) == (2, True)


def test_an_interval_of_nothing_is_refused(pcdc, source):
    assert pcdc("watch", source, "--poll", "0").exit_code == 2
