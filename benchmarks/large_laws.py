"""The laws of the methods on one index where every prefix can be run, and exact beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.selecting.model_beliefs import ModelBeliefs
from pcdc_runtime.selecting.ppv import NumpyVerifier
from pcdc_runtime.selecting.request import MOST_NODES
from pcdc_runtime.selecting.selector import Selector
from pcdc_runtime.tokenizer import assemble_prompt

from pcdc.bench.large.theory import Law, expected_steps, kl, kl_bound, law

CHECKED = 200
"""So many of exact's answers are compared, or all."""

LAWS = ["law", "KL from P_S", "bound of theorem 2", "steps expected"]


def enumerated(selector: Selector, context: str) -> tuple[Law, float]:
    """The exact laws for one text, by running every prefix; and the seconds it took."""
    index, model = selector.index, selector.model

    def walk() -> Law:
        prompt = assemble_prompt(model.tokenizer, index.prompt, context)
        with model.prefixes.lease(index.digest, len(prompt)) as prefix:
            beliefs = ModelBeliefs(prefix, prompt, index.temperature)
            return law(index.rows, beliefs, NumpyVerifier(index.rows, None))

    started = perf_counter()
    return model.call(walk), perf_counter() - started


def law_rows(laws: Sequence[Law], checked: Sequence[Agreement]) -> list[list[str]]:
    """KL of every method's law from P_S in nats, the mean over the texts.

    Exact's is that of the probabilities that it gives to all entries, where so many were asked for. A beam
    always gives the same label: nothing that it leaves out can come from it.
    """
    own = [one.kl for one in checked if one.kl is not None]
    rows = [
        ["exact, all answers", f"{fmean(own):.1e}" if own else "", "", ""],
        ["trie, drawn", f"{fmean(kl(one.true, one.trie) for one in laws):.4f}", "", ""],
        ["trie, beam 2", "inf", "", ""],
    ]
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


@dataclass(frozen=True)
class Agreement:
    """Exact's answers to one text beside the enumeration.

    `misplaced` is by how many nats at most an entry has more than one that exact put before it, or than the
    last answer where it is none: 0 where the order is that of the enumeration. `outside` is how far a P_L
    lies outside its bounds at most, in nats, and `share_outside` how far a share does. `kl` is that of its
    shares from P_S, None where not all entries are answers.
    """

    answers: int
    certified: bool
    misplaced: float
    outside: float
    share_outside: float
    kl: float | None


def agreement(selector: Selector, context: str, known: Law) -> Agreement:
    """Ask exact for its first answers, without a limit that it could reach, and compare each."""
    labels, entries = selector.index.labels, selector.index.rows.entries
    entry_of = {labels.id(int(labels.of_entry(entry)[0])): entry for entry in range(entries)}
    found = selector.select(context, k=min(entries, CHECKED), budget=MOST_NODES)
    answered = np.array([entry_of[answer.id] for answer in found.answers])
    log, share = known.log_true, known.true[answered]
    low, high = np.array([answer.probability for answer in found.answers]).T
    least = np.array([answer.log_probability for answer in found.answers])
    most = np.array([answer.log_probability_high for answer in found.answers])
    return Agreement(
        answers=len(answered),
        certified=found.certified,
        misplaced=_misplaced(log, answered),
        outside=max(_above(least, log[answered]), _above(log[answered], most)),
        share_outside=float(max((low - share).max(), (share - high).max(), 0.0)),
        kl=None if len(answered) < entries else _kl(known.true, answered, (low + high) / 2),
    )


def _kl(true: NDArray[np.float64], answered: NDArray[np.int64], share: NDArray[np.float64]) -> float:
    given = np.empty(len(true))
    given[answered] = share
    return kl(true, given / given.sum())


def _misplaced(log: NDArray[np.float64], answered: NDArray[np.int64]) -> float:
    others = np.delete(log, answered).max(initial=-math.inf)
    behind = np.maximum.accumulate([others, *log[answered][::-1]])[::-1][1:]
    return _above(behind, log[answered])


def _above(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """By how much logs are greater than others at most, never below 0; where both are -inf they are equal."""
    there = one > other
    return float((one[there] - other[there]).max(initial=0.0))
