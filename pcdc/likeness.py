"""What a file looks like before it is read: a catalog that was given where a definition belongs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from pcdc_runtime.storage import read_regular

from .catalog import FILES
from .diagnostics import Diagnostic, Location, finding, visible

_BEGINNING = 64 * 1024
_BEFORE = b"\xef\xbb\xbf \t\r\n"


def catalog_for_definition(path: Path) -> list[Diagnostic]:
    """What is said of a definition file that looks like a catalog; nothing where it does not."""
    if not _looks_like_catalog(path):
        return []
    return [
        finding(
            "PCDC202",
            Location(str(path), 1, 1),
            path.name,
            "looks like a catalog, not like a definition",
            "a definition is a JSON object of fields",
            f'make an index of it: `pcdc index {shlex.quote(visible(str(path)))} --question "..."`, '
            "or name it as the `source` of a field's `x-catalog`",
        )
    ]


def _looks_like_catalog(path: Path) -> bool:
    kind = path.suffix.lower()
    if kind not in FILES:
        return False
    try:
        beginning = read_regular(path, _BEGINNING).lstrip(_BEFORE)
    except (OSError, ValueError):
        # Who reads it next tells why that cannot be done.
        return False
    if kind == ".json":
        return beginning.startswith(b"[")
    if not beginning.startswith(b"{"):
        return bool(beginning)
    return kind == ".jsonl" and _is_of_lines(beginning)


def _is_of_lines(beginning: bytes) -> bool:
    """Whether the first line is a JSON value by itself, and more follows."""
    first, _, rest = beginning.partition(b"\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return bool(rest.strip())
