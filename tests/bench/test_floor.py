"""The floor of a request: its counted work against brute force, and a report that adds up."""

import itertools
import json
import math

import mlx.nn as nn
import numpy as np
import pytest
from fakes import WIDTH, byte_tokenizer, make_artifact, spelled
from forest import IDS, PARENTS, fill, tiny
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.plan import make_plans
from pcdc_runtime.tree import Slots
from seeded import FAMILIES, seeded

from pcdc.bench.floor import COLD, CONTEXT, HEAD, PYTHON, TREE, floor_table
from pcdc.bench.profile import KINDS, REST, WEIGHTS, Ledger, profile
from pcdc.bench.rates import Rates, measure_rates
from pcdc.bench.taps import wrapped
from pcdc.bench.work import Work, forward_work, head_work, model_shape, pairs

RATES = Rates(products=1e9, attention=5e8, head=2e9, exponentials=1e6, streamed=1e9, read=1e9)
CONTEXT_TEXT = "a parcel that never came"
SHAPES = {
    "a chain": np.arange(-1, 40, dtype=np.int32),
    "roots": np.full(30, -1, dtype=np.int32),
    "a forest": np.array(PARENTS, dtype=np.int32),
}
RNG = np.random.default_rng(11)
for number in range(3):
    SHAPES[f"random {number}"] = np.array([RNG.integers(-1, slot) for slot in range(60)], dtype=np.int32)


@pytest.fixture(scope="module")
def loaded():
    model = LoadedModel("tiny", lambda: (tiny("llama", chunk=512, vocab_size=WIDTH), byte_tokenizer()))
    yield model
    model.close()


def artifact(scoring="joint"):
    fields = {"what": spelled("ship", "shop", "refund"), "late": spelled("yes", "no")}
    return make_artifact(fields, scoring=scoring)


def shape_of(family="llama", **changes):
    return model_shape(tiny(family, **changes))


@pytest.mark.parametrize("window", [None, 1, 3, 7, 1000])
@pytest.mark.parametrize("name", SHAPES)
def test_counted_pairs_are_those_that_the_mask_shows(name, window):
    slots = Slots.empty().branched(SHAPES[name])
    for start in (0, 1, len(slots) // 2, len(slots) - 1):
        shown = slots.visible(start, len(slots), window)
        assert pairs(slots, start, window) == int(shown.sum())


def test_work_of_a_tiny_model_equals_a_count_by_hand():
    shape = shape_of("llama")
    work = forward_work(shape, Slots.empty().chained(10), 4)
    # Per layer: q and o 32 x 32, k and v 32 x 16, three matrices of 32 x 64; two layers, six tokens.
    assert work.products == 6 * 2 * 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64)
    seen = 5 + 6 + 7 + 8 + 9 + 10
    assert work.attention == 2 * seen * 4 * 2 * (8 + 8)
    assert work.exponentials == 2 * seen * 4 + 2 * 6 * 64
    per_layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64
    assert work.read == 4 * 2 * per_layer + 4 * 10 * 2 * 2 * (8 + 8)
    # Five norms, rotated queries and keys, two sums per layer, the gate.
    assert work.streamed == 6 * 4 * (2 * 5 * 32 + 2 * 2 * (4 + 2) * 8 + 2 * 2 * 3 * 32 + 3 * 2 * 64)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_is_counted_whole(family):
    shape = shape_of(family)
    model = seeded(family)
    matrices = {
        path: module["weight"]
        for path, module in model.model.named_modules()
        if "weight" in module and module["weight"].ndim > 1 and not isinstance(module, nn.Embedding)
    }
    assert {linear.path for linear in shape.linears} >= {
        path for path in matrices if type(dict(model.model.named_modules())[path]).__name__.endswith("Linear")
    }
    for linear in shape.linears:
        weight = matrices[linear.path]
        assert (linear.outputs, linear.inputs) == weight.shape[-2:]
        assert linear.uses == (2 if weight.ndim == 3 else 1)
    assert shape.gated > 0
    assert shape.normed > 0
    assert len(shape.attentions) == len(model.layers)


