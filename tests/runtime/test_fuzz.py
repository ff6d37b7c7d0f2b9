"""A short run of the artifact fuzzing; `make fuzz` is the long one."""

import pytest
from fuzz import MAX_GROWTH, compiled, fuzz, hand_made, run_accepted
from mutations import BYTE_KINDS, TREE_KINDS


@pytest.fixture(scope="module")
def report():
    return fuzz([hand_made(), compiled()], 6000, number=1)


def test_any_bytes_are_refused_or_an_equal_artifact_and_nothing_else_is_raised(report):
    """Field reports 34 and 35."""
    assert report.faults == []
    assert report.growth < MAX_GROWTH
    assert report.count == 6000


def test_every_kind_is_tried_and_reaches_the_checks_behind_the_checksum(report):
    assert {*TREE_KINDS, *BYTE_KINDS, "deep", "truncated", "flipped bit"} <= set(report.ends)
    assert len(report.facts) > 50
    assert report.facts["has a node before its parent"] > 0
    assert sum(ends["accepted"] for ends in report.ends.values()) > 300


def test_no_accepted_artifact_crashes_the_planner_an_engine_or_inspect(report):
    ends = run_accepted(report, 120)
    assert report.faults == []
    assert ends["answered"] > 60
    assert ends.total() == 120
