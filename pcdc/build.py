"""Build: which targets there are, which are stale, and what compiling them gave.

A target is one definition for one model. Every definition is read and every target decided on its own, so
one bad file hides no other and the last good artifact stays. Needs a tokenizer only where something is
compiled; needs no weights and no MLX.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

from pcdc_runtime.errors import ArtifactError, PcdcError
from pcdc_runtime.storage import sweep, way_to_write

from .cache import Decision
from .definitions import read_definition, read_old, suffix_of
from .diagnostics import Diagnostic, finding, from_error, sort_diagnostics
from .folders import Source, find_sources
from .ignoring import told
from .indexing.reading import Progress
from .kinds import Kind, Made
from .lanes import Lane, find_lanes
from .output import LOG_NAME, NOUNS, append_log, artifact_names, plain_name

Outcome = Literal["built", "fresh", "failed"]
Read: TypeAlias = tuple[Kind[Any] | None, list[Diagnostic]]


@dataclass(frozen=True)
class TargetResult:
    """What became of one target; `changes` are the definition's, `ms` is wall-clock time."""

    source: str
    model: str
    artifact: Path
    outcome: Outcome
    reason: str
    changes: tuple[str, ...]
    ms: float


@dataclass(frozen=True)
class BuildReport:
    """Every target in the order of the paths given, and every diagnostic, sorted."""

    targets: tuple[TargetResult, ...]
    diagnostics: tuple[Diagnostic, ...]

    def to_dict(self) -> dict[str, Any]:
        """The targets as JSON types."""
        return {"targets": [asdict(t) | {"artifact": str(t.artifact)} for t in self.targets]}


def build(
    paths: Sequence[Path],
    model_names: Sequence[str],
    out: Path,
    *,
    force: bool = False,
    ready: Callable[[Path], bool] = lambda _: True,
    progress: Progress | None = None,
) -> BuildReport:
    """Bring what the definitions under `paths` become for all models up to date in `out`.

    `ready` is asked before a source is read and again after it; unless both answers are yes, the source is
    left out of the report. `progress` hears of the entries of an index.
    """

    def read(path: Path) -> Read | None:
        found = read_definition(path, progress) if ready(path) else None
        return found if found and ready(path) else None

    sources, findings = find_sources(paths, out)
    report = build_sources(sources, read, model_names, out, force=force)
    return replace(report, diagnostics=_sorted([*findings, *report.diagnostics]))


def build_sources(
    sources: Sequence[Source],
    read: Callable[[Path], Read | None],
    model_names: Sequence[str],
    out: Path,
    *,
    force: bool = False,
    suffix_of: Callable[[Path], str] = suffix_of,
) -> BuildReport:
    """Bring what sources become up to date; one for which `read` gives None is left out of the report.

    `suffix_of` is asked of a source with errors.
    """
    lanes, findings = find_lanes(model_names)
    named = [(s.relative, lane.files.name, s.path.as_posix()) for s in sources for lane in lanes]
    names = artifact_names(named)
    for folder in {out / name.parent for name in names}:
        for suffix in NOUNS:
            sweep(folder, f"*{suffix}")
    results, waiting = list[TargetResult](), iter(names)
    for source in sources:
        own = [next(waiting) for _ in lanes]
        found = read(source.path)
        if found is None:
            continue
        kind, problems = found
        findings += told(problems, kind.definition if kind else None)
        suffix = kind.suffix if kind else suffix_of(source.path)
        for lane, name in zip(lanes, own, strict=True):
            path = (out / name).with_suffix(suffix) if suffix else _last_good(out / name)
            result, problems = _bring_up_to_date(kind, source, lane, path, force)
            results.append(result)
            findings += told(problems, kind.definition if kind else None)
            if result.outcome != "failed":
                findings += _left_behind(result, source.relative, names, out)
    findings += _log(out, results)
    return BuildReport(tuple(results), _sorted(findings))


def _sorted(findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sort_diagnostics(list(dict.fromkeys(findings))))


