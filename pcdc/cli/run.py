"""`pcdc run`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from pcdc.diagnostics import visible

from .common import ArtifactPath, Model, app, on_terminal, print_json, put, read_context


class Scoring(StrEnum):
    """The scoring rules."""

    joint = "joint"
    identify = "identify"
    trie = "trie"


@app.command()
def run(
    artifact: ArtifactPath,
    context: Annotated[str | None, typer.Option("--context", help="File with the text, - for stdin.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="The text itself.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            min=0.0,
            max=1.0,
            help="Mark answers below this; each field's own unless given, 0.75 in an uncalibrated run.",
        ),
    ] = None,
    no_calibration: Annotated[
        bool, typer.Option("--no-calibration", help="Leave the calibration beside the artifact unused.")
    ] = False,
    scoring: Annotated[
        Scoring | None, typer.Option("--scoring", help="The artifact's rule unless given.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature", help="The artifact's or the calibration's unless given; replaces both."
        ),
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

    # The notes below say what the log does.
    logging.getLogger("pcdc_runtime").addHandler(logging.NullHandler())
    with load(artifact, model=model, calibration=not no_calibration) as engine:
        result = engine.run(
            body,
            fields=_wanted(fields, [field.name for field in engine.artifact.fields]) if fields else None,
            scoring=None if scoring is None else scoring.value,
            temperature=temperature,
        )
    for warning in result.warnings:
        # The table's last line says the first; the reasons of the second follow.
        if warning not in ("uncalibrated", "calibration_dropped"):
            typer.echo(f"note: {warning}", err=True)
    dropped = {name: reason for name, one in result.fields.items() if (reason := one.calibration_dropped)}
    for reason in dict.fromkeys(dropped.values()):
        names = ", ".join(name for name, why in dropped.items() if why == reason)
        typer.echo(visible(f"note: calibration dropped for {names}: {reason}"), err=True)
    if as_json:
        print_json(result.to_dict())
        return
    from pcdc.show import result_table

    put(result_table(result, threshold, terminal=on_terminal(sys.stdout)), end="")


def _split(part: str) -> list[str]:
    return [name for piece in part.split(",") if (name := piece.strip())]


def _wanted(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Each part as a field's whole name where it is one, else as names between commas."""
    return [name for part in given for name in ([part] if part in names else _split(part))]
