"""Lint: everything that build would say of schemas, and what the lint rules find. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pcdc_runtime import models
from pcdc_runtime.calibration import Calibration, calibration_path
from pcdc_runtime.calibration import read as read_calibration
from pcdc_runtime.errors import PcdcError

from pcdc.build import Lane, compile_for, find_sources, read_old
from pcdc.cache import decide
from pcdc.diagnostics import Diagnostic, finding, from_error, has_errors, sort_diagnostics
from pcdc.output import artifact_names
from pcdc.parse import parse_file
from pcdc.schema import Schema

from .registry import BUILT_RULES, COMPILED_RULES, NOTHING_IGNORED, SCHEMA_RULES, LintRule, Subject
from .select import Selection
from .subject import Built, Compiled, FieldTokens

OF_BUILDS = frozenset(rule.code for rule in BUILT_RULES)


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


@dataclass(frozen=True)
class IgnoredFinding:
    """What a definition ignores, and why."""

    diagnostic: Diagnostic
    reason: str


@dataclass(frozen=True)
class LintReport:
    """What was found in all schemas, sorted by place, and what each came to in tokens."""

    diagnostics: tuple[Diagnostic, ...]
    ignored: tuple[IgnoredFinding, ...]
    targets: tuple[TargetView, ...]

    def selected(self, selection: Selection) -> LintReport:
        """Without the warnings that were not asked for; errors stay."""
        kept = tuple(d for d in self.diagnostics if selection.wants(d))
        return replace(self, diagnostics=kept)

    def to_dict(self) -> dict[str, Any]:
        """The targets as JSON types."""
        return {"targets": [asdict(target) for target in self.targets]}


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
    ignored, views = list[IgnoredFinding](), list[TargetView]()
    for source in sources:
        schema, found = parse_file(source.path)
        artifacts = [out / next(names) for _ in lanes]
        if schema is None:
            problems += found
            continue
        found += _run(SCHEMA_RULES, schema)
        for lane, artifact in zip(lanes, artifacts, strict=True):
            more, view = _of_model(schema, source.path, lane, artifact)
            found += more
            views += [view] if view else []
        told, hidden = _parted(schema, found)
        problems += told
        ignored += hidden
        if lanes and not has_errors(found):
            problems += _idle(schema, hidden)
    return LintReport(
        tuple(sort_diagnostics(dict.fromkeys(problems))), tuple(dict.fromkeys(ignored)), tuple(views)
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
    old = read_old(artifact)
    if old is not None:
        decision = decide(old, schema, lane.files.name, compiled.inputs)
        calibration, problems = _calibration(artifact)
        found += problems
        # A file that cannot be read is told as such, and is not missing.
        if not problems:
            found += _run(BUILT_RULES, Built(now, artifact, decision, calibration))
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


def _parted(schema: Schema, found: Sequence[Diagnostic]) -> tuple[list[Diagnostic], list[IgnoredFinding]]:
    """What is told of a schema, and what it ignores."""
    reasons = {i.code: i.reason for i in schema.ignored}
    told = [d for d in found if d.code not in reasons]
    return told, [IgnoredFinding(d, reasons[d.code]) for d in found if d.code in reasons]


def _idle(schema: Schema, hidden: Sequence[IgnoredFinding]) -> list[Diagnostic]:
    """A warning for each ignored code that found nothing, but for those that ask what was built."""
    used = {i.diagnostic.code for i in hidden} | OF_BUILDS
    return [
        finding(
            NOTHING_IGNORED,
            one.location,
            "`ignore`",
            f"names {one.code}, which finds nothing here",
            "",
            "remove it, or it would hide what comes later",
        )
        for one in schema.ignored
        if one.code not in used and one.code != NOTHING_IGNORED
    ]
