"""Unmodified mlx-lm models as token forests.

Every attention layer gets a cache object of ours: a full-length buffer written in place, per-token positions
as its `offset`, and the tree mask from `make_mask`. The sliding window of a layer lives in the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .artifact import Ints
from .errors import ModelNotSupportedError
from .fast_mlx import Module, mx
from .head import Head
from .model import KVPart
from .tree import CHUNK, Block, Slots, chunks
from .wiring import forest_pass, wire

SLACK = 256
TRUNKS = ("model", "transformer", "backbone")
ROPES = ("rope", "rotary_emb")
# Nats between two ways to compute the same log-probability: a wrong mask or position costs 0.3 and more.
PROBE_TOLERANCE = {"float32": 0.02}
PROBE_TOLERANCE_HALF = 0.25


class MlxModel:
    """An mlx-lm model, made for one thread: the one that makes it must make every call.

    `language` is changed: its rotary layers also take an array of positions afterwards. `windows` has one
    entry per layer cache, None for full attention. Raises ModelNotSupportedError where the model's tree pass
    disagrees with its own plain forward.
    """

    def __init__(
        self,
        language: Module,
        name: str,
        windows: Sequence[int | None],
        *,
        window: int | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.name = name
        self.window = window
        self.chunk = chunk
        self.windows = tuple(windows)
        self.language = language
        self.trunk = _wire(name, language)
        wire(language)
        self.head = Head(language, _trunk_key(name, language))
        self.logits_width, self.dtype, self.kv_layout = _probe(self)
        self.kv_bytes_per_token = sum(part.bytes_per_token for layer in self.kv_layout for part in layer)

    def sequence(self) -> MlxSequence:
        """A new, empty sequence."""
        return MlxSequence(self)


class MlxSequence:
    """The KV buffers of one growing forest, one per layer, and the slots that fill them."""

    def __init__(self, model: MlxModel) -> None:
        self._model = model
        self._slots = Slots.empty()
        self._layers = [LayerKV(window) for window in model.windows]
        self.capacity = 0
        self.passes = 0
        self.bytes_copied = 0

    @property
    def length(self) -> int:
        """The number of occupied slots."""
        return len(self._slots)

    @property
    def bytes_held(self) -> int:
        """The size of all buffers, slack included."""
        return sum(layer.nbytes for layer in self._layers)

    def append(self, tokens: Ints, parents: Ints | None = None) -> mx.array:
        """Run tokens in new slots and give their last hidden states, [len(tokens), width].

        Raises ValueError for no tokens, and for parents that do not come before their children.
        """
        if not len(tokens):
            raise ValueError("there are no tokens to append")
        if parents is not None and len(parents) != len(tokens):
            raise ValueError("tokens and parents differ in number")
        slots = self._slots.chained(len(tokens)) if parents is None else self._slots.branched(parents)
        self.reserve(len(slots))
        ids = np.asarray(tokens, dtype=np.int32)
        hidden: list[mx.array] = []
        for start, stop in chunks(self.length, len(slots), self._model.chunk):
            part = _Pass.of(slots, start, stop)
            for layer in self._layers:
                layer.step = part
            with forest_pass():
                rows = self._model.trunk(
                    mx.array(ids[None, start - self.length : stop - self.length]), cache=self._layers
                )
            # Evaluated here so that no view of a buffer is alive when the next part is written in place.
            mx.eval(rows, *(layer.state for layer in self._layers))
            self.passes += 1
            hidden.append(rows[0])
        self._slots = slots
        return mx.concatenate(hidden)

    def truncate(self, length: int) -> None:
        """Forget all slots from `length` on; nothing moves. Raises ValueError beyond the length."""
        self._slots = self._slots.truncated(length)

    @property
    def layout(self) -> tuple[tuple[KVPart, ...], ...]:
        """What each layer's buffers hold; nothing for a layer that has not run."""
        return tuple(tuple(_part(buffer) for buffer in layer.state) for layer in self._layers)

    def held(self, length: int) -> Iterator[mx.array]:
        """Views of the keys and values of the first `length` slots, in the order of the layout."""
        return (buffer[..., :length, :] for layer in self._layers for buffer in layer.state)

    def adopt(self, length: int, layers: Iterable[tuple[mx.array, mx.array]]) -> None:
        """Hold `length` slots, each the child of the one before, with these keys and values, by layer.

        Each pair is copied into the buffers before the next is asked for. Where `layers` raises, the sequence
        is empty. Raises ValueError for another number of layers.
        """
        self.truncate(0)
        self.reserve(length)
        for layer, (keys, values) in zip(self._layers, layers, strict=True):
            layer.write(0, keys, values)
            mx.eval(*layer.state)
        self._slots = self._slots.chained(length)

    def logits(self, hidden: mx.array, rows: Sequence[int], ids: Ints | None = None) -> mx.array:
        """Logits of those rows of `hidden` by the family's own head, float32 [len(rows), logits_width].

        With `ids`, only those columns.
        """
        return self._model.head(hidden[mx.array(list(rows), dtype=mx.int32)], ids)

    def reserve(self, slots: int) -> None:
        """Make room for that many slots, and some more."""
        if slots <= self.capacity:
            return
        self.capacity = -(-(slots + slots // 4) // SLACK) * SLACK
        for layer in self._layers:
            self.bytes_copied += layer.grow(self.capacity, self.length)


@dataclass
class _Pass:
    """One forward: new slots `start` to `stop`, their positions as `offset`, and the masks made so far."""

    slots: Slots
    start: int
    stop: int
    offset: int | mx.array
    masks: dict[int | None, mx.array] = field(default_factory=dict)

    @classmethod
    def of(cls, slots: Slots, start: int, stop: int) -> _Pass:
        positions = slots.position[start:stop]
        run = slots.is_run(start, stop)
        return cls(slots, start, stop, int(positions[0]) if run else mx.array(positions))

    def mask(self, window: int | None, as_array: bool) -> mx.array | str | None:
        """The attention mask: true where seen, or mlx-lm's short forms where every earlier slot is seen."""
        if self.slots.is_causal(self.stop, window):
            if self.stop - self.start == 1:
                return None
            if not as_array:
                return "causal"
        if self.slots.within(self.stop, window):
            window = None
        if window not in self.masks:
            self.masks[window] = mx.array(self.slots.visible(self.start, self.stop, window))
        return self.masks[window]

    def blocks_of(self, mask: object) -> tuple[Block, ...] | None:
        """The blocks that say the same as one of these masks; None for a window's, and for any other's."""
        if mask == "causal" if isinstance(mask, str) else mask is self.masks.get(None):
            return self.blocks
        return None

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All rows in blocks, without a window."""
        return self.slots.blocks(self.start, self.stop)


class LayerKV:
    """What an attention layer of mlx-lm takes for its cache: keys and values, [1, heads, capacity, width]."""

    step: _Pass

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.capacity = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def offset(self) -> int | mx.array:
        """The position of the first new token, or the position of each."""
        return self.step.offset

    @property
    def state(self) -> list[mx.array]:
        """The buffers there are."""
        return [b for b in (self.keys, self.values) if b is not None]

    @property
    def nbytes(self) -> int:
        """The size of both buffers."""
        return sum(b.nbytes for b in self.state)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        """The mask of the current forward for this layer's window."""
        return self.step.mask(window_size or self.window, return_array)

    def blocks(self, mask: object) -> tuple[Block, ...] | None:
        """What a mask of the current forward says, in blocks; None where only the mask can say it."""
        return self.step.blocks_of(mask)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write the new slots in place and give views of everything up to them."""
        return self.write(self.step.start, keys, values)

    def write(self, start: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write the slots from `start` on in place and give views of everything up to them."""
        if self.keys is None or self.values is None:
            self.keys, self.values = (
                mx.zeros((*x.shape[:2], self.capacity, x.shape[3]), x.dtype) for x in (keys, values)
            )
        stop = start + keys.shape[2]
        self.keys[..., start:stop, :] = keys
        self.values[..., start:stop, :] = values
        return self.keys[..., :stop, :], self.values[..., :stop, :]

    def grow(self, capacity: int, length: int) -> int:
        """Make room for `capacity` slots, keep the first `length`, and give the number of bytes copied."""
        self.capacity = capacity
        self.keys, self.values = (self._grown(b, length) for b in (self.keys, self.values))
        return sum(b.nbytes // capacity * length for b in self.state)

    def _grown(self, buffer: mx.array | None, length: int) -> mx.array | None:
        if buffer is None:
            return None
        grown = mx.zeros((*buffer.shape[:2], self.capacity, buffer.shape[3]), buffer.dtype)
        grown[..., :length, :] = buffer[..., :length, :]
        mx.eval(grown)
        return grown


class PerTokenRope(Module):
    """A rotary layer that also takes one position per token, of a batch of one.

    mlx's rotary kernels take one offset per batch row, so tokens move to the batch axis and back.
    """

    def __init__(self, base: Callable[..., mx.array]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.base = base

    def __call__(self, x: mx.array, offset: int | mx.array = 0, *args: Any, **kwargs: Any) -> mx.array:
        if isinstance(offset, int) or offset.ndim == 0 or len(x) > 1:
            return self.base(x, offset, *args, **kwargs)
        rotated = self.base(x.transpose(2, 1, 0, 3), offset, *args, **kwargs)
        return rotated.transpose(2, 1, 0, 3)


def _trunk_key(name: str, language: Module) -> str:
    for key in TRUNKS:
        if key in language:
            return key
    raise _drift(name, f"{type(language).__module__} has no trunk of a known name")


def _wire(name: str, language: Module) -> Module:
    """The trunk of a model, its rotary layers wrapped. Raises ModelNotSupportedError for other state."""
    trunk: Module = language[_trunk_key(name, language)]
    for path, module in language.named_modules():  # type: ignore[no-untyped-call]
        kind = type(module).__name__
        if "Conv" in kind or kind == "DynamicNTKScalingRoPE":
            raise ModelNotSupportedError(
                name, f"has a {kind} layer at {path}", "a tree pass shares keys and values only"
            )
        for key in ROPES:
            rope = getattr(module, key, None)
            if callable(rope) and not isinstance(rope, PerTokenRope):
                setattr(module, key, PerTokenRope(rope))
    return trunk


def _drift(name: str, fact: str) -> ModelNotSupportedError:
    return ModelNotSupportedError(
        name,
        fact,
        "its own plain forward and a tree pass must both run here, and agree",
        "choose another model, or an mlx-lm version inside pcdc's range",
    )


def _probe(model: MlxModel) -> tuple[int, str, tuple[tuple[KVPart, ...], ...]]:
    """Logits width, type and KV layout, found by running a small forest and its paths one by one."""
    try:
        sequence = model.sequence()
        # Known without being computed.
        width: int = model.language(mx.array([[0]])).shape[-1]
        ids = (np.arange(11) % width).astype(np.int32)
        parents = np.array([-1, 0, 1, 2, 3, 4, 4, 3, 5, 7, 2], dtype=np.int32)
        parts = [
            sequence.append(ids[:4]),
            sequence.append(ids[4:8], parents[4:8]),
            sequence.append(ids[8:], parents[8:]),
        ]
        hidden = mx.concatenate(parts)
        tree = sequence.logits(hidden, range(len(ids)))
        worst = _difference(model, tree, ids, [_path(parents, leaf) for leaf in (6, 8, 9, 10)])
    except Exception as error:
        raise _drift(model.name, f"cannot run a tree pass ({type(error).__name__}: {error})") from error
    dtype = _name(hidden.dtype)
    limit = PROBE_TOLERANCE.get(dtype, PROBE_TOLERANCE_HALF)
    if not worst <= limit:
        raise _drift(model.name, f"scores a tree {worst:.3g} nats off its own plain forward (limit {limit})")
    model.head.prove(hidden, tree, limit)
    return width, dtype, sequence.layout


def _part(buffer: mx.array) -> KVPart:
    _, heads, _, width = buffer.shape
    return KVPart(_name(buffer.dtype), heads, width, buffer.itemsize)


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).rpartition(".")[2]


def _path(parents: Ints, slot: int) -> list[int]:
    path: list[int] = []
    while slot >= 0:
        path.append(slot)
        slot = int(parents[slot])
    return path[::-1]


def _difference(model: MlxModel, tree: mx.array, ids: Ints, paths: Sequence[Sequence[int]]) -> float:
    """The largest difference of a log-probability along paths of slots, run plainly as one batch.

    What a path is filled up with comes after it, where it cannot see.
    """
    filled = np.zeros((len(paths), max(map(len, paths))), dtype=np.int32)
    for row, path in zip(filled, paths, strict=True):
        row[: len(path)] = ids[list(path)]
    plain = model.language(mx.array(filled)).astype(mx.float32)
    on_paths = mx.concatenate([one[: len(path)] for one, path in zip(plain, paths, strict=True)])
    slots = mx.array([slot for path in paths for slot in path])
    logs = [x - mx.logsumexp(x, axis=-1, keepdims=True) for x in (tree[slots], on_paths)]
    # Not by MLX: its maximum may pass over what is not a number.
    return float(np.abs(np.array(logs[0]) - np.array(logs[1])).max())
