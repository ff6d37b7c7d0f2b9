"""What the commands share: the program, exit codes, output, and the arguments that several take."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
import typer.core
from pcdc_runtime.errors import ContextNotTextError, PcdcError
from pcdc_runtime.rules import MAX_CONTEXT_BYTES as MAX_CONTEXT_BYTES

from pcdc import __version__
from pcdc.diagnostics import RULES, Diagnostic, SchemaError, from_error, json_text, render_text, visible

if TYPE_CHECKING:
    from pcdc_runtime.result import Result

INTERRUPTED = 130
TERMINATED = 143


class InputError(PcdcError):
    """A file that the command line names cannot be read."""

    code = "PCDC710"
    title = "input not readable"


class OutputError(PcdcError):
    """Stdout, or a file in its place, takes no output."""

    code = "PCDC711"
    title = "output not writable"


class Format(StrEnum):
    """How findings are printed."""

    text = "text"
    json = "json"


class Terminated(KeyboardInterrupt):
    """SIGTERM, which service managers send; it ends a command as Ctrl-C does."""


@contextmanager
def ends_cleanly() -> Iterator[None]:
    """Raise Terminated in the main thread on SIGTERM, unless the process was started to ignore it."""

    def end(signum: int, frame: object) -> None:
        raise Terminated

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Commands(typer.core.TyperGroup):
    """Turns everything a command raises into a diagnostic and an exit code, unless --debug is given."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Terminated:
            to_stderr("terminated")
            raise typer.Exit(TERMINATED) from None
        except KeyboardInterrupt:
            to_stderr("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (PcdcError, SchemaError) as error:
            if ctx.params.get("debug"):
                raise
            diagnostics = error.diagnostics if isinstance(error, SchemaError) else [from_error(error)]
            finish(diagnostics)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug") or hasattr(error, "exit_code"):
                raise
            to_stderr(f"internal error: {type(error).__name__}: {error}")
            to_stderr("  help: run again with `pcdc --debug ...` and report the traceback")
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def as_path(given: str) -> Path:
    # An empty path, such as an unset variable gives, would mean the current folder.
    if not given:
        raise typer.BadParameter("the path is empty")
    return Path(given)


Model = Annotated[str | None, typer.Option("--model", "-m", help="Alias, hub id or local mlx-lm folder.")]
NoHeadCache = Annotated[
    bool,
    typer.Option("--no-head-cache", help="Neither read nor write a long head's KV in the user's cache."),
]
ContextFile = Annotated[str | None, typer.Option("--context", help="File with the text, - for stdin.")]
Text = Annotated[str | None, typer.Option("--text", help="The text itself.")]
ContextsFile = Annotated[
    str | None,
    typer.Option(
        "--contexts", metavar="FILE", help='File of texts, each line {"context": "..."} or a JSON string.'
    ),
]
AnswersFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        parser=as_path,
        metavar="FILE",
        help="Keep the answers of --contexts here, and go on with them.",
    ),
]
ArtifactPath = Annotated[Path, typer.Argument(metavar="ARTIFACT", help="A file that `pcdc build` wrote.")]


def main() -> None:
    """The `pcdc` program."""
    try:
        app(prog_name="pcdc")
    except SystemExit as leaving:
        if leaving.code in (INTERRUPTED, TERMINATED):
            leave_at_once(leaving.code)
        raise


def leave_at_once(code: int) -> None:
    """End an interrupted process without waiting for its threads: one may be busy loading a model."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def exit_code(diagnostics: Sequence[Diagnostic]) -> int:
    """The worst of: 1 for an error in the content of a schema or a context, 2 for any other, 0 for none."""
    errors = (RULES[d.code] for d in diagnostics if d.severity == "error")
    return max((1 if rule.in_content else 2 for rule in errors), default=0)


def to_stderr(text: str) -> None:
    """Write to stderr; where that is full the work goes on without it."""
    try:
        typer.echo(text, err=True)
    except BrokenPipeError:
        raise
    except OSError:
        # Or the interpreter would try to write the rest once more when it ends.
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell(diagnostics: Sequence[Diagnostic]) -> None:
    """Print diagnostics to stderr."""
    if diagnostics:
        to_stderr(render_text(diagnostics, color=on_terminal(sys.stderr)).rstrip("\n"))


def finish(diagnostics: Sequence[Diagnostic]) -> None:
    """Print diagnostics to stderr and leave with their exit code."""
    tell(diagnostics)
    if code := exit_code(diagnostics):
        raise typer.Exit(code)


def on_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at it; a closed stream is None."""
    return stream is not None and stream.isatty()


