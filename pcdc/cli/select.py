"""`pcdc select`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import (
    AnswersFile,
    ContextFile,
    ContextsFile,
    Model,
    NoHeadCache,
    Text,
    app,
    as_note,
    as_path,
    check_texts,
    on_terminal,
    print_json,
    put,
    read_context,
    to_stderr,
)


@app.command()
def select(
    index: Annotated[
        Path, typer.Argument(parser=as_path, metavar="INDEX", help="A file that `pcdc index` wrote.")
    ],
    context: ContextFile = None,
    text: Text = None,
    contexts: ContextsFile = None,
    out: AnswersFile = None,
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
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="For disc, and for trie to be drawn; of --contexts each line's own comes from it."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature", help="Of every token, so that the answer can change; the index's unless given."
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", help="Look at so many of the likeliest tokens only; all unless given."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="NODES", help="Most tokens that exact runs, 2048 unless given."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the whole selection as JSON, each answer with all its `ids`."),
    ] = False,
    no_head_cache: NoHeadCache = False,
    model: Model = None,
) -> None:
    """Find the labels of an index that the model believes in for one text, or for each line of a file.

    Certified answers are the model's best labels for sure, which need not be the right ones. Every answered
    request exits 0, certified or not, even where a budget ended it before any label was found. Labels that
    are written alike are one answer: `A1 (+2)` stands for three ids, of which `--json` has all.

    Examples:

        pcdc select build/drugs.smollm2-135m.pcdx --text "something for a headache" -k 3

        pcdc select build/drugs.smollm2-135m.pcdx --context note.txt --json | jq '.answers[0].id'

        pcdc select build/drugs.smollm2-135m.pcdx --contexts notes.jsonl --out answers.jsonl
    """
    check_texts(context, text, contexts, out)
    from pcdc_runtime import open_selector
    from pcdc_runtime.selecting.request import requested

    # What is wrong with the call shows before a model is loaded.
    request = requested(method, k, seed, beam, temperature, top, budget)
    # The notes below say what the log does.
    logging.getLogger("pcdc_runtime").addHandler(logging.NullHandler())
    head_cache = False if no_head_cache else None
    if contexts is not None:
        from .contexts import answer_contexts
        from .select_contexts import LabelOptions, label_command

        options = LabelOptions(index, model, head_cache, request, seeded=seed is not None)
        answer_contexts(contexts, out, label_command(options))
        return
    body = text if text is not None else read_context(str(context))
    with open_selector(index, model, head_cache=head_cache) as selector:
        selection = selector.select(
            body, method=method, k=k, seed=seed, beam=beam, temperature=temperature, top=top, budget=budget
        )
    for warning in selection.warnings:
        to_stderr(as_note(warning))
    if as_json:
        print_json(selection.to_dict())
        return
    from pcdc.show_selection import selection_table

    put(selection_table(selection, terminal=on_terminal(sys.stdout)), end="")
