"""What `pcdc bench --floor` does: for every place, the floor of a request and where its time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pcdc_runtime.errors import PcdcError

from pcdc.diagnostics import Diagnostic

from .asked import Options, Outcome, Visit, diagnostics, visit_places
from .floor import floor_table
from .profile import profile
from .rounds import Watch
from .scenarios import Place

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel


def run_floors(
    options: Options, watch: Watch, show: Callable[[str], None], begin: Callable[[str], None]
) -> Outcome:
    """Measure the first text of each place; `show` is told its tables, `begin` the machine in one line.

    Places that there is no time left for are named. Raises PcdcError where nothing can be measured at all.
    """
    done: list[dict[str, Any]] = []
    problems: list[Diagnostic] = []

    def prepare(loaded: LoadedModel, chosen: Sequence[Place]) -> tuple[str, Visit]:
        def visit(ahead: Sequence[Place], left: float) -> None:
            place = ahead[0]
            if left <= 0:
                show(f"{place.title}: not measured, the time is up\n")
                done.append({"place": place.name, "missing": "the time was up"})
                return
            watch(f"{place.title}: floor")
            try:
                scenario = place.open()
                floor = floor_table(scenario.artifact, loaded, scenario.contexts[0])
                shares = profile(scenario.artifact, loaded, scenario.contexts[0])
            except PcdcError as error:
                problems.extend(diagnostics(error))
                return
            show(f"{place.title}\n{floor.text}\n\n{shares.text}\n")
            done.append({"place": place.name, "floor": floor.to_dict(), "profile_ms": shares.ms})

        return "", visit

    machine, ended_by = visit_places(options, watch, begin, prepare)
    report = {"machine": machine, "interrupted": ended_by is not None, "places": done}
    return Outcome(report, (), tuple(problems), ended_by)
