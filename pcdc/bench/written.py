"""The model writing the JSON itself as measured methods: free, token by token, and with forced tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from pcdc_runtime.artifact import Artifact

from pcdc.writing import Writer

from .measured import Answer, Method

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel


@dataclass(frozen=True)
class Writing:
    """How it is written: under llguidance's grammar or not, and whether what it forces costs no pass."""

    key: str
    title: str
    constrained: bool
    fast_forward: bool


FREE = Writing("free", "writes JSON, free, head warm", constrained=False, fast_forward=False)
STEPWISE = Writing(
    "stepwise", "writes JSON, grammar, one token a pass, head warm", constrained=True, fast_forward=False
)
GUIDED = Writing(
    "llguidance",
    "writes JSON, llguidance, forced tokens at once, head warm",
    constrained=True,
    fast_forward=True,
)


class Written:
    """Greedy decoding over the cached head."""

    def __init__(self, writing: Writing, artifact: Artifact, loaded: LoadedModel) -> None:
        self.key, self.title = writing.key, writing.title
        self._writing = writing
        self._writer = Writer(artifact, loaded)

    def answer(self, context: str) -> Answer:
        """Write the answers for one context."""
        writing = self._writing
        started = perf_counter()
        written = self._writer.write(
            context, constrained=writing.constrained, fast_forward=writing.fast_forward
        )
        return Answer(
            values=written.values,
            log_scores=None,
            passes=written.sequential_passes,
            forwards=written.passes,
            positions=written.positions,
            kv_bytes=written.kv_bytes,
            kv_copied=0,
            ms=(perf_counter() - started) * 1000,
            tokens=len(written.tokens),
        )

    def close(self) -> None:
        """Nothing is held."""


def maker(writing: Writing) -> Callable[[Artifact, LoadedModel], Method]:
    """What makes the method of a way to write."""
    return lambda artifact, loaded: Written(writing, artifact, loaded)
