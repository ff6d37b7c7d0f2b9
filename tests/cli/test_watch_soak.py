"""The watch soak in short; `make soak` runs the long one."""

from __future__ import annotations

import pytest
from soak import faults, soak

SAVES = 60


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    return soak(tmp_path_factory.mktemp("soak"), SAVES)


def test_every_save_is_built_once_and_served_whole(counts):
    """Field reports 40 and 42."""
    assert faults(counts, SAVES) == []
    assert counts["catalog rewrites"] > 0


@pytest.mark.parametrize("name", ["saves", "lost", "torn", "builds too many or too few"])
def test_the_soak_finds_fault_with_any_wrong_count(counts, name):
    assert len(faults({**counts, name: counts[name] + 1}, SAVES)) == 1
