"""What every kind of benchmark shares: what was asked for, and its places in turn on one loaded model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pcdc_runtime.errors import PcdcError
from pcdc_runtime.models import DEFAULT, resolve

from pcdc.diagnostics import Diagnostic, SchemaError, from_error
from pcdc.output import SUFFIX
from pcdc.prompt import Target, load_target

from .machine import describe, line
from .rounds import Watch
from .scenarios import TITLES, Place, own, shipped, sweep

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

Visit = Callable[[Sequence[Place], float], None]
"""Measures the first of the places that are left, in the seconds that all of them have."""
Prepare = Callable[["LoadedModel", Sequence[Place]], tuple[str, Visit]]
"""Told the model and the places; gives what else is said at the start, and what is done at each place."""


@dataclass(frozen=True)
class Options:
    """What was asked for; a scenario is a name of TITLES or a path, `axes` are those of the sweep.

    `contexts` are the texts that scenarios by path answer; `minutes` is the time for everything.
    """

    model: str | None
    scenarios: tuple[str, ...]
    contexts: tuple[str, ...]
    axes: tuple[str, ...]
    minutes: float
    out: Path | None = None

    @property
    def folders(self) -> bool:
        """Whether the model may be a folder: what an artifact names must not choose a path here."""
        return self.model is not None


@dataclass(frozen=True)
class Outcome:
    """The report as JSON, the files written, why others could not be, and what ended it early."""

    report: dict[str, Any]
    files: tuple[Path, ...]
    problems: tuple[Diagnostic, ...]
    ended_by: KeyboardInterrupt | None


def visit_places(
    options: Options, watch: Watch, begin: Callable[[str], None], prepare: Prepare
) -> tuple[dict[str, Any], KeyboardInterrupt | None]:
    """Visit every place, also where no time is left; gives the machine, and the interrupt that ended it.

    `begin` is told the machine in one line. Raises PcdcError where nothing can be measured at all: a missing
    model, artifact or definition.
    """
    from pcdc_runtime.loaded import open_model

    until = perf_counter() + 60 * options.minutes
    name = model_of(options)
    chosen = places(options, cached_target(name, options))
    watch("loading the model")
    with open_model(name, folders=options.folders) as loaded:
        machine = describe(loaded)
        more, visit = prepare(loaded, chosen)
        begin(line(machine) + more)
        try:
            for number in range(len(chosen)):
                visit(chosen[number:], until - perf_counter())
        except KeyboardInterrupt as interrupt:
            return machine, interrupt
    return machine, None


def diagnostics(error: PcdcError) -> Sequence[Diagnostic]:
    """What a refusal tells the user."""
    return error.diagnostics if isinstance(error, SchemaError) else [from_error(error)]


def model_of(options: Options) -> str:
    """The model that was asked for, or else the one that a scenario's artifact was built for."""
    from pcdc_runtime import codec

    if options.model:
        return options.model
    artifacts = [Path(name) for name in options.scenarios if name not in TITLES and name.endswith(SUFFIX)]
    return codec.read(artifacts[0]).model if artifacts else DEFAULT


def cached_target(name: str, options: Options) -> Callable[[], Target]:
    """What gives the target that a model's schemas are compiled for, loaded when it is first wanted."""

    @cache
    def target() -> Target:
        found, problems = load_target(resolve(name, weights=False, folders=options.folders))
        if found is None:
            raise SchemaError(problems)
        return found

    return target


def places(options: Options, target: Callable[[], Target]) -> list[Place]:
    """The scenarios that were asked for, then the points of the sweep."""
    chosen = [
        shipped(name, target) if name in TITLES else own(Path(name), options.contexts, target)
        for name in options.scenarios
    ]
    return chosen + sweep(options.axes, target)
