"""The prompt of an index: its question and examples, no list of its labels, and an exact cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judging import target_of
from pcdc_runtime.tokenizer import encode_text

from pcdc.indexing.definition import Entries, IndexDefinition
from pcdc.indexing.prompting import INDEX_PROMPT_VERSION, render_index_prompt

LABELS = ["Quarzstadt", 'Sankt "Anna"', "Écully", "東京"]
EXAMPLES = (("Where are crystals?", "Quarzstadt"), ("</input_text>\n</example_text>", 'Sankt "Anna"'))
INDEX = IndexDefinition(
    name="towns",
    field="town",
    question="Which town is meant?",
    instructions="",
    examples=EXAMPLES,
    temperature=1.0,
    entries=Entries(LABELS, LABELS, lambda _: None),
)
FAMILIES = ["smollm2", "qwen3", "mistral", "deepseek"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompt_asks_shows_examples_and_lists_no_labels(family):
    text = render_index_prompt(INDEX, target_of(family)).text
    assert text.count("Which town is meant?") == 1
    for query, _ in EXAMPLES:
        assert text.count(query) == 1
    assert text.index('{"town": "Quarzstadt"}') < text.index('{"town": "Sankt \\"Anna\\""}')
    assert "Écully" not in text
    assert "東京" not in text
    assert text.count("Quarzstadt") == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("context", ["Tokyo", "", " \n", "\n\nx\n", "é</input_text>", "{context}"])
def test_head_context_and_tail_are_what_the_whole_prompt_encodes_to(family, context):
    target = target_of(family)
    prompt = render_index_prompt(INDEX, target)
    cut, line = prompt.cut, '{"town": "Quarzstadt"}'
    piece = encode_text(target.tokenizer, cut.pre + context + cut.post)
    parts = [*cut.head[: len(cut.head) - cut.shared], *piece, *cut.tail[cut.tail_overlap :]]
    (answer,) = prompt.encode_lines([line])
    before, _, after = prompt.text.rpartition(cut.pre + "{context}" + cut.post)
    whole = target.tokenizer.encode(
        before + cut.pre + context + cut.post + after + line, add_special_tokens=False
    )
    assert [int(t) for t in parts] + answer == whole.ids


@pytest.mark.parametrize("family", FAMILIES)
def test_no_example_spells_a_fence(family):
    prompt = render_index_prompt(INDEX, target_of(family))
    assert f"<{prompt.cut.fence}>" in prompt.cut.pre
    for query, _ in EXAMPLES:
        assert prompt.cut.fence not in query
    fence = prompt.text.partition("<example")[2].partition(">")[0]
    assert prompt.text.count(f"</example{fence}>") == len(EXAMPLES)


@pytest.mark.parametrize("question", ["", "  ", "Which?\n"])
@pytest.mark.parametrize("instructions", ["", "Find it."])
@pytest.mark.parametrize("examples", [(), EXAMPLES[:1]])
def test_a_prompt_needs_neither_question_nor_instructions_nor_examples(question, instructions, examples):
    changed = replace(INDEX, question=question, instructions=instructions, examples=examples)
    prompt = render_index_prompt(changed, target_of("smollm2"))
    assert len(prompt.cut.head) > 0
    assert ("Examples:" in prompt.text) == bool(examples)
    assert instructions in prompt.text
    assert question.strip() in prompt.text


def test_equal_definitions_have_one_prompt_and_each_part_changes_it():
    target = target_of("smollm2")
    texts = {
        render_index_prompt(replace(INDEX, **changed), target).text
        for changed in ({}, {"question": "?"}, {"instructions": "x"}, {"examples": ()}, {"field": "city"})
    }
    assert len(texts) == 5
    again = replace(INDEX, name="other", temperature=2.0, entries=Entries([], [], lambda _: None))
    assert render_index_prompt(again, target).text == render_index_prompt(INDEX, target).text


def test_the_wording_is_the_one_that_was_measured():
    """A change here is a change of every answer: INDEX_PROMPT_VERSION goes up with it."""
    prompt = render_index_prompt(replace(INDEX, examples=EXAMPLES[:1]), target_of("smollm2"))
    assert (
        "Answer the question about the text. The answer is one name from a catalog.\n"
        "Answer with exactly one line of JSON, with the name exactly as the catalog writes it.\n\n"
        "Which town is meant?\n\n"
        "Examples:\n\n"
        "<example_text>\nWhere are crystals?\n</example_text>\n"
        '{"town": "Quarzstadt"}'
    ) in prompt.text
    assert INDEX_PROMPT_VERSION == "2.1"
