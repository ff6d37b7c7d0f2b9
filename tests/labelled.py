"""Seeded measurements of a made-up schema: two fields, one of them boolean, whose scores are off."""

from __future__ import annotations

import numpy as np

from pcdc.evaluation.tables import FieldTable, Measured

RULES = ("joint", "identify", "trie")


def drawn(rng, rows, choices, *, temperature=1.0, bias=0.0, skew=0.5):
    """Raw scores and labels: softmax(score / temperature + b) is true, b normal with deviation `bias`."""
    logit = rng.normal(0, 1.5, (rows, choices)) + rng.normal(0, skew, choices)
    weight = np.exp(logit - logit.max(axis=1, keepdims=True))
    share = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1)
    expected = np.minimum((share < rng.random((rows, 1))).sum(axis=1), choices - 1)
    return (logit - rng.normal(0, bias, choices)) * temperature, expected


def table(rng, name, kind, choices, rows, texts, *, baseline=True):
    scores, expected = drawn(rng, rows, choices, temperature=2.0, bias=0.7)
    by_rule = {rule: scores + rng.normal(0, 0.2 * n, scores.shape) for n, rule in enumerate(RULES)}
    wrote = np.where(rng.random(rows) < 0.05, -1, (scores + rng.normal(0, 2, scores.shape)).argmax(axis=1))
    return FieldTable(
        name=name,
        type=kind,
        labels=("true", "false") if kind == "boolean" else tuple(f"topic {n}" for n in range(choices)),
        temperature=1.0,
        row=np.sort(rng.permutation(texts)[:rows]),
        expected=expected,
        log_scores=by_rule,
        legal_mass={rule: rng.beta(3, 2, rows) for rule in RULES},
        prior={rule: np.log(rng.dirichlet(np.full(choices, 5.0))) for rule in RULES},
        written=wrote if baseline else None,
        tokens=tuple(int(n) for n in rng.integers(1, 6, choices)),
    )


def measured(texts=300, seed=0, *, choices=5, baseline=True):
    """A run: one text in ten has no label of the second field, one in twenty is a repeat."""
    rng = np.random.default_rng(seed)
    numbers = np.arange(texts)
    return Measured(
        schema="tickets",
        model="toy",
        artifact="a" * 64,
        scoring="joint",
        data="d" * 64,
        weights="e" * 64,
        texts=texts,
        group=np.where(numbers % 20 == 19, numbers - 1, numbers),
        tables=(
            table(rng, "urgent", "boolean", 2, texts, texts, baseline=baseline),
            table(rng, "topic", "enum", choices, texts - texts // 10, texts, baseline=baseline),
        ),
        prefill_ms=rng.gamma(9, 10, texts),
        tree_ms=rng.gamma(9, 20, texts),
        context_tokens=rng.integers(20, 400, texts),
        written_ms=rng.gamma(9, 100, texts) if baseline else None,
    )
