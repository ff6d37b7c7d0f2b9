"""`pcdc run --contexts`: one line of JSON for each line of a file, kept as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pcdc_runtime.errors import PcdcError
from pcdc_runtime.models import resolve
from pcdc_runtime.reload import ArtifactFile, Pair
from pcdc_runtime.result import Result
from pcdc_runtime.weights import weights_digest

from pcdc import __version__
from pcdc.contexts import MAX_FINDINGS, Contexts, Line, read_contexts
from pcdc.diagnostics import Diagnostic, finding, json_text, sort_diagnostics
from pcdc.evaluation.kept import Kept, Purpose, key_of

from .common import (
    InputError,
    OutputError,
    ends_cleanly,
    exit_code,
    notes_of,
    on_terminal,
    put,
    tell,
    to_stderr,
)

if TYPE_CHECKING:
    from pcdc_runtime import Engine

_ELSEWHERE = "choose another file with --out"
_ANSWERS = Purpose("a run", "pcdc run", _ELSEWHERE, OutputError)


class OtherRunError(PcdcError):
    """A file holds answers of another run than the one that would go on with it."""

    code = "PCDC713"
    title = "output belongs to another run"


@dataclass(frozen=True)
class Opening:
    """What an engine is made of; `model` None is the artifact's own."""

    path: Path
    model: str | None
    calibration: bool
    head_cache: bool | None

    def read(self) -> Pair:
        """The artifact and the calibration beside it. Raises ArtifactError, CalibrationError."""
        return ArtifactFile(self.path, calibration=self.calibration).read()

    def weights(self, pair: Pair) -> str:
        """The digest of the weights that answer, which are not loaded for it. Raises ModelNotFoundError."""
        return weights_digest(resolve(self._name(pair), weights=True, folders=self._folders).folder)

    def engine(self, pair: Pair) -> Engine:
        """The engine that answers from what was read, as `load` opens it."""
        from pcdc_runtime.engine import Engine
        from pcdc_runtime.headfile import head_files
        from pcdc_runtime.loaded import open_model

        model = open_model(self._name(pair), folders=self._folders)
        heads = head_files(self.head_cache)
        return Engine(pair.artifact, model, calibration=pair.calibration, heads=heads)

    def _name(self, pair: Pair) -> str:
        return pair.artifact.model if self.model is None else self.model

    @property
    def _folders(self) -> bool:
        return self.model is not None


def answer_contexts(
    given: str,
    out: Path | None,
    opening: Opening,
    fields: Callable[[Sequence[str]], list[str] | None],
    scoring: str | None,
    temperature: float | None,
) -> None:
    """Answer each line of a file, in order; lines that `out` holds already are not answered again.

    What is wrong with any line is told before the first is answered. Such a line, and one whose text cannot
    be answered, has an `error` in its place in the output, and the command leaves with its exit code. Where
    `out` holds every answer the model is not loaded.
    """
    with ends_cleanly():
        contexts, problems = _stdin() if given == "-" else read_contexts(Path(given))
        tell(problems)
        if contexts is None:
            if len(problems) >= MAX_FINDINGS:
                to_stderr(f"note: {given} is not read on, and nothing of it is answered")
            raise typer.Exit(exit_code(problems))
        with nullcontext() if out is None else Kept(out, _ANSWERS) as kept:
            try:
                failed, there = _answered(contexts, kept, opening, fields, scoring, temperature)
            except KeyboardInterrupt:
                if kept is not None:
                    part = f"{len(kept.keys)} of {len(contexts.lines)} answers are"
                    to_stderr(f"note: {part} in {out}; the same command goes on from there")
                raise
    to_stderr(_summary(contexts, failed, there))
    if code := exit_code([*problems, *failed]):
        raise typer.Exit(code)


def _stdin() -> tuple[Contexts | None, list[Diagnostic]]:
    """What is left of it; as a file it would be read from its start, and a socket is none."""
    if sys.stdin is None:
        raise InputError("stdin", "is closed", help="pipe the texts in, or name a file with --contexts")
    return read_contexts(Path("/dev/stdin"), sys.stdin.buffer)


