"""What the engine needs of a language model, and the loading of one from an mlx-lm folder.

Only `load_model` touches mlx-lm, and only when it is called: everything else here works without MLX.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .artifact import Ints
from .blas import load_fast_blas
from .errors import ExtraMissingError, ModelNotFoundError, ModelNotSupportedError

if TYPE_CHECKING:
    from .fast_mlx import Module, mx
    from .mlx_model import MlxModel

    Hidden: TypeAlias = mx.array

logger = logging.getLogger("pcdc_runtime")

# Each passes the laws of tests/runtime/test_model_families.py in float32, bfloat16 and 4-bit.
VERIFIED = frozenset(
    [
        "cohere",
        "cohere2",
        "exaone4",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "gpt_oss",
        "granite",
        "granitemoe",
        "hunyuan_v1_dense",
        "llama",
        "minicpm",
        "mistral",
        "mixtral",
        "nemotron",
        "olmo2",
        "olmo3",
        "olmoe",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ]
)
# Keys of a config that make the attention scale depend on the position, or its state not keys and values.
REFUSED_KEYS = {
    "kv_lora_rank": "caches latent vectors in place of keys and values",
    "attn_temperature_tuning": "scales attention by position",
    "llama_4_scaling_beta": "scales attention by position",
    "attention_chunk_size": "attends in chunks",
    "blocksparse_block_size": "attends in sparse blocks",
}


@dataclass(frozen=True)
class KVPart:
    """The keys, or the values, that one layer keeps of a token: `heads` rows of `width` numbers."""

    dtype: str
    heads: int
    width: int
    itemsize: int

    @property
    def bytes_per_token(self) -> int:
        """What one token takes."""
        return self.heads * self.width * self.itemsize


class KVSequence(Protocol):
    """One growing KV buffer with slots 0 to `length - 1`, never copied but to grow.

    `passes` counts forwards, `bytes_copied` the bytes that growth copied; `bytes_held` is the whole buffer.
    """

    @property
    def length(self) -> int: ...
    @property
    def passes(self) -> int: ...
    @property
    def bytes_copied(self) -> int: ...
    @property
    def bytes_held(self) -> int: ...

    def append(self, tokens: Ints, parents: Ints | None = None) -> Hidden:
        """Run tokens in new slots and give their last hidden states, [len(tokens), width].

        `parents` are absolute slot numbers, -1 for none; without them the tokens are a chain after the last
        slot. A slot attends to itself and its ancestors only, at the position after its parent's.
        """
        ...

    def reserve(self, slots: int) -> None:
        """Make room for that many slots, so that filling them copies nothing."""
        ...

    def truncate(self, length: int) -> None:
        """Forget all slots from `length` on; nothing moves."""
        ...

    def held(self, length: int) -> Iterator[mx.array]:
        """Keys and values of the first `length` slots, [1, heads, length, width], in `kv_layout`'s order."""
        ...

    def adopt(self, length: int, layers: Iterable[tuple[mx.array, mx.array]]) -> None:
        """Hold `length` slots, each the child of the one before, with these keys and values, by layer.

        Where `layers` raises, the sequence is empty.
        """
        ...

    def logits(self, hidden: Hidden, rows: Sequence[int], ids: Ints | None = None) -> mx.array:
        """Logits of those rows of `hidden` by the family's own head, float32 [len(rows), logits_width].

        With `ids`, only those columns.
        """
        ...


class LanguageModel(Protocol):
    """A decoder that can run a token forest; `window` is its longest context, None where unstated."""

    @property
    def name(self) -> str: ...
    @property
    def logits_width(self) -> int: ...
    @property
    def window(self) -> int | None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def kv_bytes_per_token(self) -> int: ...
    @property
    def kv_layout(self) -> tuple[tuple[KVPart, ...], ...]: ...

    def sequence(self) -> KVSequence:
        """A new, empty sequence."""
        ...


