"""The work that a request cannot avoid, counted from the model's own shapes and the slots it fills.

Nothing is taken from a config: linear layers are found in the module tree, keys and values are watched in one
forward of two tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from pcdc_runtime.tree import Slots

from .taps import Function, wrapped

if TYPE_CHECKING:
    from pcdc_runtime.mlx_model import MlxModel
    from pcdc_runtime.plan import Plan


@dataclass(frozen=True)
class Linear:
    """One matrix of weights that a token meets `uses` times; `bytes` is its size where it lies."""

    path: str
    inputs: int
    outputs: int
    bytes: int
    uses: int = 1

    @property
    def flops(self) -> int:
        """Multiplications and additions for one token."""
        return 2 * self.inputs * self.outputs * self.uses


@dataclass(frozen=True)
class Attention:
    """The attention of one layer: heads of queries and of keys, widths of a key and of a value."""

    heads: int
    key_heads: int
    key_width: int
    value_width: int
    window: int | None

    @property
    def flops(self) -> int:
        """Multiplications and additions for one pair of a row and a slot that it sees: score and value."""
        return 2 * self.heads * (self.key_width + self.value_width)


@dataclass(frozen=True)
class ModelShape:
    """What one token costs in a model: its linear layers, its head apart, and the rest by elements."""

    linears: tuple[Linear, ...]
    head: Linear
    attentions: tuple[Attention, ...]
    gated: int
    normed: int
    hidden: int
    itemsize: int

    @cached_property
    def weight_bytes(self) -> int:
        """What one forward reads at least, without the head."""
        return sum(linear.bytes for linear in self.linears)

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one slot."""
        widths = sum(a.key_heads * (a.key_width + a.value_width) for a in self.attentions)
        return widths * self.itemsize


@dataclass(frozen=True)
class Work:
    """Amounts: floating-point operations by kind, exponentials, and bytes that must move.

    `streamed` are bytes of activations, which a cache may hold; `read` are weights, keys and values, read
    once.
    """

    positions: int = 0
    products: float = 0
    attention: float = 0
    exponentials: float = 0
    head: float = 0
    streamed: float = 0
    read: float = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def forward_work(shape: ModelShape, slots: Slots, start: int) -> Work:
    """The work of running the slots from `start` on, the earlier ones being there."""
    rows = len(slots) - start
    if not rows:
        return Work()
    seen = [pairs(slots, start, attention.window) for attention in shape.attentions]
    rotated = sum((a.heads + a.key_heads) * a.key_width for a in shape.attentions)
    # Norms, rotations and residual sums read what they change and write it; a gate reads two and writes one.
    touched = 2 * shape.normed + 2 * rotated + 3 * 2 * len(shape.attentions) * shape.hidden + 3 * shape.gated
    return Work(
        positions=rows,
        products=float(rows) * sum(linear.flops for linear in shape.linears),
        attention=float(sum(a.flops * n for a, n in zip(shape.attentions, seen, strict=True))),
        exponentials=float(
            sum(a.heads * n for a, n in zip(shape.attentions, seen, strict=True)) + rows * shape.gated
        ),
        streamed=float(rows) * touched * shape.itemsize,
        read=float(shape.weight_bytes + len(slots) * shape.kv_bytes),
    )


def head_work(shape: ModelShape, plans: Sequence[Plan]) -> Work:
    """The work of reading the picks of these passes.

    Where a rule needs no log-sum-exp over the vocabulary, only the rows of the head that are picked count.
    """
    rows = logits = exponentials = read = 0
    row_bytes = shape.head.bytes / shape.head.outputs
    for plan in plans:
        count = len(plan.row)
        picked = len(plan.edge_token) + sum((end.last - end.first) * len(end.ids) for end in plan.ends)
        rows += count
        logits += count * shape.head.outputs if plan.reads_vocabulary else picked
        exponentials += count * shape.head.outputs if plan.reads_vocabulary else 0
        read += shape.head.outputs if plan.reads_vocabulary else min(picked, shape.head.outputs)
    return Work(
        positions=rows,
        head=2.0 * logits * shape.head.inputs,
        exponentials=float(exponentials),
        read=read * row_bytes,
    )


def pairs(slots: Slots, start: int, window: int | None) -> int:
    """How many pairs of a new row and a slot that it sees there are from `start` on.

    A slot sees itself and its ancestors, as many as its position says, and of those the nearest `window`.
    """
    seen = slots.position[start:].astype(np.int64) + 1
    return int(np.minimum(seen, window).sum() if window is not None else seen.sum())


