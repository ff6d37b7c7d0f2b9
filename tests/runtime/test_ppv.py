"""Laws of parallel prefix verification: options are the trie's, whatever way they were found."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.indexed.rows import Span
from pcdc_runtime.selecting import ppv
from pcdc_runtime.selecting.beliefs import Read
from pcdc_runtime.selecting.ppv import NumpyVerifier
from pcdc_runtime.selecting.ppv_mlx import MlxVerifier, verifier_for
from tables import forms_of, make_rows

WIDTH = 40
VERIFIERS = [NumpyVerifier, MlxVerifier]


@pytest.fixture(autouse=True)
def _every_span_is_wide(monkeypatch):
    monkeypatch.setattr(ppv, "SMALL", 0)


def seeded_rows(seed, count=60):
    """Rows with many prefixes of one another and several closings of one path, all disjoint events."""
    random = np.random.default_rng(seed)
    ends = [(30,), (31, 34, 37), tuple(range(32, WIDTH, 3))]
    forms = set()
    for _ in range(count):
        path = tuple(int(token) for token in random.zipf(1.4, random.integers(0, 6)) % 30)
        for depth in (len(path), max(0, len(path) - 1)):
            forms.add((path[:depth], ends[int(random.integers(len(ends)))]))
    return make_rows((entry, path, end) for entry, (path, end) in enumerate(sorted(forms)))


def prefixes(rows):
    """Every prefix of every row with its span, by reading all rows."""
    spans = {}
    for row, (_, path, _) in enumerate(forms_of(rows)):
        for depth in range(len(path) + 1):
            low, _, _ = spans.get(path[:depth], (row, 0, 0))
            spans[path[:depth]] = Span(low, row + 1, depth)
    return spans


def logits(seed, count, width=WIDTH):
    rows = np.random.default_rng([seed, 7]).normal(0, 3, (count, width)).astype(np.float32)
    return Read(rows, np.logaddexp.reduce(rows.astype(np.float64), axis=1))


def naive(rows, prefix, logit, norm):
    """What may follow a prefix, from a look at every row: children with their rows, and closings."""
    children, closings = {}, []
    for row, (entry, path, end) in enumerate(forms_of(rows)):
        if path == prefix:
            closings.append((entry, math.fsum(math.exp(float(logit[t]) - norm) for t in end)))
        elif path[: len(prefix)] == prefix:
            children.setdefault(path[len(prefix)], []).append(row)
    return {
        token: (low[0], low[-1] + 1, float(logit[token]) - norm) for token, low in sorted(children.items())
    }, closings


def check_closings(options, closings):
    assert options.entry.tolist() == [entry for entry, _ in closings]
    assert np.exp(options.close) == pytest.approx([p for _, p in closings], rel=1e-12)


def check_children(options, children):
    assert options.token.tolist() == sorted(options.token)
    for token, low, high, log in zip(options.token, options.low, options.high, options.log_prob, strict=True):
        assert children[token][:2] == (low, high)
        assert log == pytest.approx(children[token][2], abs=1e-12)


def as_lists(options):
    return [
        (
            *(getattr(o, name).tolist() for name in ("token", "low", "high", "log_prob", "entry", "close")),
            o.missed,
        )
        for o in options
    ]


@pytest.mark.parametrize("verifier", VERIFIERS)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40))
@settings(max_examples=25)
def test_without_a_top_the_options_of_every_prefix_are_those_of_the_trie(verifier, seed, count):
    rows = seeded_rows(seed, count)
    spans = prefixes(rows)
    read = logits(seed, len(spans))
    found = verifier(rows).options(list(spans.values()), read)
    for at, (prefix, options) in enumerate(zip(spans, found, strict=True)):
        children, closings = naive(rows, prefix, read.logit[at], read.norm[at])
        assert options.token.tolist() == list(children)
        check_children(options, children)
        check_closings(options, closings)
        assert options.missed == 0


@pytest.mark.parametrize("verifier", VERIFIERS)
@given(seed=st.integers(0, 10**6), top=st.integers(1, WIDTH + 3))
@settings(max_examples=40)
def test_with_a_top_the_options_are_its_valid_tokens_or_all_where_none_is_and_closings_always(
    verifier, seed, top
):
    rows = seeded_rows(seed)
    spans = prefixes(rows)
    read = logits(seed, len(spans))
    found = verifier(rows, top).options(list(spans.values()), read)
    for at, (prefix, options) in enumerate(zip(spans, found, strict=True)):
        children, closings = naive(rows, prefix, read.logit[at], read.norm[at])
        best = set(np.argsort(-read.logit[at])[:top].tolist()) & set(children)
        wanted = best if best and len(children) > top else set(children)
        assert set(options.token.tolist()) == wanted
        check_children(options, children)
        check_closings(options, closings)


@pytest.mark.parametrize("verifier", VERIFIERS)
@given(seed=st.integers(0, 10**6), top=st.integers(1, 12))
@settings(max_examples=40)
def test_valid_tokens_that_were_not_looked_at_never_have_more_than_the_missed_mass(verifier, seed, top):
    rows = seeded_rows(seed)
    spans = prefixes(rows)
    read = logits(seed, len(spans))
    for at, (prefix, options) in enumerate(
        zip(spans, verifier(rows, top).options(list(spans.values()), read), strict=True)
    ):
        children, _ = naive(rows, prefix, read.logit[at], read.norm[at])
        missed = math.fsum(
            math.exp(log) for token, (_, _, log) in children.items() if token not in options.token
        )
        assert missed <= options.missed <= 1 + ppv.NORM_ERROR
        assert (options.missed == 0) == (len(options.token) == len(children))


def test_the_missed_mass_is_no_more_than_the_children_that_are_left_could_have():
    rows = make_rows((n, (n // 2, n % 2), (0,)) for n in range(20))
    logit = np.zeros((1, 50_000), dtype=np.float32)
    logit[0, :3] = 1
    read = Read(logit, np.logaddexp.reduce(logit.astype(np.float64), axis=1))
    (options,) = NumpyVerifier(rows, 3).options([rows.whole], read)
    assert options.token.tolist() == [0, 1, 2]
    assert options.missed == pytest.approx(7 * math.exp(1 - read.norm[0]))


@given(seed=st.integers(0, 10**6), top=st.none() | st.integers(1, WIDTH + 3))
@settings(max_examples=40)
def test_mlx_finds_what_numpy_finds(seed, top):
    rows = seeded_rows(seed)
    spans = list(prefixes(rows).values())
    read = logits(seed, len(spans))
    ours = as_lists(NumpyVerifier(rows, top).options(spans, read))
    device = Read(mx.array(read.logit), read.norm)
    for beliefs in (read, device):
        for mine, theirs in zip(ours, as_lists(MlxVerifier(rows, top).options(spans, beliefs)), strict=True):
            assert theirs[:-1] == mine[:-1]
            assert theirs[-1] == pytest.approx(mine[-1], abs=1e-6)
    assert as_lists(NumpyVerifier(rows, top).options(spans, device)) == ours


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("top", [None, 1, 6])
def test_no_option_depends_on_what_else_is_in_the_batch(verifier, top):
    rows = seeded_rows(3)
    spans = list(prefixes(rows).values())
    read = logits(3, len(spans))
    together = as_lists(verifier(rows, top).options(spans, read))
    turned = verifier(rows, top).options(spans[::-1], Read(read.logit[::-1].copy(), read.norm[::-1]))
    assert as_lists(turned)[::-1] == together
    for at, span in enumerate(spans):
        alone = Read(read.logit[at : at + 1], read.norm[at : at + 1])
        assert as_lists(verifier(rows, top).options([span], alone)) == [together[at]]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("top", [1, 7, 100, 900])
@pytest.mark.parametrize("width", [1000, 4099, 8192])
def test_the_most_probable_tokens_are_those_of_a_full_sort_at_any_width(verifier, top, width):
    rows = make_rows((n, (n, n % 7), (0,)) for n in range(width))
    read = logits(top, 3, width)
    for at, options in enumerate(verifier(rows, top).options([rows.whole] * 3, read)):
        assert options.token.tolist() == sorted(np.argsort(-read.logit[at])[:top].tolist())


@pytest.mark.parametrize("top", [1, 5, 300])
def test_of_equal_logits_at_the_edge_those_of_the_lowest_ids_are_taken(top):
    logit = np.random.default_rng(0).integers(0, 3, 4000).astype(np.float32)
    expected = sorted(range(4000), key=lambda token: (-logit[token], token))[:top]
    assert ppv.most(logit, top).tolist() == sorted(expected)


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("top", [2, 600])
def test_as_many_tokens_as_asked_for_are_looked_at_where_all_are_equal(verifier, top):
    rows = make_rows((n, (n, 1), (0,)) for n in range(5000))
    read = Read(np.zeros((2, 5000), dtype=np.float32), np.full(2, math.log(5000)))
    for options in verifier(rows, top).options([rows.whole] * 2, read):
        assert len(set(options.token.tolist())) == top


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_few_rows_are_all_options_whatever_the_top(verifier, monkeypatch):
    rows = make_rows((n, (n, 1), (0,)) for n in range(30))
    read = logits(1, 1)
    assert len(verifier(rows, 3).options([rows.whole], read)[0].token) <= 3
    monkeypatch.setattr(ppv, "SMALL", 30)
    assert len(verifier(rows, 3).options([rows.whole], read)[0].token) == 30


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("top", [None, 2])
def test_a_path_that_only_ends_has_closings_alone(verifier, top):
    rows = make_rows([(0, (5, 6), (1, 2)), (1, (5, 6), (3,)), (0, (5, 6), (4, 7))])
    read = logits(2, 1)
    (options,) = verifier(rows, top).options([Span(0, 3, 2)], read)
    assert len(options.token) == len(options.low) == len(options.log_prob) == 0
    check_closings(options, naive(rows, (5, 6), read.logit[0], read.norm[0])[1])


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_impossible_tokens_stay_options_with_probability_zero(verifier):
    rows = make_rows([(0, (1, 2), (0,)), (1, (2,), (3,)), (2, (), (5, 6))])
    logit = np.array([[0, -np.inf, 1, 0, 0, -np.inf, -np.inf]], dtype=np.float32)
    read = Read(logit, np.logaddexp.reduce(logit.astype(np.float64), axis=1))
    for top in (None, 1, 2):
        (options,) = verifier(rows, top).options([rows.whole], read)
        known = dict(zip(options.token.tolist(), options.log_prob.tolist(), strict=True))
        assert known[2] == pytest.approx(1 - read.norm[0])
        assert known.get(1, -math.inf) == -math.inf
        assert options.close.tolist() == [-math.inf]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error(verifier, top, bad):
    rows = seeded_rows(1)
    read = logits(1, 2)
    read.logit[1] = bad
    norm = np.array([read.norm[0], bad])
    with pytest.raises(ScoreError, match="NaN or infinite"):
        verifier(rows, top).options([rows.whole] * 2, Read(read.logit, norm))


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_wrong_logit_of_an_option_is_an_error_even_where_the_norm_does_not_show_it(verifier):
    rows = make_rows([(0, (1, 2), (0,)), (1, (2,), (3,))])
    logit = np.array([[0, math.nan, 1, 0]], dtype=np.float32)
    with pytest.raises(ScoreError):
        verifier(rows).options([rows.whole], Read(logit, np.array([2.0])))


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_row_without_a_possible_token_is_an_error(verifier):
    rows = make_rows([(0, (1, 2), (0,))])
    read = Read(np.full((1, 4), -np.inf, dtype=np.float32), np.array([-np.inf]))
    with pytest.raises(ScoreError):
        verifier(rows).options([rows.whole], read)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_no_prefixes_have_no_options(verifier):
    rows = make_rows([(0, (1, 2), (0,))])
    assert verifier(rows, 3).options([], logits(0, 0)) == []


def test_logits_stay_on_the_device_they_are_on():
    rows = make_rows([(0, (1, 2), (0,))])
    assert type(verifier_for(rows, 4, "cpu")) is NumpyVerifier
    assert type(verifier_for(rows, 4, "gpu")) is MlxVerifier
