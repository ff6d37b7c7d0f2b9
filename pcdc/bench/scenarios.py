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

from .sweep import AXES, Point, compile_point

TITLES = {
    "fraud_routing": "Fintech fraud routing",
    "code_audit": "Code security audit",
    "tariff_classification": "Tariff classification",
    "support_triage": "Enterprise support triage",
}
"""The scenarios that come with pcdc, by name."""

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

    `weight` is its share of the time. `point` is set for those of the sweep, `axes` names what they are on.
    """

    name: str
    title: str
    weight: float
    open: Callable[[], Scenario]
    axes: tuple[str, ...] = ()
    point: Point | None = None


def shipped(name: str, target: GetTarget) -> Place:
    """A scenario of TITLES."""
    # Every method is to have its turns here. Triage writes hundreds of tokens, tariff has hundreds of
    # candidates.
    weight = 16.0 if name in ("support_triage", "tariff_classification") else 9.0
    return Place(name, TITLES[name], weight, partial(_shipped, name, target))


def own(path: Path, contexts: Sequence[str], target: GetTarget) -> Place:
    """An artifact, or a definition that is compiled for the model, with the texts to answer.

    Raises ArtifactError, SchemaError.
    """
    artifact = codec.read(path) if path.suffix == SUFFIX else _compiled(path, target)
    scenario = Scenario(artifact, tuple(contexts))
    return Place(path.stem, path.name, 4.0, lambda: scenario)


def sweep(axes: Sequence[str], target: GetTarget) -> list[Place]:
    """The points of these axes, each once, by axis and size."""
    on: dict[Point, list[str]] = {}
    for axis in axes:
        for point in AXES[axis].points():
            on.setdefault(point, []).append(axis)
    return [
        Place(
            f"sweep-{point.fields}-{point.choices}-{point.context}-{point.length}",
            f"Sweep over {', '.join(names)}: {point}",
            # Long texts and many fields take longer for every method.
            0.8 + 0.7 * point.context / 1000 + point.fields / 70,
            partial(_swept, point, target),
            tuple(names),
            point,
        )
        for point, names in on.items()
    ]


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
