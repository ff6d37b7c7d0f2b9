"""`pcdc select`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import Model, app, as_path, on_terminal, print_json, put, read_context, to_stderr


@app.command()
def select(
    index: Annotated[
        Path, typer.Argument(parser=as_path, metavar="INDEX", help="A file that `pcdc index` wrote.")
    ],
    context: Annotated[str | None, typer.Option("--context", help="File with the text, - for stdin.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="The text itself.")] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method", metavar="NAME", help="exact, disc to draw one, or trie for constrained decoding."
        ),
    ] = "exact",
    k: Annotated[
        int | None,
        typer.Option(
            "--k", "-k", help="Answers of exact (1 unless given) and of a beam; candidates of disc (4)."
        ),
    ] = None,
    beam: Annotated[int | None, typer.Option("--beam", help="Width of a beam, for trie.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="For disc, and for trie to be drawn.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Of every token; the index's unless given.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", help="Look at so many of the likeliest tokens only; all unless given."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="NODES", help="Most tokens that exact runs, 2048 unless given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole selection as JSON.")] = False,
    no_head_cache: Annotated[
        bool,
        typer.Option("--no-head-cache", help="Neither read nor write a long head's KV in the user's cache."),
    ] = False,
    model: Model = None,
) -> None:
    """Find the labels of an index that the model believes in for one text.

    Examples:

        pcdc select build/drugs.smollm2-135m.pcdx --text "something for a headache" -k 3

        pcdc select build/drugs.smollm2-135m.pcdx --context note.txt --json | jq '.answers[0].id'
    """
    if (context is None) == (text is None):
        raise typer.BadParameter("give either --context or --text")
    from pcdc_runtime import open_selector
    from pcdc_runtime.selecting.request import requested

    # What is wrong with the call shows before a model is loaded.
    requested(method, k, seed, beam, temperature, top, budget)
    # The notes below say what the log does.
    logging.getLogger("pcdc_runtime").addHandler(logging.NullHandler())
    body = text if text is not None else read_context(str(context))
    with open_selector(index, model, head_cache=False if no_head_cache else None) as selector:
        selection = selector.select(
            body, method=method, k=k, seed=seed, beam=beam, temperature=temperature, top=top, budget=budget
        )
    for warning in selection.warnings:
        to_stderr(f"note: {warning}")
    if as_json:
        print_json(selection.to_dict())
        return
    from pcdc.show_selection import selection_table

    put(selection_table(selection, terminal=on_terminal(sys.stdout)), end="")
