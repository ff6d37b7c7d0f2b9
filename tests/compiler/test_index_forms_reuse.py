"""An earlier index spares work and changes nothing."""

import numpy as np
import pytest
from judging import target_of
from pcdc_runtime.indexed.codec import open_index, write_index

from pcdc.indexing.definition import Entries, IndexDefinition
from pcdc.indexing.emit import compile_index
from pcdc.indexing.forms import tokenize_entries
from pcdc.indexing.prompting import render_index_prompt

LABELS = [
    "billing", "C#", "A.", "-1", "café", "cafe\u0301", "x)", "say \"hi\"", "\\", "12", "Łódź", "a|b",
    "two words", "|", "GPL-3.0", "GPL-3.0+", "yes ",
]  # fmt: skip


def definition_of(labels, field="is", question="Which?", examples=()):
    ids = [f"id{n}" for n in range(len(labels))]
    return IndexDefinition("x", field, question, "", examples, 1.0, Entries(labels, ids, lambda n: None))


def index_of(target, definition, old=None):
    index, problems = compile_index(definition, target, old)
    assert index is not None, problems
    return index


def counts(target, definition, old):
    prompt = render_index_prompt(definition, target)
    tokenized, _ = tokenize_entries(definition, prompt, target, old)
    return tokenized.reused, tokenized.tokenized


@pytest.mark.parametrize("family", ["smollm2", "qwen3", "mistral", "deepseek"])
@pytest.mark.parametrize("seed", range(4))
def test_an_index_made_from_an_earlier_one_is_byte_equal_to_a_fresh_one(family, seed, tmp_path):
    random = np.random.default_rng(seed)
    target = target_of(family)
    before = random.permutation(LABELS)[: int(random.integers(2, 14))].tolist()
    after = random.permutation(LABELS)[: int(random.integers(2, 14))].tolist()
    write_index(tmp_path / "x.pcdx", index_of(target, definition_of(before)))
    old = open_index(tmp_path / "x.pcdx")
    definition = definition_of(after)
    write_index(tmp_path / "again.pcdx", index_of(target, definition, old))
    write_index(tmp_path / "fresh.pcdx", index_of(target, definition))
    assert (tmp_path / "again.pcdx").read_bytes() == (tmp_path / "fresh.pcdx").read_bytes()
    kept = len(set(before) & set(after))
    assert counts(target, definition, old) == (kept, len(after) - kept)


def test_another_question_keeps_the_forms():
    target = target_of("smollm2")
    old = index_of(target, definition_of(LABELS))
    asked = definition_of(LABELS, question="What else?", examples=(("a text", "billing"),))
    assert counts(target, asked, old) == (len(LABELS), 0)
    assert index_of(target, asked, old) == index_of(target, asked)


def test_another_field_or_tokenizer_keeps_nothing():
    target = target_of("smollm2")
    old = index_of(target, definition_of(LABELS))
    assert counts(target, definition_of(LABELS, field="other"), old) == (0, len(LABELS))
    other = target_of("qwen3")
    assert counts(other, definition_of(LABELS), old) == (0, len(LABELS))
    assert index_of(other, definition_of(LABELS), old) == index_of(other, definition_of(LABELS))


def test_labels_that_repeat_or_join_an_entry_are_taken_from_it_alike():
    target = target_of("qwen3")
    old = index_of(target, definition_of(["one", "caf\u00e9", "cafe\u0301", "two", "two"]))
    after = definition_of(["cafe\u0301", "two", "three", "caf\u00e9", "two", "cafe\u0301"])
    assert index_of(target, after, old) == index_of(target, after)
    assert counts(target, after, old) == (5, 1)


def test_a_label_that_moves_the_opening_is_no_obstacle():
    target = target_of("qwen3")
    plain, merging = definition_of(["a", "b"]), definition_of(["a", "b", "|", "-1"])
    for before, after in ((plain, merging), (merging, plain)):
        old = index_of(target, before)
        assert counts(target, after, old)[0] == 2
        assert index_of(target, after, old) == index_of(target, after)
