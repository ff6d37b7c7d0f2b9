"""Runs an artifact over texts: every rule from one pass each, the baseline, content-free texts.

Nothing is computed twice: what was measured of a text is kept under the digests of all that decides it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from pcdc_runtime.artifact import RULES, Artifact, CompiledField, Value
from pcdc_runtime.errors import ContextTooLongError

from pcdc import __version__

from .kept import Kept, key_of
from .rows import Row, same_text
from .split import Floats, Ints
from .tables import FieldTable, Measured

if TYPE_CHECKING:
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.result import Result

    from .opening import Opening

CONTENT_FREE = ("", "N/A", "[MASK]", "...")
"""Texts without content; what is answered to them is the prior of Zhao et al. 2021."""
LEAST = 1e-12
"""A prior is never smaller, so that its logarithm is finite."""
MAX_NATS, MAX_MS, MAX_TOKENS = 1e6, 1e12, 2**31
"""What no score, time or text reaches; a record beyond is none."""

T = TypeVar("T")
Watch: TypeAlias = Callable[[str, int, int], None]
"""Told what is done, for how many texts it is, and how many there are, or 0 where that is not known.

What the first call about something counts as done was kept from an earlier run.
"""


@dataclass(frozen=True)
class Scores:
    """One field under one rule: raw log scores in declaration order, and the legal mass."""

    log_scores: tuple[float, ...]
    legal_mass: float


@dataclass(frozen=True)
class Scored:
    """One text: `fields[rule]` in the artifact's order; times are of the whole, in milliseconds."""

    fields: Mapping[str, tuple[Scores, ...]]
    prefill_ms: float
    tree_ms: float
    context_tokens: int


@dataclass(frozen=True)
class Written:
    """What the model wrote itself for one text: a choice per field, -1 for none."""

    choices: tuple[int, ...]
    ms: float


@dataclass(frozen=True)
class TooLong:
    """A text that does not fit the model's window, and by how much."""

    fact: str
    limit: str


def measure(
    artifact: Artifact,
    contexts: Sequence[str],
    opening: Opening,
    kept: Kept,
    watch: Watch,
    what: str,
    rules: Sequence[str] = RULES,
) -> list[Scored | TooLong]:
    """The scores of every text under every rule, in the order of the texts."""

    def compute(context: str) -> Mapping[str, Any]:
        try:
            return _scored_record(opening.engine(artifact), context, rules)
        except ContextTooLongError as error:
            return {"too_long": [error.fact, error.limit]}

    def load(record: Mapping[str, Any]) -> Scored | TooLong:
        if "too_long" in record:
            fact, limit = record["too_long"]
            return TooLong(_text(fact), _text(limit))
        return _scored(record, artifact, rules)

    options = ("scores", *rules)
    return _measured(artifact, contexts, opening, kept, options, compute, load, watch, what)


def write(
    artifact: Artifact, contexts: Sequence[str], opening: Opening, kept: Kept, watch: Watch
) -> list[Written]:
    """What the model writes itself for every text under llguidance; all of them fit its window."""

    def compute(context: str) -> Mapping[str, Any]:
        written = opening.writer(artifact).write(context)
        values = written.values or {}
        choices = [position(f, values[f.name]) if f.name in values else -1 for f in artifact.fields]
        return {"choices": choices, "ms": written.prefill_ms + written.write_ms}

    def load(record: Mapping[str, Any]) -> Written:
        pairs = zip(record["choices"], artifact.fields, strict=True)
        choices = tuple(_whole(choice, -1, len(f.candidates) - 1) for choice, f in pairs)
        return Written(choices, _number(record["ms"], 0, MAX_MS))

    return _measured(
        artifact, contexts, opening, kept, ("written",), compute, load, watch, "the model's own JSON"
    )


def position(field: CompiledField, value: Value) -> int:
    """The index of the choice with this value and JSON type; -1 where there is none."""
    same = (i for i, c in enumerate(field.candidates) if type(c.value) is type(value) and c.value == value)
    return next(same, -1)


def tabulate(
    artifact: Artifact,
    rows: Sequence[Row],
    scored: Sequence[Scored],
    content_free: Sequence[Scored],
    written: Sequence[Written] | None,
    *,
    data: str,
    weights: str,
) -> Measured:
    """Measurements as tables, one per field that has labels; `rows` and `scored` belong together."""
    texts = [same_text(row.context) for row in rows]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    tables = [
        _table(artifact, index, rows, scored, content_free, written) for index in range(len(artifact.fields))
    ]
    return Measured(
        schema=artifact.name,
        model=artifact.model,
        artifact=artifact.digest,
        scoring=artifact.scoring,
        data=data,
        weights=weights,
        texts=len(rows),
        group=_ints([numbers[text] for text in texts]),
        tables=tuple(table for table in tables if len(table.row)),
        prefill_ms=_floats([s.prefill_ms for s in scored]),
        tree_ms=_floats([s.tree_ms for s in scored]),
        context_tokens=_ints([s.context_tokens for s in scored]),
        written_ms=None if written is None else _floats([w.ms for w in written]),
    )


