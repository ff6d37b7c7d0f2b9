"""Selections: plain frozen values, no arrays."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcdc_runtime.artifact import shortened
from pcdc_runtime.errors import NoAnswerError
from pcdc_runtime.indexed.index import Labels

from .outcome import Found, Outcome, Sampling, at_most


@dataclass(frozen=True)
class Selected:
    """One answer: a label of the catalog, or several with the same surface forms.

    `label` and `id` are those of the first declared one, `ids` of all. `log_probability` is the natural log
    of P_L, the model's own probability of writing and closing the label, as far as its forms were read;
    with those that were not, it is at most `log_probability_high`. `probability` has bounds of P_S, the
    label's share of the catalog's P_L. `margin` is by how many nats the label is at least ahead of every
    one after it, those that are no answer too (inf where there is none; negative where it may not be ahead).
    `near_tie` says that of an order which is certified, another way to run the model may give another.
    """

    id: str
    ids: tuple[str, ...]
    label: str
    log_probability: float
    log_probability_high: float
    probability: tuple[float, float]
    margin: float
    near_tie: bool

    def to_dict(self) -> dict[str, Any]:
        """All of it by name; what is infinite becomes None."""
        return {
            "id": self.id,
            "ids": list(self.ids),
            "label": self.label,
            "log_probability": _finite(self.log_probability),
            "log_probability_high": _finite(self.log_probability_high),
            "probability": list(self.probability),
            "margin": _finite(self.margin),
            "near_tie": self.near_tie,
        }


@dataclass(frozen=True, repr=False)
class Selection:
    """The answers to one context, best first, what is known of everything else, and what it took.

    `certified` says that these are the true answers in the true order; `exact` alone says it. No entry that
    is not among them has a P_L above `bound`, and `lead` is by how many nats the last answer is ahead of it:
    negative where a gap is left, inf where nothing is. There can be fewer answers than were asked for, or
    none, where a budget ended the search. `legal_mass` has bounds of P_L(S), the probability that the model
    writes any label at all, None where a method does not know any. `missed` is the most probability of valid
    tokens that a top-M never looked at.

    At a `temperature` other than 1 all of it is about the model whose every next-token distribution is
    tempered. `k`, `seed`, `beam`, `top` and `budget` are what the request ran with, None what its method
    does not have. `sampling` says what was drawn, for `disc`.

    `passes` counts the tree passes and `nodes` the tokens they ran, the last prompt token among them;
    `sequential_forward_passes` adds a prefill of its own, `forward_passes` counts the model's forwards.
    `head_cached`, `positions`, `context_tokens` and the counts of keys and values are those of `Result`.
    Times are in milliseconds on the owner thread, without the wait for it.
    """

    answers: tuple[Selected, ...]
    method: str
    certified: bool
    bound: float
    lead: float
    legal_mass: tuple[float, float] | None
    missed: float
    temperature: float
    k: int
    seed: int | None
    beam: int | None
    top: int | None
    budget: int | None
    sampling: Sampling | None
    passes: int
    nodes: int
    forward_passes: int
    sequential_forward_passes: int
    head_cached: int
    positions: int
    context_tokens: int
    kv_bytes: int
    kv_added: int
    kv_copied: int
    elapsed_ms: float
    prefill_ms: float
    search_ms: float
    model: str
    index: str
    index_digest: str
    entries: int
    warnings: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        found = shortened([f"{answer.id!r}: {answer.label!r}" for answer in self.answers])
        sure = ", certified" if self.certified else ""
        return f"Selection({{{found}}}, method={self.method!r}{sure}, model={self.model!r})"

    @property
    def best(self) -> Selected:
        """The first answer. Raises NoAnswerError where a budget ended before there was one."""
        if not self.answers:
            raise NoAnswerError(
                "selection",
                f"has no answer: no label was closed with budget={self.budget}",
                f"a label may have up to {self.bound:.1e} of the model's probability",
                "give a larger `budget`; `answers` is empty where nothing was found",
            )
        return self.answers[0]

    def to_dict(self) -> dict[str, Any]:
        """All of it by name, a new dictionary at each call; what is infinite becomes None."""
        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "method": self.method,
            "certified": self.certified,
            "bound": self.bound,
            "lead": _finite(self.lead),
            "legal_mass": None if self.legal_mass is None else list(self.legal_mass),
            "missed": self.missed,
            "temperature": self.temperature,
            "k": self.k,
            "seed": self.seed,
            "beam": self.beam,
            "top": self.top,
            "budget": self.budget,
            "sampling": None if self.sampling is None else _of_sampling(self.sampling),
            "passes": self.passes,
            "nodes": self.nodes,
            "forward_passes": self.forward_passes,
            "sequential_forward_passes": self.sequential_forward_passes,
            "head_cached": self.head_cached,
            "positions": self.positions,
            "context_tokens": self.context_tokens,
            "kv_bytes": self.kv_bytes,
            "kv_added": self.kv_added,
            "kv_copied": self.kv_copied,
            "elapsed_ms": self.elapsed_ms,
            "prefill_ms": self.prefill_ms,
            "search_ms": self.search_ms,
            "model": self.model,
            "index": self.index,
            "index_digest": self.index_digest,
            "entries": self.entries,
            "warnings": list(self.warnings),
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as strict JSON with the text's own characters."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)


def answers_of(outcome: Outcome, labels: Labels, band: float) -> tuple[Selected, ...]:
    """The outcome's answers by their labels; margins below `band` are near ties where they are certain."""
    # From the last: what comes after an answer has at most this.
    most, answers = outcome.bound, []
    for found in reversed(outcome.found):
        numbers = labels.of_entry(found.entry).tolist()
        margin = _less(found.low, most)
        answers.append(
            Selected(
                id=labels.id(numbers[0]),
                ids=tuple(labels.id(number) for number in numbers),
                label=labels.label(numbers[0]),
                log_probability=found.low,
                log_probability_high=found.high,
                probability=share_of(found, outcome),
                margin=margin,
                near_tie=outcome.certified and margin < band,
            )
        )
        most = max(most, found.high)
    return tuple(reversed(answers))


