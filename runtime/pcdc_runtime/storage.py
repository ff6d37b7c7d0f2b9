"""The user's cache folder, and files that appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ModelNotFoundError

_RANDOM_BYTES = 8


class NotRegularError(OSError):
    """A pipe, a socket or a device stands in a file's place."""


def cache_dir() -> Path:
    """The folder for converted models and the fingerprint memo; it need not exist yet.

    `PCDC_CACHE` if set, else `~/Library/Caches/pcdc` on macOS, else `$XDG_CACHE_HOME/pcdc`, which is
    `~/.cache/pcdc` by default. Raises OSError where that needs a home folder and the user has none.
    """
    try:
        if chosen := os.environ.get("PCDC_CACHE"):
            return Path(chosen).expanduser()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "pcdc"
        # The XDG specification says that a relative value is to be ignored.
        xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "pcdc"
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "this user has no home folder") from error


def model_cache(name: str, label: str) -> Path:
    """The cache's folder for a converted model, without what killed processes left there.

    Raises ModelNotFoundError where there is no place for it.
    """
    try:
        folder = cache_dir() / "models" / label
    except OSError as error:
        raise ModelNotFoundError(
            name, f"has no folder to be converted into ({error.strerror})", help="set PCDC_CACHE to a folder"
        ) from error
    sweep(folder)
    return folder


def sweep(folder: Path, names: str = "*") -> None:
    """Remove temporary files that killed writers of files `names` (a pattern) left; those in use stay."""
    random = "[0-9a-f]" * (2 * _RANDOM_BYTES)
    with suppress(OSError):
        for leftover in folder.glob(f".{names}.{random}.*"):
            with suppress(OSError):
                descriptor = os.open(leftover, os.O_RDWR)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    leftover.unlink()
                finally:
                    os.close(descriptor)


@contextmanager
def regular(path: Path) -> Iterator[int]:
    """A descriptor to read a file by.

    Raises OSError, also for what is no regular file, and ValueError for what cannot be a path.
    """
    # A pipe in a file's place must not make a service wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if not stat.S_ISREG(kind):
            raise NotRegularError(errno.EINVAL, "not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def read_regular(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a file. Raises what `regular` raises."""
    with regular(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
        return file.read(limit)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` as `replacing` does. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def way_to_write(error: OSError, elsewhere: str) -> str:
    """What helps where a file cannot be written; `elsewhere` says how to choose another place."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"free some space, or {elsewhere}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"make the folder writable, or {elsewhere}"
    return elsewhere


@contextmanager
def replacing(path: Path, suffix: str = ".tmp") -> Iterator[Path]:
    """A file to fill that takes the place of `path`, durably, at the end; an error leaves `path` as it was.

    A reader, or a second writer, never sees half of it. Folders on the way are created. The file lies hidden
    beside `path` and its name ends with `suffix`. It stays behind only where the process is killed; while it
    is in use, it is locked, so that `sweep` can tell. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = _locked_temporary(path, suffix)
    try:
        yield temporary
        os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    _sync_folder(path.parent)


def _locked_temporary(path: Path, suffix: str) -> tuple[int, Path]:
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM_BYTES)}{suffix}")
        # Unlike tempfile's, this file gets the rights that the umask allows.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks: a sweep cannot take the lock there either.
            return descriptor, temporary
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        # A sweep took the file between its creation and its lock.
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    # Refused by some network file systems and for a folder without read permission; the file is in place all
    # the same.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
