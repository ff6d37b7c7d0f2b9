"""MKL's own routines, called in one thread: products of small matrices, and exponentials.

A call of MKL shares its work among threads of its own; that pays for large matrices only. Here the caller's
threads have work of their own each.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .blas import load_fast_blas

Floats = NDArray[np.float32]

# Error of 1 in the last place at most; infinities are results like others.
_ACCURACY = 0x1 | 0x100
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_ROUTINES = ("vmsExp", "cblas_sgemm", "MKL_Set_Num_Threads_Local")


@cache
def is_there() -> bool:
    """Whether MKL is the BLAS, with these routines."""
    return _library() is not None


def exp(x: Floats) -> None:
    """Exponentials in place; `x` is contiguous."""
    with _OneThread() as mkl:
        mkl.vmsExp(x.size, x.ctypes.data, x.ctypes.data, _ACCURACY)


def product(a: Floats, b: Floats, out: Floats, *, transposed: bool, add: bool) -> None:
    """`a @ b`, or `a @ b.T`, into `out`, or added to it; rows may lie apart, their elements not."""
    rows, inner = a.shape
    with _OneThread() as mkl:
        mkl.cblas_sgemm(
            _ROW_MAJOR, _PLAIN, _TRANSPOSED if transposed else _PLAIN,
            rows, out.shape[1], inner,
            1.0, a.ctypes.data, a.strides[0] // 4, b.ctypes.data, b.strides[0] // 4,
            1.0 if add else 0.0, out.ctypes.data, out.strides[0] // 4,
        )  # fmt: skip


class _OneThread:
    """The library, with the calling thread's number of threads set to one meanwhile."""

    def __enter__(self) -> ctypes.CDLL:
        library = _library()
        assert library is not None
        self._before = library.MKL_Set_Num_Threads_Local(1)
        return library

    def __exit__(self, *_: object) -> None:
        library = _library()
        assert library is not None
        library.MKL_Set_Num_Threads_Local(self._before)


@cache
def _library() -> ctypes.CDLL | None:
    blas = load_fast_blas()
    if blas.name != "mkl" or blas.path is None:
        return None
    library = ctypes.CDLL(blas.path)
    if not all(hasattr(library, name) for name in _ROUTINES):
        return None
    number, real, pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    library.vmsExp.argtypes = (ctypes.c_int64, pointer, pointer, ctypes.c_int64)
    library.vmsExp.restype = None
    matrix = (pointer, number)
    library.cblas_sgemm.argtypes = (*[number] * 6, real, *matrix, *matrix, real, *matrix)
    library.cblas_sgemm.restype = None
    return library