def test_quantized_weights_are_the_same_arithmetic_and_fewer_bytes():
    plain, small = shape_of("llama"), shape_of("llama", bits=4)
    assert [x.flops for x in small.linears] == [x.flops for x in plain.linears]
    assert small.weight_bytes < plain.weight_bytes / 4
    assert small.head.bytes < plain.head.bytes / 4


@pytest.mark.parametrize("family", ["llama", "phi3", "glm", "seed_oss"])
def test_the_head_is_counted_tied_or_not(family):
    shape = shape_of(family)
    assert (shape.head.inputs, shape.head.outputs) == (32, seeded(family).args.vocab_size)


def test_a_window_hides_work_from_the_layers_that_have_it():
    shape = shape_of("mistral")
    slots = Slots.empty().chained(50)
    seen = [pairs(slots, 0, window) for window in (6, None, 6)]
    assert forward_work(shape, slots, 0).attention == sum(seen) * 4 * 2 * (8 + 8)


def test_work_grows_in_step_with_positions_and_parts_add_up():
    shape = shape_of()
    slots = Slots.empty().branched(np.array(PARENTS, dtype=np.int32))
    whole = forward_work(shape, slots, 0)
    middle = len(slots) // 3
    first, second = forward_work(shape, slots.truncated(middle), 0), forward_work(shape, slots, middle)
    for kind in ("positions", "products", "attention", "exponentials", "streamed"):
        assert getattr(whole, kind) == getattr(first + second, kind)
    double = forward_work(shape, Slots.empty().branched(np.full(40, -1, dtype=np.int32)), 0)
    single = forward_work(shape, Slots.empty().branched(np.full(20, -1, dtype=np.int32)), 0)
    for kind in ("positions", "products", "attention", "exponentials", "streamed"):
        assert getattr(double, kind) == 2 * getattr(single, kind)


def test_nothing_to_run_is_no_work():
    assert forward_work(shape_of(), Slots.empty().chained(5), 5) == Work()


def test_without_a_normaliser_only_picked_rows_of_the_head_count():
    made = artifact("trie")
    shape = shape_of()
    full, picked = (
        head_work(shape, make_plans(made, "trie", range(2), mass, 4096)) for mass in (True, False)
    )
    (plan,) = make_plans(made, "trie", range(2), False, 4096)
    assert picked.exponentials == 0
    picks = len(plan.edge_token) + sum((e.last - e.first) * len(e.ids) for e in plan.ends)
    assert picked.head == 2 * shape.hidden * picks
    assert full.head == 2 * shape.hidden * shape.head.outputs * full.positions


@pytest.mark.parametrize("scoring", ["joint", "identify", "trie"])
def test_counted_products_are_those_that_a_request_runs(loaded, scoring):
    made = artifact(scoring)
    ran = []

    def counting(own):
        def call(layer, x):
            ran.append(2 * x.size * layer["weight"].shape[0])
            return own(layer, x)

        return call

    report = floor_table(made, loaded, CONTEXT_TEXT, measure=lambda *_: RATES, tries=1)
    with Engine(made, loaded.share()) as engine, wrapped(nn.Linear, "__call__", counting):
        result = engine.run(CONTEXT_TEXT)
    assert sum(stage.work.products for stage in report.stages) == sum(ran)
    assert sum(stage.work.positions for stage in report.stages[:2]) == result.positions


def test_a_report_adds_up_and_holds_no_nonsense(loaded):
    report = floor_table(artifact(), loaded, CONTEXT_TEXT, measure=lambda *_: RATES, tries=2)
    assert [stage.name for stage in report.stages] == [CONTEXT, TREE, HEAD, PYTHON]
    assert report.cold.name == COLD
    assert report.floor_ms == sum(stage.floor_ms for stage in report.stages)
    assert report.measured_ms == sum(stage.measured_ms for stage in report.stages)
    for stage in (report.cold, *report.stages):
        for number in (*stage.parts.values(), stage.reading_ms, stage.floor_ms, stage.measured_ms):
            assert math.isfinite(number)
            assert number >= 0
        assert stage.floor_ms == max(sum(stage.parts.values()), stage.reading_ms)
        assert stage.above is None or stage.above * stage.floor_ms == pytest.approx(stage.measured_ms)
    assert report.stages[-1].floor_ms == 0
    assert report.stages[-1].above is None
    assert json.loads(json.dumps(report.to_dict()))["floor_ms"] == report.floor_ms
    assert len({len(row) for row in report.rows}) == 1
    for stage in report.stages:
        assert stage.name in report.text


