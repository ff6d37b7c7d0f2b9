"""Reloading on real mlx-lm code: seeded weights, a real tokenizer, compiled artifacts."""

import numpy as np
import pytest
from judging import compiled, target_of
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import load
from pcdc_runtime.loaded import open_model
from pcdc_runtime.storage import write_atomic
from pcdc_runtime.tokenizer import common_prefix
from tiny import write_tiny

from pcdc.parse import parse_mapping

CONTEXT = "The gateway rejects every second card since 09:14."


def artifact(*teams):
    schema, problems = parse_mapping(
        {
            "team": {"type": "enum", "choices": [*teams], "description": "Which team handles it?"},
            "urgent": {"type": "boolean", "description": "Is it urgent?"},
        },
        name="ticket",
    )
    assert schema is not None, problems
    return compiled(schema, target_of("smollm2"))


VERSIONS = [
    artifact("BILLING", "SALES"),
    artifact("BILLING", "BILLING_DISPUTE", "SALES"),
    artifact("OPERATIONS", "SALES", "BILLING"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(write_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def model(folder):
    with open_model(folder) as model:
        yield model


def log_scores(result):
    return np.concatenate([answer.log_scores for answer in result.answers])


def test_scores_after_a_reload_are_those_of_a_fresh_engine(tmp_path, folder, model):
    fresh = {}
    for number, version in enumerate(VERSIONS):
        path = tmp_path / f"{number}.pcdc"
        path.write_bytes(dumps(version))
        with load(path, model) as engine:
            fresh[version.digest] = log_scores(engine.run(CONTEXT))
    path = tmp_path / "ticket.pcdc"
    path.write_bytes(dumps(VERSIONS[0]))
    with load(path, folder, reload=True) as engine:
        for version in (*VERSIONS, *reversed(VERSIONS)):
            write_atomic(path, dumps(version))
            result = engine.run(CONTEXT)
            assert result.artifact_digest == version.digest
            assert np.abs(log_scores(result) - fresh[version.digest]).max() <= 1e-4


def test_a_reload_prefills_from_the_common_prefix_and_copies_and_keeps_nothing(tmp_path, model):
    path = tmp_path / "ticket.pcdc"
    path.write_bytes(dumps(VERSIONS[0]))
    long = CONTEXT * 8
    with load(path, model, reload=True) as engine:
        engine.run(long)
        with model.prefixes.lease(VERSIONS[0].digest, 0) as prefix:
            sequence, copied = prefix.sequence, prefix.sequence.bytes_copied
        held = model.prefixes.bytes_held
        for turn in range(1, 51):
            old, new = VERSIONS[(turn - 1) % 3], VERSIONS[turn % 3]
            write_atomic(path, dumps(new))
            result = engine.run(CONTEXT)
            shared = common_prefix(old.prompt.head, new.prompt.head)
            assert 0 < shared < len(new.prompt.head)
            assert result.head_cached == shared
            assert model.prefixes.bytes_held == held
        with model.prefixes.lease(new.digest, 0) as prefix:
            assert prefix.sequence is sequence
            assert sequence.bytes_copied == copied
