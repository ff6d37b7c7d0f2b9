"""What a selector answers from: one index, or the last good one that was at a path."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pcdc_runtime.errors import PcdcError, sentence
from pcdc_runtime.indexed.codec import open_index
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.reload import SETTLE_S, Stamp, stamp_of

from .bound import BoundIndex, bind_index

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

logger = logging.getLogger("pcdc_runtime")


@dataclass(frozen=True)
class IndexFile:
    """A path to follow, with its stamp from before the index that is in use was opened."""

    path: Path
    stamp: Stamp | None

    @classmethod
    def at(cls, path: Path) -> IndexFile:
        """As it is now."""
        return cls(path, stamp_of(path))


class IndexSource:
    """An index bound to a model; with a `file`, what is there takes its place once it is checked.

    `bound` may be read from any thread. Raises what `bind_index` raises.
    """

    def __init__(self, index: Index, model: LoadedModel, file: IndexFile | None) -> None:
        self._model = model
        self._file = file
        self._refused_at = 0.0
        self._told = ""
        self.bound: BoundIndex = bind_index(index, model)

    def current(self) -> tuple[BoundIndex, tuple[str, ...]]:
        """On the owner thread: what the next request is answered from, and a warning where a file is refused.

        A new index takes over the old one's KV, so its head is prefilled from their common prefix on. A
        fault is told once.
        """
        if self._file is None:
            return self.bound, ()
        # Seen first: a file that comes after it leaves another stamp. An open file keeps its own to itself.
        seen, now = IndexFile.at(self._file.path), monotonic()
        if seen == self._file and (not self._told or now - self._refused_at >= SETTLE_S):
            return self.bound, ()
        try:
            self._take(open_index(seen.path))
        except Exception as error:
            if seen != self._file:
                self._file, self._refused_at = seen, now
            told, self._told = self._told, repr(error)
            return self.bound, () if self._told == told else (self._refusal(seen.path, error),)
        self._file, self._told = seen, ""
        return self.bound, ()

    def _take(self, index: Index) -> None:
        bound, old = bind_index(index, self._model), self.bound.index
        index.check()
        if index.digest != old.digest:
            self.bound = bound
            self._model.prefixes.hand_over(old.digest, index.digest)

    def _refusal(self, path: Path, error: Exception) -> str:
        """A warning of a result; the log says it too."""
        old = self.bound.index.digest[:12]
        if isinstance(error, PcdcError):
            logger.warning("%s; the index %s stays in use", error, old)
            return f"reload_refused: {sentence(error.subject, error.fact)}"
        logger.warning("%s; the index %s stays in use", path, old, exc_info=error)
        return f"reload_refused: {path} cannot be taken ({error!r:.200})"
