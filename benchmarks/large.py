"""Catalogs beyond 255: `make bench-large` prints what indexes and the methods of selection cost and give.

Four public catalogs of 181 to a million entries on the embedded model: building and opening an index, what
may follow a prefix (against a JSON trie and marisa-trie), one step of prefix verification, every method
against the exact answer, and the laws of the methods where a catalog can be enumerated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import large_laws as laws
from large_catalogs import CATALOGS, Query, Unreachable, folder, write_catalog
from large_index import BUILT, build
from large_methods import METHOD, TOPS, ask, method_rows, target
from large_steps import STEP, steps
from pcdc_runtime import open_selector
from pcdc_runtime.indexed.codec import open_index
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.models import DEFAULT
from pcdc_runtime.selecting.selector import Selector
from pcdc_runtime.storage import write_atomic

from pcdc.bench.large.masks import mask_figures, mask_table
from pcdc.bench.machine import describe, line
from pcdc.show import table

ENUMERATED = {"currencies": 8, "media_types": 1}
"""Of how many texts the laws are computed: every prefix of the catalog is run for each."""
METHODS_SHARE = 0.8
"""How much of the time that is left goes to the methods."""
LEAST_S = 30.0
"""So long the methods are asked at least, where there are texts for it."""


@dataclass(frozen=True)
class Asked:
    """What is measured of a catalog: on which model, how many texts, and where its index is written."""

    model: str
    queries: int
    out: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure catalogs within about the time given, print tables and keep them; 1 where one is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("catalogs", nargs="*", metavar="CATALOG", help=", ".join(CATALOGS))
    parser.add_argument("--minutes", type=float, default=20, help="for all of it; builds are not cut short")
    parser.add_argument("--queries", type=int, default=40, help="texts a catalog, at most 200")
    parser.add_argument("--model", default=DEFAULT, help="alias, hub id or folder")
    parser.add_argument("--out", type=Path, default=Path("build/bench-large"))
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.catalogs if name not in CATALOGS]:
        parser.error(f"no catalog is called {unknown[0]}; there are {', '.join(CATALOGS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    asked = Asked(given.model, given.queries, given.out)
    with open_model(given.model) as loaded:
        report, missing = _measured(given.catalogs or list(CATALOGS), asked, loaded, 60 * given.minutes)
    write_atomic(given.out / "large.json", json.dumps(report, ensure_ascii=False, indent=1).encode())
    for why in missing:
        print(f"not measured: {why}", file=sys.stderr)
    return 1 if missing else 0


def _measured(
    names: Sequence[str], asked: Asked, loaded: LoadedModel, seconds: float
) -> tuple[dict[str, Any], list[str]]:
    """The figures by catalog, and which catalogs have none and why."""
    report: dict[str, Any] = {"machine": describe(loaded)}
    print(f"{line(report['machine'])}\n", flush=True)
    until, missing = perf_counter() + seconds, []
    for number, name in enumerate(names):
        ends = perf_counter() + (until - perf_counter()) / (len(names) - number)
        try:
            report[name] = _catalog(name, asked, loaded, ends)
        except Unreachable as why:
            missing.append(f"{name}: {why}")
            print(f"== {name}: not measured, {why}\n", flush=True)
    return report, missing


def _catalog(name: str, asked: Asked, loaded: LoadedModel, ends: float) -> dict[str, Any]:
    definition, listed = write_catalog(name, folder())
    print(f"== {name}: {len(listed.rows):,} entries\n", flush=True)
    path = asked.out / f"{name}.{loaded.name}.pcdx"
    built = build(definition, asked.model, path)
    report = {"index": _shown(BUILT, [built.cells])[0], "built": asdict(built)}
    report |= _masks(path, loaded.language.logits_width)
    queries = listed.queries[: asked.queries]
    with open_selector(path, loaded) as selector:
        report |= _methods(selector, queries, (ends - perf_counter()) * METHODS_SHARE)
        if name in ENUMERATED:
            contexts = [query.context for query in queries[: ENUMERATED[name]]]
            report["laws"] = _laws(selector, contexts)
    return report


def _masks(path: Path, width: int) -> dict[str, Any]:
    index = open_index(path)
    figures = mask_figures(index)
    print(mask_table(figures, terminal=False), flush=True)
    shown = _shown(STEP, steps(index.rows, width, (*TOPS, None)))
    return {"masks": [asdict(one) for one in figures], "steps": shown}


def _methods(selector: Selector, queries: Sequence[Query], seconds: float) -> dict[str, Any]:
    tallies = ask(selector, queries, max(LEAST_S, seconds))
    shown, beside = _shown(METHOD, method_rows(tallies, queries)), target(tallies)
    print(f"exact beside a beam of 4: {json.dumps(beside)}\n", flush=True)
    return {"methods": shown, "target": beside}


def _laws(selector: Selector, contexts: Sequence[str]) -> dict[str, Any]:
    known, took = zip(*(laws.enumerated(selector, context) for context in contexts), strict=True)
    checked = [laws.agreement(selector, text, one) for text, one in zip(contexts, known, strict=True)]
    shown = _shown(laws.LAWS, laws.law_rows(known, checked))
    masses = ", ".join(f"{1 - one.p_bad:.3f}" for one in known)
    certified = sum(one.certified for one in checked)
    print(
        f"{len(known)} texts enumerated in {sum(took):.0f} s; P_L(S) {masses}\n"
        f"exact, {checked[0].answers} answers to each: certified {certified} of {len(checked)};"
        f" in another order than enumerated by {max(one.misplaced for one in checked):.1e} nats at most;"
        f" outside its bounds a P_L by {max(one.outside for one in checked):.1e} nats and a share by"
        f" {max(one.share_outside for one in checked):.1e} at most\n",
        flush=True,
    )
    return {"rows": shown, "texts": len(known), "agreement": [asdict(one) for one in checked]}


def _shown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Print a table; gives its rows by column."""
    print(table(header, rows, terminal=False), flush=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
