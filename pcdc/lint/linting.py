"""Lint: everything that build would say of definitions, and what the lint rules find. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pcdc.definitions import read_definition
from pcdc.diagnostics import Diagnostic, finding, has_errors, quoted, sort_diagnostics
from pcdc.folders import find_sources
from pcdc.ignoring import ignored_by
from pcdc.indexing.definition import IndexDefinition
from pcdc.lanes import find_lanes
from pcdc.output import artifact_names
from pcdc.schema import Ignored, Schema
from pcdc.source import read_source

from .checking import check_definition, check_for_model
from .registry import BUILT_RULES, NOTHING_IGNORED, UNBUILT_RULES
from .select import Selection
from .views import IndexTokens, TargetView

OF_BUILDS = frozenset(rule.code for rule in BUILT_RULES) | {rule.code for rule in UNBUILT_RULES}


@dataclass(frozen=True)
class IgnoredFinding:
    """What a definition ignores, and why."""

    diagnostic: Diagnostic
    reason: str


@dataclass(frozen=True)
class LintReport:
    """What was found in all definitions, sorted by place, and what each came to in tokens.

    In `unfinished` sources there are errors, before which not all rules could run.
    """

    diagnostics: tuple[Diagnostic, ...]
    ignored: tuple[IgnoredFinding, ...]
    targets: tuple[TargetView, ...]
    indexes: tuple[IndexTokens, ...] = ()
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
        indexes = [asdict(index) for index in self.indexes]
        return {"targets": targets, "indexes": indexes, "unfinished": list(self.unfinished)}


def lint(paths: Sequence[Path], model_names: Sequence[str], out: Path) -> LintReport:
    """Check all definitions under `paths` for all models, and what `out` holds of them."""
    sources, problems = find_sources(paths, out)
    lanes, missing = find_lanes(model_names)
    problems += missing
    named = [(s.relative, lane.files.name, s.path.as_posix()) for s in sources for lane in lanes]
    names = iter(artifact_names(named))
    ignored, views, unfinished = list[IgnoredFinding](), list[TargetView | IndexTokens](), list[str]()
    for source in sources:
        kind, found = read_definition(source.path)
        artifacts = [out / next(names) for _ in lanes]
        if kind is None:
            problems += found
            unfinished.append(str(source.path))
            continue
        definition = kind.definition
        found += check_definition(definition)
        for lane, artifact in zip(lanes, artifacts, strict=True):
            more, view = check_for_model(kind, source.path, lane, artifact.with_suffix(kind.suffix))
            found += more
            views += [view] if view else []
        hidden = [(d, i) for d in found if (i := ignored_by(definition, d))]
        told = [d for d in found if not ignored_by(definition, d)]
        ignored += [IgnoredFinding(d, i.reason) for d, i in hidden]
        if has_errors(found):
            unfinished.append(str(source.path))
        elif lanes:
            idle = _idle(definition, {i for _, i in hidden})
            told += [d for d in idle if not ignored_by(definition, d)]
        problems += _with_excerpts(source.path, told)
    return LintReport(
        diagnostics=tuple(sort_diagnostics(dict.fromkeys(problems))),
        ignored=tuple(dict.fromkeys(ignored)),
        targets=tuple(view for view in views if isinstance(view, TargetView)),
        indexes=tuple(view for view in views if isinstance(view, IndexTokens)),
        unfinished=tuple(unfinished),
    )


def _idle(definition: Schema | IndexDefinition, used: Set[Ignored]) -> list[Diagnostic]:
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
        for one in definition.ignored
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
