"""Compile a schema for a real tokenizer, answer it with the engine, and score it again by brute force."""

import json
import zlib
from functools import cache, lru_cache

import numpy as np
from fakes import TableModel
from families import family_folder
from oracle import Oracle, log_softmax, total
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.models import resolve
from pcdc_runtime.tokenizer import load_tokenizer

from pcdc.emit import compile_schema
from pcdc.prompt import load_target


@cache
def target_of(family, full=False):
    """The compiler's view of a family's tokenizer."""
    target, problems = load_target(resolve(str(family_folder(family, full)), weights=False))
    assert target is not None, problems
    return target


def compiled(schema, target):
    """The artifact; fails with the diagnostics where there is none."""
    artifact, problems = compile_schema(schema, target)
    assert artifact is not None, problems
    return artifact


def seeded_rule(width, seed):
    """Logits for a token path, the same on every machine: one drawn row, turned and stretched by the path.

    Rows differ in every entry and in their log-sum-exp, and cost no draw of their own.
    """
    drawn = (np.random.default_rng(seed).standard_normal(width) * 3).astype(np.float32)

    def rule(path):
        key = zlib.crc32(np.array(path, dtype="<i4").tobytes())
        return np.roll(drawn, key % width) * np.float32(0.5 + (key >> 8) / 2**24)

    return rule


class Bench:
    """One family's tokenizer over tables of logits: an engine to answer, an oracle to judge."""

    def __init__(self, family):
        self.target = target_of(family)
        folder = family_folder(family)
        self.model = TableModel(
            lambda path: path, logits_width=self.target.tokenizer.get_vocab_size() + 64, window=100_000
        )
        self.loaded = LoadedModel("table", lambda: (self.model, load_tokenizer(folder)))
        self.oracle = Oracle(folder / "tokenizer.json", lambda path, first: [])

    def difference(self, artifact, context, seed):
        """Answer the context from a seeded table; gives the largest difference from brute force, in nats."""
        self.model.rule = seeded_rule(self.model.logits_width, seed)
        self.model.rows_read.clear()
        with Engine(artifact, self.loaded.share()) as engine:
            result = engine.run(context)
        self.oracle.log_probs = table_log_probs(self.model.rule)
        return largest_difference(artifact, result, self.oracle, context)

    def close(self):
        self.loaded.close()


def table_log_probs(rule):
    """The oracle's view of a table; only the latest rows are kept, a large vocabulary fills the memory."""

    @lru_cache(maxsize=64)
    def row(path):
        return log_softmax(rule(path).astype(np.float64))

    return lambda path, first: [row(tuple(path[:stop])) for stop in range(first + 1, len(path) + 1)]


def literals(field):
    """How JSON spells each choice of a compiled field, said again here and not taken from the compiler."""
    spelled = []
    for candidate in field.candidates:
        value = candidate.value
        text = json.dumps(value, ensure_ascii=False)
        if value is None:
            spelled.append(['"not stated"', "null"])
        elif isinstance(value, bool):
            spelled.append([text, f'"{text}"'])
        else:
            spelled.append([text])
    return spelled


def largest_difference(artifact, result, oracle, context):
    """Largest |log score - brute force| over all choices of all fields, in nats; checks legal mass too."""
    prompt = artifact.prompt_text.replace("{context}", context)
    worst = 0.0
    for field in artifact.fields:
        if field.name not in result.fields:
            continue
        expected = oracle.score(prompt, field.name, literals(field))
        answer = result.fields[field.name]
        worst = max(worst, *(abs(a - b) for a, b in zip(answer.log_scores, expected, strict=True)))
        worst = max(worst, abs(np.log(answer.legal_mass) - total(expected)))
        shares = np.exp(np.array(expected) - total(expected))
        order = sorted(range(len(expected)), key=lambda i: -answer.log_scores[i])
        assert [v for v, _ in answer.distribution] == [field.candidates[i].value for i in order]
        assert np.allclose([p for _, p in answer.distribution], shares[order], atol=2e-3)
    return worst
