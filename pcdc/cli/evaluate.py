"""`pcdc eval`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from pcdc_runtime.errors import ExtraMissingError

from .common import (
    ArtifactPath,
    Model,
    app,
    as_path,
    ends_cleanly,
    finish,
    on_terminal,
    print_json,
    put,
    tell,
    to_stderr,
)

NOTE_SECONDS = 20.0
EXAMPLES = 8
MAX_SEED = 2**53 - 1
"""What every reader of JSON reads as the same number."""

_Watch: TypeAlias = Callable[[str, int, int], None]


def _number(given: float) -> float:
    # Between two limits as no number is, it would pass both.
    if math.isnan(given):
        raise typer.BadParameter("nan is no number")
    return given


@app.command("eval")
def evaluate(
    artifact: ArtifactPath,
    data: Annotated[
        Path, typer.Argument(parser=as_path, metavar="DATA", help="Labelled texts, .jsonl, .csv or .tsv.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=as_path,
            metavar="PATH",
            help="Folder of the report.",
            show_default="report/NAME",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Measure so many texts, drawn by the seed.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MAX_SEED, help="Of every draw: texts, splits, intervals.")
    ] = 0,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit a calibration and write it beside the artifact.")
    ] = False,
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            min=0.5,
            max=0.9999,
            callback=_number,
            help="What answers above a threshold reach.",
        ),
    ] = 0.95,
    confidence: Annotated[
        float,
        typer.Option("--confidence", min=0.5, max=0.9999, callback=_number, help="Of that claim."),
    ] = 0.95,
    baseline: Annotated[
        bool,
        typer.Option("--baseline", help="Let the model write the JSON itself as well, under llguidance."),
    ] = False,
    permute: Annotated[
        int,
        typer.Option(
            "--permute", min=0, max=100, help="Ask again with choices and fields in N other orders."
        ),
    ] = 0,
    examples_from: Annotated[
        Path | None,
        typer.Option(
            "--examples-from",
            parser=as_path,
            metavar="TRAIN",
            help="Choose worked examples from here, and try them.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", min=1, max=100, help="How many examples.", show_default=str(EXAMPLES)),
    ] = None,
    no_calibration: Annotated[
        bool, typer.Option("--no-calibration", help="Leave the calibration beside the artifact unused.")
    ] = False,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Quote no texts of wrong answers in the report.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    model: Model = None,
) -> None:
    """Measure an artifact on labelled texts; with --fit also calibrate it and find thresholds.

    Examples:

        pcdc eval build/support.smollm2-135m.pcdc labelled.jsonl

        pcdc eval build/support.smollm2-135m.pcdc labelled.csv --fit --precision 0.97

        pcdc eval build/support.smollm2-135m.pcdc test.jsonl --examples-from train.jsonl --k 6 --limit 300
    """
    if k is not None and examples_from is None:
        raise typer.BadParameter("it is how many examples to choose from --examples-from", param_hint="--k")
    try:
        from pcdc.evaluation.command import KEPT, Options, run
        from pcdc.evaluation.summary import summary
    except ImportError as error:
        if not error.name or error.name.startswith("pcdc"):
            raise
        raise ExtraMissingError(
            error.name,
            f"cannot be imported ({error})",
            "an evaluation needs it",
            "install it with `pip install 'pcdc[eval]'`",
        ) from error
    options = Options(
        artifact=artifact,
        data=data,
        out=out,
        model=model,
        limit=limit,
        seed=seed,
        fit=fit,
        precision=precision,
        confidence=confidence,
        baseline=baseline,
        permute=permute,
        examples_from=examples_from,
        k=EXAMPLES if k is None else k,
        calibration=not no_calibration,
        texts=not no_texts,
    )
    with ends_cleanly(), _progress(options.folder / KEPT) as watch:
        try:
            outcome = run(options, tell, watch)
        except KeyboardInterrupt:
            kept = options.folder / KEPT
            if kept.exists():
                to_stderr(f"note: what was measured is in {kept}; the same command goes on from there")
            raise
    if as_json:
        print_json(outcome.report)
    else:
        put(summary(outcome.report, terminal=on_terminal(sys.stdout)), end="")
    for file in outcome.files:
        earlier = " (in place of an earlier one)" if file in outcome.replaced else ""
        to_stderr(f"written: {file}{earlier}")
    finish(outcome.problems)


class _Notes:
    """Progress for a log: one line when something begins and every NOTE_SECONDS after."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._what, self._began, self._first, self._told = "", 0.0, 0, 0.0

    def watch(self, what: str, done: int, of: int) -> None:
        """Told before each text and at the end; `of` is 0 where it is not known."""
        now = time.monotonic()
        if self._what != what:
            self._what, self._began, self._first, self._told = what, now, done, now
            to_stderr(f"note: {_begins(what, done, of, self._kept)}")
        elif now - self._told >= NOTE_SECONDS:
            self._told = now
            each = (now - self._began) / max(1, done - self._first)
            to_stderr(f"note: {what}: {done} of {of} texts, {_about(each * (of - done))} left")


def _begins(what: str, done: int, of: int, kept: Path) -> str:
    """What is said first; what is done then was kept from an earlier run."""
    if not of:
        return what
    if done == of:
        return f"{what}: all {of} texts taken from {kept}, nothing to compute"
    return f"{what}: {done} of {of} texts" + (f" taken from {kept}" if done else "")


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 100 else f"about {seconds / 60:.0f} min"


@contextmanager
def _progress(kept: Path) -> Iterator[_Watch]:
    """A bar on a terminal's stderr, else notes; `kept` is where what was measured before is."""
    if not on_terminal(sys.stderr):
        yield _Notes(kept).watch
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = dict[str, TaskID]()

        def watch(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for task in bars.tasks:
                    # What had no known end has ended when something else begins.
                    bars.update(task.id, total=task.total or 1, completed=task.total or 1)
                tasks[what] = bars.add_task(what, total=of or None)
                if done:
                    to_stderr(f"note: {_begins(what, done, of, kept)}")
            if of:
                bars.update(tasks[what], completed=done, total=of)

        yield watch
