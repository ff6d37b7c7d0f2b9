"""GGUF files, read as hostile input and without MLX: metadata, and which tensors lie in the file.

Layout (versions 2 and 3, little-endian): magic, version u32, tensor count u64, metadata count u64; then
the metadata as (key, type u32, value); per tensor (name, rank u32, sizes u64 fastest first, type u32, offset
u64); padding to `general.alignment`; the data. Text is a u64 length and UTF-8 bytes, an array its type u32,
its length u64 and its members.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .errors import ModelNotSupportedError

MAX_ENTRIES = 65_536

_SCALARS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True)
class _TensorType:
    """How values lie in a block; `bits` is 0 where they are not quantized."""

    name: str
    values: int
    bytes: int
    bits: int


# Those that `mx.load` reads without loss. It cannot read the others.
_TENSOR_TYPES = {
    0: _TensorType("F32", 1, 4, 0),
    1: _TensorType("F16", 1, 2, 0),
    2: _TensorType("Q4_0", 32, 18, 4),
    3: _TensorType("Q4_1", 32, 20, 4),
    8: _TensorType("Q8_0", 32, 34, 8),
    30: _TensorType("BF16", 1, 2, 0),
}
_REFUSED_TYPES = {6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}


@dataclass(frozen=True)
class Gguf:
    """What a file says about itself; `tensors` gives the kept bits of each, 0 where not quantized."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, int]


def read_gguf(path: Path) -> Gguf:
    """Read a file's metadata and check where its tensors lie. Raises ModelNotSupportedError."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            metadata, tensors = _header(_Reader(data))
    except _Malformed as error:
        refuse(path, str(error))
    except (OSError, ValueError) as error:
        refuse(path, f"cannot be read ({error})")
    return Gguf(path, metadata, tensors)


def refuse(path: Path, fact: str, limit: str = "") -> NoReturn:
    """Raise ModelNotSupportedError for a GGUF file."""
    raise ModelNotSupportedError(path.name, fact, limit, "use an mlx-lm folder of this model instead")


class _Malformed(Exception):
    """A structural check failed; the text is the fact."""


class _Reader:
    """A cursor over the file's bytes that never reads past their end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise _Malformed("ends before its header does")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def u32(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    def text(self) -> str:
        try:
            return self.take(self.u64()).decode()
        except UnicodeDecodeError:
            raise _Malformed("has text that is not UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.numbers(kind, 1)[0]
        inner, count = self.u32(), self.u64()
        if inner == _TEXT:
            return [self.text() for _ in range(count)]
        return self.numbers(inner, count)

    def numbers(self, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise _Malformed(f"has metadata of unknown type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        values: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return values


def _header(reader: _Reader) -> tuple[dict[str, Any], dict[str, int]]:
    if reader.take(4) != b"GGUF":
        raise _Malformed("is not a GGUF file")
    if (version := reader.u32()) not in (2, 3):
        raise _Malformed(f"has GGUF version {version}")
    tensor_count, entry_count = reader.u64(), reader.u64()
    if max(tensor_count, entry_count) > MAX_ENTRIES:
        raise _Malformed(f"claims more than {MAX_ENTRIES} entries")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = reader.text()
        if key in metadata:
            raise _Malformed(f"repeats metadata '{key}'")
        metadata[key] = reader.value(reader.u32())
    tensors: dict[str, int] = {}
    data_bytes = 0
    for _ in range(tensor_count):
        name, rank = reader.text(), reader.u32()
        if name in tensors or not 1 <= rank <= 4:
            raise _Malformed(f"has a malformed tensor '{name}'")
        sizes = [reader.u64() for _ in range(rank)]
        end, tensors[name] = _extent(name, sizes, reader.u32(), reader.u64())
        data_bytes = max(data_bytes, end)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 8 <= alignment <= 4096:
        raise _Malformed("has a malformed alignment")
    start = -(-reader.at // alignment) * alignment
    if start + data_bytes > len(reader.data):
        raise _Malformed("is truncated")
    return metadata, tensors


def _extent(name: str, sizes: list[int], kind: int, offset: int) -> tuple[int, int]:
    """Where a tensor ends, in bytes after the start of all data, and the bits that it keeps."""
    if kind not in _TENSOR_TYPES:
        known = ", ".join(t.name for t in _TENSOR_TYPES.values())
        label = _REFUSED_TYPES.get(kind, str(kind))
        raise _Malformed(f"has tensor '{name}' of type {label}; only {known} are read exactly")
    block = _TENSOR_TYPES[kind]
    if min(sizes) < 1 or sizes[0] % block.values:
        raise _Malformed(f"has a malformed tensor '{name}'")
    return offset + prod(sizes) // block.values * block.bytes, block.bits
