"""How fast this process multiplies, exponentiates and moves memory, measured just before it is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .machine import cores

if TYPE_CHECKING:
    from pcdc_runtime.mlx_model import MlxModel

    from .work import ModelShape

Clock: TypeAlias = Callable[[], float]

SECONDS = 0.15
"""How long one rate is measured at most, warm-up aside."""
MOST_TRIES = 50
SHORT = 0.002
"""Steps that take less, in seconds, are timed several together."""
TOGETHER = 16
BLOCKS = ((32, 512), (64, 1024), (128, 512))
"""Rows and columns of attention that are tried beside the whole."""
ELEMENTS = 1 << 20
PIECE = 1 << 15
TILE = 2048
"""Tokens of the vocabulary whose logits stay in a cache."""


@dataclass(frozen=True)
class Rates:
    """Operations per second of products (weights, attention, head), exponentials and bytes per second.

    `streamed` is of element-wise work on activations, `read` of products of all weights with one row.
    """

    products: float
    attention: float
    head: float
    exponentials: float
    streamed: float
    read: float


def measure_rates(
    model: MlxModel, shape: ModelShape, rows: int, columns: int, clock: Clock = perf_counter
) -> Rates:
    """The rates at `rows` tokens in a forward that see `columns` slots; call on the owner thread.

    Each is the best of several tries: what the machine can do, not what it did.
    """
    from pcdc_runtime.fast_mlx import mx

    dtype = getattr(mx, model.dtype)
    return Rates(
        products=_products_rate(mx, shape, dtype, rows, clock),
        attention=_attention_rate(mx, shape, dtype, rows, columns, clock),
        head=_head_rate(mx, shape, dtype, rows, clock),
        exponentials=_exponential_rate(mx, dtype, clock),
        streamed=_stream_rate(mx, shape, dtype, rows, clock),
        read=_read_rate(mx, model, shape, dtype, clock),
    )


def best(
    step: Callable[[], Any], wait: Callable[[Any], object], clock: Clock, seconds: float = SECONDS
) -> float:
    """The shortest time of one step, of at least three tries after one that is not counted.

    Short steps are queued several together and waited for once: on a GPU waiting costs more than they do.
    """
    wait([step()])
    times: list[float] = []
    together = 1
    while len(times) < 3 or (sum(times) < seconds and len(times) < MOST_TRIES):
        started = clock()
        wait([step() for _ in range(together)])
        times.append((clock() - started) / together)
        together = min(TOGETHER, max(1, round(SHORT / max(times[-1], 1e-9))))
    return max(min(times), 1e-9)


def _products_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, clock: Clock) -> float:
    """Each matrix of another size once, weighed by how often a token meets one of that size."""
    uses = Counter[tuple[int, int]]()
    for linear in shape.linears:
        uses[linear.inputs, linear.outputs] += linear.uses
    seconds = sum(
        count * _product_seconds(mx, (rows, inputs), (outputs, inputs), dtype, clock)
        for (inputs, outputs), count in uses.items()
    )
    return rows * sum(linear.flops for linear in shape.linears) / seconds


def _head_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, clock: Clock) -> float:
    """The output head on as many of the rows as keep its logits within 64 MB, whole and in tiles."""
    head = shape.head
    rows = max(1, min(rows, 2**24 // head.outputs))
    return max(
        2
        * rows
        * head.inputs
        * outputs
        / _product_seconds(mx, (rows, head.inputs), (outputs, head.inputs), dtype, clock)
        for outputs in {head.outputs, min(head.outputs, TILE)}
    )


def _product_seconds(
    mx: Any, rows: tuple[int, int], weights: tuple[int, int], dtype: Any, clock: Clock
) -> float:
    x, weight = (mx.random.normal(size).astype(dtype) for size in (rows, weights))
    mx.eval(x, weight)
    return best(lambda: x @ weight.T, mx.eval, clock)


def _attention_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, columns: int, clock: Clock) -> float:
    """Scores and values of one layer, the heads of a group as rows of one product, at the best block size.

    A GPU likes them whole, a CPU in blocks that stay in its caches.
    """
    blocks = {(rows, columns), *((min(rows, r), min(columns, c)) for r, c in BLOCKS)}
    return max(_block_rate(mx, shape, dtype, *block, clock) for block in blocks)


def _block_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, columns: int, clock: Clock) -> float:
    layer = max(shape.attentions, key=lambda a: a.heads * a.key_width)
    grouped = rows * layer.heads // layer.key_heads
    queries, keys, weights, values = (
        mx.random.normal((layer.key_heads, *size)).astype(dtype)
        for size in (
            (grouped, layer.key_width),
            (layer.key_width, columns),
            (grouped, columns),
            (columns, layer.value_width),
        )
    )
    mx.eval(queries, keys, weights, values)
    seconds = best(lambda: (queries @ keys, weights @ values), mx.eval, clock)
    return layer.flops * rows * columns / seconds


def _exponential_rate(mx: Any, dtype: Any, clock: Clock) -> float:
    """The fastest exponential that this process has: MLX's own, or what the runtime uses in its place.

    That computes pieces that stay in a core's cache, on one core or on all.
    """
    from pcdc_runtime.exponential import exp, in_numpy

    x = mx.random.normal((ELEMENTS,)).astype(dtype)
    mx.eval(x)
    if not in_numpy(x):
        return ELEMENTS / best(lambda: mx.exp(x), mx.eval, clock)
    workers = cores() or 1
    out = np.empty_like(np.array(x))
    pieces = list(zip(*(np.split(a, ELEMENTS // PIECE) for a in (np.array(x), out)), strict=True))

    def own(numbers: Any, place: Any) -> None:
        np.copyto(place, numbers)
        exp(place)

    def work(way: Callable[..., object], worker: int, step: int) -> None:
        for numbers, place in pieces[worker::step]:
            way(numbers, place)

    def together(way: Callable[..., object]) -> list[None]:
        return list(pool.map(partial(work, way), range(workers), repeat(workers)))

    with ThreadPoolExecutor(workers) as pool:
        jobs = [job for way in (np.exp, own) for job in (partial(work, way, 0, 1), partial(together, way))]
        return ELEMENTS / min(best(job, len, clock) for job in jobs)


def _stream_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, clock: Clock) -> float:
    """The sum of two arrays of hidden states: two are read and one is written."""
    x, y = (mx.random.normal((rows, shape.hidden)).astype(dtype) for _ in range(2))
    mx.eval(x, y)
    return 3 * rows * shape.hidden * shape.itemsize / best(lambda: x + y, mx.eval, clock)


def _read_rate(mx: Any, model: MlxModel, shape: ModelShape, dtype: Any, clock: Clock) -> float:
    """The model's own linear layers, each on one row: every weight is read and used once.

    Layers of experts are left out, they run only beside their choice of experts.
    """
    trunk: Any = model.trunk
    modules = dict(trunk.named_modules())
    dense = [linear for linear in shape.linears if modules[linear.path]["weight"].ndim == 2]
    layers = [(modules[x.path], mx.random.normal((1, x.inputs)).astype(dtype)) for x in dense]
    mx.eval([row for _, row in layers])
    seconds = best(lambda: [layer(row) for layer, row in layers], mx.eval, clock)
    return sum(linear.bytes for linear in dense) / seconds
