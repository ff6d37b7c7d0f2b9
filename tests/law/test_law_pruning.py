"""Pruning on the embedded model: a wide field of codes, against a run of all of them."""

import math

import pytest
from judging import compiled
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import open_model
from pcdc_runtime.models import DEFAULT, resolve

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target

CODES = [f"{chapter:02}{heading:02}.{last}0" for chapter in (1, 22, 39, 61, 84, 95) for heading, last in
         ((1, 1), (3, 2), (4, 9), (7, 1), (8, 2), (10, 3), (11, 9), (15, 1), (16, 4), (20, 9))]  # fmt: skip
TEXT = "Ten boxes of knitted cotton T-shirts, heading 6109, and one of plastic hangers."


@pytest.fixture(scope="module")
def engine():
    schema, problems = parse_mapping(
        {"code": {"type": "enum", "choices": CODES, "description": "Which tariff code do the goods have?"}}
    )
    assert schema is not None, problems
    target, problems = load_target(resolve(DEFAULT, weights=True))
    assert target is not None, problems
    with Engine(compiled(schema, target), open_model(DEFAULT)) as engine:
        yield engine


@pytest.mark.parametrize(("temperature", "bound"), [(1.0, 0.05), (0.25, 1e-4)])
def test_nodes_are_saved_the_winner_is_the_same_and_no_probability_is_off_by_the_bound(
    engine, temperature, bound
):
    exact = engine.run(TEXT, temperature=temperature)
    found = engine.run(TEXT, temperature=temperature, prune=bound)
    one, other = exact.fields["code"], found.fields["code"]
    off = max(abs(dict(other.distribution)[value] - p) for value, p in one.distribution)
    print(f"T {temperature}: {found.nodes} of {exact.nodes} nodes, {other.pruned} choices, off by {off:.1e}")
    assert other.value == one.value
    assert other.prune_bound <= bound
    # Two ways to run the same model differ by float32's rounding.
    assert off <= other.prune_bound + 1e-4
    kept = [pair for pair in zip(one.log_scores, other.log_scores, strict=True) if pair[1] > -math.inf]
    assert all(part == pytest.approx(whole, abs=1e-3) for whole, part in kept)
    assert other.legal_mass - 1e-4 <= one.legal_mass <= other.legal_mass + other.legal_mass_slack + 1e-4
    assert found.nodes < exact.nodes / 2
    assert found.sequential_forward_passes <= 3
