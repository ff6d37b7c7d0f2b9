"""Watch: whenever the content of a definition or of its catalogs is another one, build what depends on it.

One thread looks at the state of all sources, waits until it stands still, and builds the sources whose
content is not what they were last built from. Events and clocks only decide when it looks, so a lost, doubled
or misleading event costs time and nothing else, and whatever was saved last is what is built last.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pcdc_runtime.models import DEFAULT, resolve

from .build import BuildReport, TargetResult, build
from .diagnostics import Diagnostic, render_json, visible
from .events import Wakeups, places
from .folders import find_sources, real, source_folders
from .standstill import OPEN, SETTLE, Look, Standstill, look
from .uses import Uses

# Seconds. A burst of events is looked at once; a failure that no edit can cure is tried again at a RECHECK.
TICK = 0.02
PATIENCE = 2.0
RECHECK = 10.0
FALLBACK = 1.0
SQL_INTERVAL = 5.0
RETRIED = frozenset({"PCDC611"})

Content = Mapping[str, str]
Event = Literal["start", "change", "retry"]


@dataclass(frozen=True)
class Kept:
    """An artifact that stays as it was, or the source of one that never was, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class ChangeSet:
    """One event: what changed, what became of the targets that depend on it, what was kept, what to say.

    `changed` are files and databases, none at the start; `ms` is the time that building took. A diagnostic
    is told once, until what it is about changes.
    """

    event: Event
    changed: tuple[str, ...]
    targets: tuple[TargetResult, ...]
    kept: tuple[Kept, ...]
    diagnostics: tuple[Diagnostic, ...]
    ms: float

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types."""
        return {
            "event": self.event,
            "changed": list(self.changed),
            "targets": [asdict(t) | {"artifact": str(t.artifact)} for t in self.targets],
            "kept": [asdict(k) for k in self.kept],
            "diagnostics": json.loads(render_json(self.diagnostics)),
            "ms": self.ms,
        }

    def __str__(self) -> str:
        kept = {k.what for k in self.kept}
        parts = [f"{t.outcome} {t.artifact} ({_why(t)})" for t in self.targets if str(t.artifact) not in kept]
        parts += [f"kept {k.what} ({k.reason})" for k in self.kept]
        what = ", ".join(self.changed) or self.event
        return visible(f"{what}: {'; '.join(parts) or 'nothing to build'}, {self.ms:.0f} ms")


def _why(target: TargetResult) -> str:
    return f"{target.reason}: {', '.join(target.changes)}" if target.changes else target.reason


def watch(
    paths: Sequence[str | Path] | str | Path,
    models: Sequence[str] | str = DEFAULT,
    out: str | Path = "build",
    *,
    poll: float | None = None,
    sql_interval: float = SQL_INTERVAL,
) -> Watch:
    """Build all schemas under `paths`, then again whatever changes, until it is closed.

    The first change set is about all sources. With `poll`, content is compared every so many seconds instead
    of waiting for file system events; databases are asked every `sql_interval` seconds. Raises PcdcError for
    a model that is not there.
    """
    folders = [paths] if isinstance(paths, str | Path) else paths
    names = [models] if isinstance(models, str) else models
    for name in names:
        resolve(name, weights=False)
    return Watch([Path(p) for p in folders], names, Path(out), poll, sql_interval)


class Watch(Iterator[ChangeSet]):
    """Change sets as they come; each is built before it is given out. `close` ends it, from any thread."""

    def __init__(
        self,
        paths: Sequence[Path],
        model_names: Sequence[str],
        out: Path,
        poll: float | None,
        sql_interval: float,
    ) -> None:
        self._paths, self._models, self._out = paths, model_names, out
        self._wakeups = Wakeups(poll, FALLBACK)
        self._standstill = Standstill()
        self._uses = Uses(sql_interval, self._wakeups.wake)
        self._records: dict[Path, _Record] = {}
        self._told: frozenset[Diagnostic] = frozenset()
        self._started = self._closed = False
        self._turn = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration; a build that is under way is finished first."""
        self._closed = True
        self._wakeups.wake()
        with self._turn:
            self._wakeups.close()

    def __next__(self) -> ChangeSet:
        """The next change set. Blocks, without using the processor, until something changes."""
        with self._turn:
            try:
                while not self._closed:
                    change, seconds = self._look()
                    if change is not None:
                        return change
                    self._wakeups.wait(seconds)
                    time.sleep(TICK)
            except BaseException:
                self._wakeups.close()
                raise
        raise StopIteration

    def _look(self) -> tuple[ChangeSet | None, float]:
        """Build what is due, or tell how many seconds may pass until the next look."""
        sources = self._survey()
        now = time.monotonic()
        due: dict[Path, _Due] = {}
        slow: list[Kept] = []
        pending: list[float] = []
        soonest = min(self._wakeups.poll or RECHECK, self._uses.ask(sources, now))
        for source, files in (dict.fromkeys(self._records, ()) | sources).items():
            record = self._records.setdefault(source, _Record(source))
            looks = {file: look(file) for file in (source, *files)}
            answers = self._uses.answers(source)
            content = {str(file): found.digest for file, found in looks.items()} | (answers or {})
            if answers is not None and content == record.content and now < record.retry_at:
                record.pending_since, record.told_slow = None, False
                continue
            left = max(self._left(file, found, now) for file, found in looks.items())
            if left <= 0 and answers is not None:
                due[source] = _Due(content, looks, source in sources)
                continue
            pending.append(left if left > 0 else soonest)
            if record.is_slow(now):
                why = "still being written" if left > 0 else "its database has not answered yet"
                slow += [Kept(what, why) for what in record.known()]
        # At the start, all are waited for, but not for ever.
        if not (due or slow) if self._started else (pending and not slow):
            return None, min([soonest, *pending])
        event: Event = "change" if self._started else "start"
        self._started = True
        return self._round(event, due, slow), 0.0

    def _survey(self) -> dict[Path, tuple[Path, ...]]:
        """All sources with their catalog files; what can change any of them is watched from now on."""
        while True:
            sources = {s.path: self._uses.files(s.path) for s in find_sources(self._paths, self._out)[0]}
            # While a definition cannot be read, its catalogs look like definitions themselves.
            catalogs = {real(path) for files in sources.values() for path in files}
            sources = {path: f for path, f in sources.items() if f or real(path) not in catalogs}
            folders = {folder for top in self._paths for folder, _ in source_folders(top, self._out)}
            files = {*self._paths, *self._records, *sources, *chain(*sources.values())} - folders
            if not self._wakeups.follow(places(files, folders)):
                return sources

    def _left(self, file: Path, found: Look, now: float) -> float:
        poll = self._wakeups.poll
        least = SETTLE if poll is None else min(max(poll, SETTLE), OPEN)
        return self._standstill.left(file, found, now, least, self._wakeups.is_open(file))

    def _round(self, event: Event, due: dict[Path, _Due], slow: list[Kept]) -> ChangeSet | None:
        """Build what is due; a source that changes meanwhile stays due."""
        start = time.perf_counter()
        listed = [source for source, state in due.items() if state.is_listed]
        report = self._build(due) if listed or event == "start" else BuildReport((), ())
        ms = (time.perf_counter() - start) * 1000
        changed: dict[str, None] = {}
        before, kept = set(self._told), [*slow]
        for source, state in due.items():
            record = self._records[source]
            targets = [t for t in report.targets if t.source == str(source)]
            if targets or not state.is_listed or state.holds():
                differences = record.differences(state.content)
                changed |= dict.fromkeys(differences)
                before |= set() if differences else record.told
                kept += record.settle(state, targets, report.diagnostics)
        news = tuple(d for d in self._trouble(report) if d not in before)
        if listed or event == "start":
            self._told = frozenset(d for d in self._trouble(report) if d.location is None)
        if event == "start":
            return ChangeSet(event, (), report.targets, tuple(kept), news, ms)
        if not (changed or slow or news or any(t.outcome == "built" for t in report.targets)):
            return None
        event = "change" if changed or slow else "retry"
        return ChangeSet(event, tuple(changed), report.targets, tuple(kept), news, ms)

    def _build(self, due: Mapping[Path, _Due]) -> BuildReport:
        return build(
            self._paths, self._models, self._out, ready=lambda path: path in due and due[path].holds()
        )

    def _trouble(self, report: BuildReport) -> list[Diagnostic]:
        """What a build found, and why there are no events."""
        return [*([self._wakeups.trouble] if self._wakeups.trouble else []), *report.diagnostics]


