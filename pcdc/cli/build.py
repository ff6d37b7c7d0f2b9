"""`pcdc build` and `pcdc watch`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pcdc.diagnostics import render_json, visible

from .common import Format, Models, Out, Sources, app, ends_cleanly, exit_code, finish, print_json, put, tell


@app.command()
def build(
    paths: Sources,
    model: Models = None,
    out: Out = Path("build"),
    explain: Annotated[bool, typer.Option("--explain", help="Say why each target was built or not.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Compile even where nothing changed.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How results are printed.")] = Format.text,
) -> None:
    """Compile schemas into artifacts and definitions of indexes into indexes; only what changed is compiled.

    Examples:

        pcdc build schemas/

        pcdc build support.json --model qwen2.5-1.5b --model smollm2-135m --explain
    """
    from pcdc_runtime.models import DEFAULT

    from pcdc.build import build as run_build

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
    """Build schemas and indexes whenever they or their catalogs change, until interrupted.

    Examples:

        pcdc watch schemas/

        pcdc watch support.json --model qwen2.5-1.5b --json | jq .changed
    """
    from pcdc_runtime.models import DEFAULT

    from pcdc.watching import watch as changes

    with ends_cleanly(), changes(paths, model or [DEFAULT], out, poll=poll) as events:
        for change in events:
            tell(change.diagnostics)
            put(json.dumps(change.to_dict()) if as_json else str(change))
