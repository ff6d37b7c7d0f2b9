"""What is said of labels that a model cannot tell apart: just tokenized, or in an index."""

from __future__ import annotations

from pcdc_runtime.indexed.index import Labels

from pcdc.diagnostics import Diagnostic, finding, quoted

from .definition import IndexDefinition
from .grouping import SHOWN_GROUPS, SHOWN_LABELS, Grouped


def grouped_in(labels: Labels) -> Grouped:
    """The entries of several labels of an index, as they were found when it was tokenized."""
    several = labels.grouped
    shown = [labels.of_entry(entry)[:SHOWN_LABELS].tolist() for entry in several[:SHOWN_GROUPS].tolist()]
    return Grouped(len(several), tuple(map(tuple, shown)))


def same_tokens(definition: IndexDefinition, grouped: Grouped) -> list[Diagnostic]:
    """A warning that names the first few groups, where there are any."""
    if not grouped.groups:
        return []
    labels = definition.entries.labels
    shown = [" = ".join(quoted(labels[n]) for n in group) for group in grouped.examples]
    more = ", ..." if grouped.groups > len(shown) else ""
    count = f"{grouped.groups} answer{'' if grouped.groups == 1 else 's'}"
    return [
        finding(
            "PCDC309",
            definition.entries.locate(grouped.examples[0][-1]),
            f"catalog of field {definition.field!r}",
            f"has labels with the same tokens, {count} of several labels: {', '.join(shown)}{more}",
            "the model cannot tell such labels apart, so each group is one answer with all its ids",
            "make their spelling differ where they mean different things",
        )
    ]
