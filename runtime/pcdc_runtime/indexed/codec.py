"""Index files: opened by memory map and read as hostile input, written whole or not at all.

`layout` says what the bytes mean.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack
import numpy as np

from pcdc_runtime.artifact import OPENING
from pcdc_runtime.errors import IndexFileError
from pcdc_runtime.storage import NotRegularError, read_regular, regular, replacing
from pcdc_runtime.wire import Malformed

from .index import Index
from .layout import INDEX_MAGIC, INDEX_VERSION, MAX_HEADER, PROLOGUE, aligned, read_header, section_bytes
from .mapped import MappedIndex, damaged

SUFFIX_INDEX = ".pcdx"
_WRITTEN = 1 << 24
_WAY = "name a file that `pcdc index` or `pcdc build` wrote"


def open_index(path: Path) -> MappedIndex:
    """Map one index file and check its header; the rest is checked in the background. Raises IndexFileError.

    Nothing is copied or looked at but the header, and processes that have one file open share its memory. A
    file that is replaced, as `write_index` does it, leaves those as they are who have the old one open. It
    must not be changed in place: who cuts it short kills the processes that read there (SIGBUS), and what is
    written into it after the check is read as it is.
    """
    subject = str(path)
    with _told(path), regular(path) as descriptor:
        opening = os.pread(descriptor, PROLOGUE.size, 0)
        if not opening.startswith(INDEX_MAGIC):
            raise _stranger(opening, subject)
        if len(opening) < PROLOGUE.size:
            raise damaged(subject, "is damaged or cut short")
        _, version, length, digest = PROLOGUE.unpack(opening)
        if version != INDEX_VERSION:
            raise IndexFileError(
                subject,
                f"has index format version {version}",
                f"this version reads {INDEX_VERSION}",
                "rebuild it with `pcdc index`",
            )
        if length > MAX_HEADER:
            raise damaged(subject, f"has a header larger than {MAX_HEADER} bytes")
        header = os.pread(descriptor, length, PROLOGUE.size)
        if hashlib.sha256(header).digest() != digest:
            raise damaged(subject, "does not match its checksum")
        mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        said = read_header(header, len(mapping))
        return MappedIndex(subject, header, digest.hex(), said, np.frombuffer(mapping, dtype=np.uint8))


def write_index(path: Path, index: Index) -> None:
    """Replace `path` by the index, durably, or leave it as it was. Raises OSError.

    The bytes go from the index's arrays to the file. What a killed process leaves is taken by a later sweep
    of the folder.
    """
    header = index.header
    digest = bytes.fromhex(index.digest)
    with replacing(path) as temporary, temporary.open("r+b") as file:
        file.write(PROLOGUE.pack(INDEX_MAGIC, INDEX_VERSION, len(header), digest) + header)
        for _, data in section_bytes(index):
            file.write(bytes(aligned(file.tell()) - file.tell()))
            for start in range(0, len(data), _WRITTEN):
                file.write(data[start : start + _WRITTEN])


def holds_index(path: Path) -> bool:
    """Whether a file is an index, or is called one."""
    try:
        return path.suffix == SUFFIX_INDEX or read_regular(path, len(INDEX_MAGIC)) == INDEX_MAGIC
    except (OSError, ValueError):
        return False


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What can go wrong with a file, as IndexFileError."""
    try:
        yield
    except IndexFileError:
        raise
    except Malformed as error:
        raise damaged(str(path), str(error)) from error
    except IsADirectoryError as error:
        raise IndexFileError(str(path), "is a folder", help="name one index in it") from error
    except NotRegularError as error:
        raise IndexFileError(str(path), "is not a regular file", help=_WAY) from error
    except OSError as error:
        raise IndexFileError(
            str(path), f"cannot be read ({error.strerror})", help="build it with `pcdc index`"
        ) from error
    except (
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        msgpack.exceptions.UnpackException,
    ) as error:
        if "\0" in str(path):
            raise IndexFileError(ascii(str(path)), f"cannot be a path ({error})", help=_WAY) from error
        raise damaged(str(path), "is damaged or cut short") from error


def _stranger(opening: bytes, subject: str) -> IndexFileError:
    if opening.startswith(OPENING):
        return IndexFileError(
            subject,
            "is an artifact, not an index",
            help=f"answer its fields with `pcdc run {shlex.quote(subject)}`, in Python with `load`",
        )
    if subject.endswith(".json") or opening.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return IndexFileError(
            subject,
            "is a definition file, not an index",
            help=f"compile it with `pcdc index {shlex.quote(subject)}`, then name the file that this writes",
        )
    return IndexFileError(subject, "is not a pcdc index", help=_WAY)
