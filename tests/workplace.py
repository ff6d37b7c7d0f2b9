"""Where builds are tortured: sources in versions, children without rights, a reader, small disks."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from families import family_folder
from pcdc_runtime.codec import read
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.models import DEFAULT
from pcdc_runtime.storage import write_atomic
from typer.testing import CliRunner

from pcdc.build import build
from pcdc.cli import app

MODEL = str(family_folder("smollm2"))
SIZES = (2, 3, 10, 20, 60, 120)
VERSIONS = 3
NOBODY = 54_321
"""A user number without an entry in the list of users, as containers have them."""
FORK = multiprocessing.get_context("fork")
IS_ROOT = os.geteuid() == 0


@dataclass
class Place:
    """Sources, output, cache, and what whole builds of each version gave: file name to digest."""

    top: Path
    whole: list[dict[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def schemas(self) -> Path:
        return self.top / "schemas"

    @property
    def out(self) -> Path:
        return self.top / "out"

    @property
    def cache(self) -> Path:
        return self.top / "cache"

    def set_version(self, version: int) -> None:
        """Rewrite every source; all artifacts are stale then."""
        for number, size in enumerate(SIZES):
            choices = [f"team {number} {version} {n}" for n in range(size)]
            definition = {"team": {"type": "enum", "choices": choices, "description": "Which team?"}}
            write_atomic(self.schemas / f"schema{number}.json", json.dumps(definition).encode())

    def litter(self) -> list[str]:
        """Temporary files in the output folder and in the cache."""
        return [p.name for folder in (self.out, self.cache) for p in files(folder) if p.name.startswith(".")]

    def state(self, version: int, out: Path | None = None) -> str:
        """How far a build of `version` came: nothing, some or all of its artifacts."""
        there = {p.name: read(p).digest for p in files(out or self.out) if p.suffix == ".pcdc"}
        if there == self.whole[version]:
            return "all"
        strange = [n for n, digest in there.items() if digest not in [whole[n] for whole in self.whole]]
        self.fault(bool(strange), f"artifacts that no whole build gave: {strange}")
        return "some" if there.items() & self.whole[version].items() else "nothing"

    def fault(self, happened: bool, what: str) -> None:
        if happened:
            self.faults.append(what)


def files(folder: Path) -> list[Path]:
    """Every file below a folder."""
    return [p for p in folder.rglob("*") if p.is_file()]


def prepared(top: Path) -> Place:
    """The place, with what whole builds give; afterwards this process holds all that a build imports."""
    top.chmod(0o755)
    place = Place(top)
    os.environ["PCDC_CACHE"] = str(place.cache)
    for version in range(VERSIONS):
        place.set_version(version)
        out = top / "whole" / str(version)
        report = build([place.schemas], [MODEL], out)
        assert {t.outcome for t in report.targets} == {"built"}, report
        place.whole.append({p.name: read(p).digest for p in out.glob("*.pcdc")})
    # What the command line imports when it fails: a child without rights may be unable to read those files.
    (top / "file").touch()
    os.environ["PCDC_CACHE"] = str(top / "file")
    out = str(top / "file" / "out")
    for arguments in (["--model", MODEL], ["--model", DEFAULT], ["--unknown"]):
        CliRunner().invoke(app, ["build", str(place.schemas), "--out", out, *arguments])
    os.environ["PCDC_CACHE"] = str(place.cache)
    return place


def forked(job: Callable[[], object]) -> int:
    """The id of a child that does the job and exits with 0, or with 1 where it raised."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        job()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def exit_code(child: int) -> int:
    """Waits for a child; minus the signal where one ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass(frozen=True)
class Said:
    """What the command line answered."""

    code: int
    text: str

    def __str__(self) -> str:
        return f"exit {self.code}: {self.text[:600]!r}"


def pcdc(place: Place, *arguments: object, before: Callable[[], object] = lambda: None) -> Said:
    """The command line in a child of this process, after `before`, which may give up rights there."""
    path = place.top / "said"
    path.touch()

    def job() -> None:
        os.dup2(os.open(path, os.O_WRONLY | os.O_TRUNC), 1)
        os.dup2(1, 2)
        before()
        try:
            app([str(a) for a in arguments], prog_name="pcdc")
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(int(end.code or 0))

    code = exit_code(forked(job))
    return Said(code, path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Reads:
    """What a reader met so far."""

    loads: Synchronized[int]
    torn: Synchronized[int]

    def __str__(self) -> str:
        return f"{self.loads.value} loads meanwhile, {self.torn.value} torn"


@contextmanager
def reader(place: Place) -> Iterator[Reads]:
    """Loads every artifact of the output folder until the end; torn is what is neither whole nor absent."""
    loads, torn, stop = FORK.Value("q", 0), FORK.Value("q", 0), FORK.Event()
    known = {digest for whole in place.whole for digest in whole.values()}

    def loop() -> None:
        while not stop.is_set():
            # The folder itself is removed now and then.
            with suppress(FileNotFoundError):
                for path in place.out.glob("*.pcdc"):
                    try:
                        good = read(path).digest in known
                    except ArtifactError as error:
                        good = isinstance(error.__cause__, FileNotFoundError)
                    loads.value += 1
                    torn.value += not good
            time.sleep(0.005)

    process: ForkProcess = FORK.Process(target=loop)
    process.start()
    try:
        yield Reads(loads, torn)
    finally:
        stop.set()
        process.join()
        place.fault(torn.value > 0, f"{torn.value} loads of torn or strange artifacts")
        place.fault(process.exitcode != 0, "the reader failed")


@contextmanager
def small_disk(place: Place, options: str) -> Iterator[Path | None]:
    """A mounted file system of a few KiB; None where this user may not mount."""
    disk = place.top / "disk"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "pcdc-torture", str(disk)]
    if not IS_ROOT or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def drop_rights() -> None:
    """Go on as a user who owns nothing; without effect where this one may not."""
    if IS_ROOT:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def leave_home() -> None:
    """Go on as a user without a home folder, without any variable that names a cache."""
    for name in ("HOME", "XDG_CACHE_HOME", "PCDC_CACHE"):
        os.environ.pop(name, None)
    drop_rights()
    if not IS_ROOT:
        import pwd

        pwd.getpwuid = _unknown


def _unknown(number: int) -> Any:
    raise KeyError(number)
