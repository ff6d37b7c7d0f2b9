"""Labels, ids and groups of an index file as hostile input."""

from functools import partial

import numpy as np
import pytest
from index_files import fact_of, forged, grouped, rows_of, two_labels
from pcdc_runtime.indexed import checking
from pcdc_runtime.indexed.codec import open_index, write_index


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return two_labels(tmp_path_factory.mktemp("two"))


@pytest.fixture
def refused(tmp_path):
    """Gives the fact for which bytes are refused, by everything that would read them."""
    return partial(fact_of, tmp_path / "hostile.pcdx")


def texts(name, *values):
    data = [value if isinstance(value, bytes) else value.encode() for value in values]
    return {name: b"".join(data), f"{name}_offset": np.cumsum([0, *map(len, data)]).tolist()}


@pytest.mark.parametrize(
    "label", ["a\nb", "\u3000a", "می‌خواهم", "\U0001f44d", "x" * 2000, "語" * 2000, "\u0600"]
)
def test_labels_that_show_are_accepted(tmp_path, two, label):
    path = tmp_path / "a.pcdx"
    path.write_bytes(forged(two, **texts("label", "b", label)))
    assert open_index(path).labels.label(1) == label


@pytest.mark.parametrize(
    ("labels", "fact"),
    [
        (("a", ""), "has a label that is empty or too long"),
        (("a", "x" * 2001), "has a label that is empty or too long"),
        (("a", "語" * 2001), "has a label that is empty or too long"),
        (("a", b"\xff"), "has a label that is not UTF-8"),
        (("a", b"\xed\xa0\x80"), "has a label that is not UTF-8"),
        ((b"a\xc3", b"\xa4"), "has a label that is not UTF-8"),
        (("a", " \t"), "has a label that is blank"),
        (("a", "\u3000\u00a0"), "has a label that is blank"),
        (("a", "b\0"), "has a label with characters that do not show"),
        (("a", "\x7f"), "has a label with characters that do not show"),
        (("a", "b\u202e"), "has a label with characters that do not show"),
        (("a", "b\u200d"), "has a label with characters that do not show"),
        (("می‌", "خ"), "has a label with characters that do not show"),
        (("خ", "‌خ"), "has a label with characters that do not show"),
        (("a", "\ufdd0"), "has a label with characters that do not show"),
        (("a", "a"), "has two labels with one id"),
    ],
)
def test_labels_that_a_catalog_cannot_have_are_refused(two, refused, labels, fact):
    assert refused(forged(two, **texts("label", *labels))) == fact


@pytest.mark.parametrize(
    ("ids", "fact"),
    [
        (("p", "p"), "has two labels with one id"),
        (("p", ""), "has an id that is empty or too long"),
        (("p", " "), "has an id that is blank"),
        (("p", "a\tb"), "has an id with characters that do not show"),
        (("p", "a\u200bb"), "has an id with characters that do not show"),
        (("p", b"\xff"), "has an id that is not UTF-8"),
        (("p", "x" * 8001), "has an id that is empty or too long"),
        (("a", "b"), "has its labels twice"),
    ],
)
def test_ids_that_a_catalog_cannot_have_are_refused(two, refused, ids, fact):
    assert refused(forged(two, **texts("id", *ids))) == fact


def test_equal_ids_are_found_among_many_and_among_texts_of_equal_hashes(two, refused, tmp_path, monkeypatch):
    monkeypatch.setattr(checking, "_BLOCK_BYTES", 50)
    rows = [([n], 0, n) for n in range(40)]
    names = [f"id {n}" for n in range(40)]

    def file(ids):
        return forged(
            two, **rows_of(*rows), **texts("label", *[f"l{n}" for n in range(40)]), **texts("id", *ids)
        )

    assert refused(file([*names[:-1], names[3]])) == "has two labels with one id"
    monkeypatch.setattr(
        checking, "_hashes", lambda data, start, *more: np.ones(len(start) - 1, dtype=np.uint64)
    )
    assert refused(file([*names[:-1], names[3]])) == "has two labels with one id"


@pytest.mark.parametrize(
    ("later", "joins"),
    [
        *(([0, 8], [1, 0]), ([8, 5], [0, 1]), ([5, 5], [1, 1]), ([5, 10], [1, 0]), ([-1, 8], [1, 0])),
        *(([5, 8], [5, 0]), ([5, 8], [-1, 0]), ([5, 8], [1, 7]), ([5, 8], [1, 2**31 - 1]), ([5], [1, 0])),
    ],
)
def test_groups_that_are_no_partition_of_the_labels_are_refused(tmp_path, refused, later, joins):
    write_index(tmp_path / "good.pcdx", grouped())
    data = (tmp_path / "good.pcdx").read_bytes()
    refused(forged(data, later=later, joins=joins))
