"""Every way that is measured, the most important first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import ExtraMissingError

from . import foresight
from .foresight import Steps
from .measured import Method
from .ours import COLD, DEFAULT, FIELDS, IDENTIFY, PRUNED, Way
from .ours import maker as ours
from .written import FREE, GUIDED, STEPWISE, Writing
from .written import maker as written

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

PUBLISHED, ROWS, BRANCHES, ORACLE = "pcd-rlcd", "rows", "branches", "oracle"
SWEPT = (DEFAULT.key, IDENTIFY.key, GUIDED.key, STEPWISE.key, PUBLISHED, ROWS)
"""What is measured at a point of the sweep; at the base point of three axes, everything is."""


@dataclass(frozen=True)
class Entry:
    """One method before it is made; `steps` foresees one answer, `making` what making it takes.

    With `own_scores` its scores are those of another rule than the oracle's: only its winners are compared.
    With `several_fields` it is the default's own way where a schema has one field.
    """

    key: str
    title: str
    make: Callable[[Artifact, LoadedModel], Method]
    steps: Steps
    making: Callable[[Artifact], float] = foresight.nothing
    own_scores: bool = False
    several_fields: bool = False


def entries() -> tuple[Entry, ...]:
    """All methods, in the order of the table, which is also that of the first round."""
    return (
        _ours(DEFAULT),
        _ours(IDENTIFY),
        _written(GUIDED, foresight.forced),
        _ours(PRUNED),
        _written(STEPWISE, foresight.written),
        Entry(PUBLISHED, "pcd-rlcd, the published engine", _from("published"), foresight.published),
        Entry(ROWS, "a row per field on copied KV, head warm", _from("rows"), foresight.rows, foresight.head),
        _ours(COLD),
        _written(FREE, foresight.written),
        _ours(FIELDS),
        Entry(
            BRANCHES,
            "a row per trie branch on copied KV, head warm",
            _from("branches"),
            foresight.branches,
            foresight.head,
            own_scores=True,
        ),
        Entry(
            ORACLE,
            "per-choice log-likelihood, KV copied per row, head warm",
            _from("oracle"),
            foresight.oracle,
            foresight.head,
        ),
    )


def _ours(way: Way) -> Entry:
    return Entry(way.key, way.title, ours(way), foresight.ours(way), several_fields=way.one_by_one)


def _written(writing: Writing, steps: Steps) -> Entry:
    return Entry(writing.key, writing.title, written(writing), steps)


def _from(module: str) -> Callable[[Artifact, LoadedModel], Method]:
    def make(artifact: Artifact, loaded: LoadedModel) -> Method:
        try:
            found = import_module(f"{__package__}.{module}")
        except ImportError as error:
            raise ExtraMissingError(
                error.name or module,
                f"cannot be imported ({error})",
                "this way of answering needs it",
                "install it with `pip install 'pcdc[bench]'`",
            ) from error
        method: Method = found.make(artifact, loaded)
        return method

    return make
