"""Compare prompt layouts on labelled texts: `python tools/prompt_accuracy.py PART N [layout...]`.

Every layout answers the same N texts of one half (part `a` or `b`) of two public sets, under `joint`, on the
embedded model. Scores are kept below the cache folder by the digest of the prompt, so a longer or a second
run scores only what is new. Labels are never reordered.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.models import DEFAULT, ModelFiles, resolve
from prompt_trial import (
    CLOSED,
    EACH,
    FENCED,
    LAYOUTS,
    REMIND,
    SHORT,
    bullets,
    instructions,
    quoted,
    whole_answers,
)
from scipy.special import log_softmax

from pcdc.emit import compile_schema
from pcdc.evaluation.fit import fit_bias
from pcdc.evaluation.metrics import accuracy, ece, log_losses, macro_f1, reliability
from pcdc.evaluation.split import FOLDS, folds
from pcdc.parse import parse_file
from pcdc.prompt import DEFAULT_LAYOUT, Layout, load_target
from pcdc.schema import Choice, Field, Schema

ROOT = Path(__file__).resolve().parent.parent / "evaluation"
sys.path.insert(0, str(ROOT))

from fetch import folder, part_file  # noqa: E402

COLUMNS = ("accuracy", "macro-F1", "log loss", "ECE", "mass", "fit: acc", "fit: loss")
PAIRED = ("loss to first", "fit to first")
SETS = ("movie_sentiment", "reuters_r8")
Change = Callable[[Schema], Schema]


@dataclass(frozen=True)
class Trial:
    """A wording for one schema: the layout may depend on it, and the schema itself may be changed first."""

    layout: Callable[[Schema], Layout]
    change: Change = lambda schema: schema


def plain(field: Field) -> str:
    """The question and its whole answers, without what the choices mean."""
    return whole_answers(dataclasses.replace(field, choices=tuple(map(bare, field.choices))))


def bare(choice: Choice) -> Choice:
    return dataclasses.replace(choice, description="")


def bare_keys(field: Field) -> str:
    """No question: the key and its values, as a form to fill in."""
    return f"{quoted(field.name)}: " + " | ".join(c.literals[0] for c in field.choices)


def described_keys(field: Field) -> str:
    """No question: whole answers and what they mean."""
    return whole_answers(field).split("\n", 1)[1]


def keys_in_words(field: Field) -> str:
    """The key explained by its question, then the whole answers."""
    rows = whole_answers(field).split("\n")
    return "\n".join([f"The key {quoted(field.name)} says: {rows[0]}", *rows[1:]])


def meanings_first(field: Field) -> str:
    """What a choice means before the whole answer that says it."""
    rows = [f"{c.description or c.label}: {{{quoted(field.name)}: {c.literals[0]}}}" for c in field.choices]
    return "\n".join([field.description, *rows])


def quoted_answers(field: Field) -> str:
    """Whole answers with every value in quotes, booleans too."""
    rows = [f"{{{quoted(field.name)}: {c.literals[-1]}}} {c.description}".rstrip() for c in field.choices]
    return "\n".join([field.description, *rows])


def with_task(task: str) -> Change:
    return lambda schema: dataclasses.replace(schema, instructions=task)


def same(layout: Layout) -> Trial:
    return Trial(lambda _: layout)


def whole(rule: str, render: Callable[[Field], str] = whole_answers) -> Trial:
    return same(Layout(instructions(render, rule), FENCED, CLOSED))


def question_after(render: Callable[[Field], str], task: str = "") -> Trial:
    """Instructions before the text, the questions behind it: nothing of them is in the head."""

    def layout(schema: Schema) -> Layout:
        asked = "\n\n".join(map(render, schema.fields))
        before = f"{task or schema.instructions or 'Classify the text.'}\n{SHORT}"
        return Layout(lambda _: before, FENCED, f"{CLOSED}\n\n{asked}")

    return Trial(layout)


def as_boolean(quotes: bool, labels: tuple[bool | str, bool | str] = (True, False)) -> Trial:
    """Two-way questions only: is it the first of the two?"""

    def change(schema: Schema) -> Schema:
        (field,) = schema.fields
        first, second = field.choices
        choices = tuple(
            Choice(value, str(value).lower(), choice.description)
            for value, choice in zip(labels, (first, second), strict=True)
        )
        kind: Literal["boolean", "enum"] = "boolean" if labels == (True, False) else "enum"
        asked = Field(
            f"is_{first.label}", kind, f"Is this review of the film {first.label}?", choices, field.location
        )
        return dataclasses.replace(schema, fields=(asked,))

    render = quoted_answers if quotes else whole_answers
    return dataclasses.replace(whole(SHORT, render), change=change)


TRIALS: Mapping[str, Trial] = {
    "default": same(DEFAULT_LAYOUT),
    "without descriptions": whole(SHORT, plain),
    "bare keys": whole(SHORT, bare_keys),
    "bare keys, described": whole(SHORT, described_keys),
    "keys in words": whole(SHORT, keys_in_words),
    "question, key, values": same(LAYOUTS["named-values"]),
    "one line a field": same(LAYOUTS["one-line short"]),
    "labels as a list": whole(SHORT, bullets),
    "one whole answer": same(LAYOUTS["first-whole"]),
    "meanings first": whole(SHORT, meanings_first),
    "rule: each on its own": whole(EACH),
    "rule: one listed value": whole(SHORT),
    "rule: none": whole(""),
    "reminder after": same(Layout(instructions(whole_answers, SHORT), FENCED, REMIND)),
    "question after": question_after(whole_answers),
    "question after, plain": question_after(plain),
    "question after, bare": question_after(bare_keys),
    "task: none of its own": dataclasses.replace(same(DEFAULT_LAYOUT), change=with_task("")),
    "task: read and answer": dataclasses.replace(
        same(DEFAULT_LAYOUT), change=with_task("Read the text and answer the question about it.")
    ),
    "task: expert": dataclasses.replace(
        same(DEFAULT_LAYOUT), change=with_task("You are an expert at sorting texts. Think of the whole text.")
    ),
    "boolean": as_boolean(False),
    "boolean, quoted": as_boolean(True),
    "yes and no": as_boolean(False, ("yes", "no")),
}
TWO_WAY = ("boolean", "boolean, quoted", "yes and no")


@dataclass(frozen=True)
class Scored:
    """What one trial gave on one set: log scores [texts, choices], legal mass and label index per text."""

    scores: np.ndarray
    mass: np.ndarray
    expected: np.ndarray
    head: int


def artifact_of(trial: Trial, name: str, files: ModelFiles) -> Artifact:
    schema, problems = parse_file(ROOT / f"{name}.json")
    assert schema is not None, problems
    schema = trial.change(schema)
    target, problems = load_target(files, trial.layout(schema))
    assert target is not None, problems
    artifact, problems = compile_schema(schema, target)
    assert artifact is not None, problems
    return artifact


def prompt_digest(artifact: Artifact) -> str:
    """What decides a score: the prompt and the choices, not the artifact's format."""
    cut = artifact.prompt
    labels = [[field.name, [candidate.label for candidate in field.candidates]] for field in artifact.fields]
    parts = [cut.head.tolist(), cut.pre, cut.post, cut.tail.tolist(), labels]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def score(artifact: Artifact, name: str, part: str, count: int, model: LoadedModel) -> Scored:
    """Log scores of the first `count` texts of a part; what is on disk already is not scored again."""
    schema, _ = parse_file(ROOT / f"{name}.json")
    assert schema is not None
    labels = [choice.value for choice in schema.fields[0].choices]
    lines = part_file(name, part).read_text(encoding="utf-8").splitlines()[:count]
    rows = [json.loads(line) for line in lines]
    kept = folder() / "prompts" / f"{name}.{part}.{prompt_digest(artifact)}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    if len(done) < len(rows):
        with Engine(artifact, model.share()) as engine, kept.open("a") as file:
            for row in rows[len(done) :]:
                (answer,) = engine.run(row["context"]).answers
                done.append([list(answer.log_scores), answer.legal_mass])
                file.write(json.dumps(done[-1]) + "\n")
    done = done[: len(rows)]
    return Scored(
        scores=np.array([scores for scores, _ in done]),
        mass=np.array([mass for _, mass in done]),
        expected=np.array([labels.index(next(iter(row["expected"].values()))) for row in rows]),
        head=len(artifact.prompt.head),
    )