def model_shape(model: MlxModel) -> ModelShape:
    """Read a model's shapes; call on its owner thread."""
    from pcdc_runtime.mlx_model import LayerKV

    trunk: Any = model.trunk
    linears = tuple(_linears(trunk))
    written: list[tuple[Any, Any, int | None]] = []

    def watching(own: Function) -> Function:
        def update_and_fetch(layer: LayerKV, keys: Any, values: Any) -> Any:
            written.append((keys.shape, values.shape, layer.window))
            return own(layer, keys, values)

        return update_and_fetch

    with wrapped(LayerKV, "update_and_fetch", watching):
        state = model.sequence().append(np.zeros(2, dtype=np.int32))
    hidden = int(state.shape[-1])
    gathered = _by_layer([x for x in linears if _of_attention(x) and x.outputs == hidden], lambda x: x.inputs)
    attentions = tuple(
        Attention(width // values[3], keys[1], keys[3], values[3], window)
        for width, (keys, values, window) in zip(gathered.values(), written, strict=True)
    )
    between = _by_layer([x for x in linears if not _of_attention(x)], lambda x: x.inputs * x.uses)
    return ModelShape(
        linears=linears,
        head=_head(model, hidden),
        attentions=attentions,
        gated=sum(between.values()),
        normed=sum(_norm_width(module) for module in trunk.modules()),
        hidden=hidden,
        itemsize=state.dtype.size,
    )


def _linears(trunk: Any) -> Iterator[Linear]:
    modules = dict(trunk.named_modules())
    for path, module in sorted(modules.items()):
        if not type(module).__name__.endswith("Linear") or "weight" not in module:
            continue
        weight = module["weight"]
        uses, experts = 1, 1
        if weight.ndim == 3:
            uses, experts = _experts_used(modules, path), weight.shape[0]
        yield Linear(path, _inputs(module), weight.shape[-2], _bytes(module) * uses // experts, uses)


def _inputs(module: Any) -> int:
    width = int(module["weight"].shape[-1])
    return width * 32 // int(module.bits) if "scales" in module else width


def _bytes(module: Any) -> int:
    return sum(int(module[key].nbytes) for key in ("weight", "scales", "biases", "bias") if key in module)


def _experts_used(modules: dict[str, Any], path: str) -> int:
    """How many experts a token goes to, by the nearest module around that says so; one at least."""
    while path:
        path = path.rpartition(".")[0]
        around = [module for name, module in modules.items() if f"{name}.".startswith(f"{path}.")]
        for module, name in product(around, ("top_k", "num_experts_per_tok")):
            used = getattr(module, name, None)
            if isinstance(used, int):
                return used
    return 1


def _head(model: MlxModel, hidden: int) -> Linear:
    """The output head: a linear layer beside the trunk, or else the embedding that it is tied to."""
    trunk: Any = model.trunk
    language: Any = model.language
    inside = {id(module) for module in trunk.modules()}
    outside = [
        (path, module)
        for path, module in language.named_modules()
        if id(module) not in inside and type(module).__name__.endswith("Linear")
    ]
    tied = [
        (path, module)
        for path, module in trunk.named_modules()
        if type(module).__name__.endswith("Embedding") and module["weight"].shape[0] == model.logits_width
    ]
    path, module = (outside or tied)[0]
    return Linear(path, hidden, model.logits_width, _bytes(module))


def _of_attention(linear: Linear) -> bool:
    return any("attn" in part or "attention" in part for part in linear.path.split("."))


def _by_layer(linears: Sequence[Linear], size: Callable[[Linear], int]) -> dict[int, int]:
    """The largest size in each numbered layer, in the layers' order.

    Of what goes back into the hidden state, the widest input in attention is what its heads gathered, and
    beside attention what the activation gave.
    """
    largest: dict[int, int] = {}
    for linear in linears:
        layer = next((int(part) for part in linear.path.split(".") if part.isdigit()), None)
        if layer is not None:
            largest[layer] = max(largest.get(layer, 0), size(linear))
    return dict(sorted(largest.items()))


def _norm_width(module: Any) -> int:
    return int(module["weight"].shape[-1]) if "Norm" in type(module).__name__ and "weight" in module else 0
