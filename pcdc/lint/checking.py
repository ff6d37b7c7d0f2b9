"""One definition checked by all rules about its kind, for itself and for one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pcdc_runtime.calibration import Calibration, calibration_path
from pcdc_runtime.calibration import read as read_calibration
from pcdc_runtime.errors import ArtifactError, PcdcError

from pcdc.diagnostics import Diagnostic, from_error
from pcdc.indexing.alike import grouped_in, same_tokens
from pcdc.indexing.definition import IndexDefinition
from pcdc.indexing.kind import IndexKind
from pcdc.kinds import Kind, SchemaKind
from pcdc.lanes import Lane
from pcdc.schema import Schema

from .indexes import BuiltIndex, Indexed
from .registry import (
    BUILT_INDEX_RULES,
    BUILT_RULES,
    COMPILED_RULES,
    INDEX_RULES,
    INDEXED_RULES,
    SCHEMA_RULES,
    UNBUILT_RULES,
    LintRule,
    Subject,
)
from .subject import Built, Compiled, Unbuilt
from .views import FieldJudged, IndexTokens, TargetView, judged


def check_definition(definition: Schema | IndexDefinition) -> list[Diagnostic]:
    """What the rules find that need no model."""
    if isinstance(definition, Schema):
        return list(_run(SCHEMA_RULES, definition))
    return list(_run(INDEX_RULES, definition))


def check_for_model(
    kind: Kind[Any], path: Path, lane: Lane, artifact: Path
) -> tuple[list[Diagnostic], TargetView | IndexTokens | None]:
    """What compiling for a model and the rules about that find, and what there is to show."""
    try:
        if isinstance(kind, SchemaKind):
            return _schema(kind, path, lane, artifact)
        return _index(kind, path, lane, artifact) if isinstance(kind, IndexKind) else ([], None)
    except PcdcError as error:
        return [from_error(error)], None


def _run(rules: Iterable[LintRule[Subject]], subject: Subject) -> Iterator[Diagnostic]:
    for rule in rules:
        yield from rule.check(subject)


def _index(
    kind: IndexKind, path: Path, lane: Lane, artifact: Path
) -> tuple[list[Diagnostic], IndexTokens | None]:
    """Labels are tokenized only where the index that is there, if any, does not hold them."""
    definition, old = kind.definition, kind.read_old(artifact)
    decision = kind.decide(old, lane, force=False)
    whole = None if isinstance(old, ArtifactError) else old
    if decision.rebuild or whole is None:
        index, _, found = kind.compile(lane, whole)
    else:
        index, found = whole, same_tokens(definition, grouped_in(whole.labels))
    target, _ = lane.target
    if index is None or target is None:
        return found, None
    now = Indexed(path, definition, target, index)
    found += _run(INDEXED_RULES, now)
    if old is None:
        found += _run(UNBUILT_RULES, Unbuilt(now, artifact))
    else:
        found += _run(BUILT_INDEX_RULES, BuiltIndex(now, artifact, decision))
    return found, IndexTokens(
        source=str(path),
        index=definition.name,
        model=target.model,
        prompt_tokens=now.prompt_tokens,
        example_tokens=now.example_tokens,
        window=target.window,
        labels=len(index.labels),
        entries=index.rows.entries,
        rows=len(index.rows),
    )


def _schema(
    kind: SchemaKind, path: Path, lane: Lane, artifact: Path
) -> tuple[list[Diagnostic], TargetView | None]:
    schema, (compiled, _, found) = kind.definition, kind.compile(lane, None)
    target, _ = lane.target
    if compiled is None or target is None:
        return found, None
    now = Compiled(path, schema, target, compiled)
    found += _run(COMPILED_RULES, now)
    old, of_fields = kind.read_old(artifact), tuple[FieldJudged, ...]()
    if old is None:
        found += _run(UNBUILT_RULES, Unbuilt(now, artifact))
    else:
        decision = kind.decide(old, lane, force=False)
        calibration, problems = _calibration(artifact)
        found += problems
        # A file that cannot be read is told as such, and is not missing.
        if not problems:
            built = Built(now, artifact, decision, calibration)
            found += _run(BUILT_RULES, built)
            of_fields = tuple(judged(of_field) for _, of_field in built.evaluated)
    view = TargetView(
        source=str(path),
        schema=schema.name,
        model=target.model,
        prompt_tokens=now.prompt_tokens,
        example_tokens=now.example_tokens,
        window=target.window,
        nodes=sum(now.nodes),
        passes=now.passes,
        fields=now.fields,
        judged=of_fields,
    )
    return found, view


def _calibration(artifact: Path) -> tuple[Calibration | None, list[Diagnostic]]:
    path = calibration_path(artifact)
    if not path.exists():
        return None, []
    try:
        return read_calibration(path), []
    except PcdcError as error:
        return None, [from_error(error)]
