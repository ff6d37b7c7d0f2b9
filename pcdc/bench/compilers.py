"""What `pcdc bench --compiler` does: how long one waits before the first answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from pcdc_runtime.codec import dumps
from pcdc_runtime.errors import PcdcError

from pcdc.diagnostics import Diagnostic

from .asked import Options, Outcome, cached_target, diagnostics, model_of, places
from .compiling import Figure, compiler_figures, figure_table, start_figures
from .machine import describe, line
from .rounds import Watch
from .scenarios import Scenario

START_SHARE = 0.6
"""Of the time, what is left to starting."""


def run_compiler(
    options: Options,
    watch: Watch,
    show: Callable[[str], None],
    begin: Callable[[str], None],
    *,
    terminal: bool = False,
) -> Outcome:
    """Measure compiling and loading, then a first answer by the artifact with the most fields.

    `show` is told each table, `begin` the machine in one line. Raises PcdcError where nothing can be
    measured at all.
    """
    from pcdc_runtime.loaded import open_model

    started, seconds = perf_counter(), 60 * options.minutes
    name = model_of(options)
    target = cached_target(name, options)
    scenarios: list[Scenario] = []
    problems: list[Diagnostic] = []
    for place in places(options, target):
        try:
            scenarios.append(place.open())
        except PcdcError as error:
            problems += diagnostics(error)
    watch("loading the model")
    # What is timed loads it itself: a process that holds it as well would take the memory.
    with open_model(name, folders=options.folders) as loaded:
        machine = describe(loaded)
    begin(line(machine))
    report: dict[str, Any] = {"machine": machine, "interrupted": False, "compiler": [], "start": None}

    def go_on(share: float) -> bool:
        return perf_counter() - started < share * seconds

    def tell(title: str, figures: tuple[Figure, ...]) -> list[dict[str, Any]]:
        show(f"{title}\n{figure_table(figures, terminal=terminal)}")
        return [asdict(figure) for figure in figures]

    ended_by: KeyboardInterrupt | None = None
    try:
        watch("compiling, loading, building")
        compiled = compiler_figures(
            target(), name, [one.artifact for one in scenarios], go_on=lambda: go_on(1 - START_SHARE)
        )
        report["compiler"] = tell("Compiler", compiled)
        if scenarios:
            watch("starting")
            widest = max(scenarios, key=lambda one: len(one.artifact.fields))
            artifact = widest.artifact
            with TemporaryDirectory() as folder:
                path = Path(folder, "artifact.pcdc")
                path.write_bytes(dumps(artifact))
                figures = start_figures(path, name, widest.contexts[0], go_on=lambda: go_on(1))
            title = f"From nothing to an answer: {artifact.name}, {len(artifact.prompt.head)} head tokens"
            report["start"] = {"schema": artifact.name, "figures": tell(title, figures)}
    except KeyboardInterrupt as interrupt:
        ended_by = interrupt
        report["interrupted"] = True
    return Outcome(report, (), tuple(problems), ended_by)
