"""Torture of builds: killed at any moment, raced, starved of space, rights and a home; nothing may be torn.

Run as a program it prints its counts, and exits with 1 where anything happened that must not. A reader loads
every artifact of the output folder again and again while writers are killed: each is absent or one of the
artifacts that whole builds gave.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from command_line import ENVIRONMENT, PROGRAM
from pcdc_runtime.models import DEFAULT
from workplace import (
    IS_ROOT,
    MODEL,
    VERSIONS,
    Place,
    Said,
    drop_rights,
    exit_code,
    files,
    forked,
    leave_home,
    pcdc,
    prepared,
    reader,
    small_disk,
)

from pcdc.build import build


def _started(place: Place) -> int:
    command = [*PROGRAM, "build", str(place.schemas), "--model", MODEL, "--out", str(place.out)]
    environment = {**ENVIRONMENT, "PCDC_CACHE": str(place.cache)}
    return os.posix_spawn(
        command[0], command, environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)],
    )  # fmt: skip


def _built(place: Place) -> int:
    return forked(lambda: build([place.schemas], [MODEL], place.out))


def kill_builds(place: Place, kills: int, rng: random.Random) -> None:
    """Kill builds at random moments: from the process's start on, from the call on, and while they write."""
    ways: dict[str, Callable[[Place], int]] = {"process": _started, "call": _built, "write": _built}
    spans = {}
    for version, way in enumerate(("process", "call")):
        place.set_version(version)
        started = time.perf_counter()
        exit_code(ways[way](place))
        spans[way] = time.perf_counter() - started
    ends: Counter[str] = Counter()
    with reader(place) as reads:
        number = 0
        while ends["killed"] < kills:
            way = "process" if number % 10 == 0 else ("call", "write")[number % 2]
            version = number % VERSIONS
            place.set_version(version)
            if number % 10 == 9:
                shutil.rmtree(place.out)
            (place.cache / "fingerprints.json").unlink(missing_ok=True)
            child = ways[way](place)
            if way == "write":
                _wait_for_a_writer(place, child)
                time.sleep(rng.choice([0, 0, rng.uniform(0, 0.001)]))
            else:
                time.sleep(rng.uniform(0, spans[way]))
            os.kill(child, signal.SIGKILL)
            killed = exit_code(child) == -signal.SIGKILL
            left = place.litter()
            if not killed:
                ends["over before"] += 1
            else:
                ends["killed"] += 1
                ends["in the middle of a write" if left else f"{place.state(version)} written"] += 1
            place.fault(exit_code(_built(place)) != 0, f"kill {number}: the build after it failed")
            place.fault(place.state(version) != "all", f"kill {number}: the build after it is not whole")
            litter = place.litter()
            ends["litter after the next build"] += len(litter)
            place.fault(bool(litter), f"kill {number}: litter {litter}")
            number += 1
        print(f"kill -9: {number} builds: {_counted(ends)}")
        print(f"         {reads}")
    lines = (place.out / "log.jsonl").read_text(encoding="utf-8").splitlines()
    torn = [line for line in lines if not _is_json(line)]
    print(f"         {len(lines)} lines of the build log since it was last removed, {len(torn)} torn")
    place.fault(bool(torn), f"torn log lines: {torn[:3]}")


def _wait_for_a_writer(place: Place, child: int) -> None:
    while not any(name.startswith(".") for name in _names(place.out) + _names(place.cache)):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return


def _names(folder: Path) -> list[str]:
    # Faster than a Path's own ways, and every microsecond counts here.
    try:
        return os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        return []


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def race(place: Place, processes: int, rounds: int) -> None:
    """Many processes build one folder from nothing while its sources change; in round 1 they start cold."""
    with reader(place) as reads:
        for number in range(rounds):
            shutil.rmtree(place.out, ignore_errors=True)
            shutil.rmtree(place.cache, ignore_errors=True)
            place.set_version(0)
            start = _started if number == 1 else _built
            children = [start(place) for _ in range(processes)]
            for version in (1, 2):
                time.sleep(0.1)
                place.set_version(version)
            codes = Counter(map(exit_code, children))
            place.fault(set(codes) != {0}, f"race {number}: exit codes {dict(codes)}")
            place.fault(exit_code(_built(place)) != 0, f"race {number}: the build after it failed")
            place.fault(place.state(2) != "all", f"race {number}: the build after it is not whole")
            place.fault(bool(place.litter()), f"race {number}: litter {place.litter()}")
        print(f"race: {rounds} rounds of {processes} processes on one folder; {reads}")


