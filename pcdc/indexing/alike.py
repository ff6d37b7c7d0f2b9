"""What is said of labels that a model cannot tell apart: just tokenized, or in an index."""

from __future__ import annotations

from pcdc_runtime.indexed.index import Labels

from pcdc.diagnostics import Diagnostic, finding, quoted, visible

from .definition import Entries, IndexDefinition
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
    entries = definition.entries
    labels, has_ids = entries.labels, entries.ids is not entries.labels
    shown = [" = ".join(_label(entries, n, has_ids) for n in group) for group in grouped.examples]
    more = ", ..." if grouped.groups > len(shown) else ""
    count = f"{grouped.groups} answer{'' if grouped.groups == 1 else 's'}"
    return [
        finding(
            "PCDC309",
            entries.locate(grouped.examples[0][-1]),
            f"catalog of field {quoted(definition.field)}",
            f"has labels with the same tokens, {count} of several labels: {', '.join(shown)}{more}",
            "the model cannot tell such labels apart, so each group is one answer with all its ids",
            _help({len({labels[n] for n in group}) > 1 for group in grouped.examples}),
        )
    ]


def _label(entries: Entries, number: int, has_ids: bool) -> str:
    label = quoted(entries.labels[number])
    return f"{label} ({visible(entries.ids[number])})" if has_ids else label


def _help(spelled_apart: set[bool]) -> str:
    intended = "equal labels under several ids may be intended; if not, put into each what sets it apart"
    differ = "make their spelling differ where they mean different things"
    return "; ".join([differ] * (True in spelled_apart) + [intended] * (False in spelled_apart))
