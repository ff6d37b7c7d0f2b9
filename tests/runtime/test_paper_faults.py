"""What is wrong with the published listing of prefix verification, and is not wrong here.

The listing's rules are in words of our own: `signs` is its comparison of two rows, `one_sided` its search for
the first row that is not before a candidate, with any comparison.
"""

import numpy as np
import pytest
from pcdc_runtime.indexed.rows import Span
from pcdc_runtime.selecting import ppv
from pcdc_runtime.selecting.beliefs import Read
from pcdc_runtime.selecting.ppv import NumpyVerifier
from pcdc_runtime.selecting.ppv_mlx import MlxVerifier
from tables import make_rows

WIDTH = 12
VERIFIERS = [NumpyVerifier, MlxVerifier]


def signs(candidates, rows):
    """Above 0 where a candidate counts as the greater: the signs of all columns added up."""
    return np.sign(candidates - rows).sum(axis=1)


def lexicographic(candidates, rows):
    """Above 0 where a candidate is the greater: the sign of the first column that differs."""
    sign = np.sign(candidates - rows)
    return sign[np.arange(len(sign)), (sign != 0).argmax(axis=1)]


def one_sided(matrix, candidates, compare, last):
    """For each candidate whether a row of a sorted matrix equals it; all go on until the slowest is done.

    `last` is the last row that is looked at, whatever the middle of a search says.
    """
    low, high = np.zeros(len(candidates), dtype=int), np.full(len(candidates), len(matrix))
    while (low < high).any():
        middle = np.minimum((low + high) // 2, last)
        greater = compare(candidates, matrix[middle]) > 0
        low, high = np.where(greater & (low < high), middle + 1, low), np.where(greater, high, middle)
    return (matrix[np.minimum(low, last)] == candidates).all(axis=1) & (low <= last)


def listing(matrix, prefix, compare=signs, last=None):
    """The valid tokens after a prefix, all tokens being looked at."""
    candidates = np.array([(*prefix, token) for token in range(WIDTH)])
    last = len(matrix) - 1 if last is None else last
    return np.flatnonzero(one_sided(matrix[:, : len(prefix) + 1], candidates, compare, last)).tolist()


def ours(verifier, matrix, prefix, top=None, logit=None):
    """The valid tokens after a prefix, of the `top` most probable ones."""
    rows = make_rows((entry, path, (0,)) for entry, path in enumerate(matrix.tolist()))
    fits = np.flatnonzero((matrix[:, : len(prefix)] == prefix).all(axis=1))
    span = Span(int(fits[0]), int(fits[-1]) + 1, len(prefix))
    logit = np.zeros((1, WIDTH), dtype=np.float32) if logit is None else logit
    read = Read(logit, np.logaddexp.reduce(logit.astype(np.float64), axis=1))
    return verifier(rows, top).options([span], read)[0].token.tolist()


def test_signs_that_are_added_up_put_a_greater_row_first():
    greater, less = np.array([[5, 1, 1]]), np.array([[4, 9, 9]])
    assert signs(greater, less) < 0
    assert lexicographic(greater, less) > 0


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_added_signs_miss_the_only_valid_token_of_a_sorted_matrix_and_one_column_finds_it(verifier):
    matrix = np.array([[4, 9, 9], [5, 1, 1]])
    assert listing(matrix, (5, 1)) == []
    assert listing(matrix, (5, 1), lexicographic) == [1]
    assert ours(verifier, matrix, (5, 1)) == [1]


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_added_signs_miss_valid_tokens_of_random_matrices_and_one_column_none(verifier):
    random = np.random.default_rng(6)
    missed = valid = 0
    for _ in range(40):
        matrix = np.unique(random.integers(0, WIDTH, (50, 4)), axis=0)
        prefix = tuple(matrix[random.integers(len(matrix)), : random.integers(1, 4)].tolist())
        fits = (matrix[:, : len(prefix)] == prefix).all(axis=1)
        truth = sorted(set(matrix[fits, len(prefix)].tolist()))
        assert ours(verifier, matrix, prefix) == truth
        assert listing(matrix, prefix, lexicographic) == truth
        valid += len(truth)
        missed += len(set(truth) - set(listing(matrix, prefix)))
    assert missed > valid / 10


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_candidate_behind_all_rows_makes_the_listing_read_beyond_them_and_ours_not(verifier):
    matrix = np.array([[4, 9, 9], [5, 1, 1]])
    with pytest.raises(IndexError):
        listing(matrix, (5, 1), lexicographic, last=len(matrix))
    assert ours(verifier, matrix, (5, 1)) == [1]


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_where_none_of_the_most_probable_tokens_is_valid_the_listing_has_no_answer_and_ours_all(
    verifier, monkeypatch
):
    monkeypatch.setattr(ppv, "SMALL", 0)
    matrix = np.array([[1, token] for token in range(6)])
    logit = np.arange(WIDTH, dtype=np.float32)[None]
    best = set(np.argsort(-logit[0])[:3].tolist())
    assert best & set(listing(matrix, (1,), lexicographic)) == set()
    assert ours(verifier, matrix, (1,), 3, logit) == [0, 1, 2, 3, 4, 5]
