"""Positions and masks of a token forest, against a walk up the parents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcdc_runtime.tree import Slots, chunks


@st.composite
def forests(draw):
    """A chain and then any parents, in two parts; with the place where the parts meet."""
    stem = draw(st.integers(0, 12))
    parents = list(range(-1, stem - 1))
    for slot in range(stem, stem + draw(st.integers(1, 16))):
        parents.append(draw(st.integers(-1, slot - 1)))
    return stem, np.array(parents, dtype=np.int32), draw(st.integers(stem, len(parents)))


def build(stem, parents, cut):
    return Slots.empty().chained(stem).branched(parents[stem:cut]).branched(parents[cut:])


def ancestors(parents, slot):
    path = [slot]
    while parents[path[-1]] >= 0:
        path.append(int(parents[path[-1]]))
    return path


@given(forests())
def test_a_position_counts_the_ancestors(forest):
    _, parents, _ = forest
    slots = build(*forest)
    assert slots.parent.tolist() == parents.tolist()
    assert slots.position.tolist() == [len(ancestors(parents, slot)) - 1 for slot in range(len(parents))]


@given(forests(), st.none() | st.integers(1, 9))
def test_a_slot_sees_itself_and_its_ancestors_inside_the_window(forest, window):
    _, parents, cut = forest
    slots = build(*forest)
    sees = slots.visible(cut, len(slots), window)
    assert sees.shape == (len(slots) - cut, len(slots))
    for row, slot in enumerate(range(cut, len(slots))):
        near = ancestors(parents, slot)[:window]
        assert np.flatnonzero(sees[row]).tolist() == sorted(near)


@given(forests(), st.none() | st.integers(1, 9))
def test_causal_is_said_exactly_where_every_earlier_slot_is_seen(forest, window):
    slots = build(*forest)
    for stop in range(1, len(slots) + 1):
        whole = bool((slots.visible(0, stop, window) == np.tri(stop, dtype=bool)).all())
        assert slots.is_causal(stop, window) == whole


@given(forests())
def test_a_chain_hangs_below_the_last_slot(forest):
    slots = build(*forest)
    longer = slots.chained(3)
    assert longer.parent[-3:].tolist() == [len(slots) - 1, len(slots), len(slots) + 1]
    assert longer.is_run(len(slots), len(longer))
    assert longer.truncated(len(slots)).position.tolist() == slots.position.tolist()


@pytest.mark.parametrize("parents", [[-2], [3], [0, 4]])
def test_a_parent_must_come_before_its_child(parents):
    with pytest.raises(ValueError, match="earlier slot"):
        Slots.empty().chained(3).branched(np.array(parents, dtype=np.int32))


@pytest.mark.parametrize("length", [-1, 4])
def test_only_what_is_there_can_be_kept(length):
    with pytest.raises(ValueError, match="truncate"):
        Slots.empty().chained(3).truncated(length)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_chunks_cover_a_range_in_order(start, count, size):
    parts = list(chunks(start, start + count, size))
    assert [slot for low, high in parts for slot in range(low, high)] == list(range(start, start + count))
    assert all(high - low <= size for low, high in parts)
