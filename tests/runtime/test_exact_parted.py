"""Where forms of one entry part, and what an exact search makes of it, against the plain reading of forms."""

import math

import numpy as np
import pytest
from catalogs import PlainVerifier, seeded_rows, table
from pcdc_runtime.indexed.rows import Rows, Span
from pcdc_runtime.selecting.exact import search
from pcdc_runtime.selecting.opened import CLOSED, UNSEEN, Opened
from tables import Path, TableBeliefs, enumerate_entries, forms_of, make_rows, seeded_table

SEEDS = range(150)


def paths_of(rows: Rows) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for entry, path, _ in forms_of(rows):
        found.setdefault(entry, []).append(path)
    return found


def shared(paths: list[Path]) -> int:
    """How many leading tokens all paths have in common."""
    depth = 0
    while all(len(path) > depth and path[depth] == paths[0][depth] for path in paths):
        depth += 1
    return depth


def test_forms_part_where_their_common_prefix_ends() -> None:
    for seed in SEEDS:
        rows = seeded_rows(seed)
        expected = {entry: shared(paths) for entry, paths in paths_of(rows).items() if len(paths) > 1}
        parted = rows.parted
        assert dict(zip(parted.entry.tolist(), parted.depth.tolist(), strict=True)) == expected
        for at, entry in enumerate(parted.entry.tolist()):
            own = parted.row[parted.offset[at] : parted.offset[at + 1]].tolist()
            assert own == np.flatnonzero(rows.entry == entry).tolist()
            assert own[0] == parted.first[at]


def test_every_entry_parts_at_exactly_one_node() -> None:
    for seed in SEEDS:
        rows, parting = seeded_rows(seed), []
        spans = [rows.whole]
        while spans:
            span = spans.pop()
            here = rows.parted.at(*span)
            parting += rows.parted.entry[here].tolist()
            child = rows.children(span)
            spans += [
                Span(int(low), int(high), span.depth + 1)
                for low, high in zip(child.start[:-1], child.start[1:], strict=True)
            ]
        assert sorted(parting) == sorted(rows.parted.entry.tolist())


@pytest.mark.parametrize("top", [None, 2])
def test_bounds_hold_in_every_state_and_are_as_tight_as_the_open_nodes_allow(top: int | None) -> None:
    for seed in SEEDS:
        rows, beliefs = seeded_rows(seed), table(seed)
        values = enumerate_entries(beliefs, rows)
        verifier, opened, random = PlainVerifier(rows, top), Opened(rows), np.random.default_rng(seed)
        numbers: dict[Path, int] = {(): 0}
        paths: dict[int, Path] = {0: ()}
        for _ in range(4):
            able = [at for at in np.flatnonzero(opened.nodes["open"]).tolist() if at in paths]
            if not able:
                break
            at = int(random.choice(able))
            path = paths[at]
            if path:
                (numbers[path],) = beliefs.grow([numbers[path[:-1]]], [path[-1]])
            (options,) = verifier.options([opened.span(at)], beliefs.read([numbers[path]]))
            first = opened.expand(at, numbers[path], options)
            paths |= {first + c: (*path, token) for c, token in enumerate(options.token.tolist())}
        check_split(rows, opened, values)


def check_split(rows: Rows, opened: Opened, values: dict[int, float]) -> None:
    split, nodes = opened.split(), opened.nodes
    for at, entry in enumerate(split.entry.tolist()):
        own = split.node[split.of == at].tolist()
        assert len(own) == len(paths_of(rows)[entry])
        below = math.fsum(math.exp(nodes["log_prob"][node]) for node in {*own} - {CLOSED})
        assert math.exp(split.low[at]) - 1e-6 <= values[entry] <= math.exp(split.high[at]) + 1e-6
        least = math.exp(split.low[at]) + below
        assert math.exp(split.high[at]) >= least - 1e-9
        if UNSEEN not in nodes["token"][own]:
            assert math.exp(split.high[at]) == pytest.approx(least, abs=1e-9)


def test_many_forms_under_one_node_count_its_probability_once() -> None:
    # Two of the forms go on below token 0: together they have what it has, not twice as much.
    def distribution(path: Path) -> list[float]:
        return [0.3, 0.1, 0.0, 0.6] if not path else [0.5, 0.5, 0.0, 0.0] if path == (0,) else [0, 0, 0, 1.0]

    rows = make_rows([(0, (0, 0), [3]), (0, (0, 1), [3]), (0, (1,), [3]), (1, (), [3])])
    beliefs = TableBeliefs(4, distribution)
    outcome = search(rows, beliefs, PlainVerifier(rows), passes=1, width=1)
    assert outcome.certified
    assert outcome.found[0].entry == 1
    assert math.exp(outcome.bound) == pytest.approx(0.4)


def test_an_answers_own_open_forms_do_not_stand_in_its_way() -> None:
    # What is open holds a form of the answer alone, and has more than what is closed.
    rows = make_rows([(0, (), [3]), (0, (0, 1), [3]), (1, (1,), [3])])
    beliefs = TableBeliefs(4, lambda path: [0.5, 0.1, 0.0, 0.4])
    outcome = search(rows, beliefs, PlainVerifier(rows), passes=1, width=1)
    assert outcome.certified
    assert math.exp(outcome.found[0].low) == pytest.approx(0.4)
    assert math.exp(outcome.found[0].high) == pytest.approx(0.9)
    assert math.exp(outcome.bound) == pytest.approx(0.1)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_catalog_of_many_split_entries_is_as_exact_and_its_last_bound_counts_those_given_up(k: int) -> None:
    for seed in SEEDS[:30]:
        random = np.random.default_rng(seed)
        forms = []
        for entry, path in enumerate({tuple(p) for p in random.integers(0, 5, (60, 3)).tolist()}):
            forms += [(entry, path, (8,)), (entry, (5, *path[1:]), (8, 7)[: 1 + entry % 2])]
        rows = make_rows({(path, end): (entry, path, end) for entry, path, end in forms}.values())
        beliefs = seeded_table(seed, 9, sharpness=1.0)
        values = sorted(enumerate_entries(beliefs, rows).values(), reverse=True)
        outcome = search(rows, beliefs, PlainVerifier(rows), k=k)
        assert outcome.certified
        for found, value in zip(outcome.found, values[:k], strict=True):
            assert math.exp(found.low) <= value * (1 + 1e-5) <= math.exp(found.high) * (1 + 1e-4)
        assert math.log(values[k]) <= outcome.bound + 1e-5
        assert beliefs.nodes < len({path[:n] for _, path, _ in forms for n in range(4)})
