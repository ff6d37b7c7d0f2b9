"""The table of README: four public sets on the embedded model: `python evaluation/table.py`.

Whatever gives answers is judged on the same texts, none of which was fitted on or shown as an example. Slow
answers (the model's own JSON, and the prompt with examples) are judged on the first texts of the judged part.
Everything measured is kept in the output folder, so a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from fetch import PARTS, SEED, SETS, part_file, write_parts
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.models import DEFAULT, resolve
from pcdc_runtime.storage import cache_dir, write_atomic

from pcdc import __version__
from pcdc.emit import compile_schema
from pcdc.evaluation.bootstrap import draw
from pcdc.evaluation.fit import Selection, select
from pcdc.evaluation.judge import Comparison, Figures, Judged, compare, judge
from pcdc.evaluation.kept import Kept, key_of
from pcdc.evaluation.measure import CONTENT_FREE, Scored, TooLong, measure, tabulate, write
from pcdc.evaluation.methods import CHOSEN, MAJORITY, WRITTEN, answers
from pcdc.evaluation.metrics import Answers
from pcdc.evaluation.opening import Opening
from pcdc.evaluation.propose import choose
from pcdc.evaluation.recompile import compiled
from pcdc.evaluation.rows import Row, read_rows
from pcdc.evaluation.split import Ints
from pcdc.evaluation.tables import FieldTable, Measured
from pcdc.parse import parse_file
from pcdc.prompt import Target, load_target
from pcdc.schema import Schema

HERE = Path(__file__).resolve().parent
TITLES = {
    "movie_sentiment": "Movie sentiment, 2 answers",
    "tweet_sentiment": "Tweets, 3 answers",
    "reuters_r8": "Reuters R8, 8 answers",
    "newsgroups_20": "20 Newsgroups, 20 answers",
}
EXAMPLES = "examples"
EXAMPLE_WORDS = 40


@dataclass(frozen=True)
class Sizes:
    """How many texts: fitted on, judged, judged of what is slow, timed; and the least number of examples."""

    fit: int
    judge: int
    slow: int
    timed: int
    examples: int = 8


FULL = Sizes(PARTS["fit"], PARTS["judge"], 400, 30)
# Twenty answers and long texts cost the most, and no set but this one has fewer than 1,000 texts judged.
SIZES = {"newsgroups_20": Sizes(200, 400, 400, 30)}
SMALL = Sizes(30, 30, 20, 3)


@dataclass(frozen=True)
class Texts:
    """The labelled texts of one set."""

    fit: tuple[Row, ...]
    judge: tuple[Row, ...]
    examples: tuple[Row, ...]


@dataclass(frozen=True)
class Bench:
    """What all sets share: the model as a target, and as something that runs, and what was measured."""

    target: Target
    opening: Opening
    kept: Kept
    sizes: Sizes


@dataclass(frozen=True)
class Line:
    """One row of a set's table; None where a column does not apply."""

    method: str
    figures: Figures
    mass: float | None
    ms: float | None


@dataclass(frozen=True)
class Table:
    """One set: its rows, which calibration was chosen, and the paired tests."""

    name: str
    lines: tuple[Line, ...]
    chosen: str
    examples: int
    head_tokens: tuple[int, int]
    tests: tuple[Comparison, ...]
    sizes: Sizes


def watch(what: str, done: int, total: int) -> None:
    """Say how far a measurement is."""
    if done % 20 == 0 or done == total:
        end = "\n" if done == total else ""
        print(f"\r  {what}: {done} of {total} ", end=end, file=sys.stderr, flush=True)


def artifacts(name: str, bench: Bench, texts: Texts) -> tuple[Artifact, Artifact]:
    """The set's artifact, and the same with a balanced set of worked examples from the training texts."""
    schema = definition(name)
    plain = compiled(schema, bench.target)
    labels = len(plain.fields[0].candidates)
    count = labels * math.ceil(bench.sizes.examples / labels)
    brief = [
        dataclasses.replace(row, context=" ".join(row.context.split()[:EXAMPLE_WORDS]))
        for row in texts.examples
    ]
    shown = choose(brief, plain, count, SEED)
    return plain, compiled(dataclasses.replace(schema, examples=shown), bench.target)


def definition(name: str) -> Schema:
    schema, problems = parse_file(HERE / f"{name}.json")
    assert schema is not None, problems
    return schema


