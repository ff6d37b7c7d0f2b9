"""The command line: arguments in, text out. Data goes to stdout, notes and diagnostics to stderr.

Exit codes: 0 clean, 1 findings in a schema, a context or by `doctor`, 2 anything else that is wrong: the
call, a file, a model, an artifact; 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
import typer.core
from pcdc_runtime.errors import ContextNotTextError, PcdcError

from . import __version__
from .diagnostics import RULES, Diagnostic, SchemaError, from_error, render_json, render_text, visible

INTERRUPTED = 130
TERMINATED = 143


class Format(StrEnum):
    """How findings are printed."""

    text = "text"
    json = "json"


class Scoring(StrEnum):
    """The scoring rules."""

    joint = "joint"
    identify = "identify"
    trie = "trie"


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
            typer.echo("terminated", err=True)
            raise typer.Exit(TERMINATED) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
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
            typer.echo(f"internal error: {type(error).__name__}: {error}", err=True)
            typer.echo("  help: run again with `pcdc --debug ...` and report the traceback", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _path(given: str) -> Path:
    # An empty path, such as an unset variable gives, would mean the current folder.
    if not given:
        raise typer.BadParameter("the path is empty")
    return Path(given)


Model = Annotated[str | None, typer.Option("--model", "-m", help="Alias, hub id or local mlx-lm folder.")]
ArtifactPath = Annotated[Path, typer.Argument(metavar="ARTIFACT", help="A file that `pcdc build` wrote.")]


MAX_CONTEXT_BYTES = 16 * 1024 * 1024


def main() -> None:
    """The `pcdc` program."""
    try:
        app(prog_name="pcdc")
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            leave_at_once()
        raise


def leave_at_once() -> None:
    """End an interrupted process without waiting for its threads: one may be busy loading a model."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(INTERRUPTED)


def exit_code(diagnostics: Sequence[Diagnostic]) -> int:
    """The worst of: 1 for an error in the content of a schema or a context, 2 for any other, 0 for none."""
    errors = (RULES[d.code] for d in diagnostics if d.severity == "error")
    return max((1 if rule.in_content else 2 for rule in errors), default=0)


def tell(diagnostics: Sequence[Diagnostic]) -> None:
    """Print diagnostics to stderr."""
    if diagnostics:
        typer.echo(render_text(diagnostics, color=on_terminal(sys.stderr)).rstrip("\n"), err=True)


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(
            "stdout", f"cannot be written ({error.strerror})", help="make room, or send it elsewhere"
        ) from None


def print_json(data: object) -> None:
    """One JSON document on stdout."""
    text = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    # What is no Unicode comes only from file names; this is how JSON spells it.
    put(text.encode("utf-8", "backslashreplace").decode())


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
    list[Path], typer.Argument(parser=_path, metavar="PATHS...", help="Schema files, or folders of them.")
]
Models = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="Alias, hub id or local folder; repeatable.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", parser=_path, metavar="PATH", help="Where artifacts are written.")
]


@app.command()
def build(
    paths: Sources,
    model: Models = None,
    out: Out = Path("build"),
    explain: Annotated[bool, typer.Option("--explain", help="Say why each target was built or not.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Compile even where nothing changed.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How results are printed.")] = Format.text,
) -> None:
    """Compile schemas into artifacts; only what changed is compiled.

    Examples:

        pcdc build schemas/

        pcdc build support.json --model qwen2.5-1.5b --model smollm2-135m --explain
    """
    from pcdc_runtime.models import DEFAULT

    from .build import build as run_build

    report = run_build(paths, model or [DEFAULT], out, force=force)
    if format is Format.json:
        print_json(report.to_dict() | {"diagnostics": json.loads(render_json(report.diagnostics))})
        raise typer.Exit(exit_code(report.diagnostics))
    for target in report.targets:
        put(f"{target.outcome:6}  {visible(str(target.artifact))}  {target.ms:.0f} ms")
        if explain:
            put(f"        {visible(target.source)}: {target.reason}")
            for change in target.changes:
                put(f"        - {change}")
    finish(report.diagnostics)


