"""Laws of our own ways of answering and of the table of all ways."""

from collections import Counter

import pytest
from fakes import TableModel, loaded, seeded
from timed import ARTIFACT, CONTEXTS

from pcdc.bench import foresight
from pcdc.bench.methods import Entry, entries
from pcdc.bench.ours import DEFAULT, WAYS, hold, maker
from pcdc.bench.rounds import Tally, measure
from pcdc.bench.scenarios import Place, Scenario
from pcdc.bench.sweep import context_tokens


@pytest.fixture
def ways():
    """Our own ways, all but the default with nothing else beside, on a model that is a table."""
    with loaded(TableModel(seeded(2))) as model:
        made = {way.key: maker(way)(ARTIFACT, model) for way in WAYS}
        yield made, model
        for method in made.values():
            method.close()


def test_every_round_pays_for_its_text_and_finds_the_head_warm():
    methods = [Entry(way.key, way.title, maker(way), lambda *_: 1.0) for way in WAYS]
    place = Place("made", "Made up", 1.0, lambda: Scenario(ARTIFACT, CONTEXTS))
    tally = Tally(place, 1000.0)
    with loaded(TableModel(seeded(2))) as model:
        measure(tally, model, methods, lambda what: None)
    taken = {key: {one.text: one.answer for one in many} for key, many in tally.taken.items()}
    head = len(ARTIFACT.prompt.head)
    for text in CONTEXTS:
        warm, cold = (taken[key][text].positions for key in (DEFAULT.key, "ours-joint-cold"))
        assert cold - warm == head
    again = Counter((one.text, one.answer.positions) for one in tally.taken[DEFAULT.key])
    assert len(again) == len(CONTEXTS)


def test_ours_answers_alike_however_it_is_asked(ways):
    made, _ = ways
    answers = {key: method.answer(CONTEXTS[0]) for key, method in made.items()}
    default = answers[DEFAULT.key]
    for key in ("ours-joint-cold", "ours-joint-fields"):
        assert answers[key].values == default.values
        for name, scores in default.log_scores.items():
            assert answers[key].log_scores[name] == pytest.approx(scores)
    assert answers["ours-joint-fields"].passes > default.passes
    assert answers["ours-joint-pruned"].values == default.values
    for key in ("ours-identify-warm", "ours-joint-pruned"):
        # What they score is not whole choices: beside the oracle's it would say nothing.
        assert answers[key].log_scores is None


def test_the_work_foreseen_for_ours_is_the_work_it_does(ways):
    made, model = ways
    text = context_tokens(model.tokenizer, ARTIFACT, CONTEXTS[0]) + len(ARTIFACT.prompt.tail)
    context = len(ARTIFACT.prompt.head) + text
    foreseen = {entry.key: entry.steps(ARTIFACT, text) for entry in entries()}
    for key in ("ours-joint-warm", "ours-identify-warm"):
        hold(ARTIFACT, model, len(ARTIFACT.prompt.head))
        answer = made[key].answer(CONTEXTS[0])
        counted = foresight.steps(answer.forwards, answer.positions, context)
        assert foreseen[key] == pytest.approx(counted, rel=0.02)
    cold = foreseen["ours-joint-cold"] - foreseen["ours-joint-warm"]
    assert cold == pytest.approx(foresight.head(ARTIFACT))


def test_ours_answers_many_as_it_answers_one(ways):
    made, _ = ways
    for key in ("ours-joint-warm", "ours-identify-warm"):
        together = made[key].answer_many(CONTEXTS)
        assert together == [made[key].answer(text).values for text in CONTEXTS]


def test_the_entries_are_distinct_and_the_defaults_is_first():
    found = entries()
    assert found[0].key == DEFAULT.key
    assert len({entry.key for entry in found}) == len({entry.title for entry in found}) == len(found)
    assert all(entry.steps(ARTIFACT, 50) > 0 for entry in found)


def test_the_entries_go_by_importance():
    assert [entry.key for entry in entries()] == [
        "ours-joint-warm", "ours-identify-warm", "llguidance", "ours-joint-pruned", "stepwise", "pcd-rlcd",
        "rows", "ours-joint-cold", "free", "ours-joint-fields", "branches", "oracle",
    ]  # fmt: skip


def test_making_is_foreseen_of_what_keeps_a_head_of_its_own():
    making = {entry.key for entry in entries() if entry.making(ARTIFACT) > 0}
    assert making == {"rows", "branches", "oracle"}