def load_texts(name: str, bench: Bench) -> Texts:
    """The set's parts, fetched where they are missing."""
    if not all(part_file(name, part).is_file() for part in PARTS):
        write_parts(name, SETS[name])
    artifact, problems = compile_schema(definition(name), bench.target)
    assert artifact is not None, problems
    parts = []
    for part, count in (("fit", bench.sizes.fit), ("judge", bench.sizes.judge), ("train", None)):
        rows, problems = read_rows(part_file(name, part), artifact)
        assert not problems, problems
        parts.append(rows[:count])
    return Texts(*parts)


def measured(artifact: Artifact, rows: Sequence[Row], bench: Bench, written: bool = False) -> Measured:
    """All rules on every row, the content-free texts, and with `written` the model's own JSON."""
    contexts = [row.context for row in rows]
    scored = fitting(measure(artifact, contexts, bench.opening, bench.kept, watch, "texts"))
    empty = measure(artifact, CONTENT_FREE, bench.opening, bench.kept, watch, "texts without content")
    own = write(artifact, contexts, bench.opening, bench.kept, watch) if written else None
    return tabulate(
        artifact,
        rows,
        scored,
        fitting(empty),
        own,
        data="",
        weights=bench.opening.weights,
    )


def fitting(found: Sequence[Scored | TooLong]) -> list[Scored]:
    """Every text of these sets fits the model's window."""
    scored = [one for one in found if isinstance(one, Scored)]
    assert len(scored) == len(found)
    return scored


def chosen_fit(table: FieldTable, group: Ints, held: int, scoring: str) -> Selection:
    """What is fitted on the first `held` rows, and which of it is chosen on them."""
    scores = table.log_scores[scoring][:held]
    return select(
        scores, table.expected[:held], group[:held], table.temperature, table.prior.get(scoring), SEED
    )


def judged(table: FieldTable, group: Ints, selection: Selection, held: int, count: int) -> dict[str, Judged]:
    """Every method on `count` rows behind those held in."""
    rows = slice(held, held + count)
    inside = np.arange(len(table.row)) < held
    found = answers("joint", table, inside, selection)
    _, text = np.unique(group[rows], return_inverse=True)
    weights = draw(int(text.max()) + 1, SEED)
    return {
        name: judge(
            Answers(one.predicted[:count], None if one.log_prob is None else one.log_prob[:count]),
            table.expected[rows],
            text,
            weights,
            choices=len(table.labels),
            positive=None,
            seed=SEED,
        )
        for name, one in found.items()
    }


def evaluate(name: str, bench: Bench) -> Table:
    """Measure and judge one set."""
    print(f"{name}", file=sys.stderr)
    sizes, texts = bench.sizes, load_texts(name, bench)
    plain, shown = artifacts(name, bench, texts)
    whole = measured(plain, [*texts.fit, *texts.judge], bench)
    slow = measured(plain, texts.judge[: sizes.slow], bench, written=True)
    taught = measured(shown, texts.judge[: sizes.slow], bench)
    (table,), (own,), (worked,) = whole.tables, slow.tables, taught.tables
    selection = chosen_fit(table, whole.group, sizes.fit, "joint")
    everything = judged(table, whole.group, selection, sizes.fit, sizes.judge)
    few = judged(table, whole.group, selection, sizes.fit, sizes.slow)
    few[WRITTEN] = judged(own, slow.group, selection, 0, sizes.slow)[WRITTEN]
    few[EXAMPLES] = judged(worked, taught.group, selection, 0, sizes.slow)["joint"]
    times = timed(name, plain, shown, texts.judge[: sizes.timed], bench)

    def mass(found: FieldTable, rule: str, held: int = sizes.fit) -> float:
        return float(np.median(found.legal_mass[rule][held:]))

    def line(method: str, one: Judged, legal: float | None, ms: float | None) -> Line:
        return Line(method, one.figures, legal, ms)

    fitted = f"joint+{CHOSEN}"
    shots = len(shown.examples)
    return Table(
        name=name,
        lines=(
            line("majority", everything[MAJORITY], None, None),
            line("own JSON, llguidance", few[WRITTEN], None, times["written"]),
            line("`trie`", everything["trie"], mass(table, "trie"), times["trie"]),
            line("`joint`", everything["joint"], mass(table, "joint"), times["joint"]),
            line("`joint` + prior", everything["joint+prior"], mass(table, "joint"), times["joint"]),
            line("`joint` + fit", everything[fitted], mass(table, "joint"), times["joint"]),
            line(f"`joint`, {shots} examples", few[EXAMPLES], mass(worked, "joint", 0), times[EXAMPLES]),
        ),
        chosen=selection.chosen,
        examples=shots,
        head_tokens=(len(plain.prompt.head), len(shown.prompt.head)),
        tests=tuple(
            test
            for test in compare({name: few}, {}, [(fitted, WRITTEN), ("joint", WRITTEN), (EXAMPLES, "joint")])
            if test.figure == "accuracy"
        ),
        sizes=sizes,
    )


