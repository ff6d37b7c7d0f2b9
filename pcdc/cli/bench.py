"""`pcdc bench`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pcdc_runtime.errors import ExtraMissingError

from .common import (
    Model,
    app,
    as_path,
    ends_cleanly,
    finish,
    on_terminal,
    print_json,
    put,
    read_context,
    to_stderr,
)
from .common import tell as say

MINUTES = 14.0
NOTE_SECONDS = 20.0


def _minutes(given: float) -> float:
    if not math.isfinite(given):
        raise typer.BadParameter(f"{given} is no number of minutes")
    return given


@app.command()
def bench(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            "-s",
            help="A shipped one by name, or an artifact or definition of yours; repeatable.",
            show_default="the four shipped ones",
        ),
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option("--context", help="File with a text for scenarios of yours, - for stdin; repeatable."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            help="Axes to vary, separated by commas: fields, choices, context, length; all, or none.",
            show_default="all, none with --scenario, --floor or --compiler",
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes",
            min=0.1,
            max=600,
            callback=_minutes,
            help="Time for everything; what would take longer is left out.",
        ),
    ] = MINUTES,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=as_path,
            metavar="DIR",
            help="Write bench.json and plots of the comparison here; not with --floor or --compiler.",
        ),
    ] = None,
    floor: Annotated[
        bool,
        typer.Option("--floor", help="Only ours: how far each stage is above the machine's own limits."),
    ] = False,
    compiler: Annotated[
        bool,
        typer.Option(
            "--compiler",
            help="Only how long compiling, loading and starting take; one round, about three minutes, "
            "is the least, whatever --minutes says.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    model: Model = None,
) -> None:
    """Measure pcdc beside other ways to answer, on one model and one machine.

    Times are medians of interleaved rounds. Beside each stand passes, positions, KV bytes and peak memory,
    and whether the answers are those of an exact computation. Peak memory is what MLX held at most on top
    of what it held before the answer: weights and kept KV are not in it, nor what NumPy holds.

    Examples:

        pcdc bench --out bench/

        pcdc bench --scenario support_triage --minutes 3

        pcdc bench --floor --scenario support_triage

        pcdc bench --compiler

        pcdc bench --scenario build/support.smollm2-135m.pcdc --context ticket.txt --json
    """
    try:
        from pcdc.bench.asked import Options
        from pcdc.bench.command import run
        from pcdc.bench.compilers import run_compiler
        from pcdc.bench.floors import run_floors
        from pcdc.bench.scenarios import TITLES
        from pcdc.bench.show import block
        from pcdc.bench.sweep import AXES

        if out is not None:
            import pcdc.bench.plots  # noqa: F401
    except ImportError as error:
        if not error.name or error.name.startswith("pcdc"):
            raise
        raise ExtraMissingError(
            error.name,
            f"cannot be imported ({error})",
            "a benchmark needs it",
            "install it with `pip install 'pcdc[bench]'`",
        ) from error
    scenarios = tuple(dict.fromkeys(scenario or TITLES))
    own = [name for name in scenarios if name not in TITLES]
    for name in own:
        _check_path(name, tuple(TITLES))
    if own and not context:
        _tell_mistakes(own)
        raise typer.BadParameter(f"{own[0]} needs a text to answer: give --context", param_hint="--scenario")
    if context and not own:
        raise typer.BadParameter(
            "the shipped scenarios have texts of their own; it goes with --scenario PATH",
            param_hint="--context",
        )
    if floor and compiler:
        raise typer.BadParameter("give either --floor or --compiler")
    if (floor or compiler) and out is not None:
        raise typer.BadParameter("these figures have no plots; print them with --json", param_hint="--out")
    if compiler and sweep is not None:
        raise typer.BadParameter(
            "--compiler has its own schema to compile, and no sweep", param_hint="--sweep"
        )
    options = Options(
        model=model,
        scenarios=scenarios,
        contexts=tuple(dict.fromkeys(read_context(file) for file in context or ())),
        axes=_axes(
            sweep if sweep is not None else "none" if scenario or floor or compiler else "all", tuple(AXES)
        ),
        minutes=minutes,
        out=out,
    )

    def show(place: Mapping[str, Any]) -> None:
        if not as_json:
            put(block(place, terminal=on_terminal(sys.stdout)))

    def begin(machine: str) -> None:
        if not as_json:
            put(f"{machine}\n")

    def tell(text: str) -> None:
        if not as_json:
            put(text)

    with ends_cleanly():
        watch = _Notes().watch
        if floor:
            outcome = run_floors(options, watch, tell, begin)
        elif compiler:
            outcome = run_compiler(options, watch, tell, begin, terminal=on_terminal(sys.stdout))
        else:
            outcome = run(options, watch, show, begin)
    if as_json:
        print_json(outcome.report)
    for file in outcome.files:
        to_stderr(f"written: {file}")
    if outcome.ended_by is not None:
        raise outcome.ended_by
    finish(outcome.problems)
    if not any(place.get("rows", True) for place in outcome.report.get("places", ())) and not compiler:
        to_stderr("nothing was measured: there was no time; give it more --minutes")
        raise typer.Exit(1)


class _Notes:
    """Progress: one line when something begins, at most one every NOTE_SECONDS where nobody looks."""

    def __init__(self) -> None:
        self._told = -math.inf

    def watch(self, what: str) -> None:
        now = time.monotonic()
        if on_terminal(sys.stderr) or now - self._told >= NOTE_SECONDS:
            self._told = now
            to_stderr(f"note: {what}")


def _check_path(name: str, shipped: tuple[str, ...]) -> None:
    if not name:
        raise typer.BadParameter("the path is empty", param_hint="--scenario")
    if Path(name).is_dir():
        raise typer.BadParameter(
            f"{name!r} is a folder; give an artifact or a definition in it, repeat --scenario for more",
            param_hint="--scenario",
        )
    if not Path(name).is_file():
        raise typer.BadParameter(
            f"{name!r} is no file and none of the shipped scenarios: {', '.join(shipped)}",
            param_hint="--scenario",
        )


def _tell_mistakes(definitions: Sequence[str]) -> None:
    """What is wrong with definitions that are not measured anyway."""
    from pcdc.output import SUFFIX
    from pcdc.parse import parse_file

    for name in definitions:
        if not name.endswith(SUFFIX):
            say(parse_file(Path(name))[1])


def _axes(given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if given in ("all", "none"):
        return known if given == "all" else ()
    names = tuple(dict.fromkeys(name for part in given.split(",") if (name := part.strip())))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise typer.BadParameter(
            f"{unknown[0] if unknown else given!r} is no axis; they are {', '.join(known)}, or all, or none",
            param_hint="--sweep",
        )
    return tuple(name for name in known if name in names)
