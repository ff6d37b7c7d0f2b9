"""Rows of an index: their order, their entries, and what is said of labels that cannot be used."""

import numpy as np
import pytest
from judging import target_of
from pcdc_runtime.indexed.index import Labels

from pcdc.diagnostics import Location
from pcdc.indexing import reading
from pcdc.indexing.definition import Entries, IndexDefinition
from pcdc.indexing.forms import tokenize_entries
from pcdc.indexing.grouping import entries_of
from pcdc.indexing.labels import Forms
from pcdc.indexing.prompting import render_index_prompt
from pcdc.indexing.sorting import lexicographic
from pcdc.indexing.spellings import ControlSpellings


def definition_of(labels, ids=None, field="is"):
    entries = Entries(labels, ids or labels, lambda number: Location("catalog.txt", number + 1, 1))
    return IndexDefinition("x", field, "Which?", "", (), 1.0, entries)


def tokenized_of(labels, family="smollm2", **more):
    target, definition = target_of(family), definition_of(labels)
    tokenized, problems = tokenize_entries(
        definition, render_index_prompt(definition, target), target, **more
    )
    return tokenized, problems


def seeded_labels(count, seed=0):
    random = np.random.default_rng(seed)
    parts = ["ab", "chrząszcz", "Ó", " ", "-", "1", "22", ".", ")", "un", "tion", "“q”", "a", "b"]
    return ["".join(random.choice(parts, int(random.integers(1, 7)))).strip() or "x" for _ in range(count)]


def keys_of(rows):
    return [(tuple(rows.row(r).tolist()), int(rows.end[r])) for r in range(len(rows))]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("top", [1, 2, 40, 2**17, 2**31 - 2])
def test_forms_are_put_into_the_order_that_sorting_tuples_gives(seed, top):
    random = np.random.default_rng([seed, top])
    count = int(random.integers(1, 300))
    first = np.concatenate([[0], np.cumsum(random.integers(0, 7, count))])
    token = random.integers(0, top, first[-1]).astype(np.int32)
    closing = random.integers(0, 3, count).astype(np.int32)
    forms = Forms(np.arange(count, dtype=np.int32), token, first, closing)
    order, repeated = lexicographic(forms)
    keys = [(tuple(forms.row(form).tolist()), int(closing[form])) for form in range(count)]
    assert [keys[form] for form in order.tolist()] == sorted(keys)
    placed = sorted(keys)
    assert repeated.tolist() == [n > 0 and placed[n] == placed[n - 1] for n in range(count)]


def test_rows_are_sorted_distinct_and_each_entry_has_one():
    labels = seeded_labels(3000)
    tokenized, _ = tokenized_of(labels)
    rows = tokenized.rows
    keys = keys_of(rows)
    assert keys == sorted(set(keys))
    assert set(rows.entry.tolist()) == set(range(rows.entries))
    sets = [tuple(rows.ends[k].tolist()) for k in range(len(rows.ends))]
    assert sets == sorted(set(sets))
    assert set(rows.end.tolist()) == set(range(len(sets)))
    Labels.of(labels, labels, tokenized.entry)


def test_batches_of_any_size_give_the_same_rows(monkeypatch):
    labels = seeded_labels(500, seed=3)
    whole, _ = tokenized_of(labels)
    monkeypatch.setattr(reading, "BATCH", 37)
    parts, _ = tokenized_of(labels)
    assert keys_of(parts.rows) == keys_of(whole.rows)
    assert parts.entry.tolist() == whole.entry.tolist()
    assert parts.rows.entry.tolist() == whole.rows.entry.tolist()


def test_labels_with_the_same_tokens_are_one_entry_and_a_warning_names_them():
    labels = ["one", "caf\u00e9", "two", "cafe\u0301", "na\u00efve", "three", "nai\u0308ve", "caf\u00e9"]
    tokenized, problems = tokenized_of(labels, "qwen3")
    assert tokenized.entry.tolist() == [0, 1, 2, 1, 3, 4, 3, 1]
    assert tokenized.rows.entries == 5
    assert tokenized.grouped.groups == 2
    assert tokenized.grouped.examples == ((1, 3, 7), (4, 6))
    (warning,) = problems
    assert (warning.code, warning.severity) == ("PCDC309", "warning")
    assert "2 answers" in warning.fact
    assert '"na\u00efve" = "nai\u0308ve"' in warning.fact


