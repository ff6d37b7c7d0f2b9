"""The two kinds of definitions, schema and index, as a build sees them; the schema is the one here."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from pcdc_runtime import codec
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.storage import write_atomic

from .cache import Decision, decide, input_record
from .diagnostics import Diagnostic, finding, quoted
from .indexing.definition import IndexDefinition
from .lanes import Lane
from .output import SUFFIX
from .schema import Schema

Made = TypeVar("Made")
_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class Kind(Protocol[Made]):
    """One checked definition, and what a build does with it."""

    @property
    def definition(self) -> Schema | IndexDefinition:
        """The definition itself."""

    @property
    def suffix(self) -> str:
        """How the name of its file ends."""

    def read_old(self, path: Path) -> Made | ArtifactError | None:
        """What is at a path: None where nothing is, the error where it cannot be trusted."""

    def decide(self, old: Made | ArtifactError | None, lane: Lane, *, force: bool) -> Decision:
        """Compare what is there with what it would be made from now. Raises PcdcError."""

    def overwritten(self, old: Made, path: Path) -> list[Diagnostic]:
        """A warning where what is there was made from something else altogether."""

    def compile(self, lane: Lane, old: Made | None) -> tuple[Made | None, tuple[str, ...], list[Diagnostic]]:
        """Make it for one model, and say what only making it tells of its changes.

        Raises PcdcError where the model's files are missing.
        """

    def write(self, path: Path, made: Made) -> None:
        """Put it at a path, whole or not at all. Raises OSError."""


@dataclass(frozen=True)
class SchemaKind:
    """A schema, which becomes an artifact."""

    definition: Schema
    suffix: ClassVar[str] = SUFFIX

    def read_old(self, path: Path) -> Artifact | ArtifactError | None:
        return read_old_artifact(path)

    def decide(self, old: Artifact | ArtifactError | None, lane: Lane, *, force: bool) -> Decision:
        record = input_record(self.definition, *lane.digests)
        return decide(old, self.definition, lane.files.name, record, force=force)

    def overwritten(self, old: Artifact, path: Path) -> list[Diagnostic]:
        if {f.name for f in old.fields} & {f.name for f in self.definition.fields}:
            return []
        return [replaced_by_another(path, f"schema {quoted(old.name)} with other fields")]

    def compile(
        self, lane: Lane, old: Artifact | None
    ) -> tuple[Artifact | None, tuple[str, ...], list[Diagnostic]]:
        compiled, problems = compile_for(self.definition, lane)
        return compiled, (), problems

    def write(self, path: Path, made: Artifact) -> None:
        write_atomic(path, codec.dumps(made))


def compile_for(schema: Schema, lane: Lane) -> tuple[Artifact | None, list[Diagnostic]]:
    """Compile one schema for one model. Raises PcdcError where the model's files are missing."""
    from .emit import compile_schema

    target, problems = lane.target
    if target is None:
        return None, problems
    compiled, more = compile_schema(schema, target)
    return compiled, problems + more


def read_old_artifact(path: Path) -> Artifact | ArtifactError | None:
    """The artifact at a path, None where there is none, the error where it cannot be trusted."""
    try:
        return codec.read(path)
    except ArtifactError as error:
        return None if is_missing(error) else error


def is_missing(error: ArtifactError) -> bool:
    """Whether an artifact cannot be read because nothing is there."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOTHING_THERE


def replaced_by_another(path: Path, what: str) -> Diagnostic:
    """The warning that a file held something else."""
    return finding(
        "PCDC615",
        None,
        str(path),
        f"held {what} and is replaced",
        "a file's name says which artifact it becomes",
        "build them together, or give each another name or --out",
    )
