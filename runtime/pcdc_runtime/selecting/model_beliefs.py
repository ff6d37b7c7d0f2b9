"""A language model's beliefs below one prompt, from a tree that grows pass by pass in one KV sequence.

To be used on the model's owner thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.exponential import buffer
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.prefix import Prefix
from pcdc_runtime.score import row_logsumexp, rows_at_once

from .beliefs import Read

if TYPE_CHECKING:
    from .beliefs import Logits

POWERS = (1e-30, 1e30)
"""Inverse temperatures beyond these count as these: float32 holds no others."""


def on_cpu() -> bool:
    """Whether logits lie where NumPy reads them without a copy."""
    return bool(mx.default_device().type == mx.DeviceType.cpu)


class ModelBeliefs:
    """Beliefs after `prompt` on a leased prefix; the tree's slots come after the prompt's.

    What is missing of the prompt is prefilled at once but for its last part, which goes with the first pass.
    `room` is how many nodes are expected: more make the buffers grow. `subject` is what errors are about.
    """

    def __init__(
        self, prefix: Prefix, prompt: Ints, temperature: float = 1.0, *, room: int = 1, subject: str = "model"
    ) -> None:
        self._prefix = prefix
        self._prompt = prompt
        self._base = len(prompt) - 1
        self._power = min(max(1 / temperature, POWERS[0]), POWERS[1])
        self._subject = subject
        self._hidden: list[mx.array] = []
        self._starts = [0]
        prefix.sequence.reserve(self._base + room)
        started = perf_counter()
        self.cached = prefix.advance(prompt[: self._base], 1)
        self.prefilled = prefix.sequence.length > self.cached
        self.prefill_ms = (perf_counter() - started) * 1000 if self.prefilled else 0.0

    @property
    def nodes(self) -> int:
        """How many nodes ran, node 0 too."""
        return self._starts[-1]

    @property
    def passes(self) -> int:
        """How many tree passes there were; a prefill of its own is none."""
        return len(self._hidden)

    def grow(self, parents: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """Run new nodes in one pass and give their numbers.

        A parent is a node that ran, or the number that an earlier node of the same call will have. Raises
        ValueError for any other, and for no nodes at all.
        """
        if not len(tokens):
            raise ValueError("there are no nodes to grow")
        # Node 0 goes with the first pass.
        first = self.nodes or 1
        above, below = np.array(parents, dtype=np.int32), np.array(tokens, dtype=np.int32)
        if above.shape != below.shape:
            raise ValueError("parents and tokens differ in number")
        if bool(((above < 0) | (above >= first + np.arange(len(above)))).any()):
            raise ValueError("a parent is a node that ran, or an earlier one of the same call")
        if not self._hidden:
            above, below = np.append(np.int32(-1), above), np.append(self._prompt[-1:], below)
        self._run(below, above + np.int32(self._base))
        return list(range(first, first + len(tokens)))

    def read(self, nodes: Sequence[int]) -> Read:
        """Beliefs at nodes that ran, and at node 0 always; all of their logits are in memory at once.

        Raises ScoreError where the model gives no number, ValueError for a node that did not run.
        """
        if not self._hidden:
            self._run(self._prompt[-1:], np.array([self._base - 1], dtype=np.int32))
        wanted = np.array(nodes, dtype=np.int64)
        if not len(wanted) or bool(((wanted < 0) | (wanted >= self.nodes)).any()):
            raise ValueError("only nodes that ran can be read")
        hidden, rows = self._rows(wanted)
        sequence = self._prefix.sequence
        width = sequence.logits(hidden, rows[:1]).shape[1]
        step = rows_at_once(width)
        norm = np.empty(len(rows))
        parts: list[mx.array] = []
        for start in range(0, len(rows), step):
            logits = self._tempered(sequence.logits(hidden, rows[start : start + step]))
            norm[start : start + step] = row_logsumexp(logits)
            parts.append(logits)
        if not np.isfinite(norm).all():
            raise ScoreError(
                self._subject,
                "got NaN or infinite logits from the model",
                "scores must be finite numbers",
                "check the model's files, or run it in float32",
            )
        return Read(_joined(parts), norm)

    def _run(self, tokens: Ints, parents: NDArray[np.int32]) -> None:
        """Run nodes in the next slots; parents are slots. A chain leads from the prompt to node 0."""
        hidden = self._prefix.branch(tokens, parents, self._prompt[: self._base])
        self._hidden.append(hidden)
        self._starts.append(self.nodes + len(tokens))

    def _rows(self, nodes: NDArray[np.int64]) -> tuple[mx.array, list[int]]:
        """Hidden states of the passes that the nodes ran in, and their rows in these."""
        part = np.searchsorted(self._starts, nodes, side="right") - 1
        used = np.unique(part)
        sizes = np.diff(self._starts)[used]
        shift = np.cumsum([0, *sizes])[: len(used)] - np.array(self._starts)[used]
        hidden = [self._hidden[number] for number in used.tolist()]
        rows = nodes + shift[np.searchsorted(used, part)]
        return hidden[0] if len(hidden) == 1 else mx.concatenate(hidden), rows.tolist()

    def _tempered(self, logits: mx.array) -> mx.array:
        if self._power == 1:
            return logits
        # Less the greatest, so that a low temperature leaves float32's range only where nothing is likely.
        return (logits - logits.max(axis=-1, keepdims=True)) * self._power


def _joined(parts: list[mx.array]) -> Logits:
    """The rows in one array, on a CPU as NumPy sees them: without a copy where there is one part."""
    if not on_cpu():
        return parts[0] if len(parts) == 1 else mx.concatenate(parts)
    mx.eval(*parts)
    if len(parts) == 1:
        return buffer(parts[0])
    whole = np.empty((sum(len(part) for part in parts), parts[0].shape[1]), dtype=np.float32)
    ends = np.cumsum([0, *(len(part) for part in parts)]).tolist()
    for (start, stop), part in zip(pairwise(ends), parts, strict=True):
        whole[start:stop] = buffer(part)
    return whole
