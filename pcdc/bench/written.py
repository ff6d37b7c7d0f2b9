"""The model writing the JSON itself as measured methods: free, and under llguidance."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from pcdc_runtime.artifact import Artifact

from pcdc.writing import Writer

from .measured import Answer

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel


class Written:
    """Greedy decoding over the cached head; with `constrained`, forced tokens cost no pass of their own."""

    def __init__(self, artifact: Artifact, loaded: LoadedModel, *, constrained: bool) -> None:
        self.key, self.title = (
            ("llguidance", "writes JSON, llguidance, forced tokens at once, head warm")
            if constrained
            else ("free", "writes JSON, free, head warm")
        )
        self._constrained = constrained
        self._writer = Writer(artifact, loaded)

    def answer(self, context: str) -> Answer:
        """Write the answers for one context."""
        started = perf_counter()
        written = self._writer.write(context, constrained=self._constrained)
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
