"""The model's own JSON: what the grammar allows, what is forced, and that caching changes nothing."""

import itertools
import json
import math
import sys

import jsonschema
import mlx.core as mx
import numpy as np
import pytest
from fakes import TableModel
from families import FAMILIES, family_folder
from forest import tiny
from judging import compiled, target_of
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import (
    ContextTooLongError,
    ExtraMissingError,
    FingerprintMismatchError,
    ScoreError,
)
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.models import DEFAULT, resolve
from pcdc_runtime.tokenizer import assemble_prompt, encode_text, load_tokenizer
from pcdc_runtime.tree import CHUNK
from seeded import seeded

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target
from pcdc.writing import Writer, literals, longest_answer, read_answer

DEFINITION = {
    "department": {
        "type": "enum",
        "choices": ["BILLING", "BILLING_DISPUTE", "-1", "C#", 'a "q" \\ é 开/👍🏽', "{}"],
        "description": "Which?",
    },
    "urgent": {"type": "boolean", "description": "Is it urgent?"},
    'a "b" {F0': {"type": "enum", "choices": [3, 33, 1e16, -0.5, 12345678901234567890123, None]},
}
SCHEMA, _ = parse_mapping(DEFINITION)
ROUTING, _ = parse_mapping(
    {
        "department": {
            "type": "enum",
            "choices": ["BILLING", "TECHNICAL SUPPORT", "SALES"],
            "description": "Which department should answer?",
        },
        "urgent": {"type": "boolean", "description": "Is it urgent?"},
    },
)
CONTEXTS = ("The invoice of May was charged twice.", "", "Checkout fails for every customer!")


def declared(artifact):
    """The artifact's answers as a JSON schema, said again here."""
    return {
        "type": "object",
        "properties": {f.name: {"enum": [c.value for c in f.candidates]} for f in artifact.fields},
        "required": [f.name for f in artifact.fields],
        "additionalProperties": False,
    }


def answers(artifact):
    """Every valid answer as bytes, by plain enumeration."""
    spelled = [[(f.name, t) for c in f.candidates for t in literals(c)] for f in artifact.fields]
    for pairs in itertools.product(*spelled):
        inner = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {text}" for name, text in pairs)
        yield f"{{{inner}}}".encode()


@pytest.fixture(scope="module", params=[name for name, family in FAMILIES.items() if family.committed])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def artifact(family):
    return compiled(SCHEMA, target_of(family))


def settings(family, seed):
    width = target_of(family).tokenizer.get_vocab_size() + 64
    return {"vocab_size": width, "max_position_embeddings": 4096, "seed": seed}


