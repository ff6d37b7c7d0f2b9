"""Head files: what they hold is what would be computed, and whatever decides that is in their name."""

import mlx.core as mx
import numpy as np
import pytest
from fakes import WIDTH, byte_tokenizer, make_artifact, spelled
from head_files import (
    ARTIFACT,
    CONTEXT,
    HEAD,
    answered,
    ids_from,
    kept,
    log_scores,
    notes,
    only,
    opened,
    ticket,
)
from judging import compiled
from pcdc_runtime import headfile
from pcdc_runtime.blas import Blas
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import Engine, load
from pcdc_runtime.headfile import HeadFiles
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.model import load_model
from pcdc_runtime.models import DEFAULT, resolve
from seeded import write_folder

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "float32"),
        ("llama", "float16"),
        ("gemma3_text", "bfloat16"),
        ("phi", "float32"),
        ("qwen3_moe", "float32"),
    ],
)
def test_a_head_from_a_file_gives_the_very_scores_of_a_computed_one(tmp_path, run_tokens, family, dtype):
    folder = write_folder(tmp_path / "model", family, dtype, vocab_size=WIDTH)
    alone = answered(folder, None)
    computed = answered(folder, HeadFiles(tmp_path / "heads"))
    assert max(run_tokens) >= len(HEAD)
    run_tokens.clear()
    read = answered(folder, HeadFiles(tmp_path / "heads"))
    assert len(HEAD) not in run_tokens
    assert log_scores(read) == log_scores(computed) == log_scores(alone)
    assert read.head_cached == computed.head_cached >= len(HEAD)
    assert read.kv_copied == computed.kv_copied
    assert not notes(read)


def test_a_quantized_models_head_comes_back_too(tmp_path):
    folder = write_folder(tmp_path / "model", "llama", "bfloat16", bits=4, vocab_size=WIDTH)
    computed = answered(folder, HeadFiles(tmp_path / "heads"))
    assert log_scores(answered(folder, HeadFiles(tmp_path / "heads"))) == log_scores(computed)


def test_the_embedded_model_answers_the_same_from_a_file(tmp_path, run_tokens):
    definition = {"team": {"type": "enum", "choices": ["OPS", "SALES"], "description": "Which team?"}}
    schema, problems = parse_mapping(definition)
    assert schema is not None, problems
    target, problems = load_target(resolve(DEFAULT, weights=True))
    assert target is not None, problems
    artifact = compiled(schema, target)
    results = []
    with open_model(DEFAULT) as model:
        for _ in range(2):
            run_tokens.clear()
            with Engine(artifact, model.share(), heads=HeadFiles(tmp_path)) as engine:
                results.append(engine.run(CONTEXT))
            model.prefixes.hand_over(artifact.digest, "put away")
    assert sum(run_tokens) < len(artifact.prompt.head)
    assert log_scores(results[0]) == log_scores(results[1])


def test_a_head_file_is_safetensors(folder, tmp_path):
    answered(folder, HeadFiles(tmp_path))
    tensors, about = mx.load(str(only(tmp_path)), return_metadata=True)
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        f"layers.{layer}.{kind}": (1, 2, len(HEAD), 8) for layer in range(2) for kind in ("keys", "values")
    }
    assert about["format"] == "pcdc head 1"
    assert len(about["content"]) == 64


@pytest.mark.parametrize(
    ("wanted", "switch", "used"),
    [
        (None, "", True),
        (None, "1", True),
        (None, "0", False),
        (None, " Off", False),
        (False, "1", False),
        (True, "0", True),
    ],
)
def test_the_argument_decides_and_then_the_environment(tmp_path, tiny, monkeypatch, wanted, switch, used):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PCDC_HEAD_CACHE", switch)
    path = tmp_path / "t.pcdc"
    path.write_bytes(dumps(ticket("OPS", "SALES")))
    with load(path, tiny, head_cache=wanted) as engine:
        engine.run(CONTEXT)
    assert (tmp_path / "cache" / "heads").exists() == used


def test_a_rebuilt_artifact_with_the_same_head_finds_its_file(tmp_path, folder, run_tokens):
    again = make_artifact({"level": spelled("low", "high")})
    assert again.digest != ARTIFACT.digest
    answered(folder, HeadFiles(tmp_path))
    run_tokens.clear()
    with Engine(again, opened(folder), heads=HeadFiles(tmp_path)) as engine:
        engine.run(CONTEXT)
    assert len(HEAD) not in run_tokens


@pytest.mark.parametrize("at_once", [False, True])
def test_requests_of_an_engine_that_follows_a_file_take_heads_from_theirs(
    tmp_path, tiny, monkeypatch, run_tokens, at_once
):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    path, other = tmp_path / "ticket.pcdc", tmp_path / "other.pcdc"
    old = ticket("A", "B")
    new = ticket(*(f"{number} and a long name for a team" for number in range(60)))
    other.write_bytes(dumps(new))
    with load(other, tiny, head_cache=True) as engine:
        expected = engine.run(CONTEXT)
    path.write_bytes(dumps(old))
    with load(path, tiny, reload=True, head_cache=True) as engine:
        engine.run(CONTEXT)
        path.write_bytes(dumps(new))
        run_tokens.clear()
        (result,) = engine.run_many([CONTEXT]) if at_once else [engine.run(CONTEXT)]
    head = len(new.prompt.head)
    assert result.head_cached >= head
    assert sum(run_tokens) < head
    np.testing.assert_allclose(
        np.concatenate(log_scores(result)), np.concatenate(log_scores(expected)), atol=1e-5
    )


def test_whatever_decides_the_numbers_changes_the_name(folder, tmp_path, monkeypatch):
    def name(ids=HEAD, where=folder):
        with opened(where) as model:
            heads = HeadFiles(tmp_path / "heads")
            kept(model, heads, ids)
            (path,) = set(tmp_path.glob("heads/*")) - known
            known.add(path)
            return path.name

    known = set()
    names = [name()]
    names.append(name(ids_from(0)))
    names.append(name(where=write_folder(tmp_path / "a", "llama", seed=1, vocab_size=WIDTH)))
    names.append(name(where=write_folder(tmp_path / "b", "llama", "bfloat16", vocab_size=WIDTH)))
    changes = [
        (headfile.metadata, "version", lambda _: "0"),
        (headfile.platform, "machine", lambda: "other"),
        (headfile, "load_fast_blas", lambda: Blas("other", None)),
        (headfile, "_code", lambda: "other"),
    ]
    for place, attribute, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(place, attribute, value)
            names.append(name())
    assert len(set(names)) == len(names)


def test_a_model_of_no_folder_has_no_head_files(folder, tmp_path):
    with LoadedModel("made", lambda: (load_model(folder), byte_tokenizer())) as model:
        kept(model, HeadFiles(tmp_path / "heads"), HEAD)
    assert not (tmp_path / "heads").exists()