def main(part: str, count: int, names: list[str]) -> None:
    """Print one row per set and trial."""
    files = resolve(DEFAULT, weights=False)
    with open_model(DEFAULT) as model:
        for name in SETS:
            print(f"\n{name} {part}, {count} texts")
            columns = [f"{column:>10}" for column in COLUMNS] + [f"{column:>16}" for column in PAIRED]
            print(f"{'trial':24}{''.join(columns)}  head", flush=True)
            first = None
            for trial in names or TRIALS:
                if trial in TWO_WAY and name != SETS[0]:
                    continue
                artifact = artifact_of(TRIALS[trial], name, files)
                scored = score(artifact, name, part, count, model)
                first = first or scored
                print(summary(trial, scored, first), flush=True)


def probabilities(scored: Scored) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities as scored, and with temperature and bias fitted on the other folds."""
    fitted = np.empty_like(scored.scores)
    fold = folds(np.arange(len(fitted)), seed=0)
    for number in range(FOLDS):
        here = fold == number
        fit = fit_bias(scored.scores[~here], scored.expected[~here], 1.0, 1.0)
        fitted[here] = fit.log_prob(scored.scores[here])
    return log_softmax(scored.scores, axis=1), fitted


def summary(trial: str, scored: Scored, first: Scored) -> str:
    """Figures of one trial, and its log loss minus that of the first trial on the same texts."""
    expected = scored.expected
    raw, fitted = probabilities(scored)
    answers, correct = raw.argmax(axis=1), raw.argmax(axis=1) == expected
    losses = [log_losses(one, expected) for one in (raw, fitted)]
    gains = [loss - log_losses(one, expected) for loss, one in zip(losses, probabilities(first), strict=True)]
    figures = [
        accuracy(answers, expected),
        macro_f1(answers, expected),
        losses[0].mean(),
        ece(reliability(np.exp(raw.max(axis=1)), correct)),
        float(np.median(scored.mass)),
        accuracy(fitted.argmax(axis=1), expected),
        losses[1].mean(),
    ]
    shown = "".join(f"{figure:10.3f}" for figure in figures)
    error = 1.96 / np.sqrt(len(expected))
    paired = "".join(f"{gain.mean():+9.3f} ±{gain.std() * error:.3f}" for gain in gains)
    return f"{trial:24}{shown}{paired}{scored.head:6}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
