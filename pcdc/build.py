"""Build: which targets there are, which are stale, and what compiling them gave.

A target is one schema source for one model. Every source is read and every target decided on its own, so
one bad file hides no other and the last good artifact stays. Needs a tokenizer only where something is
compiled; needs no weights and no MLX.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any, Literal

from pcdc_runtime import codec, models
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.calibration import calibration_path
from pcdc_runtime.errors import ArtifactError, PcdcError
from pcdc_runtime.storage import sweep, way_to_write, write_atomic

from .cache import Decision, decide, input_record
from .diagnostics import Diagnostic, finding, from_error, quoted, sort_diagnostics
from .ignoring import told
from .output import LOG_NAME, SUFFIX, append_log, artifact_names, plain_name
from .parse import catalogs_of, parse_file
from .prompt import Target, load_target, template_digest
from .schema import Schema

Outcome = Literal["built", "fresh", "failed"]
NOT_SOURCES = frozenset({"catalogs", "examples"})
TARGETS_KEPT = 8
_CALIBRATION = calibration_path(SUFFIX).name
_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


@dataclass(frozen=True)
class TargetResult:
    """What became of one target; `changes` are the schema's, `ms` is wall-clock time."""

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


@dataclass(frozen=True)
class Source:
    """A schema file, and its place below the folder it was found in, without suffix."""

    path: Path
    relative: PurePath


def build(
    paths: Sequence[Path],
    model_names: Sequence[str],
    out: Path,
    *,
    force: bool = False,
    ready: Callable[[Path], bool] = lambda _: True,
) -> BuildReport:
    """Bring the artifacts of all schemas under `paths` for all models up to date in `out`.

    `ready` is asked before a source is read and again after it; unless both answers are yes, the source is
    left out of the report.
    """
    sources, findings = find_sources(paths, out)
    lanes: list[Lane] = []
    for model_name in dict.fromkeys(model_names):
        try:
            lanes.append(Lane(models.resolve(model_name, weights=False)))
        except PcdcError as error:
            findings.append(from_error(error))
    planned = [(source, lane) for source in sources for lane in lanes]
    names = artifact_names([(s.relative, lane.files.name, s.path.as_posix()) for s, lane in planned])
    schemas: dict[Path, Schema | None] = {}
    for source in sources:
        if ready(source.path):
            schema, problems = parse_file(source.path)
            if ready(source.path):
                schemas[source.path] = schema
                findings += told(problems, schema)
    for folder in {out / name.parent for name in names}:
        sweep(folder, f"*{SUFFIX}")
    results = []
    for (source, lane), name in zip(planned, names, strict=True):
        if source.path not in schemas:
            continue
        start, path = time.perf_counter(), out / name
        outcome, decision, problems = _bring_up_to_date(schemas[source.path], lane, path, force)
        findings += problems
        if (plain := out / plain_name(source.relative, lane.files.name)) != path and outcome != "failed":
            findings += _left_behind(plain, path, source.path.stem, lane.files.name, names, out)
        result = TargetResult(
            source=str(source.path),
            model=lane.files.name,
            artifact=path,
            outcome=outcome,
            reason=decision.reason,
            changes=decision.changes,
            ms=(time.perf_counter() - start) * 1000,
        )
        results.append(result)
    findings += _log(out, results)
    return BuildReport(tuple(results), tuple(sort_diagnostics(list(dict.fromkeys(findings)))))


def find_sources(paths: Sequence[Path], out: Path) -> tuple[list[Source], list[Diagnostic]]:
    """The schema files that `paths` name: files as they are, folders with every definition below them."""
    sources: dict[Path, Source] = {}
    findings = []
    for path in paths:
        fault = _fault(path)
        if fault:
            found = []
            findings.append(finding("PCDC612", None, str(path), fault, help="check the path"))
        elif path.is_dir():
            unlisted: list[OSError] = []
            below = [p for _, files in source_folders(path, out, unlisted.append) for p in files]
            found = [Source(p, p.relative_to(path).with_suffix("")) for p in below]
            findings += map(_unlisted, unlisted)
            if not found and not unlisted:
                findings.append(
                    finding(
                        "PCDC612", None, str(path), "has no schema below it", help="put a .json schema there"
                    )
                )
        elif path.is_file():
            found = [Source(path, PurePath(path.stem))]
        else:
            found = []
            help = "write the definition to a file first"
            findings.append(finding("PCDC101", None, str(path), "is not a regular file", help=help))
        for source in found:
            sources.setdefault(real(source.path), source)
    return _definitions(sources), findings


def real(path: Path) -> Path:
    """Where a path leads; a loop of links, and what can be no path, lead to themselves."""
    # `Path.resolve` raises an error for both.
    return path if "\0" in str(path) else Path(os.path.realpath(path))


