"""Results: plain frozen values, no arrays, nothing shared between two of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from .artifact import Value, shortened
from .calibration import CalibratedThreshold
from .errors import ThresholdError, UnknownFieldError, did_you_mean

MODE = "parallel_constrained_calibrated"


@dataclass(frozen=True)
class AppliedCalibration:
    """Which calibration made a field's probabilities, and the least one to act on, where it says so."""

    method: str
    id: str
    threshold: float | None = None


@dataclass(frozen=True)
class FieldResult:
    """The answer to one field.

    `prob` and `distribution` are over the field's choices, and calibrated where `calibration` says by what;
    `distribution` is sorted by probability, ties in declaration order. `calibration_dropped` says why a
    calibration that is there was not applied, "" otherwise. `legal_mass` is the model's own probability for
    any choice at all, None when not asked for. `margin` is how many nats the raw log scores of the winner
    and the runner-up would have to move towards each other to change the answer: their difference, plus
    temperature times difference of their biases where a calibration has some (inf where every other choice
    has probability 0). `log_scores` are raw, in declaration order.

    Where pruning was on, `pruned` counts the choices that have a surface form which was not evaluated. Their
    `log_scores` are those of their other forms, -inf where there is none, and `distribution` is made from
    these: no probability in it is further than `prune_bound` from what all forms would give, nor do the left
    out ones have more than that together. The winner is the same. `margin` is then the least that it can
    be, and legal mass lies between `legal_mass` and `legal_mass + legal_mass_slack` (under `identify`, its
    upper bound does).
    """

    name: str
    value: Value
    prob: float
    legal_mass: float | None
    legal_mass_is_upper_bound: bool
    margin: float
    tie: bool
    near_tie: bool
    distribution: tuple[tuple[Value, float], ...] = field(repr=False)
    log_scores: tuple[float, ...] = field(repr=False)
    calibration: AppliedCalibration | None = None
    calibration_dropped: str = ""
    pruned: int = field(default=0, repr=False)
    prune_bound: float = field(default=0.0, repr=False)
    legal_mass_slack: float = field(default=0.0, repr=False)

    def _telemetry(self) -> dict[str, Any]:
        return {
            "confidence": self.prob,
            "cardinality": len(self.distribution),
            "top_choices": [{"choice": v, "probability": p} for v, p in self.distribution],
            "legal_mass": self.legal_mass,
            "legal_mass_is_upper_bound": self.legal_mass_is_upper_bound,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "tie": self.tie,
            "near_tie": self.near_tie,
            "pruned": self.pruned,
            "prune_bound": self.prune_bound,
            "legal_mass_slack": self.legal_mass_slack,
            "calibration": self._calibration(),
        }

    def _calibration(self) -> dict[str, str] | None:
        if self.calibration is not None:
            return {"method": self.calibration.method, "id": self.calibration.id}
        return {"dropped": self.calibration_dropped} if self.calibration_dropped else None


@dataclass(frozen=True)
class Route:
    """Answers to act on, and for the others why a person should look, by field name."""

    apply: dict[str, FieldResult]
    review: dict[str, str]


