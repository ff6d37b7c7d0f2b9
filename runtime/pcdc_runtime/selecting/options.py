"""What a partial label can go on with: the valid next tokens and the closings, each with its probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.indexed.rows import Span

from .beliefs import Read

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Options:
    """The valid continuations of one prefix under the model's next-token distribution.

    Child `c` is token `token[c]`, its rows are `low[c]` to `high[c] - 1`, its log-probability `log_prob[c]`;
    tokens rise. Closing `e` ends the label: it spells entry `entry[e]`, and its log-probability `close[e]` is
    that of its whole END set. All are natural logs over the whole vocabulary, so that their sum as
    probabilities is the prefix's legal mass, up to `missed`: the most probability that valid tokens can have
    which were not looked at, 0 where all were.
    """

    token: Ints
    low: Ints
    high: Ints
    log_prob: Floats
    entry: Ints
    close: Floats
    missed: float = 0.0


class Verifier(Protocol):
    """Finds the options of a batch of prefixes (parallel prefix verification, Ye et al., algorithm 2)."""

    def options(self, spans: Sequence[Span], read: Read) -> list[Options]:
        """One for each span; row `i` of `read` is the beliefs after its prefix."""
        ...
