"""What `pcdc bench` does: every place in turn within one stated time, then the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from pcdc_runtime.errors import PcdcError
from pcdc_runtime.storage import write_atomic

from pcdc.diagnostics import Diagnostic, from_error

from .asked import Options, Outcome, Visit, diagnostics, visit_places
from .figures import figures
from .foresight import Pace, steps
from .machine import line
from .methods import entries
from .rounds import Tally, Watch, measure
from .scenarios import FORWARD, TITLES, Place

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

JSON_REPORT = "bench.json"
PROBES = 6
LESS = "\nOne round of everything takes about {:.2g} minutes or more here; what has no time is left out."

Show = Callable[[Mapping[str, Any]], None]
"""Told the figures of each place as soon as they are there."""


class BenchOutputError(PcdcError):
    """The folder of a benchmark's files cannot be written."""

    code = "PCDC712"
    title = "report cannot be written"


def run(options: Options, watch: Watch, show: Show, begin: Callable[[str], None]) -> Outcome:
    """Measure and write; `begin` is told the machine in one line.

    What has no time is not begun. An interrupt ends the measuring, not the report. Raises PcdcError where
    nothing can be measured at all, and where a folder takes no files.
    """
    if options.out:
        _check_folder(options.out)
    methods = entries()
    done: list[dict[str, Any]] = []
    problems: list[Diagnostic] = []

    def prepare(loaded: LoadedModel, chosen: Sequence[Place]) -> tuple[str, Visit]:
        pace = loaded.call(lambda: _pace_of(loaded))

        def visit(ahead: Sequence[Place], left: float) -> None:
            place = ahead[0]
            share = place.seconds / sum(later.seconds for later in ahead)
            tally = Tally(place, max(0.0, left * share), left)
            here = [entry for entry in methods if not place.methods or entry.key in place.methods]
            try:
                if left > 0:
                    measure(tally, loaded, here, watch, pace=pace)
            finally:
                done.append(figures(tally, here))
                if tally.refused is not None and place.point is None:
                    # A point of the sweep may be too large for a model; a scenario was asked for.
                    problems.extend(diagnostics(tally.refused))
                show(done[-1])

        # What scenarios of the user's own need is not known before.
        needed = sum(place.seconds for place in chosen) / FORWARD * pace(1.0)
        less = needed > 60 * options.minutes and all(name in TITLES for name in options.scenarios)
        return LESS.format(needed / 60) if less else "", visit

    machine, ended_by = visit_places(options, watch, begin, prepare)
    report = {
        "machine": machine,
        "minutes": options.minutes,
        "interrupted": ended_by is not None,
        "methods": [{"key": entry.key, "title": entry.title} for entry in methods],
        "places": done,
    }
    files: tuple[Path, ...] = ()
    if options.out:
        files, unwritten = _written(options.out, report, line(machine))
        problems += unwritten
    return Outcome(report, files, tuple(problems), ended_by)


def _pace_of(loaded: LoadedModel) -> Pace:
    """How long a forward of one token takes, the first ones uncounted. On the owner thread."""
    sequence, pace, token = loaded.language.sequence(), Pace(), np.zeros(1, np.int32)
    for number in range(PROBES):
        started = perf_counter()
        sequence.append(token)
        if number >= PROBES // 2:
            pace.add(perf_counter() - started, steps(1, 1, number))
    return pace


def _check_folder(folder: Path) -> None:
    """Raises BenchOutputError where no files can be written: sooner than when all is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fact, help = f"cannot be written to ({error.strerror})", "give another folder with --out"
        raise BenchOutputError(str(folder), fact, help=help) from None


def _written(
    folder: Path, report: Mapping[str, Any], machine: str
) -> tuple[tuple[Path, ...], tuple[Diagnostic, ...]]:
    """Each file is written where it can be: what was measured is not lost with one of them."""
    from .plots import plots

    text = json.dumps(report, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    contents = [(JSON_REPORT, text.encode("utf-8", "replace"))]
    contents += plots(report["places"], entries(), machine)
    files, problems = list[Path](), list[Diagnostic]()
    for name, data in contents:
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)
        except OSError as error:
            fact, help = f"cannot be written ({error.strerror})", "give another folder with --out"
            problems.append(from_error(BenchOutputError(str(path), fact, help=help)))
        else:
            files.append(path)
    return tuple(files), tuple(problems)
