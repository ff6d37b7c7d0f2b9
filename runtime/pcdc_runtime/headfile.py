"""Keys and values of prompt heads in the user's cache, for processes that come later.

A file is safetensors. All of its header is known before it is read but the digest of what follows, so it is
compared and never parsed. What decides the numbers stands in the file's name, and whole in its header.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import platform
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from io import FileIO
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from .artifact import Ints
from .blas import load_fast_blas
from .errors import PcdcError, sentence
from .fast_mlx import mx
from .storage import cache_dir, replacing, sweep, way_to_write

if TYPE_CHECKING:
    from .loaded import LoadedModel
    from .model import KVPart
    from .prefix import Prefix

LIMIT = 2 * 1024**3
"""Bytes that all head files together take at most."""
SAVING_S = 0.5
READ_RATE = 300e6
"""A head is kept where computing it took `SAVING_S` longer than reading it does at this many bytes a second.

Measured on a busy x86 core, digest and copies included: 530 MB/s.
"""
SWITCH = "PCDC_HEAD_CACHE"
"""The environment variable that turns head files off where it is 0, false, no or off."""

_OWN = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}\.safetensors")
_TYPES = {"float32": ("F32", mx.uint32), "float16": ("F16", mx.uint16), "bfloat16": ("BF16", mx.uint16)}
_CONTENT = "content"

logger = logging.getLogger("pcdc_runtime")


def head_files(wanted: bool | None = None) -> HeadFiles | None:
    """Those of the user's cache; None where they are not wanted, or where there is no place for them.

    Without `wanted` the environment variable `SWITCH` decides.
    """
    if wanted is None:
        wanted = os.environ.get(SWITCH, "").strip().casefold() not in ("0", "false", "no", "off")
    if wanted:
        with suppress(OSError):
            return HeadFiles(cache_dir() / "heads")
    return None


@dataclass
class HeadFiles:
    """A folder of head files. To be used on the owner thread of one model at a time.

    Nothing here raises: a file that cannot be used is told of in `notes` and in the log, and the head is
    computed.
    """

    folder: Path
    limit: int = LIMIT
    notes: list[str] = field(default_factory=list)

    def restore(self, model: LoadedModel, prefix: Prefix, head: Ints) -> None:
        """Take the head from its file where most of it would have to be computed."""
        if 2 * prefix.missing(head) < len(head):
            return
        path = self.folder
        try:
            known = _known(model, head) if self._may_have(head) else None
            if known is None:
                return
            path = self.folder / known.name
            with _opened(path, known.size) as file:
                prefix.adopt(head, _read(file, known))
                with suppress(OSError):
                    os.utime(file.fileno())
        except FileNotFoundError:
            return
        except _DamagedError as error:
            with suppress(OSError):
                path.unlink()
            self._tell(path, f"{error} and was removed")
        except OSError as error:
            self._tell(path, f"cannot be read ({error.strerror or error})")
        except PcdcError as error:
            self._tell(path, f"is not used: {sentence(error.subject, error.fact)}")

    def keep(self, model: LoadedModel, prefix: Prefix, head: Ints, seconds: float) -> None:
        """Write the head, which took `seconds` to compute, where reading it would be faster."""
        size = len(head) * model.language.kv_bytes_per_token
        if seconds < SAVING_S + size / READ_RATE:
            return
        path = self.folder
        try:
            known = _known(model, head)
            if known is None or known.size > self.limit:
                return
            path = self.folder / known.name
            sweep(self.folder)
            self._make_room(path, known.size)
            with replacing(path) as temporary, temporary.open("r+b") as file:
                _write(file, known, prefix.sequence.held(len(head)))
        except OSError as error:
            help = way_to_write(error, "set PCDC_CACHE to another folder")
            self._tell(path, f"cannot be written ({error.strerror or error}); {help}")
        except PcdcError as error:
            self._tell(path, f"is not written: {sentence(error.subject, error.fact)}")

    def told(self) -> tuple[str, ...]:
        """What was not told before, as warnings of a result."""
        notes, self.notes = self.notes, []
        return tuple(f"head_cache: {note}" for note in notes)

    def _tell(self, path: Path, fact: str) -> None:
        self.notes.append(sentence(str(path), fact))
        logger.warning("%s; the head is computed", self.notes[-1])

    def _may_have(self, head: Ints) -> bool:
        """Whether a file of this head is there; then only a model's weights are worth a digest."""
        return any(self.folder.glob(f"{_ids(head)[:32]}-*.safetensors"))

    def _make_room(self, path: Path, size: int) -> None:
        """Remove what was used longest ago, until a file of `size` bytes at `path` keeps all in the limit."""
        files = []
        for entry in os.scandir(self.folder) if self.folder.is_dir() else ():
            if _OWN.fullmatch(entry.name) and entry.name != path.name:
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode):
                        files.append((state.st_mtime_ns, entry.path, state.st_size))
        total = size + sum(taken for _, _, taken in files)
        for _, old, taken in sorted(files):
            if total <= self.limit:
                return
            Path(old).unlink(missing_ok=True)
            total -= taken


def compute_head(model: LoadedModel, digest: str, head: Ints, heads: HeadFiles | None, room: int = 0) -> None:
    """On the owner thread: let the prefix of `digest` hold the head, from its file where there is one.

    There is room for so many more slots then.
    """
    with model.prefixes.lease(digest, len(head) + room) as prefix:
        prefix.sequence.reserve(len(head) + room)
        if heads is not None:
            heads.restore(model, prefix, head)
        started = perf_counter()
        held = prefix.advance(head)
        if heads is not None and not held:
            heads.keep(model, prefix, head, perf_counter() - started)


