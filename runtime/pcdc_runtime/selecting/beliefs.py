"""What a search asks of a model: next-token beliefs at the nodes of a token tree that grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pcdc_runtime.fast_mlx import mx

    Logits = NDArray[np.float32] | mx.array


@dataclass(frozen=True, eq=False)
class Read:
    """Next-token beliefs at some nodes: row `i` is node `i` of those asked for.

    `logit` is float32 [nodes, width], divided by the temperature; an MLX array where the model is on a GPU.
    `norm` is float64 [nodes], the log-sum-exp of each row: a token's log-probability is its logit less that.
    """

    logit: Logits
    norm: NDArray[np.float64]


class Beliefs(Protocol):
    """A token tree that a model runs. Node 0 is the last prompt token; later nodes count on in their order.

    `nodes` counts those that ran, node 0 too; `passes` the steps that waited for one another.
    """

    @property
    def nodes(self) -> int: ...
    @property
    def passes(self) -> int: ...

    def grow(self, parents: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """Run new nodes in one pass and give their numbers.

        A parent is a node that ran, or the number that an earlier node of the same call will have.
        """
        ...

    def read(self, nodes: Sequence[int]) -> Read:
        """Beliefs at nodes that ran, and at node 0 always."""
        ...
