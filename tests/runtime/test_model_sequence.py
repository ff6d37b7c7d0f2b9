"""One KV buffer that is written in place, forgets by moving an offset, and copies only to grow."""

import threading

import mlx.core as mx
import numpy as np
import pytest
from forest import FIRST, IDS, P, S, fill, gap, log_softmax, plain, scores, tiny
from pcdc_runtime import mlx_model
from pcdc_runtime.errors import ModelNotSupportedError
from pcdc_runtime.mlx_model import LayerKV, MlxModel, PerTokenRope
from pcdc_runtime.tree import Slots
from seeded import VOCAB, WINDOW, seeded

EXACT = 1e-4
VISIBLE = 0.05


@pytest.fixture(scope="module")
def llama():
    return tiny("llama")


@pytest.fixture(scope="module")
def expected():
    return {family: plain(family) for family in ("llama", "mistral", "cohere2")}


def chain(count, seed=3):
    return np.random.default_rng(seed).integers(0, VOCAB, count).astype(np.int32)


def addresses(sequence):
    """Where the buffers lie in memory."""
    return [np.asarray(b).__array_interface__["data"][0] for layer in sequence._layers for b in layer.state]


def test_nothing_moves_while_there_is_room(llama):
    sequence = llama.sequence()
    sequence.append(IDS[:20])
    before = addresses(sequence)
    sequence.append(IDS[20:P])
    sequence.append(IDS[P:S], np.array(FIRST, dtype=np.int32))
    sequence.truncate(P)
    sequence.append(IDS[P:S], np.array(FIRST, dtype=np.int32))
    assert addresses(sequence) == before
    assert sequence.bytes_copied == 0


def test_growth_copies_what_was_there_and_counts_it(llama):
    sequence = llama.sequence()
    sequence.append(chain(200))
    assert sequence.bytes_copied == 0
    held = sequence.bytes_held
    sequence.append(chain(200, 4))
    assert sequence.bytes_copied == 200 * llama.kv_bytes_per_token
    assert sequence.bytes_held > held
    assert sequence.bytes_held >= 400 * llama.kv_bytes_per_token


def test_what_was_there_survives_growth(llama):
    sequence = llama.sequence()
    ids = np.concatenate([chain(200), chain(99, 4)])
    sequence.append(ids[:200])
    tail = sequence.append(ids[200:])
    assert sequence.bytes_copied > 0
    parents = list(range(-1, len(ids) - 1))
    assert gap(scores(sequence, tail), plain("llama", ids=ids, parents=parents)[200:]) <= EXACT


def test_the_first_part_is_never_a_growth_however_long(llama):
    sequence = llama.sequence()
    sequence.append(chain(400))
    assert sequence.length == 400
    assert sequence.bytes_copied == 0


def test_kv_bytes_are_those_of_the_layers(llama):
    """2 layers, keys and values, 2 heads of 8 float32."""
    assert llama.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    assert llama.sequence().bytes_held == 0


@pytest.mark.parametrize("family", ["llama", "mistral", "cohere2"])
@pytest.mark.parametrize("chunk", [1, 5, 512])
def test_chunks_never_change_a_score(family, chunk, expected):
    sequence = tiny(family, chunk=chunk).sequence()
    assert gap(scores(sequence, fill(sequence)), expected[family]) <= EXACT


def test_a_forgotten_branch_leaves_no_trace(llama, expected):
    sequence = llama.sequence()
    sequence.append(IDS[:P])
    sequence.append(chain(30), np.full(30, P - 1, dtype=np.int32))
    sequence.truncate(20)
    sequence.append(chain(9))
    sequence.truncate(0)
    assert gap(scores(sequence, fill(sequence)), expected["llama"]) <= EXACT


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_chain_goes_on_below_the_last_slot_of_a_tree(family):
    """Slot numbers and positions differ there, so neither the causal short form nor the slot may be used."""
    sequence = tiny(family).sequence()
    parents = [*range(-1, 19), 3, 20]
    ids = chain(31)
    sequence.append(ids[:20])
    sequence.append(ids[20:22], np.array(parents[20:], dtype=np.int32))
    tail = sequence.append(ids[22:])
    whole = [*parents, *range(21, 30)]
    assert gap(scores(sequence, tail), plain(family, ids=ids, parents=whole)[22:]) <= EXACT


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_many_texts_below_one_head_are_one_forest(family):
    head, size = 9, 17
    parents = list(range(-1, head - 1))
    for text in range(3):
        start = head + text * size
        parents += [head - 1, *range(start, start + size - 1)]
    ids = chain(len(parents))
    sequence = tiny(family, chunk=11).sequence()
    hidden = [
        sequence.append(ids[:head]),
        sequence.append(ids[head:], np.array(parents[head:], dtype=np.int32)),
    ]
    found = scores(sequence, mx.concatenate(hidden))
    assert gap(found, plain(family, ids=ids, parents=parents)) <= EXACT