def load_model(folder: Path, name: str | None = None, *, float32: bool | None = None) -> MlxModel:
    """Load an mlx-lm folder in the calling thread, which then owns the model and everything made with it.

    `float32` says whether the weights become float32; None means only on Linux CPUs, where half-precision
    and quantized products are slow. Raises ExtraMissingError, ModelNotFoundError, ModelNotSupportedError.
    """
    name = name or folder.name
    config = _read_config(folder)
    _check_config(name, config)
    # mlx-lm imports MLX, so this comes before.
    load_fast_blas()
    try:
        from mlx_lm.models.cache import make_prompt_cache
        from mlx_lm.utils import dequantize_model
        from mlx_lm.utils import load_model as load_weights

        from .fast_mlx import mx
        from .mlx_model import MlxModel
    except ImportError as error:
        raise ExtraMissingError(
            name,
            f"needs MLX to run ({error})",
            "MLX runs on macOS and Linux",
            "install `pcdc` (or `pcdc-runtime`) again on this machine, it brings `mlx` and `mlx-lm`",
        ) from error
    try:
        model, _ = load_weights(folder, lazy=True)
    except FileNotFoundError as error:
        raise ModelNotFoundError(str(folder), str(error), help="download the model again") from error
    # Some families of mlx-lm end the process where a package of theirs is missing.
    except (Exception, SystemExit) as error:
        raise ModelNotSupportedError(
            name,
            f"cannot be loaded from {folder} ({type(error).__name__}: {error})",
            "",
            "where its files are damaged, remove that folder: it is made or fetched again; "
            "else choose another model",
        ) from error
    if float32 is None:
        float32 = sys.platform == "linux" and mx.default_device().type == mx.DeviceType.cpu
    if float32:
        model = _as_float32(name, model, dequantize_model)
    mx.eval(model.parameters())
    language = model
    while "language_model" in language:
        language = language["language_model"]
    loaded = MlxModel(
        language,
        name,
        cache_windows(name, make_prompt_cache(language)),
        window=_first(config, "max_position_embeddings"),
    )
    family = str(getattr(language, "model_type", config["model_type"]))
    if family not in VERIFIED:
        logger.warning("%s: family %s has not been verified, only probed", name, family)
    return loaded


def cache_windows(name: str, caches: Sequence[object]) -> list[int | None]:
    """The attention window of each layer cache that mlx-lm would make, None for full attention.

    Raises ModelNotSupportedError for state that is not keys and values of every position.
    """
    windows: list[int | None] = []
    for cache in caches:
        kind = type(cache).__name__
        if kind not in ("KVCache", "RotatingKVCache") or getattr(cache, "keep", None):
            raise _refused(name, f"keeps {kind} state", "a tree pass shares keys and values only")
        windows.append(getattr(cache, "max_size", None))
    return windows


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelNotFoundError(
            str(path), f"is not a readable model config ({error})", help="download the model again"
        ) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelNotFoundError(str(path), "names no model_type", help="download the model again")
    return config


def _check_config(name: str, config: Mapping[str, Any]) -> None:
    if "model_file" in config:
        raise _refused(name, f"wants to run its own code ({config['model_file']})")
    for key, fact in REFUSED_KEYS.items():
        if _first(config, key):
            raise _refused(name, f"{fact} (config key {key})")
    for scaling in (_first(config, "rope_scaling"), _first(config, "rope_parameters")):
        if isinstance(scaling, dict) and "dynamic" in (scaling.get("type"), scaling.get("rope_type")):
            raise _refused(name, "changes its rotary base with the length of the text (dynamic NTK)")


def _first(config: Mapping[str, Any], key: str) -> Any:
    """The first value of `key` that is not null, at the top of a config or in one of its maps."""
    return next((c[key] for c in _maps(config) if c.get(key) is not None), None)


def _maps(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield config
    for key in ("text_config", "rope_parameters", "rope_scaling"):
        if isinstance(config.get(key), dict):
            yield from _maps(config[key])


def _as_float32(name: str, model: Module, dequantize: Any) -> Module:
    from .fast_mlx import mx

    modules = [module for _, module in model.named_modules()]  # type: ignore[no-untyped-call]
    if any("global_scale" in module for module in modules):
        raise _refused(
            name, "has NVFP4 weights with a global scale", "they cannot be dequantized exactly here"
        )
    # Scales become float32 first, or the product would be rounded to their half precision.
    model.set_dtype(mx.float32)
    plain: Module = dequantize(model)
    plain.set_dtype(mx.float32)
    return plain


def _refused(name: str, fact: str, limit: str = "") -> ModelNotSupportedError:
    return ModelNotSupportedError(name, fact, limit, "choose another model, such as `smollm2-135m`")
