"""pcdc on MLX's CUDA build: `make bench-gpu`, or `python benchmarks/gpu.py --rehearse` on any CPU.

A seeded random model of Qwen2.5-1.5B's shape answers the shipped scenarios: times need no trained weights.
Each precision is measured in a process of its own, because MLX reads MLX_ENABLE_TF32 once; one that fails is
named and the others go on. Only the standard library is imported here, so that `--check` and `--requirements`
run before anything is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CUDA = "cuda13"
PRECISIONS = {
    "float32, TF32": ("float32", "1"),
    "float32": ("float32", "0"),
    "bfloat16": ("bfloat16", "1"),
}
"""Weights' type, and whether float32 products may run on tensor cores at TF32's precision: MLX's default."""

NEEDS = (
    "it needs Linux with glibc 2.35 or newer, an NVIDIA GPU of compute capability 7.5 or newer and its "
    "driver, 580 or newer; `python benchmarks/gpu.py --rehearse` runs the same script on a small model on "
    "the CPU"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, measure every precision, print the tables; 0 where all of them were measured."""
    parser = argparse.ArgumentParser(description="Measure pcdc on MLX's CUDA build.")
    parser.add_argument("--rehearse", action="store_true", help="a two-layer model on the CPU, in seconds")
    parser.add_argument("--check", action="store_true", help="only say whether there is a GPU to measure on")
    parser.add_argument("--requirements", action="store_true", help="print what the environment must hold")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="repeatable; default all")
    parser.add_argument("--out", type=Path, help="write gpu.json here")
    options = parser.parse_args(arguments)
    if options.requirements:
        print("\n".join(requirements()))
        return 0
    gpu = "" if options.rehearse else found_gpu()
    if gpu is None:
        print(
            f"bench-gpu: no NVIDIA GPU was found (`nvidia-smi` is missing or fails); {NEEDS}", file=sys.stderr
        )
        return 2
    if options.check:
        print(gpu or "rehearsal, no GPU is needed")
        return 0
    print(f"GPU: {gpu}" if gpu else "Rehearsal on the CPU with a small model: these are no GPU figures.")
    report: dict[str, Any] = {"gpu": gpu, "rehearsal": options.rehearse, "precisions": {}}
    failed = 0
    for name in options.precision or PRECISIONS:
        found = measured(name, options.rehearse)
        report["precisions"][name] = found
        failed += "error" in found
        print("\n" + text(name, found), flush=True)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"\nwritten: {options.out / 'gpu.json'}")
    return 1 if failed else 0


def requirements() -> list[str]:
    """pcdc's own requirements with MLX's CUDA build in place of the CPU one, and llguidance for a baseline.

    The two builds own the same library file, so they never share an environment.
    """
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    mlx = [line for line in project["dependencies"] if line.startswith("mlx[cpu]")]
    others = [line for line in project["dependencies"] if not line.startswith(("mlx>", "mlx["))]
    extra = [line for line in project["optional-dependencies"]["bench"] if line.startswith("llguidance")]
    return [*(line.replace("mlx[cpu]", f"mlx[{CUDA}]") for line in mlx), *others, *extra]


def found_gpu() -> str | None:
    """Name, driver and memory of each GPU as the driver tells them; None where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    asked = "--query-gpu=name,driver_version,memory.total,compute_cap"
    try:
        told = subprocess.run(
            [command, asked, "--format=csv,noheader"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in told.stdout.splitlines() if line.strip()]
    return "; ".join(lines) if told.returncode == 0 and lines else None


def measured(precision: str, rehearse: bool) -> dict[str, Any]:
    """What `measure.py` prints for one precision; `error` where it did not get there."""
    dtype, tf32 = PRECISIONS[precision]
    command = [sys.executable, str(HERE / "measure.py"), dtype, *(["--rehearse"] if rehearse else [])]
    environment = os.environ | {"MLX_ENABLE_TF32": tf32}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    return {"error": f"ended with status {done.returncode}; what it said is above"}


def text(precision: str, found: Mapping[str, Any]) -> str:
    """The tables of one precision."""
    if "error" in found:
        return f"## {precision}: not measured ({found['error']})"
    forward, attention = found["forward"], found["attention"]
    lines = [
        f"## {precision}",
        found["machine"],
        f"model: {found['model']}, {found['parameters']:,} parameters, "
        f"peak memory {found['peak_bytes']:,} bytes",
        f"prefill of {forward['chunk']} tokens: {forward['prefill_ms']:.2f} ms; "
        f"step of 1 token: {forward['step_ms']:.2f} ms, of 8: {forward['step_8_ms']:.2f} ms "
        f"(after {forward['prefix']} tokens; the 1-token step with its head: {forward['token_ms']:.2f} ms)",
        f"attention of {attention['rows']} nodes over {attention['columns']} slots, one layer: "
        f"fused with the tree's mask {attention['masked_ms']:.3f} ms, fused without a mask "
        f"{attention['plain_ms']:.3f} ms, unfused {attention['unfused_ms']:.3f} ms "
        f"(largest difference {attention['difference']:.1e})",
    ]
    for scenario in found["scenarios"]:
        lines += ["", *_scenario(scenario)]
    return "\n".join(lines)


def _scenario(scenario: Mapping[str, Any]) -> list[str]:
    ours = scenario["methods"][0]
    lines = [f"{scenario['name']}: {scenario['fields']} fields"]
    for method in scenario["methods"]:
        if "error" in method:
            lines.append(f"  {method['title']}: {method['error']}")
            continue
        spread = f"{method['ms']:9.2f} ms ({method['low_ms']:.2f} to {method['high_ms']:.2f}, "
        spread += f"first {method['first_ms']:.0f})"
        counts = f"{method['passes']:>4} passes {method['positions']:>6} positions"
        ratio = f"(ours: {method['ms'] / ours['ms']:.2f}x)" if method is not ours and "ms" in ours else ""
        lines.append(f"  {spread} {counts}  {method['title']} {ratio}".rstrip())
    return [*lines, *(f"  {line}" for line in scenario["floor"].splitlines())]


if __name__ == "__main__":
    sys.exit(main())
