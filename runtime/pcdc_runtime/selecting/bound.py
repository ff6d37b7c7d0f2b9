"""An index bound to a loaded model: checked against it, with what its requests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from pcdc_runtime.errors import ContextTooLongError, LogitsWidthError
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.tokenizer import check_tokenizer

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
    check_tokenizer(index, model.tokenizer, model.fingerprint, model.name)
    width = model.language.logits_width
    if index.largest_id >= width:
        raise LogitsWidthError(
            index.name,
            f"uses token {index.largest_id}",
            f"the logits of {model.name} end at {width - 1}",
            f"recompile with `pcdc build --model {model.name}`",
        )
    fixed, window = len(index.prompt.head) + len(index.prompt.tail), model.language.window
    if window is not None and fixed > window:
        raise ContextTooLongError(
            f"index {index.name}",
            f"has a prompt of {fixed} tokens before any text is in it",
            f"the window of {model.name} is {window} tokens",
            "give fewer worked examples, or run a model with a longer window",
        )
    device = "cpu" if on_cpu() else "gpu"
    return BoundIndex(index, lru_cache(VERIFIERS_KEPT)(partial(_verifier, index, device)))


def _verifier(index: Index, device: str, top: int | None) -> Verifier:
    return verifier_for(index.rows, top, device)
