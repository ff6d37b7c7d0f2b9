"""Names of models, local folders, chat templates and the fingerprint memo, without a network."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pcdc_runtime import models, tokenizer
from pcdc_runtime.errors import ModelNotFoundError, ModelNotSupportedError, PcdcError
from pcdc_runtime.models import ALIASES, DEFAULT, ModelFiles, fingerprint_of, resolve
from tokenizers import Tokenizer

from tests.families import family_folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A local mlx-lm folder with a tokenizer and no weights."""
    copy = tmp_path / "My Model (v2)"
    shutil.copytree(family_folder("qwen3"), copy)
    return copy


def configure(folder: Path, **changes: object) -> ModelFiles:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return ModelFiles("m", folder)


def test_every_alias_but_the_embedded_one_is_a_hub_id():
    assert {a for a, target in ALIASES.items() if not re.fullmatch(r"[\w.-]+/[\w.-]+", target)} == {DEFAULT}
    assert all(re.fullmatch(r"[a-z0-9._-]+", alias) for alias in ALIASES)


def test_the_name_of_a_local_folder_is_its_base_name_and_never_a_path(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for spelling in (str(folder), ".", f"../{folder.name}", f"{folder}/../{folder.name}/"):
        found = resolve(spelling, weights=False)
        assert found.name == "My-Model-v2"
        assert found.folder.resolve() == folder


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../..",
        "/",
        "a/../b",
        "../a/b",
        "org/..",
        "/no/such/folder",
        "~nobody/model",
        "a/b/c",
        "a\0b/c",
        "x" * 5000,
    ],
)
def test_a_name_that_is_no_model_is_refused_before_the_network_is_asked(name, monkeypatch):
    monkeypatch.setattr(models, "_from_hub", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(ModelNotFoundError):
        resolve(name, weights=False)


def test_a_refused_name_cannot_write_control_characters():
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("a\x1b[31m\n", weights=False)
    assert str(caught.value).split("\n  help:")[0].isprintable()


@pytest.mark.parametrize(("typo", "meant"), [("qwen2.5-1.5", "qwen2.5-1.5b"), ("SmolLM2-135M", DEFAULT)])
def test_a_near_miss_is_answered_with_the_alias(typo, meant):
    with pytest.raises(ModelNotFoundError, match=f"did you mean {re.escape(meant)}"):
        resolve(typo, weights=False)


@pytest.mark.parametrize("begun", ["qwen", "Qwen2.5", "llama3", "smol", "g"])
def test_a_name_that_begins_aliases_is_answered_with_all_of_them(begun):
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(begun, weights=False)
    meant = [alias for alias in ALIASES if alias.startswith(begun.lower())]
    assert caught.value.help == f"did you mean {' or '.join(meant)}?"


def test_a_name_far_from_all_lists_the_aliases():
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("zzz", weights=False)
    assert all(alias in caught.value.help for alias in ALIASES)


@pytest.mark.parametrize("lost", ["config.json", "tokenizer.json"])
def test_a_local_folder_is_refused_by_what_it_lacks(folder, lost):
    (folder / lost).unlink()
    with pytest.raises(ModelNotFoundError, match=f"lacks {lost}"):
        resolve(str(folder), weights=False)


def test_weights_are_required_only_when_they_are_wanted(folder):
    assert resolve(str(folder), weights=False).folder == folder
    with pytest.raises(ModelNotFoundError, match=r"lacks model\.safetensors"):
        resolve(str(folder), weights=True)
    (folder / "model.safetensors").write_bytes(b"")
    assert resolve(str(folder), weights=True).folder == folder


def test_a_file_is_refused_as_a_file(folder):
    with pytest.raises(ModelNotFoundError, match="is a file"):
        resolve(str(folder / "config.json"), weights=False)


def test_a_folder_without_tokenizer_json_is_converted_once_and_encodes_the_same(folder, cache, monkeypatch):
    whole = json.loads((folder / "tokenizer.json").read_text())
    expected = Tokenizer.from_file(str(folder / "tokenizer.json"))
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(whole["model"]["vocab"]))
    merges = "".join(f"{a} {b}\n" for a, b in whole["model"]["merges"])
    (folder / "merges.txt").write_text(merges)
    (folder / "model.safetensors").write_bytes(b"weights")
    found = resolve(str(folder), weights=True)
    assert found.folder.is_relative_to(cache)
    assert (found.folder / "model.safetensors").read_bytes() == b"weights"
    made = tokenizer.load_tokenizer(found.folder)
    for text in ('{"delta": "-1", ', "caf\u00e9 12345 HIGH\n"):
        assert tokenizer.encode_text(made, text) == tokenizer.encode_text(expected, text)
    monkeypatch.setattr(models, "_converted_tokenizer", lambda *_: pytest.fail("converted twice"))
    assert resolve(str(folder), weights=True) == found


