"""`pcdc inspect`."""

from __future__ import annotations

import sys
from pathlib import Path
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

    Of an index it shows how much of everything there is, and which labels are one answer.

    Examples:

        pcdc inspect build/support.smollm2-135m.pcdc

        pcdc inspect build/support.smollm2-135m.pcdc --json | jq '.fields[].collisions'

        pcdc inspect build/products.smollm2-135m.pcdx
    """
    from pcdc_runtime.codec import read
    from pcdc_runtime.indexed.codec import holds_index

    if holds_index(artifact):
        _inspect_index(artifact, as_json=as_json, prompt=prompt)
        return
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


def _inspect_index(path: Path, *, as_json: bool, prompt: bool) -> None:
    from pcdc_runtime.indexed.codec import open_index

    from pcdc.indexing.describe import describe_index

    index = open_index(path)
    view = describe_index(index)
    if prompt:
        put(view.prompt)
    elif as_json:
        print_json(view.to_dict())
    else:
        from pcdc.show import index_picture

        put(index_picture(view), end="")
