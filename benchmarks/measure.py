"""Measures one precision in this process and prints the figures as one line of JSON; `gpu.py` starts it."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import PcdcError
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.mlx_model import MlxModel
from pcdc_runtime.models import DEFAULT, ModelFiles, resolve
from pcdc_runtime.tokenizer import load_tokenizer
from pcdc_runtime.tree import CHUNK

from pcdc.bench.floor import floor_table
from pcdc.bench.machine import describe, line
from pcdc.bench.ours import hold
from pcdc.bench.scenarios import Scenario, shipped
from pcdc.prompt import load_target
from pcdc.writing import Writer

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "num_hidden_layers": 28,
    "intermediate_size": 8960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
"""Qwen2.5-1.5B's config."""
REHEARSAL = {
    **QWEN,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 49280,
}


Took = tuple[int, int]
"""Sequential passes and positions of one call."""


@dataclass(frozen=True)
class Sizes:
    """What is run: the model, which scenarios, how often, and the longest prefix of bare forwards."""

    config: dict[str, Any]
    name: str
    scenarios: tuple[str, ...]
    rounds: int
    many: int
    prefix: int


FULL = Sizes(
    QWEN,
    "seeded, the shape of Qwen2.5-1.5B",
    ("fraud_routing", "support_triage", "tariff_classification"),
    rounds=7,
    many=16,
    prefix=2048,
)
SMALL = Sizes(REHEARSAL, "seeded, two small layers", ("fraud_routing",), rounds=1, many=2, prefix=128)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    sizes = SMALL if options.rehearse else FULL
    if not options.rehearse and not mx.cuda.is_available():
        sys.exit(
            "this MLX has no CUDA, or its driver does not answer: `mlx[cuda13]` belongs into an environment "
            "without `mlx[cpu]`, as `make bench-gpu` makes one"
        )
    mx.set_default_device(mx.cpu if options.rehearse else mx.gpu)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), sizes.config)
        with LoadedModel(sizes.name, partial(open_seeded, Path(folder), sizes, options.dtype)) as loaded:
            report = figures(loaded, Path(folder), sizes)
    print(json.dumps(report))


def write_folder(folder: Path, config: dict[str, Any]) -> None:
    """A model folder without weights: this config over the tokenizer of the embedded model."""
    source = resolve(DEFAULT, weights=False).folder
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def open_seeded(folder: Path, sizes: Sizes, dtype: str) -> tuple[MlxModel, Any]:
    """The model with MLX's own seeded initial weights, on the device that was chosen."""
    from mlx_lm.models import qwen2

    mx.random.seed(0)
    language = qwen2.Model(qwen2.ModelArgs.from_dict(sizes.config))
    language.set_dtype(getattr(mx, dtype))
    language.eval()
    mx.eval(language.parameters())
    windows = [None] * sizes.config["num_hidden_layers"]
    window = sizes.config["max_position_embeddings"]
    return MlxModel(language, sizes.name, windows, window=window), load_tokenizer(folder)