def timed(name: str, plain: Artifact, shown: Artifact, rows: Sequence[Row], bench: Bench) -> dict[str, float]:
    """Median milliseconds per text of each way to answer, all of them in turn.

    Neighbours in a turn answer different texts, or one would find the other's text computed already.
    """
    opening = bench.opening
    key = key_of("times in turn", __version__, plain.digest, shown.digest, opening.weights, len(rows))
    record = bench.kept.get(key)
    if record is None:
        ways: dict[str, Callable[[str], object]] = {
            "written": opening.writer(plain).write,
            "trie": lambda text: opening.engine(plain).run(text, scoring="trie"),
            "joint": lambda text: opening.engine(plain).run(text, scoring="joint"),
            EXAMPLES: lambda text: opening.engine(shown).run(text, scoring="joint"),
        }
        for answer in ways.values():
            answer(rows[0].context)
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for done in range(len(rows)):
            watch("times", done, len(rows))
            for place, (way, answer) in enumerate(ways.items()):
                text = rows[(done + place * len(rows) // len(ways)) % len(rows)].context
                started = perf_counter()
                answer(text)
                taken[way].append((perf_counter() - started) * 1000)
        watch("times", len(rows), len(rows))
        record = {"ms": {way: statistics.median(ms) for way, ms in taken.items()}}
        bench.kept.add(key, record)
    return {way: float(ms) for way, ms in record["ms"].items()}


def markdown(table: Table) -> Iterator[str]:
    """One set's table and what was tested on it."""
    yield f"**{TITLES[table.name]}**"
    yield ""
    yield "| method | texts | accuracy | ECE | log loss | legal mass | ms |"
    yield "|---|---|---|---|---|---|---|"
    for line in table.lines:
        figures = line.figures
        span = figures.intervals["accuracy"]
        cells = [
            line.method,
            str(figures.rows),
            share(figures.accuracy) + (f" ({share(span[0])} to {share(span[1])})" if span else ""),
            ece(figures),
            "" if figures.log_loss is None else f"{figures.log_loss:.2f}",
            "" if line.mass is None else share(line.mass),
            "" if line.ms is None else f"{line.ms:.0f}",
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    words = {
        f"joint+{CHOSEN}": "`joint` + fit",
        "joint": "`joint`",
        WRITTEN: "own JSON",
        EXAMPLES: "examples",
    }
    for test in table.tests:
        between = f" ({test.interval[0]:+.3f} to {test.interval[1]:+.3f})" if test.interval else ""
        yield (
            f"- {words[test.first]} against {words[test.second]} on {table.sizes.slow} texts: "
            f"{test.difference:+.3f}{between}, McNemar p {p_value(test.p)}, {p_value(test.holm)} after Holm"
        )
    yield (
        f"- chosen on the {table.sizes.fit} fitted texts: {table.chosen}. The head: {table.head_tokens[0]} "
        f"tokens, {table.head_tokens[1]} with {table.examples} examples."
    )
    yield ""


def share(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1) if value < 1 else f"{value:.2f}"


def p_value(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def ece(figures: Figures) -> str:
    """ECE and the band in which a perfectly calibrated model with these confidences would be."""
    if figures.ece is None or figures.ece_band is None:
        return ""
    low, high = figures.ece_band
    inside = "inside" if low <= figures.ece <= high else "outside" if figures.ece > high else "below"
    return f"{share(figures.ece)} ({inside} {share(low)} to {share(high)})"


def main(arguments: Sequence[str]) -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="which sets; all of them by default")
    parser.add_argument("--small", action="store_true", help="a few texts, to see that everything runs")
    parser.add_argument("--out", type=Path, default=cache_dir() / "evaluation" / "table")
    options = parser.parse_args(arguments)
    target, problems = load_target(resolve(DEFAULT, weights=False))
    assert target is not None, problems
    first = compiled(definition(next(iter(SETS))), target)
    with Opening(first) as opening, Kept(options.out / "scores.jsonl") as kept:
        tables = [
            evaluate(name, Bench(target, opening, kept, SMALL if options.small else SIZES.get(name, FULL)))
            for name in options.sets or SETS
        ]
    lines = [f"{os.cpu_count()} cores, smollm2-135m; 95 % intervals; ms are medians.", ""]
    lines += [line for table in tables for line in markdown(table)]
    write_atomic(options.out / "table.md", "\n".join(lines).encode())
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
