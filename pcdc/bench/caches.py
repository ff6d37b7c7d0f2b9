"""mlx-lm's own KV caches as the baselines use them: filled once, copied for rows, and counted.

Everything here runs mlx-lm's code on the model that ours runs: plain forwards, outside any forest pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import numpy as np
from pcdc_runtime.artifact import Artifact, Ints
from pcdc_runtime.bound import check_window
from pcdc_runtime.errors import ModelNotSupportedError
from pcdc_runtime.tokenizer import assemble_prompt, check_tokenizer, common_prefix
from pcdc_runtime.tree import CHUNK, chunks

if TYPE_CHECKING:
    from pcdc_runtime.fast_mlx import mx
    from pcdc_runtime.loaded import LoadedModel
    from pcdc_runtime.model import LanguageModel

Cache: TypeAlias = "list[Any]"
"""One KV cache of mlx-lm per layer."""

KV_BYTES = 2 * 1024**3
LOGITS_BYTES = 256 * 1024**2
"""What one batch of rows may take at most; one row is always run."""


class CountedModel:
    """A model of mlx-lm that counts its calls; in everything else it is the model.

    Its trunk alone may be run too, which gives hidden states in place of logits.

    `forwards` are calls, `positions` the tokens of all rows, padding included. `kv_bytes` is the most that
    the caches alive after a call took together. `kv_copied` are the bytes that a cache held when it was first
    seen, which are copies of another one, and those that the growth of a cache moved.
    """

    def __init__(self, language: Any, trunk: Any) -> None:
        self._language = language
        self._trunk = trunk
        self._seen: WeakSet[Any] = WeakSet()
        self.restart()

    def restart(self) -> None:
        """Count from zero; the caches that are alive stay known."""
        self.forwards = self.positions = self.kv_bytes = self.kv_copied = 0

    def __call__(self, tokens: mx.array, cache: Cache) -> mx.array:
        return self._run(self._language, tokens, cache)

    def hidden(self, tokens: mx.array, cache: Cache) -> mx.array:
        """The last hidden states of the same forward, without the output head."""
        return self._run(self._trunk, tokens, cache)

    def _run(self, module: Any, tokens: mx.array, cache: Cache) -> mx.array:
        for layer in cache:
            if layer not in self._seen:
                self.kv_copied += layer.nbytes
                self._seen.add(layer)
        before = [(layer.nbytes, layer.size()) for layer in cache]
        out: mx.array = module(tokens, cache=cache)
        for layer, (size, length) in zip(cache, before, strict=True):
            if size and layer.nbytes != size:
                self.kv_copied += layer.nbytes // layer.keys.shape[2] * length
        self.forwards += 1
        self.positions += int(tokens.size)
        self.kv_bytes = max(self.kv_bytes, sum(layer.nbytes for layer in self._seen))
        return out

    def __getattr__(self, key: str) -> Any:
        return getattr(self._language, key)


class PromptCache:
    """The KV of one artifact's prompts on one model, its head kept warm, in caches of mlx-lm.

    Raises FingerprintMismatchError, and ModelNotSupportedError for layers that keep anything else than all
    keys and values: their rows could not be cut to a common prefix.
    """

    def __init__(self, artifact: Artifact, loaded: LoadedModel) -> None:
        check_tokenizer(artifact, loaded.tokenizer, loaded.fingerprint, loaded.name)
        self.artifact = artifact
        self.loaded = loaded
        language: Any = loaded.language
        self.model = CountedModel(language.language, language.trunk)
        self.passes = 0
        self._ids: Ints = np.empty(0, dtype=np.int32)
        self._cache: Cache = loaded.call(lambda: plain_cache(self.model, loaded.name))
        loaded.call(lambda: self._advance(artifact.prompt.head))

    def prefill(self, context: str) -> tuple[int, Cache]:
        """Count from zero, hold all of a context's prompt but its last token, and give that token.

        `passes` tells afterwards whether anything had to be run. On the owner thread. Raises
        ContextNotTextError, ContextTooLongError.
        """
        self.model.restart()
        prompt = assemble_prompt(self.loaded.tokenizer, self.artifact.prompt, context)
        check_window(self.loaded, len(prompt), int(self.artifact.nodes.depth.max()))
        self._advance(prompt[:-1])
        self.passes = int(self.model.forwards > 0)
        return int(prompt[-1]), self._cache

    def close(self) -> None:
        """Free the caches, on the thread that made them."""
        self.loaded.call(self._cache.clear)

    def _advance(self, ids: Ints) -> None:
        from pcdc_runtime.fast_mlx import mx

        shared = common_prefix(self._ids, ids)
        self._ids = ids[:shared]
        for layer in self._cache:
            layer.trim(layer.size() - shared)
        for start, stop in chunks(shared, len(ids), CHUNK):
            self.model.hidden(mx.array(ids[None, start:stop]), cache=self._cache)
            mx.eval([[layer.keys, layer.values] for layer in self._cache])
        self._ids = ids


def plain_cache(model: Any, name: str) -> Cache:
    """The empty caches that mlx-lm makes for a model. Raises ModelNotSupportedError."""
    from mlx_lm.models.cache import KVCache, make_prompt_cache

    cache: Cache = make_prompt_cache(model)
    for layer in cache:
        if type(layer) is not KVCache:
            raise ModelNotSupportedError(
                name,
                f"keeps {type(layer).__name__} state",
                "this baseline copies keys and values of every position",
                "measure it on a model with full attention",
            )
    return cache


def copied(cache: Cache, rows: int, room: int) -> Cache:
    """A copy of a one-row cache for each row, each with room for that many more tokens."""
    from pcdc_runtime.fast_mlx import mx

    def for_rows(x: mx.array, length: int) -> mx.array:
        _, heads, _, width = x.shape
        held = mx.broadcast_to(x[..., :length, :], (rows, heads, length, width))
        return mx.concatenate([held, mx.zeros((rows, heads, room, width), x.dtype)], axis=2)

    copies = [
        layer_of(for_rows(layer.keys, layer.offset), for_rows(layer.values, layer.offset), layer.offset)
        for layer in cache
    ]
    mx.eval([[layer.keys, layer.values] for layer in copies])
    return copies


def layer_of(keys: mx.array, values: mx.array, length: int) -> Any:
    """One layer's cache that holds so many tokens in these arrays."""
    from mlx_lm.models.cache import KVCache

    layer = KVCache()  # type: ignore[no-untyped-call]
    layer.keys, layer.values, layer.offset = keys, values, length
    return layer


def padded(rows: Sequence[Sequence[int]]) -> Ints:
    """Rows of token ids, int32 [rows, longest], filled up with 0 on the right."""
    tokens = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
    for place, row in zip(tokens, rows, strict=True):
        place[: len(row)] = row
    return tokens


def batches(lengths: Sequence[int], prefix: int, language: LanguageModel) -> Iterator[list[int]]:
    """Numbers of rows that run together, of like length, within KV_BYTES and LOGITS_BYTES.

    Each row copies the KV of `prefix` tokens and has float32 logits at each of its own.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        size, longest = len(batch) + 1, lengths[row]
        kv = size * (prefix + longest) * language.kv_bytes_per_token
        if batch and (kv > KV_BYTES or size * longest * language.logits_width * 4 > LOGITS_BYTES):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
