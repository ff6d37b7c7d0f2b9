"""What `pcdc bench --floor` does: for every place, the floor of a request and where its time goes."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from pcdc_runtime.errors import PcdcError

from pcdc.diagnostics import Diagnostic

from .command import Options, Outcome, cached_target, diagnostics, model_of, places
from .floor import floor_table
from .machine import describe, line
from .profile import profile
from .rounds import Watch


def run_floors(
    options: Options, watch: Watch, show: Callable[[str], None], begin: Callable[[str], None]
) -> Outcome:
    """Measure the first text of each place; `show` is told its tables, `begin` the machine in one line.

    Places that there is no time left for are named. Raises PcdcError where nothing can be measured at all.
    """
    from pcdc_runtime.loaded import open_model

    until = perf_counter() + 60 * options.minutes
    name = options.model or model_of(options.scenarios)
    done: list[dict[str, Any]] = []
    problems: list[Diagnostic] = []
    ended_by: KeyboardInterrupt | None = None
    watch("loading the model")
    with open_model(name, folders=options.folders) as loaded:
        machine = describe(loaded)
        begin(line(machine))
        try:
            for place in places(options, cached_target(name, options)):
                if perf_counter() > until:
                    show(f"{place.title}: not measured, the time is up\n")
                    done.append({"place": place.name, "missing": "the time was up"})
                    continue
                watch(f"{place.title}: floor")
                try:
                    scenario = place.open()
                    floor = floor_table(scenario.artifact, loaded, scenario.contexts[0])
                    shares = profile(scenario.artifact, loaded, scenario.contexts[0])
                except PcdcError as error:
                    problems += diagnostics(error)
                    continue
                show(f"{place.title}\n{floor.text}\n\n{shares.text}\n")
                done.append({"place": place.name, "floor": floor.to_dict(), "profile_ms": shares.ms})
        except KeyboardInterrupt as interrupt:
            ended_by = interrupt
    report = {"machine": machine, "interrupted": ended_by is not None, "places": done}
    return Outcome(report, (), tuple(problems), ended_by)