def opened(family, seed=0):
    folder = family_folder(family)
    return LoadedModel(
        family, lambda: (tiny("llama", chunk=CHUNK, **settings(family, seed)), load_tokenizer(folder))
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_written_is_valid_under_the_schema(family, artifact, seed):
    valid = set(answers(artifact))
    with opened(family, seed) as model:
        writer = Writer(artifact, model)
        for context in CONTEXTS:
            written = writer.write(context)
            assert written.text.encode() in valid
            assert list(written.values) == [f.name for f in artifact.fields]
            jsonschema.validate(written.values, declared(artifact))
            assert written.reason == ""


@pytest.mark.parametrize("seed", [0, 1])
def test_forced_and_step_by_step_writing_give_the_same_text(family, artifact, seed):
    with opened(family, seed) as model:
        writer = Writer(artifact, model)
        fast = writer.write(CONTEXTS[0])
        slow = writer.write(CONTEXTS[0], fast_forward=False)
    assert fast.text == slow.text
    assert slow.forced_tokens == 0
    assert fast.sequential_passes < slow.sequential_passes


def test_each_decision_is_the_best_allowed_token_of_a_plain_forward(family, artifact):
    """Judged by a full forward of the unwired model and by enumeration, without llguidance."""
    valid = list(answers(artifact))
    tokenizer, vocabulary = target_of(family).tokenizer, target_of(family).vocabulary
    plain = seeded("llama", **settings(family, 0))
    with opened(family) as model:
        written = Writer(artifact, model).write(CONTEXTS[0])
    prompt = assemble_prompt(tokenizer, artifact.prompt, CONTEXTS[0]).tolist()
    logits = np.array(plain(mx.array([[*prompt, *written.tokens]]))[0].astype(mx.float32))
    spelled = vocabulary.bytes_of(list(written.tokens))
    text = written.text.encode()[: -len(b"".join(spelled))]
    special = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    every = vocabulary.bytes_of(sorted(set(tokenizer.get_vocab().values()) - special))
    ids = sorted(set(tokenizer.get_vocab().values()) - special)
    for position, (token, decided, piece) in enumerate(
        zip(written.tokens, written.decided, spelled, strict=True)
    ):
        rest = [answer[len(text) :] for answer in valid if answer.startswith(text)]
        if decided:
            row = logits[len(prompt) - 1 + position]
            allowed = [i for i, b in zip(ids, every, strict=True) if b and any(r.startswith(b) for r in rest)]
            assert token == max(allowed, key=lambda i, row=row: row[i])
        else:
            assert all(r.startswith(piece) for r in rest)
        text += piece
    assert text == written.text.encode()


def test_cached_heads_and_other_requests_change_nothing(family, artifact):
    with opened(family) as model, Engine(artifact, model.share()) as engine:
        before = engine.run(CONTEXTS[2]).fields
        writer = Writer(artifact, model)
        used = [writer.write(context) for context in (*CONTEXTS, CONTEXTS[0])]
        after = engine.run(CONTEXTS[2]).fields
    for context, written in zip((*CONTEXTS, CONTEXTS[0]), used, strict=True):
        with opened(family) as fresh:
            alone = Writer(artifact, fresh).write(context)
        assert written.tokens == alone.tokens
        assert written.positions < alone.positions
    for name, answer in before.items():
        assert after[name].log_scores == pytest.approx(answer.log_scores, abs=1e-4)


def test_passes_and_positions_are_counted(family, artifact):
    with opened(family) as model:
        writer = Writer(artifact, model)
        first = writer.write(CONTEXTS[0])
        prompt = assemble_prompt(model.tokenizer, artifact.prompt, CONTEXTS[0])
        again = writer.write(CONTEXTS[0])
    # What follows the last decision is forced and need not go through the model.
    run = len(first.tokens) - list(reversed(first.decided)).index(True) - 1
    assert first.sequential_passes == first.decided_tokens == first.passes
    assert first.positions == len(prompt) + run
    assert again.sequential_passes == again.passes == first.decided_tokens
    assert again.positions == run + 1
    assert first.kv_bytes == (len(prompt) + run) * model_bytes(family)
    assert first.decided_tokens + first.forced_tokens == len(first.tokens)


def model_bytes(family):
    return tiny("llama", **settings(family, 0)).kv_bytes_per_token


def test_a_limit_ends_the_writing_with_a_reason(family, artifact):
    with opened(family) as model:
        written = Writer(artifact, model).write(CONTEXTS[0], limit=3)
    assert (written.values, len(written.tokens)) == (None, 3)
    assert written.reason == "not finished after 3 tokens"


def scripted(answer, end=True, family="smollm2"):
    """A model that writes a text, then ends its turn; everything else is improbable."""
    tokenizer = target_of(family).tokenizer
    artifact = compiled(ROUTING, target_of(family))
    prompt = assemble_prompt(tokenizer, artifact.prompt, CONTEXTS[0]).tolist()
    opening = Writer(artifact, TABLE).text([])
    assert answer.startswith(opening)
    ids = tokenizer.encode(answer[len(opening) :], add_special_tokens=False).ids
    ids += [tokenizer.token_to_id("<|im_end|>")] if end else []

    def rule(path):
        row = np.zeros(TABLE_WIDTH, dtype=np.float32)
        at = len(path) - len(prompt)
        if at >= 0:
            row[ids[min(at, len(ids) - 1)]] = 9
        return row

    return artifact, rule


TABLE_WIDTH = target_of("smollm2").tokenizer.get_vocab_size() + 64
TABLE = LoadedModel(
    "table",
    lambda: (
        TableModel(lambda path: path, logits_width=TABLE_WIDTH, window=100_000),
        load_tokenizer(family_folder("smollm2")),
    ),
)


@pytest.mark.parametrize(
    ("answer", "values", "reason"),
    [
        (
            '{"department": "SALES", "urgent": false}',
            {"department": "SALES", "urgent": False},
            "",
        ),
        (
            '{"urgent": true,\n "department": "BILLING"}\n\nBecause',
            {"department": "BILLING", "urgent": True},
            "",
        ),
        ('{"department": "SALES"}', None, "1 of 2 fields missing"),
        ('{"department": "SALES", "urgent": "false"}', None, "a value of 'urgent'"),
        ('{"department": "sales", "urgent": false}', None, "a value of 'department'"),
        ('{"department": "SALES", "urgent": false, "why": 1}', None, "no field"),
        ('{"department": "SALES", "department": "SALES", "urgent": false}', None, "twice"),
        ('{"department": "SALES", "urgent": fal', None, "not JSON"),
    ],
)
def test_without_the_grammar_an_answer_counts_only_where_it_is_valid(answer, values, reason):
    artifact, TABLE.language.rule = scripted(answer)
    written = Writer(artifact, TABLE).write(CONTEXTS[0], constrained=False)
    assert written.values == values
    assert reason in written.reason
    assert written.forced_tokens == 0
    assert "im_end" not in written.text


def test_without_the_grammar_a_rambling_model_is_stopped():
    artifact, TABLE.language.rule = scripted('{"department": "SALES and', end=False)
    written = Writer(artifact, TABLE).write(CONTEXTS[0], constrained=False)
    assert written.values is None
    assert written.reason == f"not finished after {len(written.tokens)} tokens"
    longest = encode_text(TABLE.tokenizer, longest_answer(artifact))
    assert len(written.tokens) == 2 * len(longest)


def test_the_grammar_turns_a_model_that_wants_something_else_into_a_valid_answer():
    artifact, TABLE.language.rule = scripted('{"department": "Nothing of the sort"')
    written = Writer(artifact, TABLE).write(CONTEXTS[0])
    assert written.values is not None


def test_scores_that_are_no_numbers_are_an_error():
    artifact = compiled(ROUTING, target_of("smollm2"))
    TABLE.language.rule = lambda path: np.full(TABLE_WIDTH, math.nan, dtype=np.float32)
    with pytest.raises(ScoreError):
        Writer(artifact, TABLE).write(CONTEXTS[0])


def test_a_text_beyond_the_window_is_refused():
    artifact, TABLE.language.rule = scripted('{"department": "SALES", "urgent": false}')
    with pytest.raises(ContextTooLongError):
        Writer(artifact, TABLE).write("word " * 100_000)


def test_a_model_of_another_tokenizer_is_refused():
    with pytest.raises(FingerprintMismatchError):
        Writer(compiled(ROUTING, target_of("qwen3")), TABLE)


def test_without_llguidance_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ExtraMissingError, match=r"pcdc\[eval\]"):
        Writer(compiled(ROUTING, target_of("smollm2")), TABLE)


@pytest.mark.parametrize("text", ["", "[]", '"a"', "3", "nothing", "[" * 100_000])
def test_what_is_no_object_is_no_answer(text):
    values, reason = read_answer(text, compiled(ROUTING, target_of("smollm2")))
    assert values is None
    assert reason


def test_the_embedded_model_writes_the_same_answer_in_both_ways():
    target, problems = load_target(resolve(DEFAULT, weights=True))
    assert target is not None, problems
    artifact = compiled(ROUTING, target)
    with open_model(DEFAULT) as model:
        writer = Writer(artifact, model)
        for context in CONTEXTS[::2]:
            fast = writer.write(context)
            slow = writer.write(context, fast_forward=False)
            assert fast.text == slow.text
            jsonschema.validate(fast.values, declared(artifact))
            assert fast.passes < slow.passes
