"""Selections for people: a table of the answers, then what is known of everything else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .show import table

if TYPE_CHECKING:
    from pcdc_runtime.selecting.selection import Selected, Selection


def selection_table(selection: Selection, *, terminal: bool) -> str:
    """Every answer with its probability, a line with the certificate, and one about the run.

    Ids have a column unless the labels are the ids; of several, as equal labels have, the first and how many
    more there are.
    """
    with_ids = any(answer.ids != (answer.label,) for answer in selection.answers)
    header = ["rank", *(["id"] if with_ids else []), "label", "probability", "log-probability", "note"]
    rows = [
        [
            str(rank),
            *([_ids(answer)] if with_ids else []),
            answer.label,
            _between(answer.probability),
            _log(answer),
            "near tie" if answer.near_tie else "",
        ]
        for rank, answer in enumerate(selection.answers, 1)
    ]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    shown = table(header, rows, terminal=terminal) if rows else ""
    return f"{shown}{_certificate(selection)}\n{_run(selection)}\n"


def _certificate(selection: Selection) -> str:
    bound = f"{_short(selection.bound)} of the model's probability"
    if not selection.answers:
        within = f"within the budget of {_nodes(selection.budget)}"
        return f"no label was closed {within}: a label may have up to {bound}; give --budget more"
    if selection.certified:
        if selection.lead == math.inf:
            return "certified: no other label has any probability"
        return f"certified: no other label can have more than {bound}"
    drawn = _drawn(selection)
    if selection.lead == math.inf:
        return f"not certified{drawn}: no other label has any probability"
    return f"not certified{drawn}: another label may have up to {bound}, {_gap(selection.lead)}"


def _gap(lead: float) -> str:
    if lead == -math.inf:
        return "and the last answer none"
    return f"gap {-lead:.2f} nats" if lead < 0 else f"{lead:.2f} nats less than the last answer"


def _drawn(selection: Selection) -> str:
    """Why there is no certificate."""
    sampling = selection.sampling
    if sampling is not None:
        how = (
            f"accepted at attempt {sampling.attempts} of {selection.k}"
            if sampling.accepted
            else f"resampled after {sampling.attempts} rejections"
        )
        # What the draws suggest, as far as it is not disproved.
        low, high = selection.legal_mass or (0.0, 1.0)
        p_bad = min(max(sampling.p_bad, 1 - high), 1 - low)
        return f", drawn by disc with seed {selection.seed}, {how}, p_b about {p_bad:.4f}"
    if selection.method == "trie":
        if selection.seed is not None:
            return f", drawn by trie with seed {selection.seed}"
        return ", trie with a beam of " + str(selection.beam) if selection.beam else ", trie"
    if selection.missed > 0:
        return f" with --top {selection.top}"
    return f" within {_nodes(selection.budget)}"


def _run(selection: Selection) -> str:
    # A short text goes through the model together with the first nodes.
    apart = selection.prefill_ms > 0
    took = f"prefill {selection.prefill_ms:.1f} ms, search" if apart else "prefill and search"
    count = selection.sequential_forward_passes
    mass = "-" if selection.legal_mass is None else _between(selection.legal_mass)
    heat = "" if selection.temperature == 1 else f"temperature {selection.temperature:g} of every token, "
    missed = f"missed at most {_short(selection.missed)}, " if selection.missed > 0 else ""
    return (
        f"legal mass {mass}, {missed}{took} {selection.search_ms:.1f} ms, "
        f"{count} {'pass' if count == 1 else 'passes'}, {_nodes(selection.nodes)}, "
        f"{selection.context_tokens} context tokens, {heat}{selection.entries} entries, "
        f"index {selection.index_digest[:12]}, model {selection.model}"
    )


def _nodes(count: int | None) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _ids(answer: Selected) -> str:
    return answer.id if len(answer.ids) == 1 else f"{answer.id} (+{len(answer.ids) - 1})"


def _log(answer: Selected) -> str:
    low, high = f"{answer.log_probability:.4f}", f"{answer.log_probability_high:.4f}"
    return low if low == high else f"{low} to {high}"


def _between(bounds: tuple[float, float]) -> str:
    low, high = map(_short, bounds)
    return low if low == high else f"{low} to {high}"


def _short(probability: float) -> str:
    return f"{probability:.4f}" if probability >= 0.001 or probability == 0 else f"{probability:.1e}"