def test_a_forest_may_have_several_roots(llama):
    ids, parents = chain(5), [-1, 0, -1, 2, 2]
    sequence = llama.sequence()
    found = scores(sequence, sequence.append(ids, np.array(parents, dtype=np.int32)))
    assert gap(found, plain("llama", ids=ids, parents=parents)) <= EXACT


def test_two_sequences_share_nothing(llama, expected):
    one, other = llama.sequence(), llama.sequence()
    one.append(IDS[:P])
    other.append(chain(P))
    rest = one.append(IDS[P:S], np.array(FIRST, dtype=np.int32))
    assert gap(scores(one, rest), expected["llama"][P:S]) <= EXACT


def test_rows_may_be_read_in_any_order_and_twice(llama):
    sequence = llama.sequence()
    hidden = sequence.append(IDS[:9])
    whole = np.array(sequence.logits(hidden, range(9)))
    some = sequence.logits(hidden, [7, 2, 7])
    assert some.dtype == mx.float32
    assert some.shape == (3, llama.logits_width)
    assert np.abs(np.array(some) - whole[[7, 2, 7]]).max() <= EXACT


def test_logits_are_float32_for_every_type():
    sequence = tiny("qwen3", "bfloat16").sequence()
    assert sequence.logits(sequence.append(IDS[:3]), [0]).dtype == mx.float32


@pytest.mark.parametrize("family", ["gemma2", "cohere", "granite", "phi"])
def test_the_head_is_the_familys_own(family):
    """Soft caps, logit scales and biases: more than a product with the embedding."""
    model = tiny(family)
    sequence = model.sequence()
    hidden = sequence.append(IDS[:6])
    bare = model.trunk.embed_tokens.as_linear(hidden)
    assert gap(log_softmax(bare), log_softmax(sequence.logits(hidden, range(6)))) > VISIBLE


@pytest.mark.parametrize("family", ["llama", "gemma2", "cohere2"])
def test_the_wired_model_still_runs_as_before(family):
    model = tiny(family)
    sequence = model.sequence()
    sequence.logits(sequence.append(IDS[:P]), [0])
    ids = mx.array(IDS[:P])[None]
    assert gap(log_softmax(model.language(ids)), log_softmax(seeded(family)(ids))) <= EXACT


def test_nothing_to_append_is_refused(llama):
    with pytest.raises(ValueError, match="no tokens"):
        llama.sequence().append(np.zeros(0, dtype=np.int32))


def test_one_parent_for_each_token(llama):
    with pytest.raises(ValueError, match="differ in number"):
        llama.sequence().append(IDS[:3], np.array([-1], dtype=np.int32))


def test_a_refused_append_changes_nothing(llama, expected):
    sequence = llama.sequence()
    sequence.append(IDS[:P])
    with pytest.raises(ValueError, match="earlier slot"):
        sequence.append(IDS[P : P + 2], np.array([P - 1, P + 1], dtype=np.int32))
    assert sequence.length == P
    rest = sequence.append(IDS[P:S], np.array(FIRST, dtype=np.int32))
    assert gap(scores(sequence, rest), expected["llama"][P:S]) <= EXACT


def test_any_one_thread_can_own_a_model(expected):
    found = []

    def own():
        sequence = tiny("mistral").sequence()
        found.append(scores(sequence, fill(sequence)))

    thread = threading.Thread(target=own)
    thread.start()
    thread.join()
    assert gap(found[0], expected["mistral"]) <= EXACT


def wrong_position(monkeypatch):
    honest = Slots.branched

    def branched(slots, parents):
        true = honest(slots, parents)
        position = true.position.copy()
        position[len(slots) :] += 1
        return Slots(true.parent, position)

    monkeypatch.setattr(Slots, "branched", branched)


def slot_for_position(monkeypatch):
    honest = Slots.branched

    def branched(slots, parents):
        true = honest(slots, parents)
        return Slots(true.parent, np.arange(len(true), dtype=np.int32))

    monkeypatch.setattr(Slots, "branched", branched)


def siblings_seen(monkeypatch):
    def visible(slots, start, stop, window):
        sees = np.tri(stop, dtype=bool)[start:]
        near = slots.position[start:stop, None] - slots.position[None, :stop] < (window or stop)
        return sees & near

    monkeypatch.setattr(Slots, "visible", visible)


