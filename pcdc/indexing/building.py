"""One index by itself: from a definition, or from a catalog and what a command line asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from pcdc_runtime.indexed.codec import SUFFIX_INDEX

from pcdc.build import BuildReport, Read, build_sources
from pcdc.catalog import FILES
from pcdc.folders import Source
from pcdc.lint.indexes import no_question

from .kind import IndexKind
from .parse import parse_index_file
from .reading import Progress
from .shortcut import definition_of_catalog

_JSON, _BEFORE = ".json", b"\xef\xbb\xbf \t\r\n"


def is_catalog(path: Path) -> bool:
    """Whether a file is a catalog and no definition; its first character says so where it may be both."""
    kind = path.suffix.lower()
    return kind in FILES and (kind != _JSON or _first(path) == b"[")


def is_object(path: Path) -> bool:
    """Whether a file is JSON that begins as a definition does."""
    return path.suffix.lower() == _JSON and _first(path) == b"{"


def _first(path: Path) -> bytes:
    """The first character of a file that is no blank; empty where there is none."""
    try:
        with path.open("rb") as file:
            while piece := file.read(4096):
                if found := piece.lstrip(_BEFORE):
                    return found[:1]
    except (OSError, ValueError):
        # Who reads it next tells why that cannot be done.
        return b""
    return b""


def build_index(
    path: Path,
    model_names: Sequence[str],
    out: Path,
    *,
    asked: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> BuildReport:
    """Bring the index of a definition up to date in `out`, or that of a catalog.

    `asked` is for a catalog: the arguments of `definition_of_catalog`, None for a definition.
    """

    def read(path: Path) -> Read:
        found = parse_index_file(path) if asked is None else definition_of_catalog(path, **asked)
        definition, problems = found
        if definition is None:
            return None, problems
        return IndexKind(definition, progress), [*problems, *no_question(definition)]

    source = Source(path, PurePath(path.stem))
    return build_sources([source], read, model_names, out, force=force, suffix_of=lambda _: SUFFIX_INDEX)
