"""Digests that take long to make, remembered in the cache folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .storage import cache_dir, sweep, write_atomic

_MAX_BYTES = 1_000_000
_SHA256 = re.compile(r"[0-9a-f]{64}")


def remembered(file: str, key: str, make: Callable[[], str]) -> str:
    """The sha256 that `make` gave for this key, now or earlier; `file` is a name in the cache folder.

    Where the cache cannot be used it is made each time. Raises what `make` raises.
    """
    memo: dict[str, str] = {}
    with suppress(OSError):
        path = cache_dir() / file
        sweep(path.parent, path.name)
        memo = _read(path)
    if key not in memo:
        memo[key] = make()
        with suppress(OSError):
            write_atomic(cache_dir() / file, json.dumps(memo, indent=1, sort_keys=True).encode())
    return memo[key]


def _read(path: Path) -> dict[str, str]:
    """What is known; nothing where the file is missing, damaged or has grown beyond its bound."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        memo = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(memo, dict):
        return {}
    return {k: v for k, v in memo.items() if isinstance(v, str) and _SHA256.fullmatch(v)}
