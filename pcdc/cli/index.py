"""`pcdc index`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcdc.diagnostics import render_json, visible

from .common import (
    Format,
    Models,
    Out,
    app,
    as_path,
    ends_cleanly,
    exit_code,
    finish,
    on_terminal,
    print_json,
    put,
)

if TYPE_CHECKING:
    from pcdc.build import TargetResult
    from pcdc.indexing.describe import IndexView
    from pcdc.indexing.reading import Progress

FIGURES = ("entries", "labels", "rows", "tokens", "file_bytes", "raw_id_bytes")


def _source(given: str) -> Path:
    if "://" in given:
        # Not shown: it may hold a password.
        raise typer.BadParameter("it is a URL; a database needs a definition, which has it under `x-catalog`")
    path = as_path(given)
    # What cannot be looked at is told by who reads it.
    with suppress(OSError):
        if path.is_dir():
            raise typer.BadParameter(f"{visible(given)} is a folder; `pcdc build` takes folders")
    return path


@app.command()
def index(
    source: Annotated[
        Path, typer.Argument(parser=_source, metavar="SOURCE", help="A definition, or a catalog's file.")
    ],
    model: Models = None,
    out: Out = Path("build"),
    question: Annotated[
        str | None, typer.Option("--question", "-q", metavar="TEXT", help="What a label is to be found for.")
    ] = None,
    example: Annotated[
        list[str] | None,
        typer.Option("--example", metavar="'QUERY => LABEL'", help="A query and its label; repeatable."),
    ] = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", metavar="TEXT", help="Text before the question.")
    ] = None,
    field: Annotated[
        str | None, typer.Option("--field", metavar="NAME", help="Name of the answer.", show_default="answer")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="COLUMN", help="Column or key of the labels.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column or key of the ids.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why it was built or not.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Compile even where nothing changed.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How results are printed.")] = Format.text,
) -> None:
    """Compile a catalog of any length into an index, which `pcdc select` asks; only new labels are tokenized.

    SOURCE is the definition of an index, a JSON object with one field. Or it is the catalog itself, a file of
    text, CSV, TSV or JSON lines or a JSON array, and the options say what the definition would.

    Examples:

        pcdc index tariff.json --model qwen2.5-1.5b

        pcdc index goods.csv --value name --id code --question "Which goods are these?"

        pcdc index goods.txt -q "Which goods are these?" --example "a box of dates => Dates, dried"
    """
    from pcdc_runtime.indexed.codec import open_index
    from pcdc_runtime.models import DEFAULT

    from pcdc.indexing.building import build_index, is_catalog, is_object
    from pcdc.indexing.describe import describe_index

    given = {
        "question": question,
        "examples": example,
        "instructions": instructions,
        "field": field,
        "value": value,
        "id": id,
    }
    asked = {name: text for name, text in given.items() if text is not None}
    if asked and is_object(source):
        named = ", ".join(f"--{name.removesuffix('s') if name == 'examples' else name}" for name in asked)
        fact = f"{visible(str(source))} begins with {{, as a definition does, which says this itself"
        help = "change the file, or name a catalog: one of JSON is an array, which begins with ["
        raise typer.BadParameter(f"{fact}; {help}", param_hint=named)
    # What is neither cannot be asked anything, and is told as the catalog that it is meant to be.
    of_catalog = bool(asked) or is_catalog(source)
    with ends_cleanly(), _progress() as progress:
        report = build_index(
            source,
            model or [DEFAULT],
            out,
            asked=asked if of_catalog else None,
            force=force,
            progress=progress,
        )
    made = [
        (t, None if t.outcome == "failed" else describe_index(open_index(t.artifact))) for t in report.targets
    ]
    if format is Format.json:
        targets = report.to_dict()["targets"]
        for target, (_, view) in zip(targets, made, strict=True):
            target |= {"figures": {name: getattr(view, name) for name in FIGURES} if view else None}
        print_json({"targets": targets, "diagnostics": json.loads(render_json(report.diagnostics))})
        raise typer.Exit(exit_code(report.diagnostics))
    for result, view in made:
        put(_line(result, view))
        if explain:
            put(f"        {visible(result.source)}: {result.reason}")
            for change in result.changes:
                put(f"        - {visible(change)}")
    finish(report.diagnostics)


def _line(result: TargetResult, index: IndexView | None) -> str:
    line = f"{result.outcome:6}  {visible(str(result.artifact))}  {result.ms:.0f} ms"
    if index is None:
        return line
    grouped = f" of {index.labels:,} labels" if index.labels != index.entries else ""
    return (
        f"{line}  {index.entries:,} entries{grouped}, {index.rows:,} rows, {_size(index.file_bytes)} "
        f"({index.file_bytes / index.raw_id_bytes:.2f} times the raw ids)"
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar for each stage on a terminal's stderr, else nothing."""
    if not on_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Stdout is data, and must not be sent to the terminal.
    with Bars(*columns, console=Console(stderr=True), redirect_stdout=False, transient=True) as bars:
        tasks = dict[str, TaskID]()

        def told(done: int, total: int, stage: str) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield told
