"""The tokenizer fixtures themselves: what they promise to tests that stand on them."""

import json

import pytest
from pcdc_runtime.models import ModelFiles, resolve
from tokenizers import Tokenizer

from tests.families import FAMILIES, TRIMMED, family_folder
from tests.fixtures.trim import trimmed_files

COMMITTED = [name for name, family in FAMILIES.items() if family.committed]
PARTS = ("normalizer", "pre_tokenizer", "decoder")


def whole(name: str, full: bool) -> dict:
    return json.loads((family_folder(name, full) / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_tokenizer_is_what_the_script_makes_of_the_pinned_one(name):
    for file, content in trimmed_files(name).items():
        assert (TRIMMED / name / file).read_bytes() == content, file


def test_only_families_whose_licence_allows_it_are_committed():
    assert sorted(f.name for f in TRIMMED.iterdir() if f.is_dir()) == sorted(COMMITTED)
    assert "llama3" not in COMMITTED


@pytest.mark.parametrize("name", COMMITTED)
def test_trimming_keeps_the_rules_and_leaves_no_gap_in_the_ids(name):
    small, full = whole(name, False), whole(name, True)
    assert {k: small[k] for k in PARTS} == {k: full[k] for k in PARTS}
    ids = Tokenizer.from_file(str(family_folder(name) / "tokenizer.json")).get_vocab().values()
    assert sorted(ids) == list(range(len(ids)))
    assert {t for t in full["model"]["vocab"] if '"' in t} == {t for t in small["model"]["vocab"] if '"' in t}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_folder_is_a_model_folder_with_a_template(name, full):
    folder = family_folder(name, full)
    files = resolve(str(folder), weights=False)
    assert "messages" in files.chat_template()
    loaded = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in files.special_tokens().values():
        assert loaded.encode(text, add_special_tokens=False).ids == [loaded.token_to_id(text)]
    width = json.loads((folder / "config.json").read_text())["vocab_size"]
    assert max(loaded.get_vocab().values()) < width


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rendered_template_encodes_to_control_tokens(name):
    from transformers.utils.chat_template_utils import render_jinja_template

    files = ModelFiles(name, family_folder(name))
    messages = [{"role": "user", "content": "QUESTION"}]
    rendered, _ = render_jinja_template(
        [messages], chat_template=files.chat_template(), add_generation_prompt=True, **files.special_tokens()
    )
    assert rendered[0].count("QUESTION") == 1
    loaded = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    special = {t["id"] for t in whole(name, False)["added_tokens"]}
    assert loaded.encode(rendered[0], add_special_tokens=False).ids[0] in special
