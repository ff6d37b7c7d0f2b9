"""Exponentials on x86 CPUs, where MLX computes them one element at a time: 26 ns each.

NumPy's take 1.5 ns, MKL's 1.0. Both work on MLX's own buffers, without a copy, and rows are shared out to as
many threads as the BLAS has.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .blas import load_fast_blas, threads
from .fast_mlx import mx

SHARE = 32 * 1024
"""The fewest elements that are worth a thread of their own."""

ONE_CALL = 16 * 1024
"""From how many elements on a call of MKL is worth what it costs to make."""
# Error of 1 in the last place at most; infinities are results like others.
VML_MODE = 0x1 | 0x100


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


def exp(x: NDArray[np.float32]) -> None:
    """Exponentials in place, in the calling thread only."""
    mkl = _mkl() if x.size >= ONE_CALL and x.flags.c_contiguous else None
    if mkl is None:
        np.exp(x, out=x)
        return
    before = mkl.MKL_Set_Num_Threads_Local(1)
    mkl.vmsExp(x.size, x.ctypes.data, x.ctypes.data, VML_MODE)
    mkl.MKL_Set_Num_Threads_Local(before)


@cache
def _mkl() -> ctypes.CDLL | None:
    """MKL with its exponential, where that is the BLAS."""
    blas = load_fast_blas()
    if blas.name != "mkl" or blas.path is None:
        return None
    library = ctypes.CDLL(blas.path)
    if not hasattr(library, "vmsExp") or not hasattr(library, "MKL_Set_Num_Threads_Local"):
        return None
    library.vmsExp.argtypes = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    library.vmsExp.restype = None
    return library


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, threads() - 1), thread_name_prefix="pcdc-exp")


def by_rows(work: Callable[[int, int], None], rows: int, width: int) -> None:
    """Call `work` for ranges of rows that together are all of them, each range in a thread of its own."""
    count = max(1, min(threads(), rows, rows * width // SHARE))
    ranges = [(rows * n // count, rows * (n + 1) // count) for n in range(count)]
    others = []
    for share in ranges[1:]:
        try:
            others.append(_pool().submit(work, *share))
        except RuntimeError:  # the interpreter is ending, and starts nothing in a thread any more
            work(*share)
    work(*ranges[0])
    for other in others:
        other.result()


def swiglu(gate: mx.array, x: mx.array) -> mx.array:
    """`silu(gate) * x`, evaluated."""
    out = mx.negative(gate)
    mx.eval(out, gate, x)
    result, gates, inputs = (buffer(a).reshape(-1, a.shape[-1]) for a in (out, gate, x))

    def work(low: int, high: int) -> None:
        piece = result[low:high]
        # exp(-gate) is infinite below -88, and the quotient then 0 as it should be; infinite gates give what
        # MLX gives, and like MLX no warning.
        with np.errstate(over="ignore", invalid="ignore"):
            exp(piece)
            np.add(piece, 1, out=piece)
            np.divide(gates[low:high], piece, out=piece)
            np.multiply(piece, inputs[low:high], out=piece)

    by_rows(work, *result.shape)
    return out


def logsumexp(x: mx.array) -> NDArray[np.float64]:
    """Log-sum-exp of each row of a matrix; NumPy adds in pairs, so float32 sums are exact enough."""
    mx.eval(x)
    rows = buffer(x)
    found = np.empty(len(rows))

    def work(low: int, high: int) -> None:
        scratch = np.empty_like(rows[0])
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            for index in range(low, high):
                top = rows[index].max()
                level = top if np.isfinite(top) else np.float32(0)
                np.subtract(rows[index], level, out=scratch)
                exp(scratch)
                found[index] = np.log(np.float64(scratch.sum())) + level

    by_rows(work, *rows.shape)
    return found
