"""Compile a schema for a real tokenizer, answer it with the engine, and score it again by brute force."""

import zlib
from functools import cache

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
    """Logits for a token path, seeded by the path: the same on every machine, and never flat."""

    def rule(path):
        key = zlib.crc32(np.array(path, dtype="<i4").tobytes())
        return np.random.default_rng([seed, key]).standard_normal(width).astype(np.float32) * 3

    return rule


def table_engine(artifact, folder, rule, width):
    """An engine over a table of logits, with the family's own tokenizer."""
    tokenizer = load_tokenizer(folder)
    model = TableModel(rule, logits_width=width, name="table", window=100_000)
    return Engine(artifact, LoadedModel("table", lambda: (model, tokenizer)))


def table_oracle(folder, rule):
    """Brute force over the same table."""
    rows = {}

    def log_probs(path, first):
        for stop in range(first + 1, len(path) + 1):
            if path[:stop] not in rows:
                rows[path[:stop]] = log_softmax(rule(path[:stop]).astype(np.float64))
        return np.array([rows[path[:stop]] for stop in range(first + 1, len(path) + 1)])

    return Oracle(folder / "tokenizer.json", log_probs)


def literals(field):
    """How JSON spells each choice of a compiled field, said again here and not taken from the compiler."""
    import json

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
