"""The user's cache folder, and files that appear whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def cache_dir() -> Path:
    """The folder for converted models and the fingerprint memo; it need not exist yet.

    `PCDC_CACHE` if set, else `~/Library/Caches/pcdc` on macOS, else `$XDG_CACHE_HOME/pcdc`, which is
    `~/.cache/pcdc` by default.
    """
    if chosen := os.environ.get("PCDC_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pcdc"
    # The XDG specification says that a relative value is to be ignored.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "pcdc"


def write_atomic(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a reader, or a second writer, never sees half of it. Raises OSError.

    Folders on the way are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