def _bring_up_to_date(
    kind: Kind[Any] | None, source: Source, lane: Lane, path: Path, force: bool
) -> tuple[TargetResult, list[Diagnostic]]:
    start = time.perf_counter()
    if kind is None:
        outcome, decision, findings = _failed(f"the {NOUNS[path.suffix]} has errors", path, [])
    else:
        outcome, decision, findings = _made(kind, lane, path, force)
    result = TargetResult(
        source=str(source.path),
        model=lane.files.name,
        artifact=path,
        outcome=outcome,
        reason=decision.reason,
        changes=decision.changes,
        ms=(time.perf_counter() - start) * 1000,
    )
    return result, findings


def _last_good(path: Path) -> Path:
    """Where a definition that does not say what it is has its last good artifact, or would have one."""
    there = [other for suffix in NOUNS if os.access(other := path.with_suffix(suffix), os.F_OK)]
    return there[0] if there else path


def _made(
    kind: Kind[Made], lane: Lane, path: Path, force: bool
) -> tuple[Outcome, Decision, list[Diagnostic]]:
    try:
        old = kind.read_old(path)
        decision = kind.decide(old, lane, force=force)
        if not decision.rebuild:
            return "fresh", decision, []
        whole = None if isinstance(old, ArtifactError) else old
        findings = [_replaced(old)] if isinstance(old, ArtifactError) else []
        findings += kind.overwritten(whole, path) if whole is not None else []
        made, changes, problems = kind.compile(lane, whole)
    except PcdcError as error:
        return _failed(error.fact, path, [from_error(error)])
    findings += problems
    if made is None:
        return _failed(f"the {NOUNS[kind.suffix]} does not compile for this model", path, findings)
    try:
        kind.write(path, made)
    except OSError as error:
        return _failed("the artifact cannot be written", path, [*findings, _unwritten(path, error)])
    return "built", replace(decision, changes=(*decision.changes, *changes)), findings


def _failed(
    reason: str, path: Path, findings: list[Diagnostic]
) -> tuple[Outcome, Decision, list[Diagnostic]]:
    # Unlike Path.exists, this does not raise where the folder may not be searched.
    there = os.access(path, os.F_OK)
    return "failed", Decision(True, f"{reason}; the last good artifact stays" if there else reason), findings


def _replaced(error: ArtifactError) -> Diagnostic:
    return finding("PCDC610", None, error.subject, error.fact, "it counts as missing and is compiled again")


def _left_behind(
    result: TargetResult, relative: PurePath, names: Sequence[PurePath], out: Path
) -> list[Diagnostic]:
    """Warnings where the source has, for that model, what it became under another name or as another kind."""
    path, findings = result.artifact, list[Diagnostic]()
    plain = out / plain_name(relative, result.model)
    taken = {out / name for name in names}
    why = {path.with_suffix(s): "which is of the kind that its definition is of now" for s in NOUNS}
    if plain not in taken:
        made = "which another source of that name made necessary"
        why |= {plain.with_suffix(suffix): made for suffix in NOUNS}
    for left, reason in why.items():
        old = None if left == path else read_old(left)
        if (
            old
            and not isinstance(old, ArtifactError)
            and (old.name, old.model) == (Path(result.source).stem, result.model)
        ):
            fact = f"stays beside {path.name}, {reason}"
            help = "remove it, or rename one of the sources"
            findings.append(finding("PCDC616", None, str(left), fact, "it is not brought up to date", help))
    return findings


def _unwritten(path: Path, error: OSError) -> Diagnostic:
    there = os.access(path, os.F_OK)
    return finding(
        "PCDC611",
        None,
        str(path),
        f"cannot be written ({error.strerror or error})",
        "the artifact that was there before is unchanged" if there else "",
        way_to_write(error, "choose another folder with --out"),
    )


def _log(out: Path, results: Sequence[TargetResult]) -> list[Diagnostic]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    try:
        for result in results:
            line = {
                "time": now,
                "source": result.source,
                "model": result.model,
                "artifact": result.artifact.name,
                "outcome": result.outcome,
                "reason": result.reason,
                "changes": list(result.changes),
                "ms": round(result.ms, 1),
            }
            append_log(out, line)
    except OSError as error:
        limit = "it only explains, no artifact depends on it"
        return [
            finding(
                "PCDC613", None, str(out / LOG_NAME), f"cannot be written ({error.strerror or error})", limit
            )
        ]
    return []
