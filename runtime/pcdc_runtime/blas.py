"""A fast BLAS for MLX on Linux CPUs.

The packaged Linux CPU build of MLX is linked to the reference BLAS, 20 to 40 times slower than MKL or
OpenBLAS. Python binds a library's calls when it imports it, so another library takes their place if it is
loaded with global symbols before MLX is imported.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

logger = logging.getLogger("pcdc_runtime")

THREAD_VARIABLES = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
OPENBLAS = ("libopenblas.so.0", "libopenblas.so")


@dataclass(frozen=True)
class Blas:
    """The BLAS that matrix products on the CPU go to; `path` is the library loaded in its place, if any."""

    name: str
    path: str | None


@cache
def load_fast_blas() -> Blas:
    """Load the first fast BLAS that is installed, once per process, and say so on the `pcdc_runtime` logger.

    Call it before MLX is imported; later it can only warn. Builds of MLX other than the Linux CPU one keep
    what they link to.
    """
    if sys.platform != "linux" or not _has_cpu_build():
        return Blas("system", None)
    if "mlx.core" in sys.modules:
        logger.warning(
            "MLX was imported first and keeps its slow BLAS; import pcdc_runtime's parts before it"
        )
        return Blas("reference", None)
    for name, path in candidates():
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        logger.info("matrix products use %s (%s)", name, path)
        return Blas(name, path)
    logger.warning(
        "matrix products use the slow reference BLAS; install the package `mkl` or the system's OpenBLAS"
    )
    return Blas("reference", None)


def candidates() -> Iterator[tuple[str, str]]:
    """Names and paths of the libraries to try, best first."""
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        files = []
    yield from (
        ("mkl", str(Path(str(file.locate())).resolve()))
        for file in files
        if file.name.startswith("libmkl_rt.so")
    )
    yield from (("openblas", path) for path in OPENBLAS)


@cache
def threads() -> int:
    """How many threads a BLAS uses here: what its environment variables say, else one per usable core."""
    for name in THREAD_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value):
            return int(value)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _has_cpu_build() -> bool:
    try:
        metadata.distribution("mlx-cpu")
    except metadata.PackageNotFoundError:
        return False
    return True
