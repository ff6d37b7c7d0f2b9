"""Variants of an artifact: in other orders, and with worked examples."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import ArtifactError, ContextTooLongError
from pcdc_runtime.loaded import open_model

import pcdc
from pcdc.evaluation.kept import Kept
from pcdc.evaluation.opening import Opening
from pcdc.evaluation.permute import MAX_TEXTS, permute, reordered
from pcdc.evaluation.propose import Paired, choose, declared, try_examples
from pcdc.evaluation.recompile import compiled, schema_of, target_of
from pcdc.evaluation.rows import Row, read_rows
from pcdc.schema import Example


def ignore(what, done, of):
    """Watches nothing."""


@pytest.fixture
def opening(artifact, tiny):
    with Opening(artifact, str(tiny)) as opened:
        yield opened


@pytest.fixture(scope="module")
def target(artifact, tiny):
    return target_of(artifact, str(tiny))


@pytest.fixture
def kept(tmp_path):
    with Kept(tmp_path / "scores.jsonl") as opened:
        yield opened


@pytest.fixture
def rows(artifact, labelled, tmp_path):
    return read_rows(labelled(tmp_path / "data.jsonl", 12), artifact)[0]


def test_an_artifact_s_own_schema_compiles_to_the_artifact(artifact, target, rows):
    assert compiled(schema_of(artifact), target) == artifact
    with_examples = dataclasses.replace(schema_of(artifact), examples=choose(rows, artifact, 3, 0))
    variant = compiled(with_examples, target)
    assert variant != artifact
    assert schema_of(variant) == with_examples
    assert compiled(schema_of(variant), target) == variant


def test_an_artifact_that_would_be_compiled_to_another_is_refused(artifact, tiny):
    foreign = dataclasses.replace(artifact, prompt_text=artifact.prompt_text + "!")
    with pytest.raises(ArtifactError, match="another version of pcdc"):
        target_of(foreign, str(tiny))


def test_reordering_moves_fields_and_choices_and_loses_none(artifact):
    schema = dataclasses.replace(
        schema_of(artifact), examples=(Example("a text", (("department", 2), ("urgent", 0))),)
    )
    for seed in range(20):
        other = reordered(schema, np.random.default_rng(seed))
        assert [f.name for f in other.fields] != [f.name for f in schema.fields]
        for field in schema.fields:
            (moved,) = (f for f in other.fields if f.name == field.name)
            assert moved.choices != field.choices
            assert set(moved.choices) == set(field.choices)
            assert dataclasses.replace(moved, choices=field.choices) == field
        (example,) = other.examples
        named = {f.name: f for f in other.fields}
        assert {name: named[name].choices[n].label for name, n in example.answers} == {
            "department": "TECH",
            "urgent": "true",
        }
        order = [f.name for f in other.fields]
        assert [order.index(name) for name, _ in example.answers] == sorted(
            order.index(name) for name, _ in example.answers
        )


class FirstPlace:
    """Engines that always answer with the choice that is declared first; texts with a ! are too long."""

    weights = ""

    def engine(self, artifact):
        """Counts nothing, loads nothing."""
        self.artifact = artifact
        return self

    def compare(self, context, rules):
        """As Engine.compare."""
        if "!" in context:
            raise ContextTooLongError("context", "is long", "the window is short")
        answers = [
            SimpleNamespace(log_scores=tuple(-float(n) for n in range(len(f.candidates))), legal_mass=0.5)
            for f in self.artifact.fields
        ]
        one = SimpleNamespace(answers=answers, prefill_ms=1.0, suffix_eval_ms=1.0, context_tokens=3)
        return dict.fromkeys(rules, one)


def test_flips_are_counted_against_the_declared_order(artifact, target, rows, kept):
    found = permute(artifact, target, rows, FirstPlace(), kept, ignore, orders=6, seed=5)
    schema = schema_of(artifact)
    orders = [reordered(schema, np.random.default_rng([5, 12, number])) for number in range(6)]
    for field in schema.fields:
        firsts = [f.choices[0].label for order in orders for f in order.fields if f.name == field.name]
        flips = found.fields[field.name]
        changed = [first != field.choices[0].label for first in firsts]
        assert sum(changed) > 0
        assert (flips.mean, flips.any) == (pytest.approx(np.mean(changed)), 1.0)
        if field.name != "unasked":
            right = [
                np.mean(
                    [
                        field.choices[row.expected[field.name]].label == first
                        for row in rows
                        if field.name in row.expected
                    ]
                )
                for first in [field.choices[0].label, *firsts]
            ]
            assert (flips.accuracy, flips.lowest, flips.highest) == (right[0], min(right), max(right))
    assert (found.orders, found.texts, found.of_texts) == (6, 12, 12)
    assert found.fields["unasked"].accuracy is None
    assert found.overall.mean == pytest.approx(np.mean([f.mean for f in found.fields.values()]))


def test_no_more_texts_are_asked_again_than_stated_and_none_that_is_too_long(artifact, target, kept):
    many = [Row(n, f"text {n}", {"urgent": 0}) for n in range(MAX_TEXTS + 7)]
    found = permute(artifact, target, many, FirstPlace(), kept, ignore, orders=1, seed=0)
    assert (found.texts, found.of_texts) == (MAX_TEXTS, MAX_TEXTS + 7)
    few = [*many[:3], Row(4, "text!", {"urgent": 0})]
    found = permute(artifact, target, few, FirstPlace(), kept, ignore, orders=1, seed=0)
    assert (found.texts, found.of_texts) == (3, 4)


def test_examples_are_spread_over_the_labels_and_short(artifact):
    rows = [
        Row(n, f"text {n} " + "word " * (n % 40), {"department": 0 if n % 10 else 1 + n // 10 % 3})
        for n in range(300)
    ]
    examples = choose(rows, artifact, 8, 0)
    labels = sorted(choice for example in examples for _, choice in example.answers)
    assert labels == [0, 0, 1, 1, 2, 2, 3, 3]
    median = np.median([len(row.context) for row in rows])
    assert all(len(example.context) <= median for example in examples)
    assert len({example.context for example in examples}) == 8
    assert choose(rows, artifact, 8, 0) == examples
    assert choose(rows, artifact, 8, 1) != examples


def test_fewer_texts_than_examples_wanted_gives_all_of_them_once(artifact):
    rows = [Row(1, "a", {"urgent": 0}), Row(2, "A ", {"urgent": 0}), Row(3, "b", {"urgent": 1})]
    assert sorted(e.context for e in choose(rows, artifact, 5, 0)) == ["a", "b"]
    assert choose([], artifact, 5, 0) == ()


def test_a_proposal_is_a_declaration_that_compiles_to_what_was_measured(
    artifact, target, rows, opening, kept, tiny, tmp_path, labelled
):
    train = read_rows(labelled(tmp_path / "train.jsonl", 20, first=100), artifact)[0]
    examples = choose(train, artifact, 4, 0)
    found = try_examples(artifact, target, examples, rows, opening, kept, ignore, seed=0)
    variant = compiled(dataclasses.replace(schema_of(artifact), examples=examples), target)
    assert found.head_tokens == (len(artifact.prompt.head), len(variant.prompt.head))
    assert found.declaration == {"x-pcdc": {"examples": [declared(e, artifact) for e in examples]}}
    assert found.texts == 12
    with Engine(variant, open_model(tiny)) as engine:
        hits = [
            engine.run(row.context).values["urgent"] == (row.expected["urgent"] == 0)
            for row in rows
            if "urgent" in row.expected
        ]
    assert found.fields["urgent"].rows == len(hits) == 6
    assert found.fields["urgent"].with_examples == pytest.approx(np.mean(hits))
    assert (found.overall.rows, found.overall.texts) == (18, 12)
    assert (found.overall.interval, found.overall.verdict) == (None, "too few texts to tell")
    assert "unasked" not in found.fields
    definition = {
        f.name: {"type": f.type, "description": f.description, "choices": [c.value for c in f.candidates]}
        for f in artifact.fields
    }
    definition["urgent"].pop("choices")
    pasted = pcdc.compile(definition | found.declaration, str(tiny), name="support")
    assert pasted == variant


@pytest.mark.parametrize(
    ("between", "p", "verdict"),
    [
        ((0.01, 0.2), 0.04, "helps"),
        ((-0.2, -0.01), 0.04, "hurts"),
        ((0.01, 0.2), 0.06, "no difference shown"),
        ((-0.2, -0.01), 0.06, "no difference shown"),
        ((-0.1, 0.2), 0.04, "no difference shown"),
        (None, 0.04, "too few texts to tell"),
    ],
)
def test_examples_help_only_where_the_interval_and_the_exact_test_say_so(between, p, verdict):
    assert Paired(30, 25, 0.5, 0.6, 0.1, between, p, 0.4, 0.01).verdict == verdict


@pytest.mark.parametrize(("majority", "p"), [(0.4, 0.2), (0.7, 0.01)])
def test_examples_that_help_and_gain_nothing_over_always_one_answer_say_so(majority, p):
    found = Paired(30, 25, 0.5, 0.6, 0.1, (0.05, 0.2), 0.01, majority, p).verdict
    assert found == "helps, and with them not shown to be better than always the most frequent label"
