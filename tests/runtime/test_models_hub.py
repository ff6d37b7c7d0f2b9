"""Names that lead to the model hub, against a hub on this machine, each in its own process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pcdc_runtime.models import ALIASES

from tests.families import family_folder
from tests.hub import Hub, serving

ALIAS = "qwen3-0.6b"
SMALL = {"tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors.index.json"}
SHARDS = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
SCRIPT = """
import json, sys
from pcdc_runtime import models
from pcdc_runtime.errors import PcdcError
try:
    files = models.resolve(sys.argv[1], weights=sys.argv[2] == "weights")
    print(json.dumps({"name": files.name, "folder": str(files.folder), "template": files.chat_template()}))
except PcdcError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""


@pytest.fixture
def repositories(tmp_path):
    """A hub's files: one model with tokenizer, index and two shards, and files of no use."""
    model = tmp_path / "hub" / ALIASES[ALIAS]
    shutil.copytree(family_folder("qwen3"), model)
    for shard in SHARDS:
        (model / shard).write_bytes(shard.encode())
    weight_map = dict(zip("ab", sorted(SHARDS), strict=True))
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (model / "README.md").write_text("words")
    (model / "onnx").mkdir()
    (model / "onnx" / "config.json").write_text("{}")
    return tmp_path / "hub"


@pytest.fixture
def hub(repositories):
    with serving(repositories) as running:
        yield running


@pytest.fixture
def ask(tmp_path):
    """Resolve a name in a fresh process whose caches are this test's own."""

    def run(name: str, endpoint: str, weights: bool = False, **more: str) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HF_", "HUGGING")) and "proxy" not in k.lower()
        }
        own = {"HF_HOME": str(tmp_path / "hf"), "PCDC_CACHE": str(tmp_path / "pcdc"), "HF_ENDPOINT": endpoint}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, name, "weights" if weights else "small"],
            env=kept | own | more,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        answer: dict[str, str] = json.loads(done.stdout)
        return answer

    return run


def names_in(folder: str) -> set[str]:
    return {file.name for file in Path(folder).iterdir()}


def test_a_build_downloads_the_tokenizer_and_no_weights(hub: Hub, ask):
    found = ask(ALIAS, hub.endpoint)
    assert found["name"] == ALIAS
    assert names_in(found["folder"]) == hub.files_sent == SMALL
    assert "<|im_start|>" in found["template"]


def test_weights_are_fetched_when_they_are_wanted_and_only_then(hub: Hub, ask):
    ask(ALIAS, hub.endpoint)
    hub.requests.clear()
    found = ask(ALIAS, hub.endpoint, weights=True)
    assert names_in(found["folder"]) == SMALL | SHARDS
    assert hub.files_sent == SHARDS


def test_a_complete_model_is_found_again_without_the_network(repositories, ask):
    with serving(repositories) as hub:
        first = ask(ALIAS, hub.endpoint)
    assert ask(ALIAS, hub.endpoint) == first
    assert ask(ALIAS, hub.endpoint, HF_HUB_OFFLINE="1") == first


def test_a_complete_model_sends_no_request_while_the_hub_is_up(hub: Hub, ask):
    ask(ALIAS, hub.endpoint)
    hub.requests.clear()
    ask(ALIAS, hub.endpoint)
    assert hub.requests == []


def test_a_tokenizer_alone_is_not_taken_for_a_model_with_weights(repositories, ask):
    with serving(repositories) as hub:
        ask(ALIAS, hub.endpoint)
    assert ask(ALIAS, hub.endpoint, weights=True)["error"] == "HubUnreachableError"


def test_a_missing_shard_is_fetched_again(hub: Hub, ask):
    found = ask(ALIAS, hub.endpoint, weights=True)
    lost = min(SHARDS)
    (Path(found["folder"]) / lost).resolve().unlink()
    (Path(found["folder"]) / lost).unlink()
    hub.requests.clear()
    assert ask(ALIAS, hub.endpoint, weights=True) == found
    assert hub.files_sent == {lost}


def test_a_hub_id_names_itself(hub: Hub, ask):
    assert ask(ALIASES[ALIAS], hub.endpoint)["name"] == ALIASES[ALIAS]


@pytest.mark.parametrize("more", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_an_unreachable_hub_is_one_error_that_says_what_to_do(ask, more):
    answer = ask(ALIAS, "http://127.0.0.1:9", **more)
    assert answer["error"] == "HubUnreachableError"
    for way in (ALIAS, "connect once", "HF_ENDPOINT", "local mlx-lm folder", "smollm2-135m"):
        assert way in answer["text"]


def test_an_unknown_repository_suggests_the_near_alias(hub: Hub, ask):
    answer = ask("mlx-community/Qwen3-1.6B-4bit", hub.endpoint)
    assert answer["error"] == "ModelNotFoundError"
    assert "did you mean qwen3-" in answer["text"]


def test_a_gated_repository_says_that_terms_must_be_accepted(hub: Hub, ask):
    hub.gated.add(ALIASES[ALIAS])
    answer = ask(ALIAS, hub.endpoint)
    assert answer["error"] == "ModelNotFoundError"
    assert "gated" in answer["text"]
    assert "HF_TOKEN" in answer["text"]


def test_a_repository_in_another_format_is_refused_by_what_it_lacks(hub: Hub, ask):
    model = hub.root / "some" / "thing"
    model.mkdir(parents=True)
    (model / "thing.gguf").write_bytes(b"GGUF")
    answer = ask("some/thing", hub.endpoint)
    assert answer["error"] == "ModelNotFoundError"
    assert "lacks config.json, tokenizer.json on the model hub" in answer["text"]
