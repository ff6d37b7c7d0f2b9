"""Loading of mlx-lm folders: what comes out, and what is refused by name."""

import json
import logging
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest
from forest import IDS, P, fill, gap, log_softmax, plain, scores
from mlx.nn.layers.base import Module
from mlx_lm.models import cache as caches
from mlx_lm.models import gemma3
from pcdc_runtime.errors import ExtraMissingError, ModelNotFoundError, ModelNotSupportedError
from pcdc_runtime.model import cache_windows, load_model
from seeded import EXPERTS, WINDOW, config, seeded, write_folder

ON_LINUX_CPU = sys.platform == "linux" and mx.default_device().type == mx.DeviceType.cpu

OTHER_STATE = {
    "mamba": {
        "state_size": 8,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
    },
    "lfm2": {
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 32,
        "block_ff_dim": 64,
        "block_multiple_of": 8,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention"],
    },
    "recurrent_gemma": {
        "lru_width": 32,
        "attention_window_size": 8,
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "embeddings_scale_by_sqrt_dim": True,
        "block_types": ["recurrent", "attention"],
    },
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "mamba_dt_rank": 4,
        "num_experts": 2,
        "num_experts_per_tok": 1,
    },
    "qwen3_next": {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "shared_expert_intermediate_size": 32,
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 2,
        **EXPERTS,
    },
    "falcon_h1": {
        "mamba_d_conv": 4,
        "mamba_d_state": 8,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_ssm": 64,
        "mamba_n_groups": 1,
    },
    "rwkv7": {
        "a_low_rank_dim": 8,
        "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
        "norm_bias": False,
    },
    "plamo2": {},
}

REFUSED = [
    ({"model_file": "mine.py"}, "own code"),
    ({"kv_lora_rank": 16}, "latent vectors"),
    ({"attn_temperature_tuning": True}, "scales attention by position"),
    ({"rope_parameters": {"llama_4_scaling_beta": 0.1}}, "scales attention by position"),
    ({"text_config": {"attention_chunk_size": 64}}, "attends in chunks"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic NTK"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic NTK"),
    ({"model_type": "no_such_family"}, "cannot be loaded"),
    ({"hidden_size": 64}, "cannot be loaded"),
    ({"num_attention_heads": None}, "cannot be loaded"),
]


