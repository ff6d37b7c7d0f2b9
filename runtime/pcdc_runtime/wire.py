"""msgpack as hostile input: canonical bytes out, plain typed values or Malformed in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from .rules import MAX_FIELDS

# The longest array is the one of the fields. msgpack makes room for as many members as a header claims, at
# every level of nesting.
MAX_MEMBERS = MAX_FIELDS
Ints: TypeAlias = NDArray[np.int32]
canonical_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""The one spelling of values as JSON text. Raises ValueError where a number is not finite."""


def identity(value: object) -> object:
    """Equal for JSON scalars that are equal: 1 and 1.0 are, 1 and true are not."""
    kind = type(value)
    return ("number" if kind in (int, float) else kind.__name__, value)


class Malformed(Exception):
    """A structural check failed; the text is the fact."""


def pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def _refuse_ext(code: int, _data: bytes) -> object:
    raise Malformed(f"holds extension type {code}")


def unpack(data: bytes) -> Any:
    """The value of msgpack bytes. Of keys that repeat the last counts: packing it again shows them."""
    size = len(data)
    return msgpack.unpackb(
        data,
        raw=False,
        strict_map_key=True,
        ext_hook=_refuse_ext,
        max_str_len=size,
        max_bin_len=size,
        max_array_len=MAX_MEMBERS,
        max_map_len=MAX_MEMBERS,
        max_ext_len=0,
    )


def check(holds: bool | np.bool_, fact: str) -> None:
    if not holds:
        raise Malformed(fact)


def as_map(value: object) -> dict[str, Any]:
    check(type(value) is dict, "has something else where a map belongs")
    assert isinstance(value, dict)
    return value


def as_list(value: object) -> list[Any]:
    check(type(value) is list, "has something else where an array belongs")
    assert isinstance(value, list)
    return value


def as_text(value: object) -> str:
    check(type(value) is str, "has something else where text belongs")
    assert isinstance(value, str)
    return value


def as_texts(value: object) -> list[str]:
    texts = as_list(value)
    check({*map(type, texts)} <= {str}, "has something else where text belongs")
    return texts


def as_natural(value: object) -> int:
    check(type(value) is int, "has something else where a whole number belongs")
    assert isinstance(value, int)
    check(0 <= value < 2**31, "has a number out of range")
    return value


def as_array(value: object) -> Ints:
    check(type(value) is bytes, "has something else where an integer array belongs")
    assert isinstance(value, bytes)
    check(len(value) % 4 == 0, "has an integer array cut short")
    return np.frombuffer(value, dtype="<i4")


def check_keys(value: Mapping[str, object], *expected: str) -> None:
    check(tuple(value) == expected, "has unknown, missing or reordered keys")


def int_bytes(values: Ints) -> bytes:
    return np.ascontiguousarray(values, dtype="<i4").tobytes()
