"""`--contexts`: one line of JSON for each line of a file, kept as it comes, whichever command answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import typer
from pcdc_runtime.errors import PcdcError

from pcdc.contexts import MAX_FINDINGS, Contexts, Line, read_contexts
from pcdc.diagnostics import Diagnostic, finding, json_text, sort_diagnostics
from pcdc.evaluation.kept import Kept, Purpose, key_of

from .common import (
    InputError,
    OutputError,
    ends_cleanly,
    exit_code,
    on_terminal,
    put,
    tell,
    to_stderr,
)

_ELSEWHERE = "choose another file with --out"


class OtherRunError(PcdcError):
    """A file holds answers of another run than the one that would go on with it."""

    code = "PCDC713"
    title = "output belongs to another run"


@dataclass(frozen=True)
class Answer:
    """What is written about a text, and what is told of it; each note is told once."""

    record: Mapping[str, Any]
    notes: Sequence[str] = ()


Answering: TypeAlias = Callable[[Sequence[Line]], Iterator[Answer | PcdcError]]
"""Gives the answers to lines, in their order as they are wanted; an error is about one text."""


class Answers(Protocol):
    """What the answers of one run come from, as it was read; no model is loaded for that.

    `stated` stands in every record, wrong ones too.
    """

    @property
    def stated(self) -> Mapping[str, Any]: ...

    def settings(self) -> list[object]:
        """What decides every answer, beside its text and its line. Raises ModelNotFoundError."""
        ...

    def opened(self) -> AbstractContextManager[Answering]:
        """With the model loaded."""
        ...


@dataclass(frozen=True)
class Command:
    """A command that answers texts, and what all answers in one file are of.

    `read` gets the first record of the file that the run goes on with, and may take from it what it drew
    at random.
    """

    program: str
    same: str
    read: Callable[[Mapping[str, Any] | None], Answers]


def answer_contexts(given: str, out: Path | None, command: Command) -> None:
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
        purpose = Purpose("a run", command.program, _ELSEWHERE, OutputError)
        with nullcontext() if out is None else Kept(out, purpose) as kept:
            try:
                failed, there = _answered(contexts, kept, command)
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


def _answered(contexts: Contexts, kept: Kept | None, command: Command) -> tuple[list[Diagnostic], int]:
    """Why texts have no answer, which is told in any case, and how many lines were there already."""
    failed, changed, before = list[Diagnostic](), list[int](), tuple[str, ...]()
    keys = [""] * len(contexts.lines)
    answers = command.read(kept.get(kept.keys[0]) if kept is not None and kept.keys else None)
    try:
        if kept is not None:
            settings = answers.settings()
            keys = [key_of(settings, line.number, line.given, line.said) for line in contexts.lines]
            before = kept.keys
            changed = _changed(kept, keys, contexts, command, failed)
        wanted = [*changed, *range(len(before), len(keys))]
        done = len(keys) - len(wanted)
        if done and not wanted:
            return failed, done
        with answers.opened() as answering, _bar(len(keys), done, kept is not None) as step:
            anew = dict[str, tuple[str, dict[str, Any]]]()
            for index, record, failure in _each(answering, answers.stated, contexts, wanted):
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


def _changed(
    kept: Kept, keys: Sequence[str], contexts: Contexts, command: Command, failed: list[Diagnostic]
) -> list[int]:
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
                f"a run goes on with a file of the same {command.same}",
                f"move it away, or {_ELSEWHERE}",
            )
        line = contexts.lines[number]
        if (error := record.get("error")) and line.mistake is None:
            failed.append(_told(contexts, line, error))
    return changed


def _told(contexts: Contexts, line: Line, error: dict[str, str]) -> Diagnostic:
    place, excerpt = contexts.source.locate(line.at), contexts.source.excerpt(line.at)
    return finding(location=place, excerpt=excerpt, **error)


def _each(
    answering: Answering, stated: Mapping[str, Any], contexts: Contexts, wanted: Sequence[int]
) -> Iterator[tuple[int, dict[str, Any], Diagnostic | None]]:
    """For each wanted line its index, what is written, and why its text has no answer."""
    lines = [contexts.lines[index] for index in wanted]
    answers = answering([line for line in lines if line.mistake is None])
    noted = set[str]()
    for index, line in zip(wanted, lines, strict=True):
        head = {"line": line.number, **line.given, **stated}
        if line.mistake is not None:
            yield index, head | {"error": _error(line.mistake)}, None
            continue
        answer = next(answers)
        if isinstance(answer, PcdcError):
            failure = contexts.of_error(line, answer)
            yield index, head | {"error": _error(failure)}, failure
            continue
        for note in answer.notes:
            if note not in noted:
                noted.add(note)
                to_stderr(note)
        yield index, {**head, **answer.record}, None


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
