"""How far each stage of a request is above the least that its work takes at this machine's own rates.

The floor of a stage is the longer of two times: its arithmetic at the rates measured in this process just
before, or reading its weights, keys and values once. Nothing overlaps in it and nothing is wasted: no
padding, no masked scores, no Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from pcdc_runtime.artifact import Artifact, Ints
from pcdc_runtime.plan import Plan, make_plans
from pcdc_runtime.rules import NODE_BUDGET
from pcdc_runtime.tokenizer import assemble_prompt
from pcdc_runtime.tree import CHUNK, Slots

from .rates import Clock, Rates, measure_rates
from .taps import Function, wrapped
from .work import ModelShape, Work, forward_work, head_work, model_shape

if TYPE_CHECKING:
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.loaded import LoadedModel
    from pcdc_runtime.mlx_model import MlxModel

Measure: TypeAlias = "Callable[[MlxModel, ModelShape, int, int], Rates]"

COLD, CONTEXT, TREE, HEAD, PYTHON = (
    "prefill, head cold",
    "prefill, context only",
    "tree pass",
    "output head, log-sum-exp",
    "planning and Python",
)
TRIES = 5
COLD_SECONDS = 6.0


@dataclass(frozen=True)
class Stage:
    """One stage: its work, the rates it is judged by, and the milliseconds that it took, a median."""

    name: str
    work: Work
    rates: Rates | None
    measured_ms: float

    @property
    def parts(self) -> dict[str, float]:
        """Milliseconds of arithmetic, by kind."""
        work, rates = self.work, self.rates
        if rates is None:
            return {}
        return {
            "weights": work.products / rates.products * 1000,
            "attention": work.attention / rates.attention * 1000,
            "head": work.head / rates.head * 1000,
            "exp": work.exponentials / rates.exponentials * 1000,
            "streams": work.streamed / rates.streamed * 1000,
        }

    @property
    def reading_ms(self) -> float:
        """Milliseconds to read weights, keys and values once."""
        return 0.0 if self.rates is None else self.work.read / self.rates.read * 1000

    @property
    def floor_ms(self) -> float:
        """The least this stage takes: the longer of its arithmetic and its reading."""
        return max(sum(self.parts.values()), self.reading_ms)

    @property
    def above(self) -> float | None:
        """Measured over floor; None where the floor is zero."""
        return self.measured_ms / self.floor_ms if self.floor_ms else None

    @property
    def bound(self) -> str:
        """What the floor is made of mostly."""
        if not self.floor_ms:
            return ""
        parts = self.parts
        if self.reading_ms > sum(parts.values()):
            return "reading weights"
        return max(parts, key=lambda kind: parts[kind])

    def to_dict(self) -> dict[str, Any]:
        """Everything, floors included, as plain data."""
        return {
            "stage": self.name,
            "work": asdict(self.work),
            "rates": None if self.rates is None else asdict(self.rates),
            "parts_ms": self.parts,
            "reading_ms": self.reading_ms,
            "floor_ms": self.floor_ms,
            "measured_ms": self.measured_ms,
            "above": self.above,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class FloorReport:
    """The stages of one warm request, and apart from them the prefill that pays for the head too."""

    artifact: str
    rule: str
    stages: tuple[Stage, ...]
    cold: Stage

    @property
    def floor_ms(self) -> float:
        """The floor of the warm request: the sum of its stages'."""
        return sum(stage.floor_ms for stage in self.stages)

    @property
    def measured_ms(self) -> float:
        """What the warm request took: the sum of its stages."""
        return sum(stage.measured_ms for stage in self.stages)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table: a heading, the cold prefill, the stages of the warm request, their sum."""
        head = ("stage", "positions", "floor ms", "bound by", "measured ms", "x above the floor")
        body = [
            (
                stage.name,
                f"{stage.work.positions:,}",
                f"{stage.floor_ms:.1f}",
                _bound(stage),
                f"{stage.measured_ms:.1f}",
                "" if stage.above is None else f"{stage.above:.2f}",
            )
            for stage in (self.cold, *self.stages)
        ]
        above = f"{self.measured_ms / self.floor_ms:.2f}" if self.floor_ms else ""
        total = ("warm request", "", f"{self.floor_ms:.1f}", "", f"{self.measured_ms:.1f}", above)
        return [head, *body, total]

    @property
    def text(self) -> str:
        """The table for people, and the rates below it."""
        rows = self.rows
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i in (0, 3) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([f"{self.artifact}, rule {self.rule}", *lines, *self._rate_lines()])

    def _rate_lines(self) -> list[str]:
        return [
            f"rates of {stage.name}: weights {r.products / 1e9:.0f} GFLOP/s, "
            f"attention {r.attention / 1e9:.0f}, head {r.head / 1e9:.0f}, "
            f"exp {r.exponentials / 1e6:.0f} M/s, element-wise {r.streamed / 1e9:.1f} GB/s, "
            f"weights read {r.read / 1e9:.1f} GB/s"
            for stage in (self.cold, *self.stages)
            if (r := stage.rates) is not None
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "artifact": self.artifact,
            "rule": self.rule,
            "cold": self.cold.to_dict(),
            "stages": [stage.to_dict() for stage in self.stages],
            "floor_ms": self.floor_ms,
            "measured_ms": self.measured_ms,
        }


def _bound(stage: Stage) -> str:
    parts = {kind: ms for kind, ms in stage.parts.items() if stage.floor_ms and ms >= 0.05 * stage.floor_ms}
    if stage.bound in ("", "reading weights"):
        return stage.bound
    shares = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{kind} {ms / stage.floor_ms:.0%}" for kind, ms in shares)


def floor_table(
    artifact: Artifact,
    loaded: LoadedModel,
    context: str,
    *,
    measure: Measure | None = None,
    clock: Clock = perf_counter,
    tries: int = TRIES,
) -> FloorReport:
    """Count, measure the rates, run the request and set the times side by side, under the artifact's rule.

    `measure` gives the rates for a number of rows and of slots they see; `clock` times the stages. Raises
    PcdcError.
    """
    measure = measure or partial(measure_rates, clock=clock)
    return loaded.call(partial(_floor_table, artifact, loaded, context, measure, clock, tries))


def _floor_table(
    artifact: Artifact, loaded: LoadedModel, context: str, measure: Measure, clock: Clock, tries: int
) -> FloorReport:
    from pcdc_runtime.engine import Engine

    model: Any = loaded.language
    shape = model_shape(model)
    prompt = assemble_prompt(loaded.tokenizer, artifact.prompt, context)
    base, head = len(prompt) - 1, len(artifact.prompt.head)
    plans = make_plans(artifact, artifact.scoring, range(len(artifact.fields)), True, NODE_BUDGET)
    with Engine(artifact, loaded.share(), prefill=False) as engine:
        # The first run is not counted; it tells which forwards there are.
        alone = _warm(engine, context, clock).prompt_positions
        works = {
            COLD: forward_work(shape, Slots.empty().chained(base), 0),
            CONTEXT: forward_work(shape, Slots.empty().chained(head + alone), head),
            TREE: _trees(shape, base, head + alone, plans),
            HEAD: head_work(shape, plans),
        }
        rates = {
            name: measure(model, shape, min(work.positions, CHUNK), base) if work.positions else None
            for name, work in works.items()
        }
        runs = [_warm(engine, context, clock) for _ in range(tries)]
    taken = {
        COLD: _cold_ms(loaded, prompt[:base], clock, tries),
        CONTEXT: median(run.prompt_ms for run in runs),
        TREE: median(run.tree_ms for run in runs),
        HEAD: median(run.head_ms for run in runs),
    }
    cold, *stages = (Stage(name, work, rates[name], taken[name]) for name, work in works.items())
    python = Stage(PYTHON, Work(), None, median(run.other_ms for run in runs))
    return FloorReport(artifact.name, artifact.scoring, (*stages, python), cold)


def _trees(shape: ModelShape, base: int, start: int, plans: Sequence[Plan]) -> Work:
    """Each pass below a prompt of `base` tokens; the first also runs those from `start` on."""
    stem = Slots.empty().chained(base)
    first, *others = (stem.branched(plan.parent + base) for plan in plans)
    return sum((forward_work(shape, slots, base) for slots in others), forward_work(shape, first, start))


@dataclass
class _Run:
    """Where the time of one request went, and how many tokens forwards of prompt alone ran."""

    prompt_positions: int = 0
    prompt_ms: float = 0.0
    tree_ms: float = 0.0
    head_ms: float = 0.0
    other_ms: float = 0.0


def _warm(engine: Engine, context: str, clock: Clock) -> _Run:
    """One request over a head that is there and a context that is not."""
    from pcdc_runtime import passes
    from pcdc_runtime.fast_mlx import mx

    artifact, loaded = engine.artifact, engine.model
    with loaded.prefixes.lease(artifact.digest, len(artifact.prompt.head)) as prefix:
        prefix.advance(artifact.prompt.head)
    run = _Run()

    def appending(own: Function) -> Function:
        def append(sequence: Any, tokens: Any, parents: Any = None) -> Any:
            started = clock()
            hidden = own(sequence, tokens, parents)
            mx.eval(hidden)
            spent = (clock() - started) * 1000
            if parents is None:
                run.prompt_positions += len(tokens)
                run.prompt_ms += spent
            else:
                run.tree_ms += spent
            return hidden

        return append

    def reading(own: Function) -> Function:
        def read(*args: Any, **kwargs: Any) -> Any:
            started = clock()
            reads = own(*args, **kwargs)
            run.head_ms += (clock() - started) * 1000
            return reads

        return read

    kind = type(prefix.sequence)
    with wrapped(kind, "append", appending), wrapped(passes, "read", reading):
        started = clock()
        engine.run(context)
        whole = (clock() - started) * 1000
    run.other_ms = whole - run.prompt_ms - run.tree_ms - run.head_ms
    return run


def _cold_ms(loaded: LoadedModel, prompt: Ints, clock: Clock, tries: int) -> float:
    """The median time of a prefill from nothing; long ones are measured less often."""
    from pcdc_runtime.prefix import Prefix

    times: list[float] = []
    while len(times) < tries and sum(times) < COLD_SECONDS:
        prefix = Prefix(loaded.language.sequence(), lambda: None)
        started = clock()
        prefix.advance(prompt)
        times.append(clock() - started)
    return median(times) * 1000
