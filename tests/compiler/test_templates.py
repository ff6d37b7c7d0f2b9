"""Chat templates and tokenizers that misbehave: refused with a code, never a hang or a traceback."""

from __future__ import annotations

import json
import shutil

import pytest
from families import family_folder
from pcdc_runtime.models import ModelFiles
from tokenizers import Tokenizer, models, pre_tokenizers

from pcdc import template as templates
from pcdc.build import build
from pcdc.emit import compile_schema
from pcdc.parse import parse_mapping
from pcdc.prompt import load_target

LOOP = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ CONTENT }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def folder(tmp_path):
    """A copy of a model's folder, to be edited."""
    return shutil.copytree(family_folder("smollm2"), tmp_path / "model")


def with_template(folder, template):
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"chat_template": template}), encoding="utf-8")
    return ModelFiles("model", folder)


def test_a_template_that_never_ends_is_refused(folder, monkeypatch):
    monkeypatch.setattr(templates, "CPU_SECONDS", 1)
    loops = "".join(f"{{% for {c} in range(99999) %}}" for c in "abcd") + "{% endfor %}" * 4
    target, (problem,) = load_target(with_template(folder, loops))
    assert (target, problem.code) == (None, "PCDC301")
    assert "does not finish" in problem.fact


@pytest.mark.parametrize("text", ["{{ 'a' * 10**10 }}", "{{ 'a' * 5000000 }}"])
def test_a_template_that_eats_memory_is_refused(folder, text):
    target, (problem,) = load_target(with_template(folder, text))
    assert (target, problem.code) == (None, "PCDC301")


@pytest.mark.parametrize(
    "content",
    [
        "m['content'] | upper",
        "m['content'] | title",
        "m['content'] | tojson",
        "m['content'] | e",
        "m['content'] | replace('\\n', ' ')",
        "m['content'].split() | join(' ')",
        "m['content'] | lower",
    ],
)
def test_a_template_that_rewrites_what_is_put_into_it_is_refused(folder, content):
    target, (problem,) = load_target(with_template(folder, LOOP.replace("CONTENT", content)))
    assert (target, problem.code) == (None, "PCDC301")
    assert "rewrites" in problem.fact


@pytest.mark.parametrize("content", ["m['content']", "m['content'] | trim"])
def test_a_template_that_trims_or_copies_is_taken(folder, content):
    target, problems = load_target(with_template(folder, LOOP.replace("CONTENT", content)))
    assert problems == []
    schema, _ = parse_mapping(
        {
            "x-pcdc": {"instructions": " \n Sort it.\n"},
            "urgent": {"type": "boolean", "description": " Is it urgent? \n"},
        }
    )
    artifact, problems = compile_schema(schema, target)
    assert problems == []
    assert "<|im_start|>system\nSort it.\n" in artifact.prompt_text


def word_level():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[UNK]"])
    return tokenizer


def unigram():
    return Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=None))


@pytest.mark.parametrize("make", [word_level, unigram])
def test_a_tokenizer_that_loses_characters_is_refused(folder, tmp_path, make):
    make().save(str(folder / "tokenizer.json"))
    (tmp_path / "s.json").write_text('{"urgent": {"type": "boolean", "description": "?"}}')
    report = build([tmp_path / "s.json"], [str(folder)], tmp_path / "out")
    assert [t.outcome for t in report.targets] == ["failed"]
    assert [d.code for d in report.diagnostics] == ["PCDC302"]


@pytest.mark.parametrize(
    "config", [{"max_position_embeddings": 64}, {"text_config": {"max_position_embeddings": 64}}]
)
def test_a_schema_longer_than_the_window_does_not_compile(folder, tmp_path, config):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    (tmp_path / "s.json").write_text('{"urgent": {"type": "boolean", "description": "' + "long " * 99 + '"}}')
    report = build([tmp_path / "s.json"], [str(folder)], tmp_path / "out")
    (problem,) = report.diagnostics
    assert (problem.code, "64 tokens" in problem.limit) == ("PCDC307", True)
