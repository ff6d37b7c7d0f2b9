"""How the methods of selection compare: on one index, for the same texts, against the exact answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np
from large_catalogs import Query
from pcdc_runtime.selecting.model_beliefs import ModelBeliefs
from pcdc_runtime.selecting.ppv import NumpyVerifier
from pcdc_runtime.selecting.selection import Selection
from pcdc_runtime.selecting.selector import Selector
from pcdc_runtime.tokenizer import assemble_prompt

from pcdc.bench.large.theory import Law, expected_steps, kl, kl_bound, law

TOPS = (50, 100, 500, 1000)
LIKELY = 1e-3
Asked = Callable[[int], Mapping[str, Any]]


def methods() -> dict[str, Asked]:
    """Titles with the arguments for a query of some number; the default first."""
    rows: dict[str, Asked] = {
        "exact": lambda _: {},
        "trie, greedy": lambda _: {"method": "trie"},
        "trie, drawn": lambda number: {"method": "trie", "seed": number},
        "trie, beam 2": lambda _: {"method": "trie", "beam": 2},
        "trie, beam 4": lambda _: {"method": "trie", "beam": 4},
    }
    for k in range(1, 5):
        rows[f"disc, K = {k}"] = lambda number, k=k: {"method": "disc", "k": k, "seed": number}
    for top in TOPS:
        rows[f"exact, M = {top}"] = lambda _, top=top: {"top": top}
        rows[f"disc, K = 4, M = {top}"] = lambda number, top=top: {
            "method": "disc",
            "k": 4,
            "seed": number,
            "top": top,
        }
    return rows


@dataclass
class Tally:
    """What one method answered to the queries that it had time for, by their numbers."""

    title: str
    found: dict[int, Selection] = field(default_factory=dict)


METHOD = [
    *("method", "texts", "as exact", "right", "certified", "passes", "nodes", "ms", "legal mass", "missed"),
]


def ask(selector: Selector, queries: Sequence[Query], seconds: float) -> list[Tally]:
    """Ask every query by every method, query by query, until the time is up."""
    until, asked = perf_counter() + seconds, methods()
    tallies = [Tally(title) for title in asked]
    selector.select(queries[0].context)
    for number, query in enumerate(queries):
        if perf_counter() > until:
            break
        for tally, of in zip(tallies, asked.values(), strict=True):
            tally.found[number] = selector.select(query.context, **of(number))
    return tallies


def method_rows(tallies: Sequence[Tally], queries: Sequence[Query]) -> list[list[str]]:
    """One row a method; what is `as exact` counts where exact is certified."""
    exact = {number: one for number, one in tallies[0].found.items() if one.certified}
    rows = []
    for tally in tallies:
        found = tally.found
        same = [found[number].best.ids == one.best.ids for number, one in exact.items()]
        right = [queries[number].expected in one.best.ids for number, one in found.items()]
        masses = [one.legal_mass[0] for one in found.values() if one.legal_mass]
        rows.append(
            [
                tally.title,
                str(len(found)),
                _share(same),
                _share(right),
                _share([one.certified for one in found.values()]),
                f"{median(one.passes for one in found.values()):.0f}",
                f"{median(one.nodes for one in found.values()):.0f}",
                f"{median(one.elapsed_ms for one in found.values()):.0f}",
                f"{median(masses):.3f}" if masses else "",
                f"{max(one.missed for one in found.values()):.1e}",
            ]
        )
    return rows


def target(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Exact beside a beam of 4, where the best label has at least LIKELY of the model's probability."""
    exact = tallies[0].found
    beam = next(tally.found for tally in tallies if tally.title == "trie, beam 4")
    likely = [n for n, one in exact.items() if one.certified and one.best.log_probability >= math.log(LIKELY)]
    others = [one for n, one in exact.items() if n not in likely]
    return {
        "texts": len(exact),
        "likely": len(likely),
        "no more passes": sum(exact[n].passes <= beam[n].passes for n in likely),
        "at most 4 times the nodes": sum(exact[n].nodes <= 4 * beam[n].nodes for n in likely),
        "both": sum(
            exact[n].passes <= beam[n].passes and exact[n].nodes <= 4 * beam[n].nodes for n in likely
        ),
        "unlikely": len(others),
        "unlikely certified": sum(one.certified for one in others),
        "gaps of the rest": [round(-one.lead, 3) for one in others if not one.certified],
    }


LAWS = ["law", "KL from P_S", "bound of theorem 2", "steps expected"]


def enumerated(selector: Selector, context: str) -> tuple[Law, float]:
    """The exact laws for one text, by walking every prefix; and the seconds it took."""
    index, model = selector.index, selector.model

    def walk() -> Law:
        prompt = assemble_prompt(model.tokenizer, index.prompt, context)
        with model.prefixes.lease(index.digest, len(prompt)) as prefix:
            beliefs = ModelBeliefs(prefix, prompt, index.temperature, room=len(index.rows.token))
            return law(index.rows, beliefs, NumpyVerifier(index.rows, None))

    started = perf_counter()
    return model.call(walk), perf_counter() - started


def law_rows(laws: Sequence[Law]) -> list[list[str]]:
    """KL of every method's law from P_S in nats, the mean over the texts."""
    rows = [["trie, drawn", f"{fmean(kl(one.true, one.trie) for one in laws):.4f}", "", ""]]
    for k in range(1, 5):
        rows.append(
            [
                f"disc, K = {k}",
                f"{fmean(kl(one.true, one.disc(k)) for one in laws):.4f}",
                f"{fmean(kl_bound(one.p_bad, k) for one in laws):.4f}",
                f"{fmean(expected_steps(one.p_bad, k) for one in laws):.2f}",
            ]
        )
    return rows


def agreement(selector: Selector, context: str, known: Law) -> float:
    """The largest difference of exact's probabilities, of all entries, from the enumerated ones."""
    entries = min(selector.index.rows.entries, 200)
    found = selector.select(context, k=entries, budget=1_000_000)
    order = np.argsort(-known.true, kind="stable")[:entries].tolist()
    numbers = {selector.index.labels.id(int(selector.index.labels.of_entry(e)[0])): e for e in order}
    worst = 0.0
    for answer in found.answers:
        if answer.id in numbers:
            share = known.true[numbers[answer.id]]
            low, high = answer.probability
            worst = max(worst, abs(share - (low + high) / 2))
    return worst


def _share(flags: Sequence[bool]) -> str:
    return f"{fmean(flags):.3f}" if flags else ""