def fill_disks(place: Place, rng: random.Random, steps: int) -> None:
    """Builds with less space than they need: told, the old artifacts whole, and whole again with space."""
    place.set_version(0)
    sizes = [p.stat().st_size for p in (place.top / "whole" / "0").iterdir()]
    largest, need = max(sizes), sum(sizes)
    ends: Counter[str] = Counter()
    told = 0
    with small_disk(place, f"size={3 * need},mode=777") as disk:
        out = place.top / "limited" if disk is None else disk / "out"
        arguments = ("build", place.schemas, "--model", MODEL, "--out", out)
        for step in range(steps):
            (out / "log.jsonl").unlink(missing_ok=True)
            place.set_version(0)
            pcdc(place, *arguments)
            place.set_version(1)
            if disk is None:
                room = rng.randrange(1, 8000)
                said = pcdc(place, *arguments, before=lambda room=room: _limit(room))
            else:
                _fill(disk / "ballast", leaving=step * largest // steps)
                said = pcdc(place, *arguments)
                (disk / "ballast").unlink()
            told += _told(place, said, "PCDC611", "free some space" if disk else "--out")
            ends[f"{place.state(1, out)} written"] += 1
            left = [p.name for p in files(out) if p.name.startswith(".")]
            place.fault(bool(left), f"full disk: litter {left}")
            again = pcdc(place, *arguments)
            place.fault(again.code != 0 or place.state(1, out) != "all", f"with space again: {again}")
        how = "RLIMIT_FSIZE, mounting is not allowed here" if disk is None else "a tmpfs"
        print(f"full disk ({how}): {steps} builds, {told} told with PCDC611 and exit 2; {_counted(ends)}")


def _fill(path: Path, leaving: int) -> None:
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    os.truncate(path, max(0, path.stat().st_size - leaving))


def _limit(room: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


def _told(place: Place, said: Said, *parts: str) -> bool:
    clear = said.code == 2 and "Traceback" not in said.text and "internal error" not in said.text
    good = clear and all(part in said.text for part in parts)
    place.fault(not good, f"expected {parts}: {said}")
    return good


def refuse_rights(place: Place) -> None:
    """Folders that may not be written, and a user without a home."""
    place.set_version(0)
    build([place.schemas], [MODEL], place.out)
    place.set_version(1)
    before = {p: p.read_bytes() for p in files(place.out) if p.suffix == ".pcdc"}
    local = ("build", place.schemas, "--model", MODEL, "--out")
    checked = []
    unwritable = ("PCDC611", "make the folder writable")
    for mode in (0o555, 0o444, 0o000):
        place.out.chmod(mode)
        _told(place, pcdc(place, *local, place.out, before=drop_rights), *unwritable)
        place.out.chmod(0o755)
        checked.append(f"output folder {mode:03o}")
    with small_disk(place, "size=64k,ro") as disk:
        if disk is not None:
            _told(place, pcdc(place, *local, disk / "out"), *unwritable)
            checked.append("output on a read-only file system")
    place.fault(before != {p: p.read_bytes() for p in before}, "a folder without rights was changed")
    (place.top / "locked").mkdir(mode=0o555)
    open_out = place.top / "open"
    open_out.mkdir()
    open_out.chmod(0o777)
    cases: Sequence[tuple[str, Callable[[], object]]] = (
        (
            "read-only cache",
            lambda: (os.environ.update(PCDC_CACHE=str(place.top / "locked")), drop_rights()),
        ),
        ("no home folder", leave_home),
    )
    for name, lose in cases:
        said = pcdc(place, *local, open_out, before=lose)
        place.fault(said.code != 0 or "Traceback" in said.text, f"{name}: {said}")
        place.fault(place.state(1, open_out) != "all", f"{name}: the build is not whole")
        embedded = pcdc(place, "build", place.schemas, "--model", DEFAULT, "--out", open_out, before=lose)
        _told(place, embedded, "PCDC401", "PCDC_CACHE")
        checked += [f"{name} with a local tokenizer (exit 0)", f"{name} with a model to convert"]
        shutil.rmtree(open_out)
        open_out.mkdir()
        open_out.chmod(0o777)
    print(
        f"rights ({'as another user' if IS_ROOT else 'as this user'}): {len(checked)} cases: "
        + ", ".join(checked)
    )


def set_clocks(place: Place) -> None:
    """Files of other times: only contents decide, whichever of source, artifact and cache is the newest."""
    past, future = 0, 4_102_444_800
    cases = 0
    for source_time, artifact_time in ((past, future), (future, past), (future, future)):
        for version in (0, 1, 1):
            changed = place.state(version) != "all"
            place.set_version(version)
            for path in files(place.schemas):
                os.utime(path, (source_time, source_time))
            for path in (*files(place.out), *files(place.cache)):
                os.utime(path, (artifact_time, artifact_time))
            report = build([place.schemas], [MODEL], place.out)
            wanted = {"built" if changed else "fresh"}
            place.fault(
                {t.outcome for t in report.targets} != wanted, f"clock: not {wanted}: {report.targets}"
            )
            place.fault(place.state(version) != "all", "clock: a stale artifact")
            cases += 1
    print(f"clock: {cases} builds with files of 1970 and 2100 (the machine's own clock is left alone)")


def _counted(ends: Counter[str]) -> str:
    return ", ".join(f"{end} {n}" for end, n in sorted(ends.items()))


def main() -> int:
    """Torture builds in a folder of their own and print the counts; 1 where anything was torn or unclear."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--disks", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pcdc-torture-") as top:
        place = prepared(Path(top))
        kill_builds(place, given.kills, rng)
        race(place, given.processes, given.rounds)
        fill_disks(place, rng, given.disks)
        refuse_rights(place)
        set_clocks(place)
    print(f"{len(place.faults)} faults, {time.perf_counter() - started:.0f} s")
    for fault in place.faults[:50]:
        print(f"FAULT {fault}")
    return 1 if place.faults else 0


if __name__ == "__main__":
    sys.exit(main())