def parent_unseen(monkeypatch):
    honest = Slots.visible

    def visible(slots, start, stop, window):
        sees = honest(slots, start, stop, window)
        parents = slots.parent[start:stop]
        sees[np.arange(len(sees)), parents] &= parents < 0
        return sees

    monkeypatch.setattr(Slots, "visible", visible)


def unwrapped_rope(monkeypatch):
    def call(rope, x, offset=0):
        return rope.base(x, offset if isinstance(offset, int) else int(offset[0].item()))

    monkeypatch.setattr(PerTokenRope, "__call__", call)


TREE_FAULTS = [wrong_position, slot_for_position, siblings_seen, parent_unseen, unwrapped_rope]


def window_missing(monkeypatch):
    honest = LayerKV.make_mask

    def make_mask(layer, N, return_array=False, window_size=None):
        layer.window = None
        return honest(layer, N, return_array)

    monkeypatch.setattr(LayerKV, "make_mask", make_mask)


def window_too_long(monkeypatch):
    honest = LayerKV.make_mask

    def make_mask(layer, N, return_array=False, window_size=None):
        return honest(layer, N, return_array, WINDOW + 1 if layer.window else None)

    monkeypatch.setattr(LayerKV, "make_mask", make_mask)


def window_by_slot(monkeypatch):
    honest = Slots.visible

    def visible(slots, start, stop, window):
        sees = honest(slots, start, stop, None)
        number = np.arange(stop)
        return sees & (number[start:, None] - number[None] < (window or stop))

    monkeypatch.setattr(Slots, "visible", visible)


def ring_buffer(monkeypatch):
    honest = LayerKV.update_and_fetch

    def update_and_fetch(layer, keys, values):
        kept = honest(layer, keys, values)
        if layer.window and layer.step.start >= layer.window:
            lost = layer.step.start - layer.window + 1
            kept[0][..., :lost, :] = 0
            layer.keys[..., :lost, :] = 0
        return kept

    monkeypatch.setattr(LayerKV, "update_and_fetch", update_and_fetch)


WINDOW_FAULTS = [window_missing, window_too_long, window_by_slot, ring_buffer]


def run_with(fault, family, monkeypatch):
    """Scores of the forest by a model that was wired and probed before the fault came in."""
    model = tiny(family)
    fault(monkeypatch)
    sequence = model.sequence()
    return scores(sequence, fill(sequence))


@pytest.mark.parametrize("family", ["llama", "mistral", "cohere2"])
@pytest.mark.parametrize("fault", TREE_FAULTS, ids=lambda f: f.__name__)
def test_a_wrong_mask_or_position_shows(fault, family, monkeypatch, expected):
    assert gap(run_with(fault, family, monkeypatch), expected[family]) > VISIBLE


@pytest.mark.parametrize("family", ["mistral", "cohere2"])
@pytest.mark.parametrize("fault", WINDOW_FAULTS, ids=lambda f: f.__name__)
def test_a_wrong_window_shows(fault, family, monkeypatch, expected):
    assert gap(run_with(fault, family, monkeypatch), expected[family]) > VISIBLE


@pytest.mark.parametrize("fault", TREE_FAULTS, ids=lambda f: f.__name__)
def test_the_load_time_probe_refuses_a_drifted_model(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(ModelNotSupportedError, match="plain forward"):
        tiny("llama")


def test_a_model_that_ignores_its_cache_is_refused():
    language = seeded("llama")
    honest = type(language.model).__call__

    class Forgetful(type(language.model)):
        def __call__(self, inputs, cache=None):
            return honest(self, inputs)

    language.model.__class__ = Forgetful
    with pytest.raises(ModelNotSupportedError, match="plain forward"):
        MlxModel(language, "forgetful", [None, None])


def test_a_model_without_a_known_trunk_is_refused():
    language = seeded("llama")
    language.body = language.pop("model")
    with pytest.raises(ModelNotSupportedError, match="no trunk"):
        MlxModel(language, "headless", [None, None])


@pytest.mark.parametrize("at", range(4))
def test_the_probe_takes_nan_on_any_path_for_a_difference(at, monkeypatch):
    honest = mlx_model._difference

    def spoilt(model, tree, ids, paths):
        tree[paths[at][-1], 0] = float("nan")
        return honest(model, tree, ids, paths)

    monkeypatch.setattr(mlx_model, "_difference", spoilt)
    with pytest.raises(ModelNotSupportedError, match="nan"):
        tiny("llama")
