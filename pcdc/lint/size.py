"""Rules about what a schema costs a model."""

from __future__ import annotations

from collections.abc import Iterator

from pcdc_runtime.rules import NODE_BUDGET

from pcdc.diagnostics import Diagnostic, finding

from .subject import Compiled, InTokens

WINDOW_SHARE = 0.5
EXAMPLE_SHARE = 0.5


def window_share(compiled: InTokens) -> Iterator[Diagnostic]:
    """A prompt that leaves less than half of the window to the text."""
    window, whole = compiled.target.window, compiled.prompt_tokens + compiled.deepest
    if window is not None and whole > WINDOW_SHARE * window:
        yield finding(
            "PCDC521",
            compiled.place,
            compiled.noun,
            f"takes {whole} of the {window} tokens of {compiled.target.model}'s window "
            f"({whole / window:.0%}), which leaves {window - whole} to the text",
            f"at most {WINDOW_SHARE:.0%}",
            "split the schema, or shorten its descriptions"
            if compiled.noun == "schema"
            else "shorten the question, or show fewer examples",
        )


def many_passes(compiled: Compiled) -> Iterator[Diagnostic]:
    """More nodes than one tree pass takes."""
    if compiled.passes > 1:
        yield finding(
            "PCDC522",
            compiled.place,
            "schema",
            f"needs {sum(compiled.nodes)} nodes, {compiled.passes} tree passes a text, in the tokens of "
            + compiled.target.model,
            f"one pass takes {NODE_BUDGET} nodes",
            'shorten the choices, or split the schema; `"scoring": "identify"` runs the fewest nodes',
        )


def many_examples(compiled: Compiled) -> Iterator[Diagnostic]:
    """Worked examples that are most of the prompt; that of an index is little else."""
    added = compiled.example_tokens
    if added > EXAMPLE_SHARE * compiled.prompt_tokens:
        yield finding(
            "PCDC523",
            compiled.place,
            "examples",
            f"add {added} of the prompt's {compiled.prompt_tokens} tokens "
            f"({added / compiled.prompt_tokens:.0%}) for {compiled.target.model}",
            "they are computed once, but every text attends to them",
            "keep the shortest and the most telling ones",
        )
