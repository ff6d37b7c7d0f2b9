"""`pcdc inspect`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .common import ArtifactPath, Model, app, on_terminal, print_json, put, to_stderr


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
    from pcdc_runtime.codec import read

    from pcdc.describe import describe, token_bytes_of

    loaded = read(artifact)
    if prompt:
        put(loaded.prompt_text)
        return
    spelled, note = token_bytes_of(loaded, model)
    if note:
        to_stderr(note)
    view = describe(loaded, spelled)
    if as_json:
        print_json(view.to_dict())
        return
    from pcdc.show import artifact_picture

    put(artifact_picture(view, terminal=on_terminal(sys.stdout)), end="")
