"""The ways in which programs save a file, each as a process of its own would do it.

python tests/saving.py PATTERN FILE < CONTENT
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path


def in_place(path: Path, content: bytes) -> None:
    """Truncate and write, as shells do."""
    path.write_bytes(content)


def replace(path: Path, content: bytes) -> None:
    """Write beside it and rename over it, as most editors do."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def backup(path: Path, content: bytes) -> None:
    """Rename the old one, create a new one, delete the old one."""
    old = path.with_name(f"{path.name}~")
    path.rename(old)
    path.write_bytes(content)
    old.unlink()


def from_elsewhere(path: Path, content: bytes) -> None:
    """Write in another folder and rename it in."""
    folder = path.parent.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    temporary = folder / path.name
    temporary.write_bytes(content)
    temporary.replace(path)


def mount(path: Path, content: bytes) -> None:
    """Swap the folder behind a link, as mounted config maps do: `file -> ..data/file`, `..data -> ..N`."""
    top, link = path.parent, path.parent / "..data"
    version = top / f"..{secrets.token_hex(4)}"
    version.mkdir()
    if link.is_symlink():
        for other in link.resolve().iterdir():
            shutil.copy(other, version)
    (version / path.name).write_bytes(content)
    old = link.resolve() if link.is_symlink() else None
    fresh = top / "..data_tmp"
    fresh.symlink_to(version.name)
    fresh.replace(link)
    if not path.is_symlink():
        path.unlink(missing_ok=True)
        path.symlink_to(Path("..data", path.name))
    if old is not None:
        shutil.rmtree(old)


def remove(path: Path, content: bytes) -> None:
    """Delete, then create."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(content)
        os.fsync(file.fileno())


def chunks(path: Path, content: bytes) -> None:
    """Truncate, then write in 50 parts with pauses, as a slow export does."""
    size = -(-len(content) // 50)
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(content), size):
            time.sleep(0.002)
            file.write(content[at : at + size])


PATTERNS: dict[str, Callable[[Path, bytes], None]] = {
    "in_place": in_place,
    "replace": replace,
    "backup": backup,
    "from_elsewhere": from_elsewhere,
    "mount": mount,
    "remove": remove,
}

if __name__ == "__main__":
    for line in sys.stdin:
        name, file, text = json.loads(line)
        (chunks if name == "chunks" else PATTERNS[name])(Path(file), text.encode())
        print(time.monotonic(), flush=True)