@dataclass(frozen=True)
class _Due:
    """A source that is to be built: what it holds, and the looks that say so."""

    content: Content
    looks: Mapping[Path, Look]
    is_listed: bool

    def holds(self) -> bool:
        """Whether every file is still the one that was looked at."""
        return all(look(file) == found for file, found in self.looks.items())


@dataclass
class _Record:
    """What is known of a source: what it was last built from, into what, and what was told then."""

    source: Path
    content: Content | None = None
    artifacts: tuple[str, ...] = ()
    told: frozenset[Diagnostic] = frozenset()
    retry_at: float = inf
    pending_since: float | None = None
    told_slow: bool = False

    def known(self) -> tuple[str, ...]:
        """Its artifacts, or the source itself where there are none."""
        return self.artifacts or (str(self.source),)

    def is_slow(self, now: float) -> bool:
        """Whether it has been pending for too long to say nothing; true once for each change."""
        if self.pending_since is None:
            self.pending_since = now
        if self.told_slow or now - self.pending_since < PATIENCE:
            return False
        self.told_slow = True
        return True

    def differences(self, content: Content) -> list[str]:
        """The files and databases that are not what they were; of a new source only itself."""
        if self.content is None:
            return [str(self.source)]
        names = dict.fromkeys([*self.content, *content])
        return [name for name in names if self.content.get(name) != content.get(name)]

    def settle(
        self, state: _Due, targets: Sequence[TargetResult], diagnostics: Sequence[Diagnostic]
    ) -> list[Kept]:
        """Note what was made of the source; gives what stayed as it was."""
        self.content, self.told = state.content, frozenset(diagnostics)
        self.pending_since, self.told_slow = None, False
        curable = any(d.code in RETRIED or d.code.startswith("PCDC4") for d in diagnostics)
        self.retry_at = time.monotonic() + RECHECK if curable else inf
        if not targets:
            why = "nothing could be built" if state.is_listed else f"{self.source} is gone"
            return [Kept(what, why) for what in self.artifacts]
        self.artifacts = tuple(str(t.artifact) for t in targets if t.artifact.exists())
        failed = [t for t in targets if t.outcome == "failed"]
        return [Kept(str(t.artifact), t.reason) for t in failed if str(t.artifact) in self.artifacts]
