"""Whether answers depend on the order in which a schema lists its choices and fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pcdc_runtime.artifact import RULES, Artifact

from pcdc.prompt import Target
from pcdc.schema import Example, Field, Schema

from .kept import Kept
from .measure import Scored, TooLong, Watch, measure
from .recompile import compiled, schema_of
from .rows import Row

if TYPE_CHECKING:
    from .opening import Opening

MAX_TEXTS = 100
"""How many texts are asked again in every order."""

_TRIES = 20


@dataclass(frozen=True)
class Flips:
    """How often answers change with the order; shares are of texts.

    `mean` is the share that changes in one reordered schema, averaged over them; `any` the share that
    changes in at least one. `accuracy` is that in the declared order, `lowest` and `highest` are over all
    orders, the declared one among them; None without labels.
    """

    mean: float
    any: float
    accuracy: float | None
    lowest: float | None
    highest: float | None


@dataclass(frozen=True)
class Permutation:
    """Flips per field and over all of them, on the first `texts` texts of a seeded order."""

    orders: int
    texts: int
    of_texts: int
    overall: Flips
    fields: dict[str, Flips]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def permute(
    artifact: Artifact,
    target: Target,
    rows: Sequence[Row],
    opening: Opening,
    kept: Kept,
    watch: Watch,
    *,
    orders: int,
    seed: int,
) -> Permutation:
    """Ask up to MAX_TEXTS texts again with fields and choices in `orders` other orders."""
    drawn = np.random.default_rng([seed, 11]).permutation(len(rows))[:MAX_TEXTS]
    subset = [rows[n] for n in sorted(drawn.tolist())]
    contexts = [row.context for row in subset]
    schema = schema_of(artifact)
    declared = measure(artifact, contexts, opening, kept, watch, "declared order", RULES)
    answers = [_answers(artifact, declared, artifact.scoring)]
    for number in range(orders):
        variant = compiled(reordered(schema, np.random.default_rng([seed, 12, number])), target)
        scored = measure(
            variant, contexts, opening, kept, watch, f"order {number + 1} of {orders}", (artifact.scoring,)
        )
        answers.append(_answers(variant, scored, artifact.scoring))
    usable = [n for n in range(len(subset)) if all(order[n] is not None for order in answers)]
    table = [[order[n] or {} for n in usable] for order in answers]
    return _judged(artifact, table, [subset[n] for n in usable], len(rows))


def reordered(schema: Schema, rng: np.random.Generator) -> Schema:
    """The schema with its fields and the choices of each in another order, where there is another one."""
    fields = [_shuffled_choices(field, rng) for field in _shuffled(schema.fields, rng)]
    places = {
        field.name: [field.choices.index(choice) for choice in old.choices]
        for old in schema.fields
        for field in fields
        if field.name == old.name
    }
    order = [field.name for field in fields]
    examples = tuple(_moved(example, places, order) for example in schema.examples)
    return replace(schema, fields=tuple(fields), examples=examples)


def _moved(example: Example, places: dict[str, list[int]], order: list[str]) -> Example:
    moved = [(name, places[name][choice]) for name, choice in example.answers]
    return replace(example, answers=tuple(sorted(moved, key=lambda answer: order.index(answer[0]))))


def _shuffled_choices(field: Field, rng: np.random.Generator) -> Field:
    return replace(field, choices=tuple(_shuffled(field.choices, rng)))


def _shuffled(items: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    order = list(range(len(items)))
    for _ in range(_TRIES):
        order = rng.permutation(len(items)).tolist()
        if order != sorted(order):
            break
    return [items[n] for n in order]


def _answers(
    artifact: Artifact, scored: Sequence[Scored | TooLong], rule: str
) -> list[dict[str, str] | None]:
    """The label of every field's answer by text; None for a text that does not fit."""
    return [None if isinstance(one, TooLong) else _labels(artifact, one, rule) for one in scored]


def _labels(artifact: Artifact, scored: Scored, rule: str) -> dict[str, str]:
    best = (int(np.argmax(s.log_scores)) for s in scored.fields[rule])
    return {f.name: f.candidates[n].label for f, n in zip(artifact.fields, best, strict=True)}


def _judged(
    artifact: Artifact, table: list[list[dict[str, str]]], rows: Sequence[Row], of_texts: int
) -> Permutation:
    changed = {
        f.name: np.array(
            [[a[f.name] != b[f.name] for a, b in zip(order, table[0], strict=True)] for order in table]
        )
        for f in artifact.fields
    }
    right = {
        f.name: np.array(
            [
                [
                    answer[f.name] == f.candidates[row.expected[f.name]].label
                    for answer, row in zip(order, rows, strict=True)
                    if f.name in row.expected
                ]
                for order in table
            ]
        )
        for f in artifact.fields
    }
    return Permutation(
        orders=len(table) - 1,
        texts=len(rows),
        of_texts=of_texts,
        overall=_flips(
            np.concatenate(list(changed.values()), axis=1), np.concatenate(list(right.values()), axis=1)
        ),
        fields={name: _flips(changed[name], right[name]) for name in changed},
    )


def _flips(changed: Any, right: Any) -> Flips:
    """From changed answers [orders, texts] and right ones [orders, labels], the declared order first."""
    if not changed.shape[1]:
        return Flips(0.0, 0.0, None, None, None)
    accuracies = right.mean(axis=1) if right.shape[1] else None
    return Flips(
        mean=float(changed[1:].mean()),
        any=float(changed.any(axis=0).mean()),
        accuracy=None if accuracies is None else float(accuracies[0]),
        lowest=None if accuracies is None else float(accuracies.min()),
        highest=None if accuracies is None else float(accuracies.max()),
    )
