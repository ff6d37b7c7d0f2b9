"""Lint: everything that build would say of definitions, and what the lint rules find. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pcdc_runtime import models
from pcdc_runtime.calibration import Calibration, FieldCalibration, calibration_path
from pcdc_runtime.calibration import read as read_calibration
from pcdc_runtime.errors import PcdcError

from pcdc.cache import decide
from pcdc.diagnostics import Diagnostic, finding, from_error, has_errors, quoted, sort_diagnostics
from pcdc.folders import find_sources
from pcdc.ignoring import ignored_by
from pcdc.kinds import compile_for
from pcdc.kinds import read_old_artifact as read_old
from pcdc.lanes import Lane
from pcdc.output import artifact_names
from pcdc.parse import parse_file
from pcdc.schema import Ignored, Schema
from pcdc.source import read_source

from .registry import (
    BUILT_RULES,
    COMPILED_RULES,
    NOTHING_IGNORED,
    SCHEMA_RULES,
    UNBUILT_RULES,
    LintRule,
    Subject,
)
from .select import Selection
from .subject import Built, Compiled, FieldTokens, Unbuilt, judged_rows

OF_BUILDS = frozenset(rule.code for rule in BUILT_RULES) | {rule.code for rule in UNBUILT_RULES}


@dataclass(frozen=True)
class FieldJudged:
    """What a calibration says of one field; `rows` is how many texts it was judged on.

    `accuracy` is None where no text was kept to judge by, the others where the field has no threshold.
    """

    name: str
    rows: int
    accuracy: float | None
    minimum: float | None
    precision: float | None
    confidence: float | None
    share: float | None


@dataclass(frozen=True)
class TargetView:
    """One schema in one model's tokens; `window` is None where the model states none."""

    source: str
    schema: str
    model: str
    prompt_tokens: int
    example_tokens: int
    window: int | None
    nodes: int
    passes: int
    fields: tuple[FieldTokens, ...]
    judged: tuple[FieldJudged, ...]


@dataclass(frozen=True)
class IgnoredFinding:
    """What a definition ignores, and why."""

    diagnostic: Diagnostic
    reason: str


@dataclass(frozen=True)
class LintReport:
    """What was found in all schemas, sorted by place, and what each came to in tokens.

    In `unfinished` sources there are errors, before which not all rules could run.
    """

    diagnostics: tuple[Diagnostic, ...]
    ignored: tuple[IgnoredFinding, ...]
    targets: tuple[TargetView, ...]
    unfinished: tuple[str, ...] = ()

    def selected(self, selection: Selection) -> LintReport:
        """Without the warnings that were not asked for; errors stay."""
        kept = tuple(d for d in self.diagnostics if selection.wants(d))
        ignored = tuple(i for i in self.ignored if selection.wants(i.diagnostic))
        return replace(self, diagnostics=kept, ignored=ignored)

    def to_dict(self, *, explain: bool) -> dict[str, Any]:
        """The targets as JSON types, with `explain` the tokens of every choice in `choices`."""
        targets = [asdict(target) for target in self.targets]
        for field in (field for target in targets if not explain for field in target["fields"]):
            del field["choices"]
        return {"targets": targets, "unfinished": list(self.unfinished)}


