"""How the methods of selection compare: on one index, for the same texts, against the exact answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median
from time import perf_counter
from typing import Any

from large_catalogs import Query
from pcdc_runtime.selecting.selection import Selection
from pcdc_runtime.selecting.selector import Selector

TOPS = (50, 100, 500, 1000)
LIKELY = 1e-3


@dataclass(frozen=True)
class Method:
    """A method with its arguments; what is `drawn` has the number of its query as seed."""

    title: str
    options: Mapping[str, Any]
    drawn: bool = False

    def asked(self, number: int) -> dict[str, Any]:
        """The arguments for a query of some number."""
        return {**self.options, "seed": number} if self.drawn else dict(self.options)


def methods() -> list[Method]:
    """All that are compared; the default first."""
    found = [
        Method("exact", {}),
        Method("trie, greedy", {"method": "trie"}),
        Method("trie, drawn", {"method": "trie"}, drawn=True),
        *(Method(f"trie, beam {width}", {"method": "trie", "beam": width}) for width in (2, 4)),
        *(Method(f"disc, K = {k}", {"method": "disc", "k": k}, drawn=True) for k in range(1, 5)),
    ]
    for top in TOPS:
        found.append(Method(f"exact, M = {top}", {"top": top}))
        found.append(Method(f"disc, K = 4, M = {top}", {"method": "disc", "k": 4, "top": top}, drawn=True))
    return found


@dataclass
class Tally:
    """What one method answered to the queries that it had time for, by their numbers."""

    title: str
    found: dict[int, Selection] = field(default_factory=dict)


METHOD = [
    *("method", "texts", "as exact", "right", "certified", "passes", "nodes", "ms", "legal mass", "missed"),
]


def ask(selector: Selector, queries: Sequence[Query], seconds: float) -> list[Tally]:
    """Ask every query by every method, query by query, until the time is up.

    Each request finds the cache as a new text would, with the prompt's head and nothing of the text: the
    method that came before leaves its whole prompt there. Which method comes first changes by query.
    """
    until, asked = perf_counter() + seconds, methods()
    tallies = [Tally(method.title) for method in asked]
    selector.select(queries[0].context)
    for number, query in enumerate(queries):
        if perf_counter() > until:
            break
        for turn in range(len(asked)):
            at = (number + turn) % len(asked)
            selector.model.call(partial(_forget_text, selector))
            tallies[at].found[number] = selector.select(query.context, **asked[at].asked(number))
    return tallies


def _forget_text(selector: Selector) -> None:
    """On the owner thread: keep the KV of the prompt's head alone."""
    index = selector.index
    with selector.model.prefixes.lease(index.digest, len(index.prompt.head)) as prefix:
        prefix.advance(index.prompt.head)


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


def _share(flags: Sequence[bool]) -> str:
    return f"{fmean(flags):.3f}" if flags else ""
