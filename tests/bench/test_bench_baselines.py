"""The baselines: the oracle says what our engine says, rows what `trie` says, the published engine runs."""

from __future__ import annotations

import importlib.util
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import TableModel, loaded
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import ContextTooLongError, ExtraMissingError, ModelNotSupportedError
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.models import DEFAULT
from tiny import write_tiny

import pcdc
from pcdc.bench import branches, caches, foresight, oracle, published, rows
from pcdc.bench.methods import entries
from pcdc.bench.ours import hold
from pcdc.bench.sweep import context_tokens
from pcdc.bench.written import GUIDED, STEPWISE, maker

DEFINITION = {
    "department": {
        "type": "enum",
        "description": "Which department handles this?",
        "choices": ["BILLING", "BILLING_DISPUTE", "BILLING DISPUTE ABROAD", "-1", 'a "q" \\ é', None],
    },
    "urgent": {"type": "boolean", "description": "Is it urgent?"},
    "a_longer_name_of_a_field": {
        "type": "enum",
        "description": "Which?",
        "choices": [3, 33, 333, -0.5, 1e16],
    },
    "tier": {"type": "enum", "description": "Which tier?", "choices": ["P0", "P1", "P2", "P3"]},
    "sure": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "description": "Is that sure?"},
}
ONE = {
    "code": {
        "type": "enum",
        "description": "Which?",
        "choices": [f"{n:04}.{n % 7}0" for n in range(0, 4000, 57)],
    }
}
CONTEXTS = ("The invoice of May was charged twice.", "", "Checkout fails for every customer!" * 20)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module", params=[DEFINITION, ONE], ids=["five fields", "one wide field"])
def artifact(request, tiny):
    return pcdc.compile(request.param, str(tiny), name="made")


@pytest.fixture(scope="module")
def model(tiny):
    with open_model(str(tiny)) as opened:
        yield opened


def log_scores(engine, context, rule):
    return {name: field.log_scores for name, field in engine.run(context, scoring=rule).fields.items()}


def largest_difference(left, right):
    assert list(left) == list(right)
    return max(np.abs(np.array(left[name]) - np.array(right[name])).max() for name in left)


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_oracle_and_our_engine_score_every_choice_alike(artifact, model, context):
    with Engine(artifact, model.share()) as engine:
        ours = log_scores(engine, context, "joint")
    judge = oracle.make(artifact, model)
    answer = judge.answer(context)
    judge.close()
    assert largest_difference(answer.log_scores, ours) < 1e-4
    for field in artifact.fields:
        best = int(np.argmax(ours[field.name]))
        assert answer.values[field.name] == field.candidates[best].value


SPOILED = {
    "the closing is left out": lambda s: replace(s, closing=(s.closing[0],)) if s.choice else s,
    "another token closes": lambda s: replace(s, closing=(s.closing[0] + 1,)),
    "a forced token is scored": lambda s: replace(s, forced=s.forced - s.choice),
    "the last token is another": lambda s: replace(s, tokens=(*s.tokens[:-1], s.tokens[-1] ^ 1)),
    "a spelling counts for the next choice": lambda s: replace(s, choice=max(0, s.choice - 1)),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=list(SPOILED))
def test_a_spoiled_oracle_is_noticed(artifact, model, spoil, monkeypatch):
    with Engine(artifact, model.share()) as engine:
        ours = log_scores(engine, CONTEXTS[0], "joint")
    spellings = oracle.spellings
    monkeypatch.setattr(oracle, "spellings", lambda artifact: [spoil(s) for s in spellings(artifact)])
    judge = oracle.make(artifact, model)
    answer = judge.answer(CONTEXTS[0])
    judge.close()
    with np.errstate(invalid="ignore"):
        assert not largest_difference(answer.log_scores, ours) < 0.01


def test_the_size_of_a_batch_changes_no_score(artifact, model, monkeypatch):
    judge = oracle.make(artifact, model)
    whole = judge.answer(CONTEXTS[0])
    monkeypatch.setattr(caches, "KV_BYTES", 0)
    one_by_one = judge.answer(CONTEXTS[0])
    judge.close()
    assert largest_difference(whole.log_scores, one_by_one.log_scores) < 1e-4
    assert one_by_one.forwards == len(oracle.spellings(artifact)) > whole.forwards
    assert one_by_one.kv_bytes < whole.kv_bytes