def _answered(
    contexts: Contexts,
    kept: Kept | None,
    opening: Opening,
    fields: Callable[[Sequence[str]], list[str] | None],
    scoring: str | None,
    temperature: float | None,
) -> tuple[list[Diagnostic], int]:
    """Why texts have no answer, which is told in any case, and how many lines were there already."""
    failed, changed, before = list[Diagnostic](), list[int](), tuple[str, ...]()
    keys = [""] * len(contexts.lines)
    pair = opening.read()
    names = fields([field.name for field in pair.artifact.fields])
    try:
        if kept is not None:
            settings = _settings(pair, opening.weights(pair), names, scoring, temperature)
            keys = [key_of(settings, line.number, line.given, line.said) for line in contexts.lines]
            before = kept.keys
            changed = _changed(kept, keys, contexts, failed)
        wanted = [*changed, *range(len(before), len(keys))]
        done = len(keys) - len(wanted)
        if done and not wanted:
            return failed, done
        options = {"fields": names, "scoring": scoring, "temperature": temperature}
        with opening.engine(pair) as engine, _bar(len(keys), done, kept is not None) as step:
            anew = dict[str, tuple[str, dict[str, Any]]]()
            for index, record, failure in _answers(engine, contexts, wanted, options):
                if failure is not None:
                    failed.append(failure)
                if kept is None:
                    put(json_text(record))
                elif index < len(before):
                    anew[before[index]] = keys[index], record
                    if len(anew) == len(changed):
                        kept.replace(anew)
                else:
                    kept.add(keys[index], record)
                step()
    finally:
        tell(sort_diagnostics(failed))
    return failed, done


def _summary(contexts: Contexts, failed: Sequence[Diagnostic], there: int) -> str:
    """What became of the texts, in a line."""
    total = len(contexts.lines)
    wrong = len(failed) + sum(line.mistake is not None for line in contexts.lines)
    parts = [f"{total - wrong} answered"]
    if wrong:
        parts.append(f"{wrong} with {'an error' if wrong == 1 else 'errors'}")
    before = f"; {'all' if there == total else there} of them there already" if there else ""
    return f"{total} {'text' if total == 1 else 'texts'}: {', '.join(parts)}{before}"


def _settings(
    pair: Pair, weights: str, fields: Sequence[str] | None, scoring: str | None, temperature: float | None
) -> list[object]:
    """What decides every answer, beside its text."""
    calibration = pair.calibration if temperature is None else None
    ids = [] if calibration is None else [calibration.id_of(field.name) for field in calibration.fields]
    return [__version__, pair.artifact.digest, weights, ids, fields, scoring, temperature]


def _changed(kept: Kept, keys: Sequence[str], contexts: Contexts, failed: list[Diagnostic]) -> list[int]:
    """Which of the lines that are kept had an error and changed; what is wrong with others' texts is added.

    Raises OtherRunError where a line that changed has an answer.
    """
    changed = list[int]()
    for number, key in enumerate(kept.keys):
        record = kept.get(key)
        if record is not None and number < len(keys) and key != keys[number] and "error" in record:
            changed.append(number)
            continue
        if number >= len(keys) or key != keys[number] or record is None:
            raise OtherRunError(
                str(kept.path),
                f"has a line {number + 1} that is no answer of this run",
                "a run goes on with a file of the same texts, artifact, model, calibration and options",
                f"move it away, or {_ELSEWHERE}",
            )
        line = contexts.lines[number]
        if (error := record.get("error")) and line.mistake is None:
            failed.append(_told(contexts, line, error))
    return changed


def _told(contexts: Contexts, line: Line, error: dict[str, str]) -> Diagnostic:
    place, excerpt = contexts.source.locate(line.at), contexts.source.excerpt(line.at)
    return finding(location=place, excerpt=excerpt, **error)


def _answers(
    engine: Engine, contexts: Contexts, wanted: Sequence[int], options: dict[str, Any]
) -> Iterator[tuple[int, dict[str, Any], Diagnostic | None]]:
    """For each wanted line its index, what is written, and why its text has no answer."""
    lines = [contexts.lines[index] for index in wanted]
    results = engine.run_many((line.context for line in lines if line.mistake is None), **options)
    noted = set[str]()
    for index, line in zip(wanted, lines, strict=True):
        head = {"line": line.number, **line.given}
        if line.mistake is not None:
            yield index, head | {"error": _error(line.mistake)}, None
            continue
        result = next(results)
        if isinstance(result, Result):
            for note in notes_of(result, empty=False):
                if note not in noted:
                    noted.add(note)
                    to_stderr(note)
            yield index, head | result.to_dict(), None
        else:
            failure = contexts.of_error(line, result)
            yield index, head | {"error": _error(failure)}, failure


def _error(found: Diagnostic) -> dict[str, str]:
    return {name: getattr(found, name) for name in ("code", "subject", "fact", "limit", "help")}


def _bar(total: int, done: int, kept: bool) -> AbstractContextManager[Callable[[], None]]:
    """A bar on a terminal's stderr, unless the answers go to a terminal too; gives what to call a line."""
    if not on_terminal(sys.stderr) or (not kept and on_terminal(sys.stdout)):
        return nullcontext(lambda: None)
    return _drawn(total, done)


@contextmanager
def _drawn(total: int, done: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Stdout is data, and must not be sent to the terminal.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bars:
        task = bars.add_task("texts", total=total, completed=done)
        yield lambda: bars.advance(task)
