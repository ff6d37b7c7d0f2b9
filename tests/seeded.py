"""Seeded tiny models of real mlx-lm families: real small things in place of mocks.

Weights come from NumPy, so they are the same on every machine, and are large enough that a wrong mask or
position changes the scores visibly.
"""

import importlib
import json
import math
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

VOCAB = 97
WINDOW = 6

COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "norm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
}

EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
}

FAMILIES = {
    "llama": {},
    "mistral": {
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "gemma": {},
    "gemma2": {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0},
    "gemma3_text": {
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 8,
    },
    "phi": {"partial_rotary_factor": 0.5, "num_key_value_heads": 4},
    "phi3": {"tie_word_embeddings": False},
    "olmo2": {},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "cohere2": {
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,
        "logit_scale": 0.25,
    },
    "granite": {
        "logits_scaling": 4.0,
        "attention_multiplier": 0.3,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.7,
    },
    "smollm3": {"no_rope_layer_interval": 2},
    "starcoder2": {},
    "mixtral": EXPERTS,
    "exaone4": {
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "sliding_window_pattern": "LG",
        "rope_scaling": None,
    },
    "glm": {"partial_rotary_factor": 0.5, "tie_word_embeddings": False},
    "gpt_oss": {
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": False,
        **EXPERTS,
    },
    "granitemoe": {
        "logits_scaling": 4.0,
        "attention_multiplier": 0.3,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.7,
        **EXPERTS,
    },
    "hunyuan_v1_dense": {"use_qk_norm": True},
    "minicpm": {"dim_model_base": 16, "scale_depth": 1.4, "scale_emb": 2, "tie_word_embeddings": False},
    "nemotron": {"hidden_act": "relu2"},
    "olmo3": {
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "olmoe": EXPERTS,
    "qwen2_moe": {"shared_expert_intermediate_size": 32, **EXPERTS},
    "seed_oss": {"tie_word_embeddings": False},
    "stablelm": {"use_qkv_bias": True, "partial_rotary_factor": 0.5, "qk_layernorm": False},
    "glm4": {"partial_rotary_factor": 0.5, "tie_word_embeddings": False},
}


def config(family, **changes):
    """The config.json of a tiny model."""
    return {"model_type": family, **COMMON, **FAMILIES.get(family, {}), **changes}


def seeded(family, dtype="float32", *, bits=None, seed=0, **changes):
    """A tiny mlx-lm model with seeded weights; with `bits`, its linear layers are quantized."""
    from mlx_lm.utils import MODEL_REMAPPING

    module = importlib.import_module(f"mlx_lm.models.{MODEL_REMAPPING.get(family, family)}")
    settings = config(family, **changes)
    model = module.Model(module.ModelArgs.from_dict(settings))
    if settings["tie_word_embeddings"] and "lm_head" in model and hasattr(model, "tie_word_embeddings"):
        model.sanitize({})
    rng = np.random.default_rng(seed)
    model.update(
        tree_unflatten(
            [(key, _weight(rng, key, old)) for key, old in sorted(tree_flatten(model.parameters()))]
        )
    )
    model.set_dtype(getattr(mx, dtype))
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
    model.eval()
    mx.eval(model.parameters())
    return model


def write_folder(folder: Path, family, dtype="float32", *, bits=None, seed=0, **changes):
    """Write such a model as an mlx-lm folder: config.json and model.safetensors. Gives the folder back."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = config(family, **changes)
    if bits:
        settings["quantization"] = {"group_size": 32, "bits": bits}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = seeded(family, dtype, bits=bits, seed=seed, **changes)
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"}
    )
    return folder


def _weight(rng, key, old):
    if old.ndim == 1:
        base = 0.0 if key.endswith("bias") else np.array(old)
        return mx.array((base + 0.2 * rng.standard_normal(old.shape)).astype(np.float32))
    scale = 0.3 if "embed" in key else 1.5 / math.sqrt(old.shape[-1])
    return mx.array((scale * rng.standard_normal(old.shape)).astype(np.float32))