@app.command()
def watch(
    paths: Sources,
    model: Models = None,
    out: Out = Path("build"),
    poll: Annotated[
        float | None,
        typer.Option(
            "--poll", min=0.05, metavar="SECONDS", help="Compare contents so often instead of using events."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one JSON object.")] = False,
) -> None:
    """Build schemas whenever they or their catalogs change, until interrupted.

    Examples:

        pcdc watch schemas/

        pcdc watch support.json --model qwen2.5-1.5b --json | jq .changed
    """
    from pcdc_runtime.models import DEFAULT

    from .watching import watch as changes

    with ends_cleanly(), changes(paths, model or [DEFAULT], out, poll=poll) as events:
        for change in events:
            tell(change.diagnostics)
            put(json.dumps(change.to_dict()) if as_json else str(change))


@app.command()
def run(
    artifact: ArtifactPath,
    context: Annotated[str | None, typer.Option("--context", help="File with the text, - for stdin.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="The text itself.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, max=1.0, help="Mark answers below this probability.")
    ] = 0.75,
    scoring: Annotated[
        Scoring | None, typer.Option("--scoring", help="The artifact's rule unless given.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="The artifact's unless given; never changes an answer."),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--fields", help="Only these, separated by commas; repeatable; all unless given."),
    ] = None,
    model: Model = None,
) -> None:
    """Answer every field of an artifact for one text.

    Examples:

        pcdc run build/support.smollm2-135m.pcdc --context ticket.txt

        cat ticket.txt | pcdc run build/support.smollm2-135m.pcdc --context - --json | jq .parsed_json
    """
    if (context is None) == (text is None):
        raise typer.BadParameter("give either --context or --text")
    if fields and not any(_split(part) for part in fields):
        raise typer.BadParameter("--fields names no field; name some, or leave it out for all")
    body = text if text is not None else read_context(str(context))
    from pcdc_runtime import load

    with load(artifact, model=model) as engine:
        result = engine.run(
            body,
            fields=_wanted(fields, [field.name for field in engine.artifact.fields]) if fields else None,
            scoring=None if scoring is None else scoring.value,
            temperature=temperature,
        )
    for warning in result.warnings:
        # The table and README say that of every run.
        if warning != "uncalibrated":
            typer.echo(f"note: {warning}", err=True)
    if as_json:
        print_json(result.to_dict())
        return
    from .show import result_table

    put(result_table(result, threshold, terminal=on_terminal(sys.stdout)), end="")


def _split(part: str) -> list[str]:
    return [name for piece in part.split(",") if (name := piece.strip())]


def _wanted(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Each part as a field's whole name where it is one, else as names between commas."""
    return [name for part in given for name in ([part] if part in names else _split(part))]


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


class InputError(PcdcError):
    """A file that the command line names cannot be read."""

    code = "PCDC710"
    title = "input not readable"


class OutputError(PcdcError):
    """Stdout takes no output."""

    code = "PCDC711"
    title = "output not writable"


@app.command()
def inspect(
    artifact: ArtifactPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print the prompt's text and nothing else.")
    ] = False,
    model: Model = None,
) -> None:
    """Show what an artifact holds: tokens of every choice, tries, END sets, collisions. Needs no weights.

    Examples:

        pcdc inspect build/support.smollm2-135m.pcdc

        pcdc inspect build/support.smollm2-135m.pcdc --json | jq '.fields[].collisions'
    """
    from pcdc_runtime.artifact import read

    from .describe import describe, token_bytes_of

    loaded = read(artifact)
    if prompt:
        put(loaded.prompt_text)
        return
    spelled, note = token_bytes_of(loaded, model)
    if note:
        typer.echo(note, err=True)
    view = describe(loaded, spelled)
    if as_json:
        print_json(view.to_dict())
        return
    from .show import artifact_picture

    put(artifact_picture(view, terminal=on_terminal(sys.stdout)), end="")


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the model aliases.

    Example:

        pcdc models
    """
    from .doctor import model_rows
    from .show import table

    rows = model_rows()
    if as_json:
        print_json([{"alias": alias, "source": source, "cached": cached} for alias, source, cached in rows])
        return
    cells = [[alias, source, "yes" if cached else "no"] for alias, source, cached in rows]
    put(table(["alias", "source", "cached"], cells, terminal=on_terminal(sys.stdout)), end="")


@app.command()
def doctor(
    model: Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check this machine: versions, device, BLAS, model cache; with --model the numeric drift as well.

    Examples:

        pcdc doctor

        pcdc doctor --model smollm2-135m
    """
    from .doctor import examine
    from .show import table

    checks = examine(model)
    if as_json:
        print_json([{"check": c.name, "value": c.value, "ok": c.ok} for c in checks])
    else:
        rows = [[c.name, c.value, "ok" if c.ok else "!"] for c in checks]
        put(table(["check", "value", ""], rows, terminal=on_terminal(sys.stdout)), end="")
    if not all(c.ok for c in checks):
        raise typer.Exit(1)