@pytest.mark.parametrize("context", CONTEXTS)
def test_rows_per_branch_score_as_the_trie_rule_does(artifact, model, context):
    with Engine(artifact, model.share()) as engine:
        ours = log_scores(engine, context, "trie")
    method = branches.make(artifact, model)
    answer = method.answer(context)
    method.close()
    assert largest_difference(answer.log_scores, ours) < 1e-4


def best_way(root, scores):
    """The choice at the end of the best options, and the log of their product, by the scores of branches."""
    branch, log = root.parting(), 0.0
    while len(branch.choices) > 1:
        options = scores(branch)
        log += max(options)
        best = options.index(max(options))
        if best >= len(branch.onward):
            return list(branch.closing.values())[best - len(branch.onward)], log
        branch = list(branch.onward.values())[best].parting()
    return min(branch.choices), log


@pytest.mark.parametrize("context", CONTEXTS)
def test_rows_per_field_take_the_best_option_at_each_branch(artifact, model, context):
    judge = rows.make(artifact, model)
    answer, logs = judge.decide(context)
    prompt = oracle.PromptCache(artifact, model)

    def options(branch):
        """By a plain forward of the whole text, for this branch alone."""

        def logits():
            import mlx.core as mx
            from pcdc_runtime.tokenizer import assemble_prompt

            ids = [*assemble_prompt(model.tokenizer, artifact.prompt, context).tolist(), *branch.tokens]
            return np.array(model.language.language(mx.array(ids)[None])[0, -1].astype(mx.float32))

        return branch.log_softmax(model.call(logits)).tolist()

    for field, root, log in zip(artifact.fields, judge.roots, logs, strict=True):
        choice, expected = best_way(root, options)
        assert answer.values[field.name] == field.candidates[choice].value
        assert log == pytest.approx(expected, abs=1e-4)
    prompt.close()
    judge.close()


def test_a_choice_spelled_in_one_way_gets_its_trie_score_from_rows_per_field(tiny, model):
    artifact = pcdc.compile(ONE, str(tiny), name="one")
    with Engine(artifact, model.share()) as engine:
        ours = log_scores(engine, CONTEXTS[0], "trie")["code"]
    method = rows.make(artifact, model)
    answer, (log,) = method.decide(CONTEXTS[0])
    method.close()
    (field,) = artifact.fields
    assert log == pytest.approx(
        ours[[c.value for c in field.candidates].index(answer.values["code"])], abs=1e-4
    )


@pytest.mark.parametrize("module", [oracle, rows, branches])
def test_a_warm_head_changes_counts_and_nothing_else(artifact, model, module):
    method = module.make(artifact, model)
    first = method.answer(CONTEXTS[0])
    other = method.answer(CONTEXTS[2])
    again = method.answer(CONTEXTS[0])
    method.close()
    assert first.values == again.values
    if first.log_scores is not None:
        assert largest_difference(first.log_scores, again.log_scores) < 1e-4
    assert first.positions < len(artifact.prompt.head) + other.positions
    assert first.passes >= 2


def test_counts_are_those_of_the_arrays(tiny, model):
    artifact = pcdc.compile(DEFINITION, str(tiny), name="made")
    method = branches.make(artifact, model)
    answer = method.answer(CONTEXTS[0])
    token = model.language.kv_bytes_per_token
    rows_run = len(method._branches)
    longest = 1 + max(len(branch.tokens) for branch in method._branches)
    length = method.prompt._cache[0].size()
    capacity = method.prompt._cache[0].keys.shape[2]
    method.close()
    assert answer.forwards == 2
    assert answer.positions == length - len(artifact.prompt.head) + rows_run * longest
    copies = rows_run * (length + longest) * token
    assert answer.kv_bytes == copies + capacity * token
    assert answer.kv_copied >= copies


def test_growing_a_cache_counts_what_it_moves(model):
    def grow():
        import mlx.core as mx

        language = model.language
        counted = caches.CountedModel(language.language, language.trunk)
        cache = caches.plain_cache(counted, "tiny")
        counted(mx.zeros((1, 200), mx.int32), cache)
        assert counted.kv_copied == 0
        counted(mx.zeros((1, 100), mx.int32), cache)
        return counted

    counted = model.call(grow)
    assert (counted.forwards, counted.positions) == (2, 300)
    assert counted.kv_copied == 200 * model.language.kv_bytes_per_token


@pytest.mark.parametrize("module", [oracle, rows, branches])
def test_a_window_is_no_limit_that_a_baseline_passes(tmp_path, module):
    folder = write_tiny(tmp_path / "tiny")
    artifact = pcdc.compile(DEFINITION, str(folder), name="made")
    with open_model(str(folder)) as opened:
        method = module.make(artifact, opened)
        with pytest.raises(ContextTooLongError):
            method.answer("word " * 5000)
        assert method.answer("word").forwards
        method.close()