def test_a_warning_of_equal_labels_names_their_ids_and_says_that_they_may_be_meant():
    target = target_of("qwen3")
    equal, apart = ["Leone", "Leone", "Won"], ["caf\u00e9", "cafe\u0301"]
    helps = []
    for labels in (equal, apart, equal + apart):
        definition = definition_of(labels, [f"i{n}" for n in range(len(labels))])
        _, (warning,) = tokenize_entries(definition, render_index_prompt(definition, target), target)
        assert warning.subject == 'catalog of field "is"'
        helps.append(("may be intended" in warning.help, "spelling differ" in warning.help))
    assert helps == [(True, False), (False, True), (True, True)]
    assert '"Leone" (i0) = "Leone" (i1)' in warning.fact


def test_labels_of_different_tokens_are_entries_of_their_own_and_nothing_is_said():
    tokenized, problems = tokenized_of(["b", "a", "c"])
    assert problems == []
    assert tokenized.entry.tolist() == [0, 1, 2]
    assert tokenized.grouped.groups == 0


@pytest.mark.parametrize("seed", range(30))
def test_links_join_labels_as_walking_from_label_to_label_does(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    a, b = random.integers(0, count, (2, int(random.integers(0, 30))))
    entry, grouped = entries_of(count, a, b)
    near = {n: {n} for n in range(count)}
    for left, right in zip(a.tolist(), b.tolist(), strict=True):
        together = near[left] | near[right]
        for n in together:
            near[n] = together
    leaders = sorted({min(near[n]) for n in range(count)})
    assert entry.tolist() == [leaders.index(min(near[n])) for n in range(count)]
    assert grouped.groups == sum(len(near[leader]) > 1 for leader in leaders)


def test_a_chain_of_many_links_is_one_entry():
    links = np.arange(5000)
    entry, _ = entries_of(5001, links[::-1] + 1, links[::-1])
    assert not entry.any()


def test_every_label_that_cannot_be_used_is_counted_and_the_first_twenty_are_told_with_their_places():
    labels = [f"x{n}" if n % 2 else f"<|im_end|>{n}" for n in range(60)]
    tokenized, problems = tokenized_of(labels)
    assert tokenized is None
    *told, rest = problems
    assert [p.location.line for p in told] == [2 * n + 1 for n in range(20)]
    assert {p.code for p in problems} == {"PCDC303"}
    assert "10 more labels" in rest.fact


def test_a_field_that_spells_a_control_token_is_refused():
    target, definition = target_of("smollm2"), definition_of(["a", "b"], field="<|im_start|>")
    tokenized, problems = tokenize_entries(definition, render_index_prompt(definition, target), target)
    assert tokenized is None
    assert [p.code for p in problems] == ["PCDC303"]


def test_control_spellings_are_found_wherever_they_stand_in_a_label():
    spellings = ("<a>", "<a>b", "[x]", "é^", "]")
    labels = ["<a>", "x<a>b", "<a", "[x", "[x]", "^é^", "a<<a>", "", "é", "-"]
    found = ControlSpellings(spellings).among(labels)
    plain = {
        n: next(s for s in spellings if s in t)
        for n, t in enumerate(labels)
        if any(s in t for s in spellings)
    }
    assert found == plain
    assert ControlSpellings(()).among(labels) == {}


def test_progress_begins_and_ends_each_stage_and_never_goes_back():
    told = []
    tokenized_of(seeded_labels(50), progress=lambda *now: told.append(now))
    for stage in ("tokenizing", "sorting"):
        done = [(d, total) for d, total, s in told if s == stage]
        assert done[0] == (0, 50)
        assert done[-1] == (50, 50)
        assert done == sorted(done)
    assert [s for *_, s in told] == sorted((s for *_, s in told), reverse=True)
