"""Definition files of either kind, and what was built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.indexed.codec import SUFFIX_INDEX
from pcdc_runtime.indexed.index import Index

from .diagnostics import Diagnostic
from .indexing.kind import IndexKind, read_old_index
from .indexing.parse import parse_index_file
from .indexing.reading import Progress
from .kinds import Kind, SchemaKind, read_old_artifact
from .output import SUFFIX
from .parse import is_index_file, parse_file

_READERS: Mapping[str, Callable[[Path], Artifact | Index | ArtifactError | None]] = {
    SUFFIX: read_old_artifact,
    SUFFIX_INDEX: read_old_index,
}


def read_definition(
    path: Path, progress: Progress | None = None
) -> tuple[Kind[Any] | None, list[Diagnostic]]:
    """The schema or the index that a file declares; `progress` hears of an index's entries."""
    if is_index_file(path):
        definition, problems = parse_index_file(path)
        return IndexKind(definition, progress) if definition else None, problems
    schema, problems = parse_file(path)
    return SchemaKind(schema) if schema else None, problems


def suffix_of(path: Path) -> str:
    """How the name of what a definition becomes ends, whatever is wrong with it; "" where it does not say."""
    return SUFFIX_INDEX if is_index_file(path) else ""


def read_old(path: Path) -> Artifact | Index | ArtifactError | None:
    """What a build left at a path, None where nothing is, the error where it cannot be trusted."""
    return _READERS[path.suffix](path)