def test_a_tokenizer_that_cannot_be_converted_is_one_clear_error(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(ModelNotSupportedError, match=r"has no tokenizer\.json"):
        resolve(str(folder), weights=False)


def test_a_template_file_goes_before_the_one_in_the_configuration(folder):
    files = configure(folder, chat_template="from the configuration")
    assert files.chat_template() == "from the configuration"
    (folder / "chat_template.jinja").write_text("from its own file")
    assert files.chat_template() == "from its own file"


def test_of_named_templates_the_default_is_taken(folder):
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert configure(folder, chat_template=named).chat_template() == "d"
    assert configure(folder, chat_template=named[:1]).chat_template() == ""


def test_a_template_in_chat_template_json_is_found_last(folder):
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "old place"}))
    assert configure(folder, chat_template="c").chat_template() == "c"
    assert configure(folder, chat_template=None).chat_template() == "old place"


def test_a_model_without_template_has_an_empty_one(folder):
    assert configure(folder, chat_template=None).chat_template() == ""


def test_special_tokens_are_texts_whether_declared_as_text_or_as_object(folder):
    files = configure(folder, bos_token={"content": "<s>", "lstrip": False}, eos_token="</s>", pad_token=None)
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<p>", "cls_token": "<c>"}))
    assert files.special_tokens() == {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<c>"}


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_configuration_is_an_error_and_not_a_traceback(folder, damage):
    (folder / "tokenizer_config.json").write_bytes(damage)
    for ask in (ModelFiles("m", folder).chat_template, ModelFiles("m", folder).special_tokens):
        with pytest.raises(PcdcError):
            ask()


def test_a_fingerprint_is_the_one_the_tokenizer_has(folder):
    assert fingerprint_of(folder) == tokenizer.fingerprint(tokenizer.load_tokenizer(folder))


def test_a_known_tokenizer_file_is_not_loaded_again(folder, monkeypatch):
    first = fingerprint_of(folder)
    monkeypatch.setattr(tokenizer, "load_tokenizer", lambda _: pytest.fail("loaded a tokenizer"))
    assert fingerprint_of(folder) == first


def test_a_changed_tokenizer_file_is_seen(folder):
    before = fingerprint_of(folder)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"NFC"', '"NFKC"', 1))
    assert fingerprint_of(folder) != before


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"%s": 5}', b"\xff", b'{"%s": "not a digest"}'])
def test_a_damaged_memo_is_ignored_and_rebuilt(folder, cache, damage):
    expected = fingerprint_of(folder)
    memo = cache / "fingerprints.json"
    (key,) = json.loads(memo.read_text())
    memo.write_bytes(damage.replace(b"%s", key.encode()))
    assert fingerprint_of(folder) == expected
    assert json.loads(memo.read_text()) == {key: expected}


def test_a_memo_remembers_every_tokenizer_it_saw(folder, cache):
    fingerprints = {fingerprint_of(folder), fingerprint_of(family_folder("mistral"))}
    assert set(json.loads((cache / "fingerprints.json").read_text()).values()) == fingerprints
    assert [f.name for f in cache.iterdir()] == ["fingerprints.json"]


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    expected = fingerprint_of(folder)
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "file" / "below"))
    assert fingerprint_of(folder) == expected


def test_models_are_named_without_importing_mlx_or_a_hub_client(folder):
    script = (
        "import sys; from pcdc_runtime import models; f = models.resolve(sys.argv[1], weights=False);"
        "models.fingerprint_of(f.folder); print(*{'mlx', 'transformers', 'huggingface_hub'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", script, str(folder)]
    assert subprocess.check_output(command, cwd=Path(__file__).parents[2], text=True).strip() == ""
