"""Selection on real models: every label's probability against a plain full forward for each of its forms."""

import math
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from families import family_folder
from fielded import index_of
from forest import tiny
from judging import compiled, target_of
from oracle import Oracle, log_softmax
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.models import DEFAULT, resolve
from pcdc_runtime.selecting.selector import Selector
from pcdc_runtime.tokenizer import load_tokenizer
from seeded import seeded
from test_law_smollm2 import plain_oracle

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target

DRUGS = """
Aceclofenac Acetaminophen Aciclovir Adalimumab Alendronic_acid Allopurinol Amiodarone Amlodipine
Amoxicillin Apixaban Aspirin Atenolol Atorvastatin Azithromycin Baclofen Bisoprolol Codeine
Codeine_phosphate Diazepam Diclofenac Digoxin Enalapril Fluoxetine Furosemide Ibuprofen Insulin
Insulin_glargine Levothyroxine Metformin Metoprolol Morphine Naproxen Omeprazole Paracetamol
Penicillin Ramipril Salbutamol Warfarin Åcetat_💊
"""
NAMES = DRUGS.split()
CONTEXTS = (
    "The patient got warfarin after the stroke and is doing well.",
    "Diabetes type 2, started on metformin 500 mg, later on insulin. " * 3,
)
FEW = ["Codeine", "Codeine_phosphate", "Warfarin", "\u00c5cetat \U0001f48a"]
EXAMPLE = {"context": "he took some codeine for his headache", "answers": {"drug": "Codeine"}}
TINY = {"vocab_size": target_of("smollm2").tokenizer.get_vocab_size(), "max_position_embeddings": 4096}
EXACT = 1e-4


def schema_of(names):
    question = {"type": "enum", "choices": names, "description": "Which drug is this text about?"}
    schema, problems = parse_mapping({"x-pcdc": {"examples": [EXAMPLE]}, "drug": question})
    assert schema is not None, problems
    return schema


def tiny_oracle(family):
    model = seeded(family, **TINY)

    def log_probs(path, first):
        return log_softmax(np.array(model(mx.array([path]))[0, first:].astype(mx.float32)).astype(np.float64))

    return Oracle(family_folder("smollm2") / "tokenizer.json", log_probs)


def judged(selector, artifact, oracle, context, names):
    """Selects all labels and checks each answer, their order and all that is said of them."""
    prompt = artifact.prompt_text.replace("{context}", context)
    truth = dict(zip(names, oracle.score(prompt, "drug", [[f'"{name}"'] for name in names]), strict=True))
    whole = sum(map(math.exp, truth.values()))
    selection = selector.select(context, k=len(names), budget=100_000)
    assert selection.certified
    found = {answer.label: answer.log_probability for answer in selection.answers}
    assert found == pytest.approx(truth, abs=EXACT)
    assert selection.legal_mass == pytest.approx((whole, whole), rel=EXACT)
    logs = [truth[answer.label] for answer in selection.answers]
    assert all(first > second - EXACT for first, second in pairwise(logs))
    for call in ({}, {"k": 3}, {"k": 3, "budget": 20}, {"top": 50}, {"method": "trie", "beam": 2}):
        part = selector.select(context, **call)
        for answer in part.answers:
            log = truth[answer.label]
            assert answer.log_probability - EXACT <= log <= answer.log_probability_high + EXACT
            low, high = answer.probability
            assert low - EXACT <= math.exp(log) / whole <= high + EXACT
        given = {answer.label for answer in part.answers}
        assert max(p for name, p in truth.items() if name not in given) <= math.log(part.bound) + EXACT
        assert part.kv_copied == 0
        if part.certified:
            assert [answer.label for answer in part.answers] == [
                answer.label for answer in selection.answers[: len(part.answers)]
            ]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "qwen3_moe"])
def test_exact_equals_enumeration_by_plain_forwards(family):
    artifact = compiled(schema_of(FEW), target_of("smollm2"))
    opener = lambda: (tiny(family, chunk=512, **TINY), load_tokenizer(family_folder("smollm2")))  # noqa: E731
    with Selector(index_of(artifact, "drug"), LoadedModel(family, opener)) as selector:
        assert selector.select("Another context first.").kv_copied == 0
        judged(selector, artifact, tiny_oracle(family), CONTEXTS[0], FEW)


@pytest.fixture(scope="module")
def target():
    """The compiler's view of the embedded model."""
    target, problems = load_target(resolve(DEFAULT, weights=True))
    assert target is not None, problems
    return target


def test_the_embedded_model_selects_what_its_plain_forwards_find_most_probable(target):
    artifact = compiled(schema_of(FEW), target)
    with Selector(index_of(artifact, "drug"), open_model(DEFAULT)) as selector:
        judged(selector, artifact, plain_oracle(resolve(DEFAULT, weights=True).folder), CONTEXTS[0], FEW)


def test_a_selection_and_an_engine_agree_on_one_prompt(target):
    artifact = compiled(schema_of(NAMES), target)
    index = index_of(artifact, "drug")
    with Engine(artifact, open_model(DEFAULT)) as engine, Selector(index, open_model(DEFAULT)) as selector:
        for context in CONTEXTS:
            answer = engine.run(context).fields["drug"]
            selection = selector.select(context, k=len(NAMES))
            found = {one.label: one.log_probability for one in selection.answers}
            assert found == pytest.approx(dict(zip(NAMES, answer.log_scores, strict=True)), abs=EXACT)
            assert selection.best.probability == pytest.approx((answer.prob, answer.prob), abs=EXACT)
