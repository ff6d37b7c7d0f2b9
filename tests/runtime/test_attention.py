"""Attention by blocks, NumPy's exponentials, and who gets them."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from forest import CHUNK, IDS, PARENTS, fill, tiny
from pcdc_runtime import attention, exponential, mkl, mlx_model, tree, wiring
from pcdc_runtime.blas import Blas
from pcdc_runtime.tree import Slots
from seeded import seeded

RNG = np.random.default_rng(3)
WIDE = np.array([*range(-1, 39), *RNG.integers(30, 40, 150), *RNG.integers(-1, 190, 60)], dtype=np.int32)
SHAPES = {
    "a chain": (np.arange(-1, 199, dtype=np.int32), 0),
    "a chain's end": (np.arange(-1, 199, dtype=np.int32), 130),
    "a tree under a chain": (WIDE, 40),
    "a tree from its middle": (WIDE, 101),
    "roots only": (np.full(150, -1, dtype=np.int32), 0),
    "two slots": (np.array([-1, 0], dtype=np.int32), 0),
}


def normal(*shape):
    return mx.array(RNG.normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("at_once", [1, 5000, 10**9])
def test_blocks_attend_as_the_masked_call_does(shape, rows, at_once, monkeypatch):
    monkeypatch.setattr(tree, "ROWS", rows)
    monkeypatch.setattr(attention, "SCORES", at_once)
    parents, start = SHAPES[shape]
    slots = Slots.empty().branched(parents)
    stop = len(slots)
    queries = normal(1, 6, stop - start, 8) * 3
    keys, values = normal(1, 2, stop + 5, 8)[:, :, :stop], normal(1, 2, stop + 5, 8)[:, :, :stop]
    mask = mx.array(slots.visible(start, stop, None))
    expected = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.4, mask=mask)
    before = [np.array(x) for x in (queries, keys, values)]
    found = attention.attend(queries, keys, values, 0.4, slots.blocks(start, stop))
    assert found.shape == expected.shape
    assert np.abs(np.array(found) - np.array(expected)).max() < 5e-6
    assert all((np.array(x) == y).all() for x, y in zip((queries, keys, values), before, strict=True))


def test_blocks_cover_every_row_once_and_say_what_visible_says():
    slots = Slots.empty().branched(WIDE)
    sees = slots.visible(50, len(slots), None)
    said = np.zeros_like(sees)
    for block in slots.blocks(50, len(slots)):
        columns = np.concatenate([np.arange(part.start, part.stop) for part in block.columns])
        seen = np.ones((block.rows.stop - block.rows.start, len(columns)), dtype=bool)
        seen[:, -block.unseen.shape[1] :] = ~block.unseen
        assert not said[block.rows].any()
        said[block.rows.start : block.rows.stop, columns] = seen
    assert (said == sees).all()


def test_the_gate_is_the_same_to_rounding_and_changes_no_input():
    gate, x = mx.concatenate([normal(3, 40) * 20, mx.array([[-200.0, 200.0, 0.0, -0.0] * 10])]), normal(4, 40)
    before = np.array(gate), np.array(x)
    found = np.array(exponential.swiglu(gate, x))
    assert np.allclose(found, np.array(nn.silu(gate) * x), rtol=1e-5, atol=1e-30)
    assert (np.array(gate) == before[0]).all()
    assert (np.array(x) == before[1]).all()


@pytest.mark.filterwarnings("error")
def test_gates_and_inputs_that_are_not_finite_give_what_mlx_gives_without_a_warning():
    special = [np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0, 1.0]
    gate, x = (mx.array(part.ravel().astype(np.float32)) for part in np.meshgrid(special, special))
    expected = np.array(nn.silu(gate) * x)
    assert np.allclose(np.array(exponential.swiglu(gate, x)), expected, rtol=1e-5, equal_nan=True)


def test_log_sum_exp_keeps_what_is_not_finite_in_its_row():
    rows = RNG.normal(size=(5, 2000)).astype(np.float32) * 10
    rows[1] = -np.inf
    rows[2, 7] = np.inf
    rows[3, 7] = np.nan
    rows[4, 7] = -np.inf
    exact = [np.logaddexp.reduce(row.astype(np.float64)) for row in rows[[0, 4]]]
    found = exponential.logsumexp(mx.array(rows))
    assert np.abs(found[[0, 4]] - exact).max() < 1e-5
    assert found[1] == -np.inf
    assert found[2] == np.inf
    assert np.isnan(found[3])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1, 100, exponential.ONE_CALL, 100_000])
def test_exponentials_are_numpys_to_rounding_whoever_computes_them(size):
    x = RNG.normal(size=size).astype(np.float32) * 30
    x[:: size // 9 + 1] = [-np.inf, np.inf, np.nan, 0, -0.0, -86, -200, 200, 88][: len(x[:: size // 9 + 1])]
    with np.errstate(all="ignore"):
        expected = np.exp(x)
        exponential.exp(x)
    assert np.allclose(x, expected, rtol=5e-7, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("named", [True, False])
def test_a_library_without_these_routines_is_not_asked(named, monkeypatch):
    monkeypatch.setattr(mkl, "load_fast_blas", lambda: Blas("mkl" if named else "openblas", None))
    assert mkl._library.__wrapped__() is None


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_any_number_of_threads_computes_the_same(count, monkeypatch):
    slots = Slots.empty().branched(WIDE)
    gate, x, logits = normal(2, 90, 40), normal(2, 90, 40), normal(70, 300)
    queries, keys = normal(1, 6, len(slots), 8), normal(1, 2, len(slots), 8)

    def everything():
        blocks = slots.blocks(0, len(slots))
        attended = np.array(attention.attend(queries, keys, keys, 0.4, blocks))
        return attended, np.array(exponential.swiglu(gate, x)), exponential.logsumexp(logits)

    monkeypatch.setattr(exponential, "threads", lambda: 1)
    alone = everything()
    monkeypatch.setattr(exponential, "threads", lambda: count)
    monkeypatch.setattr(exponential, "SHARE", 7)
    # MKL's and NumPy's exponentials, which the size of a share chooses between, differ in the last place.
    assert all(np.allclose(a, b, rtol=2e-6, atol=1e-6) for a, b in zip(alone, everything(), strict=True))


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_ranges_of_all_threads_are_every_row_once(rows, count, monkeypatch):
    monkeypatch.setattr(exponential, "threads", lambda: count)
    monkeypatch.setattr(exponential, "SHARE", 1)
    seen = np.zeros(rows, dtype=int)

    def work(low, high):
        assert high > low
        seen[low:high] += 1

    exponential.by_rows(work, rows, 5)
    assert (seen == 1).all()


def test_what_fails_in_a_thread_fails_the_call(monkeypatch):
    monkeypatch.setattr(exponential, "threads", lambda: 2)
    monkeypatch.setattr(exponential, "SHARE", 1)

    def work(low, high):
        if low:
            raise MemoryError

    with pytest.raises(MemoryError):
        exponential.by_rows(work, 10, 10)


def test_an_ending_interpreter_starts_no_thread_and_still_answers(monkeypatch):
    class Ended:
        def submit(self, *_):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(exponential, "threads", lambda: 2)
    monkeypatch.setattr(exponential, "SHARE", 1)
    monkeypatch.setattr(exponential, "_pool", Ended)
    seen = []
    exponential.by_rows(lambda low, high: seen.append((low, high)), 10, 10)
    assert sorted(seen) == [(0, 5), (5, 10)]


@pytest.fixture
def counted(monkeypatch):
    """How often each of ours runs, on any machine."""
    calls = {"attend": 0, "swiglu": 0}

    def count(name, function):
        def counting(*args):
            calls[name] += 1
            return function(*args)

        monkeypatch.setattr(wiring, name, counting)

    count("attend", wiring.attend)
    count("swiglu", wiring.swiglu)
    floats = lambda *arrays: all(x.dtype == mx.float32 for x in arrays)  # noqa: E731
    monkeypatch.setattr(wiring, "in_numpy", floats)
    monkeypatch.setattr(attention, "in_numpy", floats)
    return calls


def test_a_forest_pass_uses_them_in_every_layer(counted):
    model = tiny("llama")
    counted.update(attend=0, swiglu=0)
    model.sequence().append(IDS[:CHUNK])
    layers = len(model.windows)
    assert counted == {"attend": layers, "swiglu": layers}


def test_a_plain_forward_of_the_same_model_never_uses_them(counted):
    from mlx_lm.models.cache import make_prompt_cache

    model = tiny("llama")
    other = seeded("llama")
    counted.update(attend=0, swiglu=0)
    mx.eval(model.language(mx.array(IDS[None, :20])))
    mx.eval(other(mx.array(IDS[None, :20]), cache=make_prompt_cache(other)))
    assert counted == {"attend": 0, "swiglu": 0}


@pytest.mark.parametrize("family", ["gpt_oss", "gemma2"])
def test_sinks_and_soft_caps_stay_with_the_familys_own_attention(family, counted):
    model = tiny(family)
    fill(model.sequence())
    assert counted["attend"] == 0


def test_a_window_that_hides_something_stays_with_the_masked_call():
    slots = Slots.empty().branched(np.array(PARENTS, dtype=np.int32))
    part = mlx_model._Pass.of(slots, 5, len(slots))
    assert part.blocks_of(part.mask(4, True)) is None
    assert part.blocks_of(part.mask(None, True)) is not None
    assert part.blocks_of(part.mask(10_000, True)) is not None
    assert part.blocks_of(mx.array(slots.visible(5, len(slots), None))) is None
    assert part.blocks_of(None) is None


def test_wiring_a_model_twice_changes_nothing_more():
    import mlx_lm.models.llama as llama

    tiny("llama")
    bound = llama.scaled_dot_product_attention, llama.swiglu
    tiny("llama")
    assert (llama.scaled_dot_product_attention, llama.swiglu) == bound
