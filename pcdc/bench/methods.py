"""Every way that is measured, the default's first, and what each is expected to take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import ExtraMissingError
from pcdc_runtime.rules import rule_bit

from .measured import Method
from .ours import WAYS, Way
from .ours import maker as ours

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

FREE, GUIDED, ORACLE = "free", "llguidance", "oracle"
WIDTH = 20
"""How many positions in one forward take about as long as a forward of one."""


@dataclass(frozen=True)
class Entry:
    """One method before it is made; `steps` foresees one answer in forwards of a single token.

    With `own_scores` its scores are those of another rule than the oracle's: only its winners are compared.
    """

    key: str
    title: str
    make: Callable[[Artifact, LoadedModel], Method]
    steps: Callable[[Artifact], float]
    own_scores: bool = False


def entries() -> tuple[Entry, ...]:
    """All methods, in the order of the table."""
    return (
        *(Entry(way.key, way.title, ours(way), _steps_of(way)) for way in WAYS),
        Entry(FREE, "writes JSON, free, head warm", _written(constrained=False), _written_tokens),
        Entry(
            GUIDED,
            "writes JSON, llguidance, forced tokens at once, head warm",
            _written(constrained=True),
            lambda artifact: 2.0 * len(artifact.fields) + 2,
        ),
        Entry("pcd-rlcd", "pcd-rlcd, the published engine", _from("published"), _per_field),
        Entry("rows", "a row per field on copied KV, head warm", _from("rows"), _per_field),
        Entry(
            "branches",
            "a row per trie branch on copied KV, head warm",
            _from("branches"),
            _rows,
            own_scores=True,
        ),
        Entry(ORACLE, "per-choice log-likelihood, KV copied per row, head warm", _from("oracle"), _rows),
    )


def _steps_of(way: Way) -> Callable[[Artifact], float]:
    def steps(artifact: Artifact) -> float:
        if way.one_by_one:
            return 2.0 * len(artifact.fields)
        head = len(artifact.prompt.head) if way.cold else 0
        nodes = int(np.count_nonzero(artifact.nodes.reads & rule_bit(way.rule)))
        return (head + nodes) / WIDTH + 2

    return steps


def _written(*, constrained: bool) -> Callable[[Artifact, LoadedModel], Method]:
    def make(artifact: Artifact, loaded: LoadedModel) -> Method:
        from .written import Written

        return Written(artifact, loaded, constrained=constrained)

    return make


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


def _written_tokens(artifact: Artifact) -> float:
    """The tokens of an answer; names and values are seldom more than a token for three characters."""
    characters = sum(
        len(field.name) + max(len(candidate.label) for candidate in field.candidates) + 6
        for field in artifact.fields
    )
    return characters / 3


def _per_field(artifact: Artifact) -> float:
    return 3.0 * len(artifact.fields)


def _rows(artifact: Artifact) -> float:
    """A row for every choice: its tokens, and the copy of what stands before it."""
    choices = sum(len(field.candidates) for field in artifact.fields)
    return choices * (10 / WIDTH + len(artifact.prompt.head) / 5000)
