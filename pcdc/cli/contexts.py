"""`pcdc run --contexts`: one line of JSON for each line of a file, kept as it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pcdc_runtime.errors import PcdcError
from pcdc_runtime.result import Result

from pcdc import __version__
from pcdc.contexts import STDIN, Contexts, Line, read_contexts
from pcdc.diagnostics import Diagnostic, finding
from pcdc.evaluation.kept import Kept, Purpose, key_of

from .common import OutputError, ends_cleanly, exit_code, notes_of, on_terminal, put, tell

if TYPE_CHECKING:
    from pcdc_runtime import Engine

_ELSEWHERE = "choose another file with --out"
_ANSWERS = Purpose("a run", "pcdc run", _ELSEWHERE, OutputError)


class OtherRunError(PcdcError):
    """A file holds answers of another run than the one that would go on with it."""

    code = "PCDC713"
    title = "output belongs to another run"


def answer_contexts(
    given: str,
    out: Path | None,
    open_engine: Callable[[], Engine],
    fields: Callable[[Sequence[str]], list[str] | None],
    scoring: str | None,
    temperature: float | None,
) -> None:
    """Answer each line of a file, in order; lines that `out` holds already are not answered again.

    What is wrong with any line is told before the first is answered. Such a line, and one whose text cannot
    be answered, has an `error` in its place in the output, and the command leaves with its exit code.
    """
    contexts, problems = read_contexts(STDIN if given == "-" else Path(given))
    tell(problems)
    if contexts is None:
        raise typer.Exit(exit_code(problems))
    with (
        ends_cleanly(),
        nullcontext() if out is None else Kept(out, _ANSWERS) as kept,
        open_engine() as engine,
    ):
        names = fields([field.name for field in engine.artifact.fields])
        settings = _settings(engine, names, scoring, temperature)
        keys = [key_of(settings, line.number, line.given, line.context) for line in contexts.lines]
        done, failed = (0, []) if kept is None else _done(kept, keys, contexts)
        try:
            with _bar(len(keys), done, out) as step:
                options = {"fields": names, "scoring": scoring, "temperature": temperature}
                for index, record, failure in _answers(engine, contexts, done, options):
                    if failure is not None:
                        failed.append(failure)
                    if kept is None:
                        put(json.dumps(record, ensure_ascii=False, allow_nan=False))
                    else:
                        kept.add(keys[index], record)
                    step()
        except KeyboardInterrupt:
            if out is not None:
                typer.echo(f"note: answers are in {out}; the same command goes on from there", err=True)
            raise
        finally:
            tell(failed)
    if code := exit_code([*problems, *failed]):
        raise typer.Exit(code)


def _settings(
    engine: Engine, fields: Sequence[str] | None, scoring: str | None, temperature: float | None
) -> list[object]:
    """What decides every answer, beside its text."""
    calibration = engine.calibration if temperature is None else None
    ids = [] if calibration is None else [calibration.id_of(field.name) for field in calibration.fields]
    weights = engine.model.weights_digest
    return [__version__, engine.artifact.digest, weights, ids, fields, scoring, temperature]


def _done(kept: Kept, keys: Sequence[str], contexts: Contexts) -> tuple[int, list[Diagnostic]]:
    """How many lines are answered, and what was wrong with their texts. Raises OtherRunError."""
    failed = list[Diagnostic]()
    for number, key in enumerate(kept.keys):
        record = kept.get(key)
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
    return len(kept.keys), failed


def _told(contexts: Contexts, line: Line, error: dict[str, str]) -> Diagnostic:
    place, excerpt = contexts.source.locate(line.at), contexts.source.excerpt(line.at)
    return finding(location=place, excerpt=excerpt, **error)


def _answers(
    engine: Engine, contexts: Contexts, done: int, options: dict[str, Any]
) -> Iterator[tuple[int, dict[str, Any], Diagnostic | None]]:
    """For each line from `done` on its index, what is written, and why its text has no answer."""
    lines = contexts.lines[done:]
    results = engine.run_many((line.context for line in lines if line.mistake is None), **options)
    noted = set[str]()
    for index, line in enumerate(lines, done):
        head = {"line": line.number, **line.given}
        if line.mistake is not None:
            yield index, head | {"error": _error(line.mistake)}, None
            continue
        result = next(results)
        if isinstance(result, Result):
            for note in notes_of(result, empty=False):
                if note not in noted:
                    noted.add(note)
                    typer.echo(note, err=True)
            yield index, head | result.to_dict(), None
        else:
            failure = contexts.of_error(line, result)
            yield index, head | {"error": _error(failure)}, failure


def _error(found: Diagnostic) -> dict[str, str]:
    return {name: getattr(found, name) for name in ("code", "subject", "fact", "limit", "help")}


def _bar(total: int, done: int, out: Path | None) -> AbstractContextManager[Callable[[], None]]:
    """A bar on a terminal's stderr, unless the answers go to a terminal too; gives what to call a line."""
    if not on_terminal(sys.stderr) or (out is None and on_terminal(sys.stdout)):
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
