"""What this machine has: versions, device, BLAS, model cache, and how far its arithmetic drifts."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata

from pcdc_runtime import models
from pcdc_runtime.errors import PcdcError
from pcdc_runtime.storage import cache_dir

from . import __version__, api
from .distribution import double_installation

EXAMPLE = {"urgent": {"type": "boolean", "description": "Does the customer need an answer today?"}}
EXAMPLE_CONTEXT = "Our checkout has been failing since this morning."


@dataclass(frozen=True)
class Check:
    """One line of the report; `ok` is false where something needs mending."""

    name: str
    value: str
    ok: bool = True


def examine(model: str | None) -> list[Check]:
    """Every check; with a model also whether it resolves and how far its own type is from float32."""
    doubled = double_installation()
    checks = [
        Check("python", platform.python_version()),
        Check("platform", platform.platform()),
        Check("pcdc", __version__),
        Check("distributions", doubled or "one", doubled is None),
        *(Check(name, *_version_of(name)) for name in ("mlx", "mlx-lm", "tokenizers", "transformers")),
        _cache_folder(),
        *_arithmetic(),
    ]
    return [*checks, *(_model(model) if model else [])]


def model_rows() -> list[tuple[str, str, bool]]:
    """Alias, where it comes from, whether its files are on this machine; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    return [
        (alias, source, _embedded_installed())
        if alias == models.DEFAULT
        else (alias, source, isinstance(try_to_load_from_cache(source, "config.json"), str))
        for alias, source in models.ALIASES.items()
    ]


def _embedded_installed() -> bool:
    try:
        models.resolve(models.DEFAULT, weights=False)
    except PcdcError:
        return False
    return True


def _version_of(distribution: str) -> tuple[str, bool]:
    try:
        return metadata.version(distribution), True
    except metadata.PackageNotFoundError:
        return "not installed", False


def _cache_folder() -> Check:
    try:
        folder = cache_dir()
    except OSError as error:
        return Check("model cache", f"none: {error.strerror}; set PCDC_CACHE", False)
    existing = next(p for p in (folder, *folder.parents) if os.access(p, os.F_OK))
    writable = os.access(existing, os.W_OK)
    return Check("model cache", f"{folder}{'' if writable else ' (cannot be written)'}", writable)


def _arithmetic() -> list[Check]:
    try:
        from pcdc_runtime.blas import load_fast_blas
        from pcdc_runtime.drift import device
    except PcdcError as error:
        return [Check("device", f"{error.subject} {error.fact}", False)]
    blas = load_fast_blas()
    slow = blas.name == "reference"
    value = f"{blas.name} (slow: install the package `mkl`)" if slow else blas.name
    return [Check("device", device()), Check("BLAS", value, not slow)]


def _model(name: str) -> list[Check]:
    from pcdc_runtime.drift import measure_drift

    try:
        files = models.resolve(name, weights=True)
        found = Check("model", f"{files.name} in {files.folder}")
        drift = measure_drift(api.compile(EXAMPLE, name), files.folder, EXAMPLE_CONTEXT)
    except PcdcError as error:
        return [Check("model", f"{error.subject} {error.fact}", False)]
    measured = f"{drift.nats:.2g} nats between the weights as stored ({drift.dtype}) and float32"
    return [found, Check("drift", measured)]
