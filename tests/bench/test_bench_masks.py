"""Laws of the ways to keep a catalog that are measured against one another: they all know the same labels."""

import sys

import pytest
from index_files import grouped, seeded_index
from tables import forms_of

from pcdc.bench.large import tries
from pcdc.bench.large.masks import mask_figures, mask_table, walked
from pcdc.bench.large.tries import JsonTrie, MarisaTrie, Mask, SortedRows, baselines


def naive(index, prefix):
    paths = [path for _, path, _ in forms_of(index.rows)]
    longer = [path for path in paths if path[: len(prefix)] == prefix and path != prefix]
    return sorted({path[len(prefix)] for path in longer}), prefix in paths


@pytest.mark.parametrize("few", [0, 3, 4096])
@pytest.mark.parametrize("way", [SortedRows, JsonTrie, MarisaTrie])
@pytest.mark.parametrize("index", [grouped(), seeded_index(1, 1), seeded_index(2, 80)])
def test_every_way_says_of_every_prefix_what_a_look_at_all_labels_says(
    tmp_path, monkeypatch, index, way, few
):
    monkeypatch.setattr(tries, "FEW", few)
    way().build(index, tmp_path / "file")
    opened = way()
    opened.open(tmp_path / "file")
    prefixes = {path[:depth] for _, path, _ in forms_of(index.rows) for depth in range(len(path) + 1)}
    for prefix in prefixes:
        mask = opened.mask(prefix)
        assert (sorted(mask.tokens), mask.closes) == naive(index, prefix)


def test_figures_are_of_all_ways_and_say_that_they_agree():
    figures = mask_figures(seeded_index(3, 50), walks=5)
    assert [one.key for one in figures] == ["index", "json", "marisa"]
    assert all(one.agrees and not one.missing and one.size > 0 for one in figures)
    assert mask_table(figures, terminal=False).count("yes") == 3


def test_a_way_with_another_answer_is_told():
    class Wrong(JsonTrie):
        def mask(self, prefix):
            return Mask(super().mask(prefix).tokens[:-1], False)

    right, wrong = mask_figures(seeded_index(3, 50), (SortedRows(), Wrong()), walks=5)
    assert right.agrees
    assert not wrong.agrees
    assert "NO" in mask_table([right, wrong], terminal=False)


def test_what_is_not_installed_is_missing_by_name_and_the_others_are_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "marisa_trie", None)
    figures = mask_figures(seeded_index(3, 20), walks=2)
    assert [bool(one.missing) for one in figures] == [False, False, True]
    table = mask_table(figures, terminal=False)
    assert "missing: marisa-trie: ModuleNotFoundError" in table
    assert table.count("yes") == 2


def test_prefixes_begin_where_labels_part_and_are_the_same_each_time():
    index = seeded_index(4, 30)
    prefixes = walked(index, 10)
    assert prefixes == walked(index, 10)
    assert len(naive(index, prefixes[0])[0]) > 1
    assert all(naive(index, prefix) != ([], False) for prefix in prefixes)


def test_the_index_is_the_first_of_the_ways():
    assert [way.key for way in baselines()] == ["index", "json", "marisa"]