def restore_head(model: LoadedModel, digest: str, head: Ints, heads: HeadFiles | None) -> tuple[str, ...]:
    """On the owner thread: take a head that is missing from its file; gives warnings of the result."""
    if heads is None:
        return ()
    with model.prefixes.lease(digest, len(head)) as prefix:
        heads.restore(model, prefix, head)
    return heads.told()


class _DamagedError(Exception):
    """What stands in a file's place is not what was written."""


@dataclass(frozen=True)
class _Known:
    """All that is known of a file before it is read: what decided its numbers, and its tensors' shapes."""

    key: Mapping[str, str]
    layers: Sequence[Sequence[KVPart]]
    length: int

    @property
    def name(self) -> str:
        """The file's name: what the head is, then all else."""
        rest = hashlib.sha256(json.dumps(self.key).encode()).hexdigest()
        return f"{self.key['ids'][:32]}-{rest[:32]}.safetensors"

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self.header("0" * 64)) + sum(self._bytes(part) for _, part in self._tensors())

    def header(self, content: str) -> bytes:
        """The header, its length in front, for tensors whose bytes have the sha256 `content`."""
        header: dict[str, object] = {"__metadata__": {**self.key, _CONTENT: content}}
        end = 0
        for name, part in self._tensors():
            start, end = end, end + self._bytes(part)
            shape = [1, part.heads, self.length, part.width]
            header[name] = {"dtype": _TYPES[part.dtype][0], "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        # The format wants tensors to begin at a multiple of eight.
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def _tensors(self) -> Iterator[tuple[str, KVPart]]:
        for number, layer in enumerate(self.layers):
            for name, part in zip(("keys", "values"), layer, strict=True):
                yield f"layers.{number}.{name}", part

    def _bytes(self, part: KVPart) -> int:
        return self.length * part.bytes_per_token


def _known(model: LoadedModel, head: Ints) -> _Known | None:
    """What is known of this head's file, None where no file can be kept. Raises ModelNotFoundError."""
    # What does not stay until the request's own passes would be read in vain; buffers have some slack.
    if len(head) * model.language.kv_bytes_per_token > 0.8 * model.prefixes.limit:
        return None
    layers = model.language.kv_layout
    whole = all(len(layer) == 2 and all(part.dtype in _TYPES for part in layer) for layer in layers)
    if not whole or not (weights := model.loaded_digest):
        return None
    try:
        versions = {name: metadata.version(name) for name in ("mlx", "mlx-lm")}
    except metadata.PackageNotFoundError:
        return None
    key = {
        "format": "pcdc head 1",
        "ids": _ids(head),
        "weights": weights,
        # Weights may be made float32 when they are loaded.
        "dtype": model.language.dtype,
        # Kernels, the families' code, and what this package puts in their place.
        **versions,
        "runtime": _code(),
        # Each rounds in its own way.
        "device": f"{sys.platform} {platform.machine()} {mx.default_device().type.name}",
        "blas": load_fast_blas().name,
    }
    return _Known(key, layers, len(head))


@cache
def _code() -> str:
    """A digest of this package's own code, which changes where its version may not."""
    whole = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _ids(head: Ints) -> str:
    return hashlib.sha256(head.astype("<i4").tobytes()).hexdigest()


@contextmanager
def _opened(path: Path, size: int) -> Iterator[FileIO]:
    """The file, where it is a regular one of this size. Raises OSError, _DamagedError."""
    try:
        # A link is not followed, and a pipe not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _DamagedError("is a link") from error
        raise
    with FileIO(descriptor) as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if state.st_size != size:
            raise _DamagedError(f"has {state.st_size:,} bytes in place of {size:,}")
        yield file


def _read(file: FileIO, known: _Known) -> Iterator[tuple[mx.array, mx.array]]:
    """Keys and values by layer; raises _DamagedError, at the end, where anything is not as written."""
    header = bytearray(len(known.header("0" * 64)))
    _fill(file, header)
    content = hashlib.sha256()
    for layer in known.layers:
        keys, values = (_tensor(file, known.length, part, content) for part in layer)
        yield keys, values
    if header != known.header(content.hexdigest()):
        raise _DamagedError("is damaged")


def _tensor(file: FileIO, length: int, part: KVPart, content: hashlib._Hash) -> mx.array:
    data = bytearray(length * part.bytes_per_token)
    _fill(file, data)
    content.update(data)
    # NumPy has no bfloat16: the bits travel as whole numbers.
    bits = np.frombuffer(data, dtype=f"<u{part.itemsize}").reshape(1, part.heads, length, part.width)
    return mx.view(mx.array(bits), getattr(mx, part.dtype))


def _fill(file: FileIO, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        count = file.readinto(view)
        if not count:
            raise _DamagedError("became shorter")
        view = view[count:]


def _write(file: BinaryIO, known: _Known, parts: Iterator[mx.array]) -> None:
    """Write the whole file; the header comes last, when the digest is known. Raises OSError."""
    file.seek(len(known.header("0" * 64)))
    content = hashlib.sha256()
    for part in parts:
        kind = _TYPES[str(part.dtype).rpartition(".")[2]][1]
        data = np.ascontiguousarray(np.array(mx.view(part, kind))).data.cast("B")
        content.update(data)
        file.write(data)
    file.seek(0)
    file.write(known.header(content.hexdigest()))