def figures(loaded: LoadedModel, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Everything that is measured."""
    target, problems = load_target(ModelFiles(sizes.name, folder))
    if target is None:
        sys.exit("\n".join(problem.fact for problem in problems))
    mx.reset_peak_memory()
    report: dict[str, Any] = {
        "machine": f"{loaded.call(device)}; {line(describe(loaded))}",
        "model": sizes.name,
        "parameters": loaded.call(lambda: parameters(loaded)),
        "forward": loaded.call(lambda: forwards(loaded, sizes)),
        "attention": loaded.call(lambda: attention(sizes, getattr(mx, loaded.language.dtype))),
        "scenarios": [],
    }
    for name in sizes.scenarios:
        say(f"{loaded.language.dtype}: {name}")
        report["scenarios"].append(scenario(loaded, shipped(name, lambda: target).open(), sizes))
    return {**report, "peak_bytes": mx.get_peak_memory()}


def device() -> str:
    """What MLX tells about the device it computes on."""
    return ", ".join(f"{key} {value}" for key, value in sorted(mx.device_info().items()))


def parameters(loaded: LoadedModel) -> int:
    """The number of weights."""
    from mlx.utils import tree_flatten

    model: Any = loaded.language
    return sum(weight.size for _, weight in tree_flatten(model.language.parameters()))


def forwards(loaded: LoadedModel, sizes: Sizes) -> dict[str, float]:
    """Bare forwards after a long prefix: a chunk of prompt, a step of one token and one of eight."""
    sequence = loaded.language.sequence()
    chunk, ids = min(CHUNK, sizes.prefix), np.arange(sizes.prefix, dtype=np.int32)

    def run(count: int) -> Any:
        sequence.truncate(sizes.prefix)
        return sequence.append(ids[:count])

    def token() -> int:
        return int(mx.argmax(sequence.logits(run(1), [0])[0]).item())

    sequence.append(ids)
    return {
        "prefix": sizes.prefix,
        "chunk": chunk,
        "prefill_ms": timed(lambda: mx.eval(run(chunk)), sizes.rounds),
        "step_ms": timed(lambda: mx.eval(run(1)), sizes.rounds),
        "step_8_ms": timed(lambda: mx.eval(run(8)), sizes.rounds),
        "token_ms": timed(token, sizes.rounds),
    }


def attention(sizes: Sizes, dtype: mx.Dtype) -> dict[str, float]:
    """One layer's attention of a tree pass, by MLX's fused call and as separate operations."""
    heads, groups = sizes.config["num_attention_heads"], sizes.config["num_key_value_heads"]
    width, rows = sizes.config["hidden_size"] // heads, 256
    columns = sizes.prefix + rows
    queries, keys, values = (
        mx.random.normal((1, count, length, width)).astype(dtype)
        for count, length in ((heads, rows), (groups, columns), (groups, columns))
    )
    sees = np.zeros((rows, columns), dtype=np.bool_)
    sees[:, : sizes.prefix] = True
    own = np.arange(rows)
    # Chains of eight nodes, as suffixes are.
    sees[:, sizes.prefix :] = (own[:, None] // 8 == own // 8) & (own <= own[:, None])
    mask, scale = mx.array(sees), width**-0.5

    def fused(seen: mx.array | None) -> mx.array:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=seen)

    def unfused() -> mx.array:
        grouped = queries.reshape(1, groups, heads // groups, rows, width)
        scores = (grouped * scale) @ keys[:, :, None].swapaxes(-1, -2)
        scores = mx.where(mask, scores, mx.finfo(scores.dtype).min)
        weights = mx.softmax(scores, axis=-1, precise=True)
        return (weights @ values[:, :, None]).reshape(queries.shape)

    mx.eval(queries, keys, values, mask)
    apart = mx.abs(fused(mask).astype(mx.float32) - unfused().astype(mx.float32)).max()
    return {
        "rows": rows,
        "columns": columns,
        "masked_ms": timed(lambda: mx.eval(fused(mask)), sizes.rounds),
        "plain_ms": timed(lambda: mx.eval(fused(None)), sizes.rounds),
        "unfused_ms": timed(lambda: mx.eval(unfused()), sizes.rounds),
        "difference": float(apart.item()),
    }


def scenario(loaded: LoadedModel, scenario: Scenario, sizes: Sizes) -> dict[str, Any]:
    """Ours, the JSON under llguidance with and without forced tokens at once, many together, the floor."""
    artifact, context = scenario.artifact, scenario.contexts[0]
    engine, writer = Engine(artifact, loaded.share()), Writer(artifact, loaded)

    longer = itertools.count(1)

    def ours(text: str = context) -> Took:
        result = engine.run(text)
        return result.sequential_forward_passes, result.positions

    def another_length() -> Took:
        return ours(context + " again" * next(longer))

    def written(fast_forward: bool) -> Took:
        found = writer.write(context, fast_forward=fast_forward)
        return found.sequential_passes, found.positions

    def many() -> Took:
        results = list(engine.run_many(scenario.many(sizes.many)))
        failed = [result for result in results if isinstance(result, PcdcError)]
        if failed:
            raise failed[0]
        # Every context of a group tells the passes of the whole group.
        passes = sum(result.sequential_forward_passes / result.contexts for result in results)
        return round(passes), sum(result.positions for result in results)

    jobs: list[tuple[str, Callable[[], Took], int]] = [
        (f"ours, {artifact.scoring}, head warm", ours, 1),
        # Where kernels are built for every shape of attention, as cuDNN's are, this is what users meet.
        (f"ours, {artifact.scoring}, head warm, each text of another length", another_length, 1),
        ("writes JSON, llguidance, one pass per branch point", lambda: written(True), 1),
        ("writes JSON, llguidance, one pass per token", lambda: written(False), 1),
        (f"ours, {artifact.scoring}, {sizes.many} contexts as one forest, per context", many, sizes.many),
    ]
    before = partial(hold, artifact, loaded, len(artifact.prompt.head))
    methods = [compared(title, job, texts, before, sizes) for title, job, texts in jobs]
    engine.close()
    floor = floor_table(artifact, loaded, context, tries=sizes.rounds)
    return {
        "name": artifact.name,
        "fields": len(artifact.fields),
        "methods": methods,
        "floor": floor.text,
        "floor_data": floor.to_dict(),
    }


def compared(
    title: str, job: Callable[[], Took], texts: int, before: Callable[[], None], sizes: Sizes
) -> dict[str, Any]:
    """Milliseconds per request: the first, which may build kernels for new shapes, then median and spread."""
    say(f"  {title}")
    times: list[float] = []
    try:
        for _ in range(1 + sizes.rounds):
            before()
            started = perf_counter()
            passes, positions = job()
            times.append((perf_counter() - started) * 1000 / texts)
    # One method that fails must not take the others' figures with it.
    except Exception as error:
        return {"title": title, "error": f"failed ({type(error).__name__}: {error})"}
    first, *rest = times
    return {
        "title": title,
        "ms": median(rest),
        "first_ms": first,
        "low_ms": min(rest),
        "high_ms": max(rest),
        "passes": passes,
        "positions": positions,
    }


def timed(job: Callable[[], object], rounds: int) -> float:
    """Median milliseconds after two runs that are not counted: the first of a shape builds its kernels."""
    times = []
    for _ in range(2 + rounds):
        started = perf_counter()
        job()
        times.append((perf_counter() - started) * 1000)
    return median(times[2:])


def say(what: str) -> None:
    """Progress, beside the figures."""
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
