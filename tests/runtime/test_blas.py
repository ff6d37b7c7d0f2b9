"""The BLAS loaded in place of the slow one really gets the matrix products."""

import ctypes
import logging
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from pcdc_runtime import blas

PRODUCT = """
import mlx.core as mx
import numpy as np
a = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
assert np.abs(np.array(mx.array(a) @ mx.array(a.T)) - a @ a.T).max() < 1e-4
from pcdc_runtime.blas import load_fast_blas
print(load_fast_blas().name)
"""


@pytest.fixture
def fresh(monkeypatch):
    """As in a new process on Linux with the CPU build of MLX; what is chosen is forgotten afterwards."""
    blas.load_fast_blas.cache_clear()
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    monkeypatch.setattr(blas.sys, "platform", "linux")
    monkeypatch.setattr(blas, "_has_cpu_build", lambda: True)
    yield
    blas.load_fast_blas.cache_clear()


@pytest.mark.parametrize(
    "first",
    [
        "from pcdc_runtime import load",
        *(f"import pcdc_runtime.{name}" for name in ("engine", "loaded", "drift", "mlx_model")),
    ],
)
def test_products_go_to_the_library_that_is_reported(first):
    run = subprocess.run(
        [sys.executable, "-c", first + PRODUCT],
        env={**os.environ, "MKL_VERBOSE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    name = run.stdout.splitlines()[-1]
    assert name in ("mkl", "openblas", "reference", "system")
    assert ("SGEMM" in run.stdout) == (name == "mkl")
    assert name == "mkl" or not installed("mkl") or not installed("mlx-cpu")


def test_after_mlx_it_is_too_late(monkeypatch, fresh, caplog):
    monkeypatch.setitem(sys.modules, "mlx.core", object())
    assert blas.load_fast_blas() == blas.Blas("reference", None)
    assert "MLX was imported first" in caplog.text


def test_a_library_that_does_not_load_gives_way_to_the_next(monkeypatch, fresh, caplog):
    present = next(lib for lib in ("libm.so.6", "libSystem.B.dylib") if loads(lib))
    monkeypatch.setattr(blas, "candidates", lambda: iter([("first", "no such library"), ("second", present)]))
    with caplog.at_level(logging.INFO, "pcdc_runtime"):
        assert blas.load_fast_blas() == blas.Blas("second", present)
        assert blas.load_fast_blas() == blas.Blas("second", present)
    assert [present in record.getMessage() for record in caplog.records] == [True]


def test_without_a_fast_library_the_slow_one_is_named(monkeypatch, fresh, caplog):
    monkeypatch.setattr(blas, "candidates", lambda: iter([("first", "no such library")]))
    assert blas.load_fast_blas() == blas.Blas("reference", None)
    assert "install the package `mkl`" in caplog.text


def test_other_systems_keep_their_own(monkeypatch, fresh):
    monkeypatch.setattr(blas.sys, "platform", "darwin")
    assert blas.load_fast_blas() == blas.Blas("system", None)


def test_other_builds_of_mlx_keep_their_own(monkeypatch, fresh):
    monkeypatch.setattr(blas, "_has_cpu_build", lambda: False)
    assert blas.load_fast_blas() == blas.Blas("system", None)


def test_without_mkl_openblas_is_tried(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(blas.metadata, "files", missing)
    assert [name for name, _ in blas.candidates()] == ["openblas"] * len(blas.OPENBLAS)


def loads(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def installed(distribution):
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_only_one_module_of_the_runtime_imports_mlx_itself():
    folder = Path(blas.__file__).parent
    found = {f.name for f in folder.glob("*.py") if re.search(r"(?m)^\s*(import|from) mlx\b", f.read_text())}
    assert found == {"fast_mlx.py"}


def test_threads_are_those_of_the_blas(monkeypatch):
    for name in blas.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert blas.threads.__wrapped__() == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert blas.threads.__wrapped__() == 3
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    assert blas.threads.__wrapped__() == 2
    monkeypatch.setenv("MKL_NUM_THREADS", "many")
    assert blas.threads.__wrapped__() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert blas.threads.__wrapped__() == cores
