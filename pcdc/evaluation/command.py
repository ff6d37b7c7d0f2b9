"""What `pcdc eval` does: from an artifact file and a data file to a report and a calibration beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pcdc_runtime import calibration as calibration_file
from pcdc_runtime import codec
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import CalibrationError, ExtraMissingError
from pcdc_runtime.storage import sweep, write_atomic

from pcdc import __version__
from pcdc.diagnostics import Diagnostic, Location, SchemaError, finding, from_error, has_errors
from pcdc.prompt import Target
from pcdc.schema import Example

from .deployed import Weights, beside, deployed
from .evaluation import Evaluation, calibration_of, evaluate
from .kept import Kept, ReportError, key_of, see_outputs, unwritable
from .measure import CONTENT_FREE, Scored, TooLong, Watch, Written, measure, tabulate, write
from .opening import Opening
from .permute import permute
from .propose import choose, try_examples
from .quoting import quote, without_examples
from .recompile import target_of
from .report import html
from .rows import MAX_FINDINGS, Row, read_data, same_text, unlabelled

TOLD = 20
KEPT, JSON_REPORT, HTML_REPORT = "scores.jsonl", "report.json", "report.html"

Say = Callable[[Sequence[Diagnostic]], None]
"""Told findings that end nothing, as they come."""


class DataError(SchemaError):
    """A data file was refused; `diagnostics` holds its first mistakes."""


@dataclass(frozen=True)
class Options:
    """What was asked for; `out` None is a folder named after the artifact, `limit` None all texts.

    `calibration` judges the one beside the artifact, as it is in use; `texts` lets the report quote some.
    """

    artifact: Path
    data: Path
    out: Path | None = None
    model: str | None = None
    limit: int | None = None
    seed: int = 0
    fit: bool = False
    precision: float = 0.95
    confidence: float = 0.95
    baseline: bool = False
    permute: int = 0
    examples_from: Path | None = None
    k: int = 8
    calibration: bool = True
    texts: bool = True

    @property
    def folder(self) -> Path:
        """Where everything is written but the calibration."""
        return self.out or Path("report") / self.artifact.stem

    @property
    def outputs(self) -> tuple[Path, ...]:
        """Every file that is written, the calibration last and only with `fit`."""
        names = (KEPT, JSON_REPORT, HTML_REPORT)
        calibration = (calibration_file.calibration_path(self.artifact),) if self.fit else ()
        return (*(self.folder / name for name in names), *calibration)

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Every file that is read."""
        return (self.artifact, self.data, *((self.examples_from,) if self.examples_from else ()))


@dataclass(frozen=True)
class Outcome:
    """What an evaluation gave: the report as JSON, the files that hold it, and why others could not.

    `replaced` are those of the files that were there before.
    """

    report: dict[str, Any]
    files: tuple[Path, ...]
    replaced: tuple[Path, ...]
    problems: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class _Data:
    """The rows to measure; `labelled` counts all with a label, `shown` those that are examples themselves."""

    rows: tuple[Row, ...]
    labelled: int
    shown: int
    sha256: str


@dataclass(frozen=True)
class _Trial:
    """Examples to try, chosen from `texts` texts; `shared` more were in the data as well."""

    examples: tuple[Example, ...]
    texts: int
    shared: int


@dataclass(frozen=True)
class _Run:
    """What the parts of one evaluation share."""

    options: Options
    artifact: Artifact
    opening: Opening
    kept: Kept
    watch: Watch


