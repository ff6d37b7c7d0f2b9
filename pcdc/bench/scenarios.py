"""What is measured: the four shipped scenarios, files of the user's own, and the points of the sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pcdc_runtime import codec
from pcdc_runtime.artifact import Artifact

from pcdc.diagnostics import SchemaError
from pcdc.emit import compile_schema
from pcdc.output import SUFFIX
from pcdc.parse import parse_file
from pcdc.prompt import Target

from .foresight import steps
from .methods import SWEPT
from .sweep import AXES, Point, compile_point

TITLES = {
    "fraud_routing": "Fintech fraud routing",
    "code_audit": "Code security audit",
    "tariff_classification": "Tariff classification",
    "support_triage": "Enterprise support triage",
}
"""The scenarios that come with pcdc, by name."""

# Triage writes hundreds of tokens; tariff has thousands in its head, and hundreds of candidates.
SECONDS = {
    "fraud_routing": 60.0,
    "code_audit": 60.0,
    "tariff_classification": 160.0,
    "support_triage": 217.0,
}
"""What lets the methods have their turns where a forward of one token takes FORWARD seconds."""
OWN_SECONDS = 60.0
FORWARD = 0.073
"""Measured on two cores; elsewhere these times are shares of the whole all the same."""
PATIENCE = 40.0
"""Seconds up to which a point of the sweep is given all that it needs."""

GetTarget = Callable[[], Target]


@dataclass(frozen=True)
class Scenario:
    """An artifact and the texts that it answers in turn."""

    artifact: Artifact
    contexts: tuple[str, ...]

    def many(self, count: int) -> list[str]:
        """So many texts, no two the same, and each new one different from its beginning on."""
        own = list(dict.fromkeys(self.contexts))
        return [
            text if turn == 0 else f"({turn})\n{text}"
            for turn in range(-(-count // len(own)))
            for text in own
        ][:count]


@dataclass(frozen=True)
class Place:
    """One place to measure; `open` compiles it and raises PcdcError where it cannot be.

    `seconds` are its share of the time. `point` is set for those of the sweep, `axes` names what they are on,
    `methods` the keys of those that are measured, where not all are.
    """

    name: str
    title: str
    seconds: float
    open: Callable[[], Scenario]
    axes: tuple[str, ...] = ()
    point: Point | None = None
    methods: tuple[str, ...] = ()


def shipped(name: str, target: GetTarget) -> Place:
    """A scenario of TITLES."""
    return Place(name, TITLES[name], SECONDS[name], partial(_shipped, name, target))


def own(path: Path, contexts: Sequence[str], target: GetTarget) -> Place:
    """An artifact, or a definition that is compiled for the model, with the texts to answer.

    Raises ArtifactError, SchemaError.
    """
    artifact = codec.read(path) if path.suffix == SUFFIX else _compiled(path, target)
    scenario = Scenario(artifact, tuple(contexts))
    return Place(path.stem, path.name, OWN_SECONDS, lambda: scenario)


def sweep(axes: Sequence[str], target: GetTarget) -> list[Place]:
    """The points of these axes, each once, what takes longest last: it has what the others left."""
    on: dict[Point, list[str]] = {}
    for axis in axes:
        for point in AXES[axis].points():
            on.setdefault(point, []).append(axis)
    return [
        Place(
            f"sweep-{point.fields}-{point.choices}-{point.context}-{point.length}",
            f"Sweep over {', '.join(names)}: {point}",
            _share(point),
            partial(_swept, point, target),
            tuple(names),
            point,
            () if point == Point() else SWEPT,
        )
        for point, names in sorted(on.items(), key=lambda found: _needed(found[0]))
    ]


def _share(point: Point) -> float:
    """The seconds that a point is given: what it needs, and the less the more that is over PATIENCE.

    So what is small is measured whole, and one point that takes minutes leaves no other without its rows.
    More at the base point, where every method is measured.
    """
    needed = _needed(point)
    return min(needed, PATIENCE**4 / needed**3) + (10 if point == Point() else 0)


def _needed(point: Point) -> float:
    """About what the head and ours, identify and llguidance take, and a few seconds for the others."""
    nodes = point.fields * point.choices * (point.length + 1)
    head = 40 + point.fields * 22 + 2 * nodes
    behind = head + point.context
    texts = steps(2, point.context + nodes, behind) + 2 * steps(1, point.context + 6 * point.fields, behind)
    return FORWARD * (steps(1, head, head / 2) + texts + 4 * point.fields) + 5


def _folder() -> Path:
    """The definitions lie in the package when it is installed, beside it in a checkout."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "schemas"


def _shipped(name: str, target: GetTarget) -> Scenario:
    folder = _folder()
    texts = sorted((folder / "examples").glob(f"{name}.*.txt"))
    return Scenario(
        _compiled(folder / f"{name}.json", target), tuple(text.read_text("utf-8") for text in texts)
    )


def _swept(point: Point, target: GetTarget) -> Scenario:
    return Scenario(*compile_point(point, target()))


def _compiled(path: Path, target: GetTarget) -> Artifact:
    schema, problems = parse_file(path)
    artifact = None
    if schema is not None:
        artifact, problems = compile_schema(schema, target())
    if artifact is None:
        raise SchemaError(problems)
    return artifact
