"""An index bound to a loaded model: checked against it, with what its requests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from pcdc_runtime.bound import check_fit
from pcdc_runtime.indexed.index import Index

from .model_beliefs import on_cpu
from .ppv_mlx import verifier_for

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

    from .options import Verifier

VERIFIERS_KEPT = 2


@dataclass(frozen=True, eq=False)
class BoundIndex:
    """What a selection is made from; `verifier` takes how many of the likeliest tokens are looked at."""

    index: Index
    verifier: Callable[[int | None], Verifier]

    @cached_property
    def deepest(self) -> int:
        """The most tokens of a row: so many go below a prompt at most."""
        return int(np.diff(self.index.rows.offset).max())


def bind_index(index: Index, model: LoadedModel) -> BoundIndex:
    """Check that the index fits the model; nothing is run.

    Raises FingerprintMismatchError, LogitsWidthError, ContextTooLongError.
    """
    check_fit(index, model, "index", "give fewer worked examples")
    device = "cpu" if on_cpu() else "gpu"
    return BoundIndex(index, lru_cache(VERIFIERS_KEPT)(partial(_verifier, index, device)))


def _verifier(index: Index, device: str, top: int | None) -> Verifier:
    return verifier_for(index.rows, top, device)
