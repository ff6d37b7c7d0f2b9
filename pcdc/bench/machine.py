"""On what the figures were measured."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pcdc_runtime.blas import load_fast_blas

from pcdc import __version__

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

PACKAGES = ("mlx", "mlx-lm", "numpy", "tokenizers", "transformers", "llguidance", "pcd-rlcd")


def describe(loaded: LoadedModel) -> dict[str, str | int | None]:
    """The machine, the versions, and with what the model computes. No name of the machine, no path."""
    from pcdc_runtime.drift import device

    versions = {f"version_{name}": _version(name) for name in PACKAGES}
    return {
        "processor": _processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "version_pcdc": __version__,
        **versions,
        "blas": load_fast_blas().name,
        "device": device(),
        "dtype": loaded.language.dtype,
        "model": loaded.name,
    }


def line(machine: dict[str, str | int | None]) -> str:
    """The same in one line for people."""
    versions = ", ".join(
        f"{key.removeprefix('version_')} {value}"
        for key, value in machine.items()
        if key.startswith("version_") and value
    )
    return (
        f"{machine['model']}, {machine['dtype']} on {machine['device']}, BLAS {machine['blas']}; "
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}; "
        f"{versions}"
    )


def _processor() -> str:
    with suppress(OSError):
        for entry in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            name, _, value = entry.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def cores() -> int | None:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