def _fault(path: Path) -> str:
    """Why nothing can be found at a path, if that is so."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    return ""


def _definitions(sources: Mapping[Path, Source]) -> list[Source]:
    """Without the files that others name as their catalog, unless they name catalogs themselves."""
    uses = {place: catalogs_of(source.path) for place, source in sources.items()}
    named = {real(use.path) for found in uses.values() for use in found if use.path is not None}
    return [source for place, source in sources.items() if place not in named or uses[place]]


def source_folders(
    top: Path, out: Path, unlisted: Callable[[OSError], None] | None = None
) -> Iterator[tuple[Path, list[Path]]]:
    """The folders at and below `top` that may hold definitions, each once with those in it.

    Links to folders are followed after all that is not behind one, so that a folder has its own name where
    it has one. `unlisted` is told of each folder that cannot be listed.
    """
    seen = {real(out)} - {real(top)}
    waiting = deque([top])
    while waiting:
        for name, below, files in os.walk(waiting.popleft(), onerror=unlisted):
            folder = Path(name)
            if real(folder) in seen:
                below.clear()
                continue
            seen.add(real(folder))
            below[:] = sorted(n for n in below if n not in NOT_SOURCES and not n.startswith("."))
            waiting += [folder / n for n in below if (folder / n).is_symlink()]
            below[:] = [n for n in below if not (folder / n).is_symlink()]
            definitions = (folder / n for n in sorted(files) if _may_be_definition(n))
            yield folder, [path for path in definitions if _may_be_read(path)]


def _may_be_definition(name: str) -> bool:
    # Beside artifacts, where these and definitions share a folder, there are calibrations.
    return name.endswith(".json") and not name.startswith(".") and not name.endswith(_CALIBRATION)


def _may_be_read(path: Path) -> bool:
    """Whether it is a file, or nothing that can be looked at, which reading it will tell."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _unlisted(error: OSError) -> Diagnostic:
    fact = f"cannot be listed ({error.strerror or error})"
    return finding("PCDC101", None, str(error.filename), fact, "", "check the folder's permissions")


class Lane:
    """One model of a build: its digests at once, its tokenizer and template when something is compiled."""

    def __init__(self, files: models.ModelFiles) -> None:
        self.files = files

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Fingerprint of the tokenizer, digest of the template; loads neither."""
        template = template_digest(self.files.chat_template(), dict(self.files.special_tokens()))
        return models.fingerprint_of(self.files.folder), template

    @property
    def target(self) -> tuple[Target | None, list[Diagnostic]]:
        return _target(self.files, *self.digests)


# Cutting and proving a template takes longer than compiling a schema; the digests say that it is the same.
@lru_cache(maxsize=TARGETS_KEPT)
def _target(files: models.ModelFiles, *digests: str) -> tuple[Target | None, list[Diagnostic]]:
    return load_target(files)


def _bring_up_to_date(
    schema: Schema | None, lane: Lane, path: Path, force: bool
) -> tuple[Outcome, Decision, list[Diagnostic]]:
    if schema is None:
        return "failed", _failure("the schema has errors", path), []
    try:
        record = input_record(schema, *lane.digests)
        old = read_old(path)
        decision = decide(old, schema, lane.files.name, record, force=force)
        if not decision.rebuild:
            return "fresh", decision, []
        findings = [_replaced(old)] if isinstance(old, ArtifactError) else _overwritten(old, schema, path)
        compiled, problems = compile_for(schema, lane)
    except PcdcError as error:
        return "failed", _failure(error.fact, path), [from_error(error)]
    findings += problems
    if compiled is None:
        return "failed", _failure("the schema does not compile for this model", path), findings
    try:
        write_atomic(path, codec.dumps(compiled))
    except OSError as error:
        return (
            "failed",
            _failure("the artifact cannot be written", path),
            [*findings, _unwritten(path, error)],
        )
    return "built", decision, findings


def compile_for(schema: Schema, lane: Lane) -> tuple[Artifact | None, list[Diagnostic]]:
    """Compile one schema for one model. Raises PcdcError where the model's files are missing."""
    from .emit import compile_schema

    target, problems = lane.target
    if target is None:
        return None, problems
    compiled, more = compile_schema(schema, target)
    return compiled, problems + more


def read_old(path: Path) -> Artifact | ArtifactError | None:
    """The artifact at a path, None where there is none, the error where it cannot be trusted."""
    try:
        return codec.read(path)
    except ArtifactError as error:
        missing = isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOTHING_THERE
        return None if missing else error


def _failure(reason: str, path: Path) -> Decision:
    # Unlike Path.exists, this does not raise where the folder may not be searched.
    there = os.access(path, os.F_OK)
    return Decision(True, f"{reason}; the last good artifact stays" if there else reason)


def _replaced(error: ArtifactError) -> Diagnostic:
    return finding("PCDC610", None, error.subject, error.fact, "it counts as missing and is compiled again")


def _overwritten(old: Artifact | None, schema: Schema, path: Path) -> list[Diagnostic]:
    if old is None or {f.name for f in old.fields} & {f.name for f in schema.fields}:
        return []
    return [
        finding(
            "PCDC615",
            None,
            str(path),
            f"held schema {quoted(old.name)} with other fields and is replaced",
            "a file's name says which artifact it becomes",
            "build them together, or give each another name or --out",
        )
    ]


def _left_behind(
    plain: Path, path: Path, schema: str, model: str, names: Sequence[PurePath], out: Path
) -> list[Diagnostic]:
    """A warning where an artifact of the same schema and model has the name that this one had alone."""
    old = None if plain in {out / name for name in names} else read_old(plain)
    if not isinstance(old, Artifact) or (old.name, old.model) != (schema, model):
        return []
    fact = f"stays beside {path.name}, which another source of that name made necessary"
    help = "remove it, or rename one of the sources"
    return [finding("PCDC616", None, str(plain), fact, "it is not brought up to date", help)]


def _unwritten(path: Path, error: OSError) -> Diagnostic:
    return finding(
        "PCDC611",
        None,
        str(path),
        f"cannot be written ({error.strerror or error})",
        "an artifact that was there before is unchanged",
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
