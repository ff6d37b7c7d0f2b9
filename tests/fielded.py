"""An index of one field of an artifact: the same prompt, forms and labels, so that both say the same."""

from dataclasses import replace

import numpy as np
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.indexed.index import Index, Labels
from tables import make_rows


def index_of(artifact: Artifact, name: str, ids=None, entries=None) -> Index:
    """The prompt goes on to the field's anchor: there the labels begin.

    `ids` are the labels' own without them. `entries` say which labels are one answer, each its own unless
    given.
    """
    field = artifact.field(name)
    nodes, forms = artifact.nodes, artifact.forms
    anchor = np.array(nodes.path(0, field.anchor), dtype=np.int32)
    entries = list(range(len(field.candidates))) if entries is None else entries
    rows = []
    for number, candidate in enumerate(field.candidates):
        for form in range(*candidate.forms):
            path = nodes.path(field.anchor, int(forms.node[form]))
            end = artifact.ends[int(forms.end[form])].tolist()
            rows.append((entries[number], path, end))
    labels = [candidate.label for candidate in field.candidates]
    return Index(
        name=artifact.name,
        model=artifact.model,
        field=name,
        question=field.description,
        instructions=artifact.instructions,
        examples=(),
        temperature=artifact.temperature,
        fingerprint=artifact.fingerprint,
        tokenizer_probes=artifact.tokenizer_probes,
        prompt_version=artifact.prompt_version,
        prompt_text=artifact.prompt_text,
        prompt=replace(artifact.prompt, tail=np.concatenate([artifact.prompt.tail, anchor])),
        inputs={},
        rows=make_rows(rows),
        labels=Labels.of(labels, labels if ids is None else ids, np.array(entries, dtype=np.int32)),
    )