def run(options: Options, say: Say, watch: Watch) -> Outcome:
    """Measure, judge and write. Raises DataError, ReportError, and what loading artifact and model raises."""
    see_outputs(options.folder, options.outputs, options.inputs)
    for path in (*options.outputs, calibration_file.calibration_path(options.artifact)):
        sweep(path.parent, escape(path.name))
    artifact = codec.read(options.artifact)
    if options.baseline:
        _need("llguidance")
    data = _data(options, artifact, say, watch)
    trial = _trial(options, artifact, data.rows, say, watch)
    target = target_of(artifact, options.model) if options.permute or trial else None
    calibration = beside(options.artifact) if options.calibration and not options.fit else None
    say(unlabelled(data.rows, artifact, options.data))
    watch("reading the model's files", 0, 0)
    with Opening(artifact, options.model) as opening, Kept(options.folder / KEPT) as kept:
        one = _Run(options, artifact, opening, kept, watch)
        in_use = None
        if calibration is not None:
            weights = Weights(options.model or artifact.model, opening.weights)
            in_use = deployed(options.artifact, artifact, weights, calibration)
            say(in_use.cautions(str(options.data), data.sha256))
        rows, scored, skipped = _scored(one, data.rows)
        say([_too_long(options.data, row, why) for row, why in skipped])
        if not rows:
            fact, limit = "has no text that fits the model's window", "shorten them, or use another model"
            raise DataError([finding("PCDC723", None, str(options.data), fact, "", limit)])
        content_free = measure(artifact, CONTENT_FREE, opening, kept, watch, "texts without content")
        measured = tabulate(
            artifact,
            rows,
            scored,
            [s for s in content_free if isinstance(s, Scored)],
            _written(one, rows) if options.baseline else None,
            data=data.sha256,
            weights=opening.weights,
        )
        more = _variants(one, rows, target, trial)
        arithmetic = _arithmetic(one)
    watch("judging", 0, 0)
    evaluation = evaluate(
        measured,
        seed=options.seed,
        fit=options.fit,
        precision=options.precision,
        confidence=options.confidence,
        deployed=in_use,
    )
    run = (
        _provenance(options, data, len(rows), skipped)
        | arithmetic
        | {
            "calibration": None if in_use is None else in_use.to_dict(),
            "fitted_on_this_data": in_use is not None and in_use.knows(data.sha256),
        }
    )
    report = evaluation.to_dict() | {"run": run} | more
    quote(report, rows, texts=options.texts)
    watch("writing the report", 0, 0)
    return _outcome(options, artifact, evaluation, report)


def _arithmetic(one: _Run) -> dict[str, str]:
    """With what the scores were computed, kept beside them: a finished run has no model to ask."""
    key = key_of("arithmetic", __version__, one.opening.weights)
    before = one.kept.get(key) or {}
    found = {name: str(before.get(name, "")) for name in ("device", "dtype")}
    now = one.opening.arithmetic
    if now is not None and now != tuple(found.values()):
        found = dict(zip(found, now, strict=True))
        one.kept.add(key, found)
    return {"pcdc": __version__, **found}


def _data(options: Options, artifact: Artifact, say: Say, watch: Watch) -> _Data:
    """The rows of the data file, without those whose text the artifact shows as an example, drawn by seed."""
    rows, digest = _rows(options.data, artifact, say, watch)
    shown = {same_text(example.context) for example in artifact.examples}
    unseen = [row for row in rows if same_text(row.context) not in shown]
    if not unseen:
        fact = "has only texts that are the artifact's examples"
        raise DataError([finding("PCDC723", None, str(options.data), fact, "", "measure it on other texts")])
    drawn = np.random.default_rng([options.seed, 10]).permutation(len(unseen))[: options.limit]
    chosen = tuple(unseen[n] for n in sorted(drawn.tolist()))
    return _Data(chosen, len(rows), len(rows) - len(unseen), digest)


def _rows(path: Path, artifact: Artifact, say: Say, watch: Watch) -> tuple[tuple[Row, ...], str]:
    """The rows of a file, and the sha256 of the bytes that they were read from."""
    watch(f"reading {path.name}", 0, 0)
    data, diagnostics = read_data(path, artifact)
    if has_errors(diagnostics):
        raise DataError(capped(diagnostics))
    say(diagnostics)
    return data.rows, data.sha256