def lint(paths: Sequence[Path], model_names: Sequence[str], out: Path) -> LintReport:
    """Check all schemas under `paths` for all models, and what `out` holds of them."""
    sources, problems = find_sources(paths, out)
    lanes = list[Lane]()
    for model_name in dict.fromkeys(model_names):
        try:
            lanes.append(Lane(models.resolve(model_name, weights=False)))
        except PcdcError as error:
            problems.append(from_error(error))
    named = [(s.relative, lane.files.name, s.path.as_posix()) for s in sources for lane in lanes]
    names = iter(artifact_names(named))
    ignored, views, unfinished = list[IgnoredFinding](), list[TargetView](), list[str]()
    for source in sources:
        schema, found = parse_file(source.path)
        artifacts = [out / next(names) for _ in lanes]
        if schema is None:
            problems += found
            unfinished.append(str(source.path))
            continue
        found += _run(SCHEMA_RULES, schema)
        for lane, artifact in zip(lanes, artifacts, strict=True):
            more, view = _of_model(schema, source.path, lane, artifact)
            found += more
            views += [view] if view else []
        hidden = [(d, i) for d in found if (i := ignored_by(schema, d))]
        told = [d for d in found if not ignored_by(schema, d)]
        ignored += [IgnoredFinding(d, i.reason) for d, i in hidden]
        if has_errors(found):
            unfinished.append(str(source.path))
        elif lanes:
            told += [d for d in _idle(schema, {i for _, i in hidden}) if not ignored_by(schema, d)]
        problems += _with_excerpts(source.path, told)
    return LintReport(
        diagnostics=tuple(sort_diagnostics(dict.fromkeys(problems))),
        ignored=tuple(dict.fromkeys(ignored)),
        targets=tuple(views),
        unfinished=tuple(unfinished),
    )


def _run(rules: Iterable[LintRule[Subject]], subject: Subject) -> Iterator[Diagnostic]:
    for rule in rules:
        yield from rule.check(subject)


def _of_model(
    schema: Schema, path: Path, lane: Lane, artifact: Path
) -> tuple[list[Diagnostic], TargetView | None]:
    try:
        compiled, found = compile_for(schema, lane)
        target, _ = lane.target
    except PcdcError as error:
        return [from_error(error)], None
    if compiled is None or target is None:
        return found, None
    now = Compiled(path, schema, target, compiled)
    found += _run(COMPILED_RULES, now)
    old, judged = read_old(artifact), tuple[FieldJudged, ...]()
    if old is None:
        found += _run(UNBUILT_RULES, Unbuilt(now, artifact))
    else:
        decision = decide(old, schema, lane.files.name, compiled.inputs)
        calibration, problems = _calibration(artifact)
        found += problems
        # A file that cannot be read is told as such, and is not missing.
        if not problems:
            built = Built(now, artifact, decision, calibration)
            found += _run(BUILT_RULES, built)
            judged = tuple(_judged(of_field) for _, of_field in built.evaluated)
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
        judged=judged,
    )
    return found, view


def _judged(field: FieldCalibration) -> FieldJudged:
    figures, threshold = field.after or field.before, field.threshold
    return FieldJudged(
        name=field.name,
        rows=judged_rows(field),
        accuracy=figures.accuracy if figures else None,
        minimum=threshold.minimum if threshold else None,
        precision=threshold.precision if threshold else None,
        confidence=threshold.confidence if threshold else None,
        share=threshold.share if threshold else None,
    )


def _calibration(artifact: Path) -> tuple[Calibration | None, list[Diagnostic]]:
    path = calibration_path(artifact)
    if not path.exists():
        return None, []
    try:
        return read_calibration(path), []
    except PcdcError as error:
        return None, [from_error(error)]


def _idle(schema: Schema, used: Set[Ignored]) -> list[Diagnostic]:
    """A warning for all that is ignored and found nothing, but for codes that ask what was built."""
    return [
        finding(
            NOTHING_IGNORED,
            one.location,
            "`ignore`",
            f"names {one.code}{f' of field {quoted(one.field)}' if one.field else ''}, "
            "which finds nothing here",
            "",
            "remove it, or it would hide what comes later",
        )
        for one in schema.ignored
        if one not in used and one.code not in OF_BUILDS and one.code != NOTHING_IGNORED
    ]


def _with_excerpts(path: Path, found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """With the lines of a definition that they are about; what is about all of it has its first line."""
    source, _ = read_source(path)
    if source is None:
        return list(found)
    whole = source.locate(0)
    return [
        replace(d, excerpt=source.excerpt_of(d.location))
        if d.location and d.location != whole and not d.excerpt
        else d
        for d in found
    ]
