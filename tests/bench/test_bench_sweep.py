"""The sweep's points have exactly the tokens they name, under any tokenizer."""

import random

import pytest
from fakes import byte_tokenizer, make_artifact, spelled
from families import FAMILIES, family_folder
from pcdc_runtime.errors import TokenizerError
from pcdc_runtime.models import ModelFiles
from pcdc_runtime.tokenizer import encode_text

from pcdc.bench.methods import SWEPT, entries
from pcdc.bench.scenarios import TITLES, shipped, sweep
from pcdc.bench.sweep import AXES, Labels, Point, compile_point, context_tokens, text_of
from pcdc.prompt import load_target

COMMITTED = [name for name, family in FAMILIES.items() if family.committed]


@pytest.fixture(scope="module", params=COMMITTED)
def target(request):
    found, problems = load_target(ModelFiles(request.param, family_folder(request.param)))
    assert problems == []
    return found


@pytest.mark.parametrize(
    "point", [Point(1, 255), Point(length=1), Point(length=8), Point(16, context=500)], ids=str
)
def test_a_point_has_the_fields_choices_and_tokens_that_it_names(target, point):
    artifact, texts = compile_point(point, target)
    assert [len(field.candidates) for field in artifact.fields] == [point.choices] * point.fields
    assert {len(c.ids) for field in artifact.fields for c in field.candidates} == {point.length}
    assert {context_tokens(target.tokenizer, artifact, text) for text in texts} == {point.context}
    assert len(set(texts)) == len(texts)


def test_a_point_is_the_same_every_time(target):
    (one, texts), (other, again) = compile_point(Point(), target), compile_point(Point(), target)
    assert (one.digest, texts) == (other.digest, again)


@pytest.mark.parametrize("length", [1, 2, 8])
def test_labels_and_texts_are_exact_where_every_byte_is_a_token(length):
    tokenizer, draw = byte_tokenizer(), random.Random(1)
    labels = Labels(tokenizer, draw).draw("q1", Point(choices=16, length=length))
    assert {len(encode_text(tokenizer, label)) for label in labels} == {length}
    assert len({label[0] for label in labels[:2]}) == 2
    artifact = make_artifact({"a": spelled("x", "y")})
    assert context_tokens(tokenizer, artifact, text_of(tokenizer, artifact, 137, draw)) == 137


def test_labels_that_a_vocabulary_cannot_give_are_refused():
    with pytest.raises(TokenizerError, match="255 labels of 1 token"):
        Labels(byte_tokenizer(), random.Random(1)).draw("q1", Point(choices=255, length=1))


def test_a_point_on_several_axes_is_measured_once():
    places = sweep(list(AXES), lambda: pytest.fail("nothing is compiled before its turn"))
    assert len({place.point for place in places}) == len(places)
    shown = {axis: [p.point for p in places if axis in p.axes] for axis in AXES}
    assert {axis: set(points) for axis, points in shown.items()} == {
        name: set(axis.points()) for name, axis in AXES.items()
    }


def test_a_point_measures_what_is_swept_and_the_base_point_everything():
    places = {place.point: place for place in sweep(list(AXES), lambda: None)}
    assert places[Point()].methods == ()
    assert {place.methods for point, place in places.items() if point != Point()} == {SWEPT}
    assert set(SWEPT) < {entry.key for entry in entries()}


def test_what_takes_longest_is_swept_last_and_has_no_more_time_than_its_like():
    places = sweep(list(AXES), lambda: None)
    assert places[-1].point == Point(context=6000)
    seconds = {place.point: place.seconds for place in places}
    assert seconds[Point(fields=16)] > seconds[Point(length=4)] > seconds[Point(fields=1)]
    assert seconds[Point(context=6000)] < seconds[Point(context=2000)]


@pytest.mark.parametrize("name", TITLES)
def test_a_shipped_scenario_comes_with_texts(name, smollm2):
    scenario = shipped(name, lambda: smollm2).open()
    assert len(scenario.contexts) == 3
    assert all(text.strip() for text in scenario.contexts)


def test_the_shipped_scenarios_are_those_of_the_reference(smollm2):
    sizes = {}
    for name in TITLES:
        artifact = shipped(name, lambda: smollm2).open().artifact
        sizes[name] = (len(artifact.fields), max(len(field.candidates) for field in artifact.fields))
    assert sizes["tariff_classification"] == (1, 255)
    assert [sizes[name][0] for name in TITLES] == [4, 4, 1, 28]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_many_texts_are_all_different(smollm2, count):
    texts = shipped("code_audit", lambda: smollm2).open().many(count)
    assert len(texts) == len(set(texts)) == count


def test_what_computes_less_is_foreseen_to_take_less(smollm2):
    artifact, _ = compile_point(Point(length=4), smollm2)
    steps = {entry.key: entry.steps(artifact, 57) for entry in entries()}
    assert steps["ours-identify-warm"] < steps["ours-joint-warm"] < steps["ours-joint-cold"]
    assert steps["llguidance"] < steps["stepwise"]


@pytest.fixture(scope="module")
def smollm2():
    found, _ = load_target(ModelFiles("smollm2", family_folder("smollm2")))
    return found