@pytest.mark.parametrize("module", [oracle, rows, branches])
def test_sliding_windows_are_refused_by_name(module, artifact, model):
    from forest import tiny as small

    def opener():
        return small("gemma3_text", vocab_size=model.language.logits_width), model.tokenizer

    with LoadedModel("gemma", opener) as sliding, pytest.raises(ModelNotSupportedError, match="Rotating"):
        module.make(artifact, sliding)


def test_the_published_engine_answers_on_our_weights(artifact, model):
    method = published.make(artifact, model)
    answer = method.answer(CONTEXTS[0])
    again = method.answer(CONTEXTS[0])
    method.close()
    for field in artifact.fields:
        assert answer.values[field.name] in [candidate.value for candidate in field.candidates]
    assert answer.values == again.values
    assert answer.forwards == answer.passes >= 2
    assert answer.positions == again.positions > 0
    buffer = 256 * model.language.kv_bytes_per_token
    assert answer.kv_copied >= len(artifact.fields) * buffer
    assert answer.kv_bytes >= (1 + len(artifact.fields)) * buffer
    assert "0.1.4" in method.title


def test_the_published_engine_sees_the_context(tiny, model):
    artifact = pcdc.compile(DEFINITION, str(tiny), name="made")
    method = published.make(artifact, model)
    short, long = (method.answer(context) for context in ("", CONTEXTS[2]))
    method.close()
    words = len(model.tokenizer.encode(CONTEXTS[2]).ids)
    assert long.positions - short.positions == pytest.approx(words, abs=12)


def test_without_its_package_the_published_engine_is_named_missing(artifact, model, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pcd_rlcd" else found(name))
    with pytest.raises(ExtraMissingError, match=r"pip install --no-deps pcd-rlcd==0\.1\.4"):
        published.make(artifact, model)


def test_a_model_in_no_folder_is_refused_by_the_published_engine(artifact):
    with (
        loaded(TableModel(lambda path: path)) as table,
        pytest.raises(ModelNotSupportedError, match="no folder"),
    ):
        published.make(artifact, table)


@pytest.fixture(scope="module")
def embedded():
    with open_model(DEFAULT) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("code_audit", {"joint": oracle}),
        ("fraud_routing", {"joint": oracle, "trie": branches, "best way": rows, "own prompt": published}),
    ],
)
def test_on_the_embedded_model_the_baselines_agree_with_ours(name, methods, embedded):
    definition = json.loads((ROOT / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    artifact = pcdc.compile(definition, DEFAULT)
    context = (ROOT / "schemas" / "examples" / f"{name}.1.txt").read_text(encoding="utf-8")
    with Engine(artifact, embedded.share()) as engine:
        for rule, module in methods.items():
            method = module.make(artifact, embedded)
            answer = method.answer(context)
            method.close()
            assert list(answer.values) == [field.name for field in artifact.fields]
            if answer.log_scores is not None:
                assert largest_difference(answer.log_scores, log_scores(engine, context, rule)) < 1e-4


def written(way, artifact, model):
    return maker(way)(artifact, model).answer(CONTEXTS[0])


def test_stepwise_writes_what_llguidance_writes_with_a_pass_for_every_token(artifact, model):
    stepwise, guided = (written(way, artifact, model) for way in (STEPWISE, GUIDED))
    assert stepwise.values is not None
    assert stepwise.values.keys() == guided.values.keys()
    assert stepwise.passes == stepwise.tokens
    assert guided.passes < stepwise.passes


@pytest.mark.parametrize("key", ["rows", "branches", "oracle", "stepwise", "llguidance"])
def test_the_work_foreseen_is_about_the_work_counted(artifact, model, key):
    (entry,) = (entry for entry in entries() if entry.key == key)
    with closing(entry.make(artifact, model)) as method:
        hold(artifact, model, len(artifact.prompt.head))
        answer = method.answer(CONTEXTS[0])
    text = context_tokens(model.tokenizer, artifact, CONTEXTS[0]) + len(artifact.prompt.tail)
    copied = answer.kv_copied / model.language.kv_bytes_per_token
    context = len(artifact.prompt.head) + text
    counted = foresight.steps(answer.forwards, answer.positions, context, copied)
    assert 0.5 < entry.steps(artifact, text) / counted < 2