def put(text: str, end: str = "\n") -> None:
    """Write to stdout, at once. Raises OutputError where it is closed or full, so that no result is lost."""
    if sys.stdout is None:
        raise OutputError("stdout", "is closed", help="leave it open, or send it to a file")
    try:
        typer.echo(text + end, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        # Or the interpreter would try to write the rest once more when it ends.
        _discard(sys.stdout)
        raise OutputError(
            "stdout", f"cannot be written ({error.strerror})", help="make room, or send it elsewhere"
        ) from None


_SENTENCES = {
    "empty_context": "the text is empty or blank, so that the model answers about nothing",
    "window_unknown": "the model does not say how long its window is, so that no length was checked",
}


def as_note(warning: str) -> str:
    """A warning as a note; those that are a bare word say what it means."""
    said = _SENTENCES.get(warning)
    return f"note: {warning}" + (f": {said}" if said else "")


def notes_of(result: Result, *, empty: bool = True) -> list[str]:
    """What a result warns of, as notes; `empty` says whether one of them may be that its text is empty."""
    # The table's last line says the first; the reasons of the second follow.
    silent = {"uncalibrated", "calibration_dropped", *(() if empty else ("empty_context",))}
    notes = [as_note(warning) for warning in result.warnings if warning not in silent]
    dropped = {name: reason for name, one in result.fields.items() if (reason := one.calibration_dropped)}
    for reason in dict.fromkeys(dropped.values()):
        names = ", ".join(name for name, why in dropped.items() if why == reason)
        notes.append(visible(f"note: calibration dropped for {names}: {reason}"))
    return notes


def print_json(data: object) -> None:
    """One JSON document on stdout."""
    put(json_text(data, indent=2))


def _version(wanted: bool) -> None:
    if wanted:
        put(f"pcdc {__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where a command fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Compile closed-question schemas once, answer every field from one prefill and one tree pass."""


Sources = Annotated[
    list[Path],
    typer.Argument(parser=as_path, metavar="PATHS...", help="Definition files, or folders of them."),
]
Models = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="Alias, hub id or local folder; repeatable.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", parser=as_path, metavar="PATH", help="Where artifacts are written.")
]


def check_texts(context: str | None, text: str | None, contexts: str | None, out: Path | None) -> None:
    """See that texts come from one place, and that what keeps answers is for many. Raises BadParameter."""
    if sum(given is not None for given in (context, text, contexts)) != 1:
        raise typer.BadParameter("give either --context or --text or --contexts")
    if contexts is None and out is not None:
        raise typer.BadParameter("--out keeps the answers of --contexts")


def read_context(source: str) -> str:
    """The text of a file, or of stdin for "-", no more than MAX_CONTEXT_BYTES. Raises PcdcError."""
    try:
        data = _read_bytes(source)
    except OSError as error:
        raise InputError(source, f"cannot be read ({error.strerror})", help="check the path") from None
    except ValueError as error:
        raise InputError(source, f"cannot be a path ({error})", help="check the path") from None
    if len(data) > MAX_CONTEXT_BYTES:
        raise InputError(
            source,
            "does not end within the limit",
            f"a context has at most {MAX_CONTEXT_BYTES // 1024**2} MiB",
            "give the part that answers the questions",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContextNotTextError(
            source,
            f"has byte 0x{data[error.start]:02X} at offset {error.start}",
            "a context is UTF-8 text",
            "convert the file, or pass the text with --text",
        ) from None


def _read_bytes(source: str) -> bytes:
    """One byte more than a context may have shows that there are too many."""
    if source != "-":
        with Path(source).open("rb") as file:
            return file.read(MAX_CONTEXT_BYTES + 1)
    if sys.stdin is None:
        raise InputError("stdin", "is closed", help="pipe the text in, or name a file with --context")
    return sys.stdin.buffer.read(MAX_CONTEXT_BYTES + 1)