def rewrite(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def products(model):
    return {type(m).__name__ for _, m in model.language.named_modules()}


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_a_loaded_folder_scores_as_the_model_it_was_written_from(tmp_path, family):
    model = load_model(write_folder(tmp_path / "tiny", family))
    sequence = model.sequence()
    assert gap(scores(sequence, fill(sequence)), plain(family)) <= 1e-4
    assert (model.name, model.window, model.dtype) == ("tiny", 512, "float32")


def test_a_model_is_called_what_it_was_asked_for_by(tmp_path):
    assert load_model(write_folder(tmp_path / "tiny", "llama"), "asked-for").name == "asked-for"


def test_the_window_may_be_unstated(tmp_path):
    folder = rewrite(write_folder(tmp_path, "llama"), max_position_embeddings=None)
    assert load_model(folder).window is None


def test_the_text_part_of_a_wrapped_model_is_used(tmp_path):
    text = config("gemma3_text")
    inner = seeded("gemma3_text")
    wrapped = gemma3.Model(gemma3.ModelArgs(model_type="gemma3", text_config=dict(text), vocab_size=97))
    wrapped.language_model = inner
    weights = {f"language_model.{key}": value for key, value in flat(inner).items()}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)
    outer = {"model_type": "gemma3", "vocab_size": 97, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    model = load_model(tmp_path)
    sequence = model.sequence()
    assert gap(scores(sequence, fill(sequence)), plain("gemma3_text")) <= 1e-4
    assert model.window == 512
    assert model.windows == (WINDOW, None, WINDOW)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_half_precision_becomes_float32_on_linux_cpus_only(tmp_path, family):
    model = load_model(write_folder(tmp_path, family, "bfloat16"))
    assert model.dtype == ("float32" if ON_LINUX_CPU else "bfloat16")


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantized_weights_are_dequantized_exactly_on_linux_cpus(tmp_path, family, dtype):
    """The oracle keeps the 4-bit weights and only computes in float32."""
    model = load_model(write_folder(tmp_path, family, dtype, bits=4))
    assert any("Quantized" in name for name in products(model)) != ON_LINUX_CPU
    oracle = seeded(family, dtype, bits=4)
    oracle.set_dtype(mx.float32)
    sequence = model.sequence()
    found = scores(sequence, sequence.append(IDS[:P]))
    assert gap(found, log_softmax(oracle(mx.array(IDS[:P])[None])[0])) <= (1e-4 if ON_LINUX_CPU else 0.5)


def test_nvfp4_with_a_global_scale_is_refused_where_it_would_be_dequantized(tmp_path, monkeypatch):
    folder = write_folder(tmp_path, "llama")
    honest = Module.__contains__ if "__contains__" in vars(Module) else dict.__contains__
    monkeypatch.setattr(
        Module, "__contains__", lambda m, key: key == "global_scale" or honest(m, key), raising=False
    )
    if ON_LINUX_CPU:
        with pytest.raises(ModelNotSupportedError, match="NVFP4"):
            load_model(folder)
    else:
        assert load_model(folder).dtype == "float32"


@pytest.mark.parametrize("family", sorted(OTHER_STATE))
def test_recurrent_and_convolutional_families_are_refused_by_name(tmp_path, family):
    folder = write_folder(tmp_path / family, family, **OTHER_STATE[family])
    with pytest.raises(ModelNotSupportedError, match=f"{family} keeps .* state"):
        load_model(folder)


@pytest.mark.parametrize(("changes", "fact"), REFUSED, ids=[" ".join(c) for c, _ in REFUSED])
def test_what_a_tree_pass_cannot_do_is_refused_with_its_reason(tmp_path, changes, fact):
    folder = rewrite(write_folder(tmp_path / "tiny", "llama"), **changes)
    with pytest.raises(ModelNotSupportedError, match=f"tiny .*{fact}"):
        load_model(folder)


@pytest.mark.parametrize(
    "cache",
    [
        caches.ArraysCache(2),
        caches.CacheList(caches.KVCache()),
        caches.ChunkedKVCache(8),
        caches.QuantizedKVCache(),
        caches.RotatingKVCache(8, keep=4),
    ],
    ids=lambda c: type(c).__name__,
)
def test_state_other_than_keys_and_values_of_all_positions_is_refused(cache):
    with pytest.raises(ModelNotSupportedError, match=type(cache).__name__):
        cache_windows("odd", [caches.KVCache(), cache])


def test_windows_are_read_from_the_layer_caches():
    assert cache_windows("plain", [caches.KVCache(), caches.RotatingKVCache(8)]) == [None, 8]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model_type": 3}'])
def test_a_damaged_config_is_a_model_not_found(tmp_path, text):
    folder = write_folder(tmp_path, "llama")
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        load_model(folder)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_missing_file_is_a_model_not_found(tmp_path, missing):
    folder = write_folder(tmp_path, "llama")
    (folder / missing).unlink()
    with pytest.raises(ModelNotFoundError):
        load_model(folder)


def test_damaged_weights_are_refused(tmp_path):
    folder = write_folder(tmp_path, "llama")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ModelNotSupportedError, match="cannot be loaded"):
        load_model(folder)


def test_without_mlx_the_error_says_what_to_install(tmp_path, monkeypatch):
    folder = write_folder(tmp_path, "llama")
    monkeypatch.setitem(sys.modules, "mlx_lm.utils", None)
    with pytest.raises(ExtraMissingError, match="needs MLX") as caught:
        load_model(folder)
    assert "mlx-lm" in caught.value.help


def test_a_family_that_was_never_verified_is_loaded_with_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "pcdc_runtime"):
        load_model(write_folder(tmp_path / "a", "llama"))
        assert "not been verified" not in caplog.text
        load_model(write_folder(tmp_path / "b", "helium"))
    assert "helium has not been verified" in caplog.text


def test_the_module_itself_needs_no_mlx():
    code = (
        f"import sys; sys.path[:] = {json.dumps(sys.path)}; import pcdc_runtime.model;"
        "sys.exit(any(name.partition('.')[0] in ('mlx', 'mlx_lm') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_type_may_be_chosen(tmp_path):
    folder = write_folder(tmp_path, "llama", "bfloat16")
    assert load_model(folder, float32=True).dtype == "float32"
    assert load_model(folder, float32=False).dtype == "bfloat16"


def flat(model):
    from mlx.utils import tree_flatten

    return dict(tree_flatten(model.parameters()))


def test_seeded_models_are_the_same_each_time_and_differ_by_seed():
    one, same, other = (flat(seeded("qwen2", seed=n)) for n in (0, 0, 1))
    assert all(np.array_equal(np.array(one[key]), np.array(same[key])) for key in one)
    assert not all(np.array_equal(np.array(one[key]), np.array(other[key])) for key in one)