@dataclass(frozen=True, repr=False)
class Result:
    """The answers to one context, in the order asked, and what it took.

    `forward_passes` counts the model's forwards, `sequential_forward_passes` the steps that wait for one
    another: the prefill once however chunked, and each tree pass; a short text goes through in one forward
    with the first tree pass, and `prefill_ms` is then 0. `head_cached` is how many leading prompt
    tokens had their KV already, `context_tokens` what the request's text and its closing fence took,
    `positions` how many tokens went through the model. `kv_bytes` are the keys and values that the longest
    moment needed, `kv_added` those of them that this request computed, `kv_copied` those that were moved
    because a buffer grew.
    `contexts` is how many texts shared the passes; `run_many` says which counts and times are then theirs.
    `pruning` is the bound that was given, None where every choice was evaluated.
    `schema_fields` names all fields of the artifact, also those that were not asked for.
    Times are in milliseconds on the owner thread, without the wait for it. `temperature` is that of the
    fields that no calibration was applied to.
    """

    answers: tuple[FieldResult, ...]
    schema_fields: tuple[str, ...]
    scoring: str
    temperature: float
    model: str
    artifact_digest: str
    elapsed_ms: float
    prefill_ms: float
    suffix_eval_ms: float
    forward_passes: int
    sequential_forward_passes: int
    head_cached: int
    nodes: int
    positions: int
    kv_bytes: int
    kv_added: int
    kv_copied: int
    context_tokens: int
    warnings: tuple[str, ...]
    contexts: int = 1
    pruning: float | None = None

    def __repr__(self) -> str:
        values = shortened([f"{name!r}: {value!r}" for name, value in self.values.items()])
        return f"Result({{{values}}}, scoring={self.scoring!r}, model={self.model!r})"

    @property
    def fields(self) -> dict[str, FieldResult]:
        """The answers by field name."""
        return {answer.name: answer for answer in self.answers}

    @property
    def values(self) -> dict[str, Value]:
        """The chosen value of each field, in its declared JSON type."""
        return {answer.name: answer.value for answer in self.answers}

    def assemble(self) -> str:
        """The chosen values as one JSON object."""
        return json.dumps(self.values, ensure_ascii=False)

    def route(self, thresholds: Mapping[str, float | CalibratedThreshold] | None = None) -> Route:
        """Split the answers: those with at least their threshold's probability, and those for review.

        Each field has the threshold of the calibration that was applied to it, unless `thresholds` names
        the field: then that one in its place. A field without a threshold goes to review, and so does one
        whose threshold is of another calibration, as `read_thresholds` may give. Fields that were not asked
        for may be named. Ties, near ties and legal mass do not count.

        Raises UnknownFieldError for a name that is no field of the schema, and ThresholdError for a threshold
        that is no number from 0 to 1.
        """
        given = {} if thresholds is None else thresholds
        self._check(given)
        review: dict[str, str] = {}
        for answer in self.answers:
            reason = _to_review(answer, given[answer.name] if answer.name in given else _own(answer))
            if reason:
                review[answer.name] = reason
        return Route({a.name: a for a in self.answers if a.name not in review}, review)

    def _check(self, thresholds: Mapping[str, float | CalibratedThreshold]) -> None:
        if not isinstance(thresholds, Mapping):
            fact, limit = f"are {thresholds!r:.40}", "they are a mapping from field names to numbers"
            raise ThresholdError("thresholds", fact, limit, 'such as `{"urgent": 0.9}`')
        # A file of thresholds may be older than the schema; a number is written for a field that there is.
        own = {n: v for n, v in thresholds.items() if not isinstance(v, CalibratedThreshold)}
        unknown = [name for name in own if name not in self.schema_fields]
        if unknown:
            raise UnknownFieldError(
                "thresholds",
                f"name what is no field: {', '.join(f'{name!r:.80}' for name in unknown)}",
                f"the fields: {', '.join(self.schema_fields)}",
                did_you_mean(map(str, unknown), self.schema_fields),
            )
        for name, value in own.items():
            # NaN compares false.
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
                fact, limit = f"is {value!r:.40}", "it must be a number from 0 to 1"
                raise ThresholdError(f"threshold of {name!r}", fact, limit)

    def to_dict(self) -> dict[str, Any]:
        """The published response shape, then what pcdc adds; a new dictionary at each call.

        Infinite margins become None, so that the whole is strict JSON.
        """
        parsed = _parse_strictly(self.assemble())
        return {
            "mode": MODE,
            "elapsed_ms": self.elapsed_ms,
            "prefill_ms": self.prefill_ms,
            "suffix_eval_ms": self.suffix_eval_ms,
            "sequential_forward_passes": self.sequential_forward_passes,
            "is_valid_json": parsed is not None,
            "schema_match": parsed is not None and self._matches(parsed),
            "parsed_json": {a.name: {"value": a.value, "prob": a.prob} for a in self.answers},
            "field_telemetry": {a.name: a._telemetry() for a in self.answers},
            "scoring": self.scoring,
            "temperature": self.temperature,
            "pruning": self.pruning,
            "model": self.model,
            "artifact_digest": self.artifact_digest,
            "forward_passes": self.forward_passes,
            "head_cached": self.head_cached,
            "nodes": self.nodes,
            "positions": self.positions,
            "kv_bytes": self.kv_bytes,
            "kv_added": self.kv_added,
            "kv_copied": self.kv_copied,
            "context_tokens": self.context_tokens,
            "contexts": self.contexts,
            "warnings": list(self.warnings),
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as strict JSON with the text's own characters."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def _matches(self, parsed: list[tuple[str, Any]]) -> bool:
        if [name for name, _ in parsed] != [a.name for a in self.answers] or len(dict(parsed)) != len(parsed):
            return False
        return all(
            any(type(value) is type(declared) and value == declared for declared, _ in answer.distribution)
            for (_, value), answer in zip(parsed, self.answers, strict=True)
        )


def _own(answer: FieldResult) -> float | None:
    return None if answer.calibration is None else answer.calibration.threshold


def _to_review(answer: FieldResult, threshold: float | CalibratedThreshold | None) -> str:
    """Why an answer is for review, "" where it is not."""
    if threshold is None:
        dropped = f": calibration dropped, {answer.calibration_dropped}" if answer.calibration_dropped else ""
        return f"no threshold{dropped}"
    if isinstance(threshold, CalibratedThreshold):
        if answer.calibration is None or answer.calibration.id != threshold.calibration:
            return "threshold of another calibration"
        threshold = threshold.minimum
    return "" if answer.prob >= threshold else f"probability {answer.prob:.4f} below {threshold:g}"


def _parse_strictly(text: str) -> list[tuple[str, Any]] | None:
    """The pairs of one JSON object, or None where the text is not strict JSON in valid Unicode."""
    try:
        text.encode()
        pairs = json.loads(text, object_pairs_hook=list, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return pairs if isinstance(pairs, list) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
