"""From one tree pass to scores: MLX reads the picks of a plan, NumPy in float64 does the rest.

Never more than CHUNK_BYTES of logits are alive at once, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .artifact import CompiledField, Ints, Value
from .correction import Correction
from .errors import ScoreError
from .exponential import in_numpy, logsumexp
from .fast_mlx import mx
from .plan import Plan, Sums
from .result import FieldResult

if TYPE_CHECKING:
    from .model import KVSequence

Floats: TypeAlias = NDArray[np.float64]

CHUNK_BYTES = 64 * 1024 * 1024
# There, memory of more than 32 MiB goes back to the system each time, and getting it anew costs a fifth.
CHUNK_BYTES_X86 = 16 * 1024 * 1024
BLOCK = 512

DRIFT_BAND = {"float32": 1e-3, "float16": 0.03, "bfloat16": 0.25}
"""Nats by which two whole-choice scores can move between equivalent ways to run the same model.

Two steps of the type's spacing at a logit of 16, except float32: ten times what was measured between a
tree pass and a pass per field.
"""


@dataclass(frozen=True, eq=False)
class Reads:
    """What a pass read: `pick` raw logits (END picks: their log-sum-exp), `vocabulary` per row or None."""

    pick: Floats
    vocabulary: Floats | None


@dataclass(frozen=True, eq=False)
class Dropped:
    """What pruning left out of a field's scores.

    `most` are the log scores that the choices have at most, `choices` counts those with a form that was not
    evaluated, `bound` limits what their left out forms have of the probability, `mass` of the legal mass.
    """

    most: Floats
    choices: int
    bound: float
    mass: float


@dataclass(frozen=True, eq=False)
class FieldScores:
    """One field's log scores, one per choice in declaration order, and its legal mass or None.

    Both are of the evaluated forms alone; `dropped` is None where that is all of them.
    """

    log_score: Floats
    legal_mass: float | None
    dropped: Dropped | None = None


@dataclass(frozen=True, eq=False)
class Weighing:
    """How the log scores of a field become weights: divided by the temperature, then `bias` nats added."""

    temperature: float
    bias: Floats

    @classmethod
    def of(cls, choices: int, temperature: float, correction: Correction | str) -> Weighing:
        """That of a correction, or of a temperature where there is none."""
        if not isinstance(correction, Correction):
            return cls(temperature, np.zeros(choices))
        return cls(correction.temperature, np.array(correction.bias or [0.0] * choices))

    def level(self, log_score: Floats) -> Floats:
        """The scores with their biases, in the unit of raw scores: what the choices are ordered by."""
        return log_score + self.temperature * self.bias


def drift_band(dtype: str) -> float:
    """Below which margin, in nats, a winner is a near tie; an unknown type gets the widest band."""
    return DRIFT_BAND.get(dtype.rpartition(".")[2], max(DRIFT_BAND.values()))


def read(sequence: KVSequence, hidden: Any, plan: Plan) -> Reads:
    """Take a plan's picks from the hidden rows of its nodes; call on the model's owner thread."""
    if not len(plan.row):
        return Reads(np.empty(0), np.empty(0) if plan.reads_vocabulary else None)
    # A shape is known before anything is computed.
    width = sequence.logits(hidden, plan.row[:1].tolist()).shape[1]
    step = rows_at_once(width)
    wanted = plan.wanted
    pick = np.empty(len(plan.pick_row))
    vocabulary = np.empty(len(plan.row)) if plan.reads_vocabulary else None
    edges = len(plan.edge_token)
    for start in range(0, len(plan.row), step):
        stop = min(start + step, len(plan.row))
        logits = sequence.logits(hidden, plan.row[start:stop].tolist(), wanted)
        parts: list[tuple[Floats, slice, mx.array]] = []
        if vocabulary is not None:
            vocabulary[start:stop] = row_logsumexp(logits)
        here = _within(plan, 0, edges, start, stop)
        rows = mx.array(plan.pick_row[here] - start)
        parts.append((pick, here, logits[rows, _columns(wanted, plan.edge_token[here])]))
        for end in plan.ends:
            here = _within(plan, end.first, end.last, start, stop)
            if here.start < here.stop:
                rows = mx.array(plan.pick_row[here] - start)
                members = logits[rows[:, None], _columns(wanted, end.ids)[None, :]]
                parts.append((pick, here, mx.logsumexp(members, axis=-1)))
        mx.eval([part for _, _, part in parts])
        for target, where, part in parts:
            target[where] = np.array(part)
    return Reads(pick, vocabulary)


def rows_at_once(width: int) -> int:
    """How many rows of logits may be alive at once."""
    return max(1, (CHUNK_BYTES_X86 if in_numpy() else CHUNK_BYTES) // (4 * width))


def _columns(wanted: Ints | None, ids: Ints) -> mx.array:
    """Where the ids are in rows that hold only those wanted."""
    return mx.array(ids if wanted is None else np.searchsorted(wanted, ids))


def _within(plan: Plan, first: int, last: int, start: int, stop: int) -> slice:
    """The picks of a run sorted by row that lie in rows `start` up to `stop`."""
    low, high = np.searchsorted(plan.pick_row[first:last], (start, stop))
    return slice(first + int(low), first + int(high))


def row_logsumexp(logits: mx.array) -> Floats:
    """Log-sum-exp of each row, by blocks: one float32 sum over 150,000 entries is off by 1e-4 nats."""
    if in_numpy(logits):
        return logsumexp(logits)
    rows, width = logits.shape
    whole = width // BLOCK * BLOCK
    parts = [mx.logsumexp(logits[:, :whole].reshape(rows, -1, BLOCK), axis=-1)] if whole else []
    if whole < width:
        parts.append(mx.logsumexp(logits[:, whole:], axis=-1, keepdims=True))
    return np.array(mx.logsumexp(mx.concatenate(parts, axis=1), axis=-1), dtype=np.float64)


def weigh(plan: Plan, reads: Reads, fields: Sequence[CompiledField]) -> list[FieldScores]:
    """Whole-choice log scores of a plan's fields, in plan order.

    Raises ScoreError naming the field where a score is NaN or +inf, or every choice has probability zero.
    """
    joint = None if reads.vocabulary is None else in_vocabulary(plan, reads.pick, reads.vocabulary)
    scored = _among_options(plan, reads.pick) if plan.rule == "trie" else joint
    assert scored is not None
    score = _choice_scores(plan.score, scored)
    mass = None if plan.mass is None or joint is None else _choice_scores(plan.mass, joint)
    results = []
    for position, index in enumerate(plan.fields):
        where = slice(plan.field_offset[position], plan.field_offset[position + 1])
        name = fields[index].name
        check_scores(name, score[where])
        if mass is not None:
            check_scores(name, mass[where])
        total = None if mass is None else min(1.0, float(np.exp(mass[where]).sum()))
        results.append(FieldScores(score[where], total))
    return results


def in_vocabulary(plan: Plan, pick: Floats, vocabulary: Floats) -> Floats:
    """Log-probability of each pick among all tokens; NaN where its row has none."""
    usable = np.where(np.isfinite(vocabulary), vocabulary, np.nan)
    return pick - usable[plan.pick_row]


def _among_options(plan: Plan, pick: Floats) -> Floats:
    """Log-softmax of each pick among the options of its node; a node without a possible option gives -inf."""
    chosen = np.flatnonzero(plan.group >= 0)
    chosen = chosen[np.argsort(plan.group[chosen], kind="stable")]
    groups, starts = np.unique(plan.group[chosen], return_index=True)
    totals = segment_logsumexp(pick[chosen], np.append(starts, len(chosen)))
    total = totals[np.searchsorted(groups, plan.group[chosen])]
    values = np.full(len(pick), -np.inf)
    with np.errstate(invalid="ignore"):
        values[chosen] = np.where(total == -np.inf, -np.inf, pick[chosen] - total)
    return values


def _choice_scores(sums: Sums, value: Floats) -> Floats:
    forms = int(sums.choice_offset[-1])
    with np.errstate(invalid="ignore"):
        form = np.bincount(sums.form, weights=value[sums.pick], minlength=forms)
    return segment_logsumexp(form.astype(np.float64), sums.choice_offset)


def segment_logsumexp(value: Floats, offset: NDArray[np.integer[Any]]) -> Floats:
    """Log-sum-exp of each run `value[offset[i]:offset[i + 1]]`; no run is empty. NaN and +inf stay."""
    top = np.maximum.reduceat(value, offset[:-1])
    level = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        total: Floats = np.add.reduceat(np.exp(value - np.repeat(level, np.diff(offset))), offset[:-1])
        return np.log(total) + level


def check_scores(field: str, score: Floats) -> None:
    if np.isnan(score).any() or (score == np.inf).any():
        fact, limit = "got NaN or infinite logits from the model", "scores must be finite numbers"
    elif (score == -np.inf).all():
        fact, limit = "has no choice with a probability above zero", "one choice at least must be possible"
    else:
        return
    raise ScoreError(f"field {field}", fact, limit, "check the model's files, or run it in float32")


def decide(
    field: CompiledField,
    scores: FieldScores,
    temperature: float,
    *,
    upper_bound: bool,
    band: float,
    correction: Correction | str = "",
) -> FieldResult:
    """The answer to one field: the most probable choice, the first declared among equals.

    `temperature` divides whole-choice log scores once; without a correction it shapes `prob`, never the
    winner or the margin. A correction's temperature replaces it, and its bias is added after. The text of
    one that was dropped says why.
    """
    raw, dropped = scores.log_score, scores.dropped
    weighing = Weighing.of(len(raw), temperature, correction)
    level = weighing.level(raw)
    order = sorted(range(len(raw)), key=lambda choice: -level[choice])
    with np.errstate(over="ignore"):
        weight = np.exp((level - level[order[0]]) / weighing.temperature)
    prob = weight / weight.sum()
    # In the unit of raw scores, so that the margin compares with what those drift by.
    most = level if dropped is None else weighing.level(dropped.most)
    margin = float(level[order[0]] - max(most[choice] for choice in order[1:]))
    values: list[Value] = [candidate.value for candidate in field.candidates]
    return FieldResult(
        name=field.name,
        value=values[order[0]],
        prob=float(prob[order[0]]),
        legal_mass=scores.legal_mass,
        legal_mass_is_upper_bound=upper_bound and scores.legal_mass is not None,
        margin=margin,
        tie=margin == 0,
        near_tie=margin < band,
        distribution=tuple((values[choice], float(prob[choice])) for choice in order),
        log_scores=tuple(raw.tolist()),
        calibration=correction.applied if isinstance(correction, Correction) else None,
        calibration_dropped=correction if isinstance(correction, str) else "",
        pruned=0 if dropped is None else dropped.choices,
        prune_bound=0.0 if dropped is None else dropped.bound,
        legal_mass_slack=0.0 if dropped is None or scores.legal_mass is None else dropped.mass,
    )
