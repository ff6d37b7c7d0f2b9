"""The index as a kind of definition: how a build decides, makes and writes one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.indexed.codec import SUFFIX_INDEX, open_index, write_index
from pcdc_runtime.indexed.index import Index

from pcdc.cache import Decision
from pcdc.diagnostics import Diagnostic, finding, quoted
from pcdc.kinds import is_missing, replaced_by_another
from pcdc.lanes import Lane

from .definition import IndexDefinition
from .freshness import catalog_digest, decide_index, dropped, index_record
from .reading import Progress


@dataclass(frozen=True)
class IndexKind:
    """An index definition; `progress` hears how far its labels are tokenized."""

    definition: IndexDefinition
    progress: Progress | None = field(default=None, compare=False)
    suffix: ClassVar[str] = SUFFIX_INDEX

    @cached_property
    def _catalog(self) -> str:
        # One catalog, however many models.
        return catalog_digest(self.definition.entries)

    def read_old(self, path: Path) -> Index | ArtifactError | None:
        return read_old_index(path)

    def decide(self, old: Index | ArtifactError | None, lane: Lane, *, force: bool) -> Decision:
        record = index_record(self.definition, self._catalog, *lane.digests)
        return decide_index(old, self.definition, lane.files.name, record, force=force)

    def overwritten(self, old: Index, path: Path) -> list[Diagnostic]:
        if old.field != self.definition.field:
            return [replaced_by_another(path, f"index {quoted(old.name)} of field {quoted(old.field)}")]
        lost = dropped(old, self.definition)
        return [_dropped(path, lost)] if lost and not self.definition.from_file else []

    def compile(
        self, lane: Lane, old: Index | None
    ) -> tuple[Index | None, tuple[str, ...], list[Diagnostic]]:
        from .emit import compile_from

        target, problems = lane.target
        if target is None:
            return None, (), problems
        index, changes, more = compile_from(old, self.definition, target, self.progress)
        return index, changes, problems + more

    def write(self, path: Path, made: Index) -> None:
        write_index(path, made)


def _dropped(path: Path, lost: tuple[str, ...]) -> Diagnostic:
    shown = lost[0] if len(lost) == 1 else f"{', '.join(lost[:-1])} and {lost[-1]}"
    return finding(
        "PCDC619",
        None,
        str(path),
        f"had {shown}, which this call does not give and the index no longer has",
        "an index of a catalog asks what the options of the last call say",
        "give them again with --question, --instructions and --example, or keep them in a definition",
    )


def read_old_index(path: Path) -> Index | ArtifactError | None:
    """The index at a path, None where there is none, the error where it cannot be trusted."""
    try:
        index = open_index(path)
        index.check()
        return index
    except ArtifactError as error:
        return None if is_missing(error) else error