def bound_of(outcome: Outcome) -> float:
    """The most P_L that an entry can have which is no answer."""
    return at_most(outcome.bound)


def lead_of(outcome: Outcome) -> float:
    """By how many nats the last answer is ahead of all that is no answer."""
    return _less(outcome.found[-1].low if outcome.found else -math.inf, outcome.bound)


def share_of(found: Found, outcome: Outcome) -> tuple[float, float]:
    """Bounds of P_S of an answer, from those of its P_L and of what all others have together."""
    known = float(np.logaddexp.reduce([one.low for one in outcome.found]))
    least, most = outcome.log_mass or (known, 0.0)
    # The share rises with the entry's own probability and falls with that of the others.
    with_all = max(found.low, most)
    others = least + _log1mexp(found.low - least) if least > found.low else -math.inf
    with_few = float(np.logaddexp(found.high, others))
    high = at_most(found.high - with_few) if with_few > -math.inf else 1.0
    return (min(math.exp(found.low - with_all), high) if with_all > -math.inf else 0.0, high)


def _log1mexp(log: float) -> float:
    """log(1 - exp(log)) of a log below 0."""
    return math.log(-math.expm1(log))


def _less(log: float, other: float) -> float:
    """The difference of two logs, inf where nothing is taken away."""
    return math.inf if other == -math.inf else log - other


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _of_sampling(sampling: Sampling) -> dict[str, Any]:
    return {
        "seed": sampling.seed,
        "attempts": sampling.attempts,
        "accepted": sampling.accepted,
        "resampled": sampling.resampled,
        "weights": list(sampling.weights),
        "p_bad": sampling.p_bad,
    }
