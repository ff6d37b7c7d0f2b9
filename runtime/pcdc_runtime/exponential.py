"""Exponentials on x86 CPUs, where MLX computes them one element at a time: 26 ns each, NumPy's take 1.5.

NumPy works on MLX's own buffers, without a copy.
"""

from __future__ import annotations

import platform
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .fast_mlx import mx


def in_numpy(*arrays: mx.array) -> bool:
    """Whether exponentials of these are NumPy's to compute: float32, on an x86 CPU."""
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    return on_cpu and _on_x86() and all(x.dtype == mx.float32 for x in arrays)


@cache
def _on_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def buffer(x: mx.array) -> NDArray[np.float32]:
    """The memory of an evaluated array: what is written there is in the array."""
    return np.array(x, copy=False)


def swiglu(gate: mx.array, x: mx.array) -> mx.array:
    """`silu(gate) * x`, evaluated."""
    out = mx.negative(gate)
    mx.eval(out, gate, x)
    work = buffer(out)
    # exp(-gate) is infinite below -88, and the quotient then 0 as it should be; infinite gates give what MLX
    # gives, and like MLX no warning.
    with np.errstate(over="ignore", invalid="ignore"):
        np.exp(work, out=work)
        np.add(work, 1, out=work)
        np.divide(buffer(gate), work, out=work)
        np.multiply(work, buffer(x), out=work)
    return out


def logsumexp(x: mx.array) -> NDArray[np.float64]:
    """Log-sum-exp of each row of a matrix; NumPy adds in pairs, so float32 sums are exact enough."""
    mx.eval(x)
    rows = buffer(x)
    top = rows.max(axis=-1)
    level = np.where(np.isfinite(top), top, np.float32(0))
    work = np.empty_like(rows[0])
    total = np.empty(len(rows))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for index, row in enumerate(rows):
            np.subtract(row, level[index], out=work)
            np.exp(work, out=work)
            total[index] = work.sum()
        return np.log(total) + level
