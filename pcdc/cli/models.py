"""`pcdc models` and `pcdc doctor`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .common import Model, app, on_terminal, print_json, put


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the model aliases.

    Example:

        pcdc models
    """
    from pcdc.doctor import model_rows
    from pcdc.show import table

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
    from pcdc.doctor import examine
    from pcdc.show import table

    checks = examine(model)
    if as_json:
        print_json([{"check": c.name, "value": c.value, "ok": c.ok} for c in checks])
    else:
        rows = [[c.name, c.value, "ok" if c.ok else "!"] for c in checks]
        put(table(["check", "value", ""], rows, terminal=on_terminal(sys.stdout)), end="")
    if not all(c.ok for c in checks):
        raise typer.Exit(1)
