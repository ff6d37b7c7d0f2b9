"""How fast this process multiplies, exponentiates and moves memory, measured just before it is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from pcdc_runtime.mlx_model import MlxModel

    from .work import ModelShape

Clock: TypeAlias = Callable[[], float]

SECONDS = 0.15
"""How long one rate is measured at most, warm-up aside."""
ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Rates:
    """Operations per second of products (weights, attention, head), exponentials and bytes per second.

    `streamed` is of element-wise work on activations, `read` of a forward of one row, which reads all
    weights once.
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
        read=_read_rate(model, shape, clock),
    )


def best(job: Callable[[], object], clock: Clock, seconds: float = SECONDS) -> float:
    """The shortest time that the job took, of at least three tries after one that is not counted."""
    job()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < 50):
        started = clock()
        job()
        times.append(clock() - started)
    return max(min(times), 1e-9)


def _products_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, clock: Clock) -> float:
    """Each matrix of another size once, weighed by how often a token meets one of that size."""
    uses = Counter[tuple[int, int]]()
    for linear in shape.linears:
        uses[linear.inputs, linear.outputs] += linear.uses
    seconds = 0.0
    for (inputs, outputs), count in uses.items():
        x = mx.random.normal((rows, inputs)).astype(dtype)
        weight = mx.random.normal((outputs, inputs)).astype(dtype)
        mx.eval(x, weight)
        seconds += count * best(partial(_evaluated_product, mx, x, weight), clock)
    return rows * sum(linear.flops for linear in shape.linears) / seconds


def _evaluated_product(mx: Any, x: Any, weight: Any) -> None:
    mx.eval(x @ weight.T)


def _attention_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, columns: int, clock: Clock) -> float:
    """Scores and values of one layer, the heads of a group as rows of one product."""
    layer = max(shape.attentions, key=lambda a: a.heads * a.key_width)
    grouped = rows * layer.heads // layer.key_heads
    queries = mx.random.normal((layer.key_heads, grouped, layer.key_width)).astype(dtype)
    keys = mx.random.normal((layer.key_heads, layer.key_width, columns)).astype(dtype)
    weights = mx.random.normal((layer.key_heads, grouped, columns)).astype(dtype)
    values = mx.random.normal((layer.key_heads, columns, layer.value_width)).astype(dtype)
    mx.eval(queries, keys, weights, values)
    seconds = best(lambda: mx.eval(queries @ keys, weights @ values), clock)
    return layer.flops * rows * columns / seconds


def _head_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, clock: Clock) -> float:
    """The output head on as many of the rows as keep its logits within 64 MB."""
    head = shape.head
    rows = max(1, min(rows, 2**24 // head.outputs))
    x = mx.random.normal((rows, head.inputs)).astype(dtype)
    weight = mx.random.normal((head.outputs, head.inputs)).astype(dtype)
    mx.eval(x, weight)
    return rows * head.flops / best(partial(_evaluated_product, mx, x, weight), clock)


def _exponential_rate(mx: Any, dtype: Any, clock: Clock) -> float:
    """The fastest exponential that this process has: MLX's own, or NumPy's where that is used."""
    from pcdc_runtime.exponential import in_numpy

    x = mx.random.normal((ELEMENTS,)).astype(dtype)
    mx.eval(x)
    if not in_numpy(x):
        return ELEMENTS / best(lambda: mx.eval(mx.exp(x)), clock)
    numbers = np.array(x)
    out = np.empty_like(numbers)
    return ELEMENTS / best(lambda: np.exp(numbers, out=out), clock)


def _stream_rate(mx: Any, shape: ModelShape, dtype: Any, rows: int, clock: Clock) -> float:
    """The sum of two arrays of hidden states: two are read and one is written."""
    x, y = (mx.random.normal((rows, shape.hidden)).astype(dtype) for _ in range(2))
    mx.eval(x, y)
    return 3 * rows * shape.hidden * shape.itemsize / best(lambda: mx.eval(x + y), clock)


def _read_rate(model: MlxModel, shape: ModelShape, clock: Clock) -> float:
    """Weights per second in a forward of one token."""
    sequence = model.sequence()
    token = np.zeros(1, dtype=np.int32)

    def step() -> None:
        sequence.truncate(0)
        sequence.append(token)

    return shape.weight_bytes / best(step, clock)
