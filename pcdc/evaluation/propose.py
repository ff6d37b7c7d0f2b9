"""Worked examples from labelled texts: a balanced set, and whether it helps on other texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pcdc_runtime.artifact import RULES, Artifact

from pcdc.examples import MAX_EXAMPLE_CHARS
from pcdc.prompt import Target
from pcdc.schema import Example

from .bootstrap import SIGNIFICANT, draw, interval, mcnemar_p
from .kept import Kept
from .measure import Scored, Scores, Watch, measure
from .recompile import compiled, schema_of
from .rows import Row, same_text
from .split import Bools, Floats, Ints

if TYPE_CHECKING:
    from .opening import Opening

SHORTEST, LONGEST = 0.1, 0.5
"""Between which quantiles of the lengths examples are looked for: short, and not mere fragments."""


@dataclass(frozen=True)
class Paired:
    """Accuracy without and with the examples on `rows` labels of `texts` distinct texts.

    `p_value` is McNemar's, exact, by text. `interval` is None where the texts are too few for one. `majority`
    is the accuracy of always the most frequent label, `majority_p` that of the same test against it.
    """

    rows: int
    texts: int
    without: float
    with_examples: float
    difference: float
    interval: tuple[float, float] | None
    p_value: float
    majority: float
    majority_p: float

    @property
    def verdict(self) -> str:
        """What the interval and the exact test both say, and whether reading the text gains anything then."""
        if self.interval is None:
            return "too few texts to tell"
        gains = self.with_examples > self.majority and self.majority_p < SIGNIFICANT
        short = "" if gains else ", and with them not shown to be better than always the most frequent label"
        return self._effect(self.interval) + short

    def _effect(self, interval: tuple[float, float]) -> str:
        if self.p_value < SIGNIFICANT and not interval[0] <= 0 <= interval[1]:
            return "helps" if interval[0] > 0 else "hurts"
        return "no difference shown"


@dataclass(frozen=True)
class Proposal:
    """Examples as they stand under `x-pcdc`, and what they change on texts that none of them comes from.

    `head_tokens` are those of the prompt's static head without and with them: they are computed once, not
    per request.
    """

    examples: tuple[dict[str, Any], ...]
    head_tokens: tuple[int, int]
    texts: int
    overall: Paired | None
    fields: dict[str, Paired]

    @property
    def declaration(self) -> dict[str, Any]:
        """What to put into the definition."""
        return {"x-pcdc": {"examples": list(self.examples)}}

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        verdict = self.overall.verdict if self.overall else None
        return asdict(self) | {"verdict": verdict, "declaration": self.declaration}


def choose(rows: Sequence[Row], artifact: Artifact, count: int, seed: int) -> tuple[Example, ...]:
    """Up to `count` short texts whose labels are spread as evenly as may be over the fields' choices.

    Greedy: each time the text whose labels were chosen least so far, in a seeded order.
    """
    distinct = list({same_text(row.context): row for row in reversed(rows)}.values())
    lengths = [len(row.context) for row in distinct]
    low, high = np.quantile(lengths, [SHORTEST, LONGEST]) if lengths else (0, 0)
    short = [row for row in distinct if low <= len(row.context) <= high]
    pool = short if len(short) >= count else sorted(distinct, key=lambda row: len(row.context))
    pool = [pool[n] for n in np.random.default_rng([seed, 13]).permutation(len(pool))]
    seen, chosen, room = Counter[tuple[str, int]](), list[Row](), MAX_EXAMPLE_CHARS
    while pool and len(chosen) < count:
        best = max(pool, key=lambda row: sum(1 / (1 + seen[label]) for label in row.expected.items()))
        pool.remove(best)
        if len(best.context) <= room:
            room -= len(best.context)
            chosen.append(best)
            seen.update(best.expected.items())
    names = [field.name for field in artifact.fields]
    return tuple(
        Example(row.context, tuple((n, row.expected[n]) for n in names if n in row.expected))
        for row in chosen
    )


def try_examples(
    artifact: Artifact,
    target: Target,
    examples: Sequence[Example],
    rows: Sequence[Row],
    opening: Opening,
    kept: Kept,
    watch: Watch,
    *,
    seed: int,
) -> Proposal:
    """Measure the artifact with `examples` in place of its own against the artifact as it is, text by text.

    Raises SchemaError where the prompt becomes longer than the model's window.
    """
    variant = compiled(replace(schema_of(artifact), examples=tuple(examples)), target)
    contexts = [row.context for row in rows]
    before = measure(artifact, contexts, opening, kept, watch, "without examples", RULES)
    after = measure(variant, contexts, opening, kept, watch, "with examples", (artifact.scoring,))
    pairs = [
        (row, one, two)
        for row, one, two in zip(rows, before, after, strict=True)
        if isinstance(one, Scored) and isinstance(two, Scored)
    ]
    numbers: dict[str, int] = {}
    text = np.array(
        [numbers.setdefault(same_text(row.context), len(numbers)) for row, _, _ in pairs], dtype=np.int64
    )
    rule, judged = artifact.scoring, dict[str, _Judged]()
    for index, field in enumerate(artifact.fields):
        labelled = [n for n, (row, _, _) in enumerate(pairs) if field.name in row.expected]
        if labelled:
            expected = np.array([pairs[n][0].expected[field.name] for n in labelled])
            judged[field.name] = _Judged(
                text[labelled],
                _best([pairs[n][1].fields[rule][index] for n in labelled]) == expected,
                _best([pairs[n][2].fields[rule][index] for n in labelled]) == expected,
                expected == np.bincount(expected).argmax(),
            )
    weights = draw(len(numbers), seed) if numbers else np.empty((0, 0))
    return Proposal(
        examples=tuple(declared(example, artifact) for example in examples),
        head_tokens=(len(artifact.prompt.head), len(variant.prompt.head)),
        texts=len(pairs),
        overall=_paired(_joined(list(judged.values())), weights) if judged else None,
        fields={name: _paired(one, weights) for name, one in judged.items()},
    )


@dataclass(frozen=True, eq=False)
class _Judged:
    """Per label: its distinct text's number, and whether the answer was right without and with examples.

    `constant` is whether the most frequent label is right.
    """

    text: Ints
    first: Bools
    second: Bools
    constant: Bools


def _joined(parts: Sequence[_Judged]) -> _Judged:
    return _Judged(
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.second for part in parts]),
        np.concatenate([part.constant for part in parts]),
    )


def _best(scores: Sequence[Scores]) -> Ints:
    return np.array([int(np.argmax(one.log_scores)) for one in scores])


def declared(example: Example, artifact: Artifact) -> dict[str, Any]:
    """An example as a definition spells it."""
    values = {f.name: [c.value for c in f.candidates] for f in artifact.fields}
    answers = {name: values[name][choice] for name, choice in example.answers}
    return {"context": example.context, "answers": answers}


def _paired(judged: _Judged, weights: Floats) -> Paired:
    gain = judged.second.astype(np.float64) - judged.first
    texts = len(np.unique(judged.text))
    gains = weights @ np.bincount(judged.text, gain, weights.shape[1])
    rows = weights @ np.bincount(judged.text, minlength=weights.shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        between = interval(gains / rows, texts)
    return Paired(
        rows=len(gain),
        texts=texts,
        without=float(judged.first.mean()),
        with_examples=float(judged.second.mean()),
        difference=float(gain.mean()),
        interval=between,
        p_value=mcnemar_p(judged.first, judged.second, judged.text),
        majority=float(judged.constant.mean()),
        majority_p=mcnemar_p(judged.second, judged.constant, judged.text),
    )
