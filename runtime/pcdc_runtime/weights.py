"""Which weights a model has, as one digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from .errors import ModelNotFoundError
from .memo import remembered


def weights_digest(folder: Path) -> str:
    """sha256 over the names and contents of a folder's weight files and config.json, as hexadecimal text.

    The files are read once, then again only when their stamps change. Raises ModelNotFoundError.
    """
    try:
        files = _files(folder)
        return remembered("weights.json", _stamps(files), lambda: _digest(files))
    except OSError as error:
        raise ModelNotFoundError(
            f"model {folder.name}",
            f"has files that cannot be read ({error.strerror})",
            help="load it again from a complete folder",
        ) from error


def weights_stamp(folder: Path) -> str:
    """What changes when a file that the digest covers is written or replaced. Raises OSError."""
    return _stamps(_files(folder))


def _files(folder: Path) -> list[Path]:
    return [*sorted(folder.resolve().glob("*.safetensors")), folder.resolve() / "config.json"]


def _stamps(files: list[Path]) -> str:
    stamps = [
        [str(file), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        for file in files
        for state in [file.stat()]
    ]
    return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()


def _digest(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        whole.update(path.name.encode() + b"\0" + content)
    return whole.hexdigest()
