"""What a selection is asked for, checked before anything runs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from numbers import Integral

from pcdc_runtime.errors import (
    SelectionError,
    SelectionMismatchError,
    UnknownMethodError,
    did_you_mean,
)
from pcdc_runtime.rules import check_temperature

from .outcome import METHODS

BUDGET = 2048
"""Nodes of the tree that `exact` runs at most, unless a request says how many."""
CANDIDATES = 4
"""How many candidates `disc` draws before it resamples, unless a request says how many."""
TEMPERING = "leave it out for the index's own; it tempers every token and can change the answer"
MOST_ANSWERS = 4096
MOST_NODES = 1_000_000
MOST_TOKENS = 1_000_000
LARGEST_SEED = 2**53 - 1
"""JSON numbers are exact up to here."""


@dataclass(frozen=True)
class Request:
    """One selection; `temperature` and `top` None are left to the index and the runtime.

    `k` is how many answers `exact` and a beam give, and the K of `disc`. A seed is there where something is
    drawn, a `budget` where nodes are limited.
    """

    method: str
    k: int
    seed: int | None
    beam: int | None
    temperature: float | None
    top: int | None
    budget: int | None


def requested(
    method: object,
    k: object,
    seed: object,
    beam: object,
    temperature: object,
    top: object,
    budget: object,
) -> Request:
    """The request, with what is left out filled in.

    Raises UnknownMethodError, SelectionError, SelectionMismatchError, TemperatureError.
    """
    if method not in METHODS:
        given = [method] if isinstance(method, str) else []
        known = f"known methods: {', '.join(METHODS)}"
        raise UnknownMethodError("method", f"is {method!r:.40}", known, did_you_mean(given, METHODS))
    assert isinstance(method, str)
    asked = Request(
        method=method,
        k=_number("k", k, 1, MOST_ANSWERS) or (CANDIDATES if method == "disc" else 1),
        seed=_number("seed", seed, 0, LARGEST_SEED),
        beam=_number("beam", beam, 1, MOST_ANSWERS),
        temperature=None if temperature is None else check_temperature(temperature, help=TEMPERING),
        top=_number("top", top, 1, MOST_TOKENS),
        budget=_number("budget", budget, 1, MOST_NODES),
    )
    _check_together(asked)
    return Request(
        method=method,
        k=asked.k,
        seed=secrets.randbits(32) if method == "disc" and asked.seed is None else asked.seed,
        beam=asked.beam,
        temperature=asked.temperature,
        top=asked.top,
        budget=(asked.budget or BUDGET) if method == "exact" else None,
    )


def _number(name: str, given: object, least: int, most: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Integral) or not least <= int(given) <= most:
        raise SelectionError(name, f"is {given!r:.40}", f"it must be a whole number from {least} to {most:,}")
    return int(given)


def _check_together(asked: Request) -> None:
    """Raises SelectionMismatchError."""
    exact, trie = asked.method == "exact", asked.method == "trie"
    if asked.seed is not None and exact:
        raise _mismatch("a seed", "nothing is drawn by exact", "leave it out, or take disc or trie")
    if asked.beam is not None and not trie:
        raise _mismatch("a beam", f"{asked.method} has none", "leave it out, or take trie")
    if asked.budget is not None and not exact:
        limited = (
            "`beam` says how many prefixes are kept" if trie else "`k` says how many candidates are drawn"
        )
        raise _mismatch("a budget", "only exact has one", f"leave it out; {limited}")
    if asked.beam is not None and asked.seed is not None:
        raise _mismatch("a seed", "nothing is drawn by a beam", "leave out the seed or the beam")
    if trie and asked.k > (asked.beam or 1):
        raise _mismatch(
            f"k={asked.k}",
            f"a beam of {asked.beam} finishes no more"
            if asked.beam
            else "trie gives one answer without a beam",
            "give a beam of k at least, or take exact",
        )


def _mismatch(given: str, why: str, help: str) -> SelectionMismatchError:
    return SelectionMismatchError("selection", f"was asked for with {given}", why, help)
