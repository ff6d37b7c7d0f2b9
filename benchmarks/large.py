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
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from large_catalogs import CATALOGS, Unreachable, write_catalog
from large_catalogs import folder as cached
from large_index import BUILT, STEP, Built, build, steps
from large_methods import (
    LAWS,
    METHOD,
    TOPS,
    agreement,
    ask,
    enumerated,
    law_rows,
    method_rows,
    target,
)
from pcdc_runtime import open_selector
from pcdc_runtime.loaded import open_model
from pcdc_runtime.models import DEFAULT, resolve
from pcdc_runtime.storage import write_atomic

from pcdc.bench.large.masks import mask_figures, mask_table
from pcdc.bench.machine import describe, line
from pcdc.prompt import Target, load_target
from pcdc.show import table

ENUMERATED = {"currencies": 8, "media_types": 1}
"""Of how many texts the laws are computed: every prefix of the catalog is run for each."""
METHODS_SHARE = 0.8
"""How much of the time that is left goes to the methods."""


def main() -> None:
    """Measure the named catalogs within about the time given, print tables, and keep them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("catalogs", nargs="*", metavar="CATALOG", help=", ".join(CATALOGS))
    parser.add_argument("--minutes", type=float, default=20, help="for all of it; builds are not cut short")
    parser.add_argument("--queries", type=int, default=40, help="texts a catalog, at most 200")
    parser.add_argument("--out", type=Path, default=Path("build/bench-large"))
    asked = parser.parse_args()
    if unknown := [name for name in asked.catalogs if name not in CATALOGS]:
        parser.error(f"no catalog is called {unknown[0]}; there are {', '.join(CATALOGS)}")
    names = asked.catalogs or list(CATALOGS)
    asked.out.mkdir(parents=True, exist_ok=True)
    until = perf_counter() + 60 * asked.minutes
    found, problems = load_target(resolve(DEFAULT, weights=False))
    if found is None:
        sys.exit(problems[0].fact)
    report: dict[str, Any] = {}
    with open_model(DEFAULT) as loaded:
        report["machine"] = describe(loaded)
        print(f"{line(report['machine'])}\n", flush=True)
        width = loaded.language.logits_width
        missing = []
        for number, name in enumerate(names):
            try:
                seconds = (until - perf_counter()) / (len(names) - number)
                report[name] = _catalog(name, found, width, asked.out, asked.queries, seconds)
            except Unreachable as why:
                missing.append(f"{name}: {why}")
                print(f"== {name}: not measured, {why}\n", flush=True)
    write_atomic(asked.out / "large.json", json.dumps(report, ensure_ascii=False, indent=1).encode())
    if missing:
        sys.exit("not measured: " + "; ".join(missing))


def _catalog(
    name: str, target_: Target, width: int, out: Path, queries: int, seconds: float
) -> dict[str, Any]:
    started = perf_counter()
    definition, listed = write_catalog(name, cached())
    built = build(definition, target_, out / f"{name}.{target_.model}.pcdx")
    print(f"== {name}: {len(listed.rows):,} entries\n")
    _show(BUILT, [built.cells])
    report: dict[str, Any] = {"index": dict(zip(BUILT, built.cells, strict=True)), **_masks(built, width)}
    asked = listed.queries[:queries]
    with open_selector(built.path) as selector:
        left = max(30.0, (seconds - (perf_counter() - started)) * METHODS_SHARE)
        tallies = ask(selector, asked, left)
        rows = method_rows(tallies, asked)
        _show(METHOD, rows)
        report["methods"] = [dict(zip(METHOD, row, strict=True)) for row in rows]
        report["target"] = target(tallies)
        print(f"exact beside a beam of 4: {json.dumps(report['target'])}\n", flush=True)
        if name in ENUMERATED:
            report["laws"] = _laws(selector, [query.context for query in asked[: ENUMERATED[name]]])
    return report


def _masks(built: Built, width: int) -> dict[str, Any]:
    figures = mask_figures(built.index)
    print(mask_table(figures, terminal=False))
    rows = steps(built.index.rows, width, (*TOPS, None))
    _show(STEP, rows)
    return {
        "masks": [asdict(one) for one in figures],
        "steps": [dict(zip(STEP, row, strict=True)) for row in rows],
    }


def _laws(selector: Any, contexts: Sequence[str]) -> dict[str, Any]:
    laws, took = zip(*(enumerated(selector, context) for context in contexts), strict=True)
    rows = law_rows(laws)
    _show(LAWS, rows)
    worst = max(agreement(selector, text, one) for text, one in zip(contexts, laws, strict=True))
    masses = ", ".join(f"{1 - one.p_bad:.3f}" for one in laws)
    print(
        f"{len(laws)} texts enumerated in {sum(took):.0f} s; P_L(S) {masses}; "
        f"exact's probabilities differ by {worst:.1e} at most\n",
        flush=True,
    )
    return {"rows": [dict(zip(LAWS, row, strict=True)) for row in rows], "worst": worst, "texts": len(laws)}


def _show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(table(header, rows, terminal=False), flush=True)


if __name__ == "__main__":
    main()