def test_half_the_rates_are_twice_the_floor(loaded):
    slow = Rates(*(rate / 2 for rate in vars(RATES).values()))
    one, two = (
        floor_table(artifact(), loaded, CONTEXT_TEXT, measure=lambda *_, r=rates: r, tries=1)
        for rates in (RATES, slow)
    )
    assert two.floor_ms == pytest.approx(2 * one.floor_ms)


def test_a_floor_is_reading_where_arithmetic_is_free(loaded):
    free = Rates(1e30, 1e30, 1e30, 1e30, 1e30, read=1e9)
    report = floor_table(artifact(), loaded, CONTEXT_TEXT, measure=lambda *_: free, tries=1)
    tree = report.stages[1]
    assert tree.bound == "reading weights"
    assert tree.floor_ms == pytest.approx(tree.work.read / 1e9 * 1000)


def test_stages_of_a_clock_that_counts_are_whole_and_the_context_is_never_found_computed(loaded):
    ticks = itertools.count()
    asked = []

    def measure(model, shape, rows, columns):
        asked.append((rows, columns))
        return RATES

    report = floor_table(
        artifact(), loaded, CONTEXT_TEXT, measure=measure, clock=lambda: float(next(ticks)), tries=3
    )
    assert report.measured_ms > 0
    ran = sum(stage.work.positions for stage in report.stages[:2])
    again = floor_table(artifact(), loaded, CONTEXT_TEXT, measure=measure, tries=1)
    assert sum(stage.work.positions for stage in again.stages[:2]) == ran
    assert all(rows > 0 and columns > 0 for rows, columns in asked)


def test_rates_are_measured_and_positive():
    model = tiny("llama")
    rates = measure_rates(model, model_shape(model), rows=8, columns=20)
    assert all(math.isfinite(rate) and rate > 0 for rate in vars(rates).values())


def test_a_profile_books_every_moment_once(loaded):
    ticks = itertools.count()
    found = profile(artifact(), loaded, CONTEXT_TEXT, clock=lambda: float(next(ticks)))
    assert set(found.ms) == set(KINDS)
    assert found.total_ms == sum(found.ms.values())
    assert all(found.ms[kind] > 0 for kind in KINDS)
    for kind in KINDS:
        assert kind in found.text


def test_a_profile_leaves_the_model_as_it_was(loaded):
    call = nn.Linear.__call__
    before = answer(loaded)
    profile(artifact(), loaded, CONTEXT_TEXT)
    assert nn.Linear.__call__ is call
    assert answer(loaded) == before


def answer(loaded):
    with Engine(artifact(), loaded.share()) as engine:
        return engine.run(CONTEXT_TEXT).fields["what"].log_scores


def test_a_tap_ends_with_its_block_even_by_an_error():
    call = nn.Linear.__call__
    with pytest.raises(KeyError), wrapped(nn.Linear, "__call__", lambda own: None):
        raise KeyError
    assert nn.Linear.__call__ is call


def test_work_inside_other_work_is_booked_once():
    now = [0.0]

    def inner():
        now[0] += 3

    ledger = Ledger(lambda: now[0], lambda *_: None)
    small = ledger.timed(WEIGHTS)(inner)

    def outer():
        now[0] += 1
        small()
        now[0] += 1

    ledger.timed("output head")(outer)()
    now[0] += 5
    spent = ledger.finish()
    assert spent[WEIGHTS] == 3000
    assert spent["output head"] == 2000
    assert spent[REST] == 5000


def test_the_forest_of_these_tests_runs_as_it_is_counted():
    model = tiny("llama")
    sequence = model.sequence()
    fill(sequence)
    slots = Slots.empty().branched(np.array(PARENTS, dtype=np.int32))
    assert forward_work(model_shape(model), slots, 0).positions == len(IDS) == sequence.length
