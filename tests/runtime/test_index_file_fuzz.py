"""A short run of the fuzzing of index files; `make fuzz` is the long one."""

import pytest
from index_fuzz import FILE_KINDS, HEADER_KINDS, MAX_GROWTH, fuzz


@pytest.fixture(scope="module")
def report():
    return fuzz(2300, number=1)


def test_any_bytes_are_refused_or_an_index_that_keeps_every_law_and_nothing_else_is_raised(report):
    """Field reports 34 and 35."""
    assert report.faults == []
    assert report.growth < MAX_GROWTH
    assert report.count == 2300


def test_every_kind_is_tried_and_reaches_the_checks_behind_the_checksums(report):
    assert {*FILE_KINDS, *(f"header: {kind}" for kind in HEADER_KINDS)} == {*report.ends}
    assert len(report.facts) > 40
    for fact in (
        "has rows that are not in order",
        "has an entry without a row",
        "has two labels with one id",
    ):
        assert report.facts[fact] > 0
    assert sum(ends["accepted"] for ends in report.ends.values()) > 100
