"""`pcdc run`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from .common import (
    AnswersFile,
    ArtifactPath,
    ContextFile,
    ContextsFile,
    Model,
    NoHeadCache,
    Text,
    app,
    check_texts,
    notes_of,
    on_terminal,
    print_json,
    put,
    read_context,
    to_stderr,
)


class Scoring(StrEnum):
    """The scoring rules."""

    joint = "joint"
    identify = "identify"
    trie = "trie"


@app.command()
def run(
    artifact: ArtifactPath,
    context: ContextFile = None,
    text: Text = None,
    contexts: ContextsFile = None,
    out: AnswersFile = None,
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
    prune: Annotated[
        float | None,
        typer.Option(
            "--prune", metavar="BOUND", help="Leave out what shifts no probability by more, as 1e-4."
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--fields", help="Only these, separated by commas; repeatable; all unless given."),
    ] = None,
    no_head_cache: NoHeadCache = False,
    model: Model = None,
) -> None:
    """Answer every field of an artifact for one text, or for each line of a file.

    Examples:

        pcdc run build/support.smollm2-135m.pcdc --context ticket.txt

        cat ticket.txt | pcdc run build/support.smollm2-135m.pcdc --context - --json | jq .parsed_json

        pcdc run build/support.smollm2-135m.pcdc --contexts tickets.jsonl --out answers.jsonl
    """
    check_texts(context, text, contexts, out)
    if contexts is not None and threshold is not None:
        raise typer.BadParameter("--threshold marks rows of a table, and --contexts prints none")
    if contexts is not None and prune is not None:
        raise typer.BadParameter(
            "--prune is for one text: leave it out, or give one with --context or --text"
        )
    if fields and not any(_split(part) for part in fields):
        raise typer.BadParameter("--fields names no field; name some, or leave it out for all")
    from pcdc_runtime import load

    # The notes below say what the log does.
    logging.getLogger("pcdc_runtime").addHandler(logging.NullHandler())
    head_cache = False if no_head_cache else None
    wanted = partial(_wanted, fields) if fields else _all
    rule = None if scoring is None else scoring.value
    if contexts is not None:
        from .contexts import answer_contexts
        from .run_contexts import FieldOptions, field_command

        options = FieldOptions(artifact, model, not no_calibration, head_cache, wanted, rule, temperature)
        answer_contexts(contexts, out, field_command(options))
        return
    body = text if text is not None else read_context(str(context))
    with load(artifact, model, calibration=not no_calibration, head_cache=head_cache) as engine:
        names = wanted([field.name for field in engine.artifact.fields])
        result = engine.run(body, fields=names, scoring=rule, temperature=temperature, prune=prune)
    for note in notes_of(result):
        to_stderr(note)
    if as_json:
        print_json(result.to_dict())
        return
    from pcdc.show import result_table

    put(result_table(result, threshold, terminal=on_terminal(sys.stdout)), end="")


def _split(part: str) -> list[str]:
    return [name for piece in part.split(",") if (name := piece.strip())]


def _all(names: Sequence[str]) -> None:
    return None


def _wanted(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Each part as a field's whole name where it is one, else as names between commas."""
    return [name for part in given for name in ([part] if part in names else _split(part))]