def capped(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The first findings, and in place of the others how many they are."""
    told, rest = list(diagnostics[:TOLD]), diagnostics[TOLD:]
    if rest:
        first = rest[0]
        subject = first.location.path if first.location else first.subject
        many = f"{len(rest)} more mistakes from here on"
        fact = (
            f"has {many}" if len(diagnostics) < MAX_FINDINGS else f"has at least {many}; the rest is not read"
        )
        limit = f"the first {TOLD} are named"
        told.append(finding("PCDC720", first.location, subject, fact, limit))
    return told


def _trial(
    options: Options, artifact: Artifact, rows: Sequence[Row], say: Say, watch: Watch
) -> _Trial | None:
    """Examples from the file of training texts, none of which is a text of the data."""
    if options.examples_from is None:
        return None
    train, _ = _rows(options.examples_from, artifact, say, watch)
    measured = {same_text(row.context) for row in rows}
    apart = [row for row in train if same_text(row.context) not in measured]
    if not apart:
        fact = "has only texts that are in the data as well"
        help = "examples are tried on other texts than they come from; give two files"
        raise DataError([finding("PCDC723", None, str(options.examples_from), fact, "", help)])
    return _Trial(choose(apart, artifact, options.k, options.seed), len(apart), len(train) - len(apart))


def _scored(one: _Run, rows: Sequence[Row]) -> tuple[list[Row], list[Scored], list[tuple[Row, TooLong]]]:
    scored = measure(one.artifact, [row.context for row in rows], one.opening, one.kept, one.watch, "data")
    pairs = list(zip(rows, scored, strict=True))
    return (
        [row for row, found in pairs if isinstance(found, Scored)],
        [found for found in scored if isinstance(found, Scored)],
        [(row, found) for row, found in pairs if isinstance(found, TooLong)],
    )


def _too_long(path: Path, row: Row, why: TooLong) -> Diagnostic:
    fact, help = f"{why.fact}; it is skipped", "shorten it, or use a model with a longer window"
    return finding("PCDC725", Location(str(path), row.line, 1), "context", fact, why.limit, help)


def _written(one: _Run, rows: Sequence[Row]) -> list[Written]:
    contexts = [row.context for row in rows]
    # What the model writes is shorter than the deepest path that was scored, which did fit.
    return write(one.artifact, contexts, one.opening, one.kept, one.watch)


def _variants(one: _Run, rows: Sequence[Row], target: Target | None, trial: _Trial | None) -> dict[str, Any]:
    found = dict[str, Any]()
    if target is not None and one.options.permute:
        permutation = permute(
            one.artifact,
            target,
            rows,
            one.opening,
            one.kept,
            one.watch,
            orders=one.options.permute,
            seed=one.options.seed,
        )
        found["permutation"] = permutation.to_dict()
    if target is not None and trial is not None:
        proposal = try_examples(
            one.artifact,
            target,
            trial.examples,
            rows,
            one.opening,
            one.kept,
            one.watch,
            seed=one.options.seed,
        )
        found["examples"] = proposal.to_dict() | {
            "from": str(one.options.examples_from),
            "from_texts": trial.texts,
            "shared_texts": trial.shared,
        }
    return found


def _provenance(
    options: Options, data: _Data, measured: int, skipped: Sequence[tuple[Row, TooLong]]
) -> dict[str, Any]:
    return {
        "artifact_file": str(options.artifact),
        "data_file": str(options.data),
        "labelled_texts": data.labelled,
        "drawn_texts": len(data.rows),
        "measured_texts": measured,
        "shown_as_examples": data.shown,
        "skipped": [{"line": row.line, "fact": why.fact, "limit": why.limit} for row, why in skipped],
        "limit": options.limit,
    }


def _outcome(options: Options, artifact: Artifact, evaluation: Evaluation, report: dict[str, Any]) -> Outcome:
    """Each file is written where it can be: what was measured is not lost with one of them."""
    stored = report if options.texts else without_examples(report)
    text = json.dumps(stored, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    contents: dict[str, Callable[[], bytes]] = {
        JSON_REPORT: lambda: text.encode("utf-8", "replace"),
        HTML_REPORT: lambda: html(stored).encode("utf-8", "replace"),
    }

    def calibration() -> bytes:
        return calibration_file.dumps(calibration_of(evaluation, artifact))

    there = tuple(path for path in options.outputs[1:] if path.exists())
    written, problems = list[Path](), list[Diagnostic]()
    for path in options.outputs[1:]:
        try:
            write_atomic(path, contents.get(path.name, calibration)())
        except OSError as error:
            problems.append(from_error(unwritable(path, error)))
        except CalibrationError as error:
            fact, help = (
                f"is not written: it {error.fact}",
                "the report is; a calibration that was there stays",
            )
            problems.append(from_error(ReportError(str(path), fact, error.limit, help)))
        else:
            written.append(path)
    return Outcome(report, tuple(written), there, tuple(problems))


def _need(module: str) -> None:
    if find_spec(module) is None:
        raise ExtraMissingError(
            module, "is not installed", "the baseline needs it", "install it with `pip install 'pcdc[eval]'`"
        )