def _table(
    artifact: Artifact,
    index: int,
    rows: Sequence[Row],
    scored: Sequence[Scored],
    content_free: Sequence[Scored],
    written: Sequence[Written] | None,
) -> FieldTable:
    field = artifact.fields[index]
    labelled = [n for n, row in enumerate(rows) if field.name in row.expected]
    return FieldTable(
        name=field.name,
        type=field.type,
        labels=tuple(c.label for c in field.candidates),
        temperature=artifact.temperature,
        row=_ints(labelled),
        expected=_ints([rows[n].expected[field.name] for n in labelled]),
        log_scores={r: _floats([scored[n].fields[r][index].log_scores for n in labelled]) for r in RULES},
        legal_mass={r: _floats([scored[n].fields[r][index].legal_mass for n in labelled]) for r in RULES},
        prior={
            r: _prior([s.fields[r][index].log_scores for s in content_free]) for r in RULES if content_free
        },
        written=None if written is None else _ints([written[n].choices[index] for n in labelled]),
        tokens=tuple(len(c.ids) for c in field.candidates),
    )


def _prior(log_scores: Sequence[Sequence[float]]) -> Floats:
    scores = _floats(log_scores)
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    mean = (weight / weight.sum(axis=1, keepdims=True)).mean(axis=0)
    prior: Floats = np.log(np.maximum(mean, LEAST))
    return prior


def _measured(
    artifact: Artifact,
    contexts: Sequence[str],
    opening: Opening,
    kept: Kept,
    options: Sequence[str],
    compute: Callable[[str], Mapping[str, Any]],
    load: Callable[[Mapping[str, Any]], T],
    watch: Watch,
    what: str,
) -> list[T]:
    keys = [key_of(__version__, artifact.digest, opening.weights, context, *options) for context in contexts]
    known = {key: one for key in keys if (one := _loaded(kept.get(key), load)) is not None}
    done = sum(key in known for key in keys)
    for key, context in zip(keys, contexts, strict=True):
        if key not in known:
            watch(what, done, len(contexts))
            record = compute(context)
            known[key] = load(record)
            kept.add(key, record)
            done += keys.count(key)
    watch(what, len(contexts), len(contexts))
    return [known[key] for key in keys]


def _loaded(record: Mapping[str, Any] | None, load: Callable[[Mapping[str, Any]], T]) -> T | None:
    """A record's value; None for one that is none, such as one that somebody edited."""
    if record is None:
        return None
    try:
        return load(record)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def _scored_record(engine: Engine, context: str, rules: Sequence[str]) -> Mapping[str, Any]:
    results = engine.compare(context, rules)
    one = results[rules[0]]
    return {
        "prefill_ms": one.prefill_ms,
        "tree_ms": one.suffix_eval_ms,
        "context_tokens": one.context_tokens,
        "fields": {rule: _field_records(result) for rule, result in results.items()},
    }


def _field_records(result: Result) -> list[list[Any]]:
    """Per field its log scores, None for probability zero, and its legal mass."""
    return [
        [[s if math.isfinite(s) else None for s in answer.log_scores], answer.legal_mass]
        for answer in result.answers
    ]


def _scored(record: Mapping[str, Any], artifact: Artifact, rules: Sequence[str]) -> Scored:
    """Raises KeyError, TypeError, ValueError where the record is not of this artifact."""
    fields = dict[str, tuple[Scores, ...]]()
    for rule in rules:
        pairs = zip(record["fields"][rule], artifact.fields, strict=True)
        fields[rule] = tuple(_scores(values, mass, len(f.candidates)) for (values, mass), f in pairs)
    return Scored(
        fields,
        prefill_ms=_number(record["prefill_ms"], 0, MAX_MS),
        tree_ms=_number(record["tree_ms"], 0, MAX_MS),
        context_tokens=_whole(record["context_tokens"], 0, MAX_TOKENS),
    )


def _scores(values: Sequence[Any], mass: Any, choices: int) -> Scores:
    scores = tuple(-math.inf if v is None else _number(v, -MAX_NATS, MAX_NATS) for v in values)
    if len(scores) != choices or not any(map(math.isfinite, scores)):
        raise ValueError
    return Scores(scores, _number(mass, 0, 1))


def _number(value: Any, lowest: float, highest: float) -> float:
    """Raises TypeError, ValueError for anything but a JSON number from `lowest` to `highest`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    # A whole number can be larger than any float: it is compared before it becomes one.
    if not lowest <= value <= highest:
        raise ValueError
    return float(value)


def _whole(value: Any, lowest: int, highest: int) -> int:
    if type(value) is not int:
        raise TypeError
    return int(_number(value, lowest, highest))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _floats(values: Sequence[Any]) -> Floats:
    return np.array(values, dtype=np.float64)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
