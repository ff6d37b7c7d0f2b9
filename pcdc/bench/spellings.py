"""The ways to write each choice, read from an artifact for the baselines that run them one by one."""

from __future__ import annotations

from dataclasses import dataclass

from pcdc_runtime.artifact import Artifact


@dataclass(frozen=True)
class Spelling:
    """One way to write one choice: the tokens after the prompt, and the ids that close the value there.

    `field` and `choice` are numbers in declaration order. The first `forced` tokens stand before the value
    and are not scored.
    """

    field: int
    choice: int
    forced: int
    tokens: tuple[int, ...]
    closing: tuple[int, ...]


def spellings(artifact: Artifact) -> list[Spelling]:
    """Every spelling of every choice, in declaration order."""
    nodes, forms = artifact.nodes, artifact.forms
    return [
        Spelling(
            number,
            choice,
            int(nodes.depth[field.anchor]),
            nodes.path(0, int(forms.node[form])),
            tuple(artifact.ends[int(forms.end[form])].tolist()),
        )
        for number, field in enumerate(artifact.fields)
        for choice, candidate in enumerate(field.candidates)
        for form in range(*candidate.forms)
    ]
