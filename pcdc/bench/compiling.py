"""Figures of the compiler and of starting up: what is waited for before the first answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pcdc_runtime.codec import dumps, loads

from pcdc.diagnostics import SchemaError
from pcdc.emit import compile_schema
from pcdc.prompt import Target
from pcdc.schema import Choice, Field, Schema

ROUNDS = 5
FIELDS, CHOICES, SCHEMAS = 28, 255, 100
_WORDS = (
    "account billing card charge claim credit delivery device error fee hotel invoice login loan merge order",
    "payment phone policy price queue refund rate reset return seat stock store tax team ticket trade user",
)


@dataclass(frozen=True)
class Figure:
    """One thing that was timed: the median of its rounds and the fastest and slowest, wall clock in ms."""

    title: str
    ms: float
    least: float
    most: float


def wide_schema(fields: int = FIELDS, choices: int = CHOICES) -> Schema:
    """A schema of so many fields with so many choices each, of two words and a number."""
    words = " ".join(_WORDS).split()
    labels = [
        [
            f"{words[(7 * n + f) % len(words)]} {words[(n // 7 + 3 * f) % len(words)]} {n}"
            for n in range(choices)
        ]
        for f in range(fields)
    ]
    return Schema(
        "wide",
        tuple(
            Field(f"question_{f}", "enum", f"Which fits part {f}?", tuple(Choice(one, one) for one in own))
            for f, own in enumerate(labels)
        ),
        "Judge the text.",
    )


def compiler_figures(
    target: Target, model: str, fields: int = FIELDS, choices: int = CHOICES, schemas: int = SCHEMAS
) -> tuple[Figure, ...]:
    """Compiling and loading a wide schema on a warm tokenizer, a build with nothing to do, and help.

    `model` is what a build of the target is asked for. Raises SchemaError where the schema does not compile.
    """
    # So wide a schema fits no small model's window; that its prompt would not be run changes no work here.
    schema, target = wide_schema(fields, choices), replace(target, window=None)
    artifact, problems = compile_schema(schema, target)
    if artifact is None:
        raise SchemaError(problems)
    data = dumps(artifact)
    with TemporaryDirectory() as folder:
        source, out = Path(folder, "schemas"), Path(folder, "out")
        source.mkdir()
        for number in range(schemas):
            choices_of = {"type": "enum", "choices": ["A", f"B{number}"], "description": "Which?"}
            Path(source, f"schema-{number}.json").write_text(json.dumps({"kind": choices_of}), "utf-8")
        build = ["build", str(source), "--out", str(out), "--model", model]
        _pcdc(build)
        jobs: dict[str, Callable[[], object]] = {
            f"compile {fields} fields x {choices} choices": lambda: compile_schema(schema, target),
            f"load that artifact ({len(data) / 1e6:.1f} MB)": lambda: loads(data),
            f"build of {schemas} schemas, nothing to do": lambda: _pcdc(build),
            "pcdc --help": lambda: _pcdc(["--help"]),
            "start of the interpreter": lambda: _python("pass"),
        }
        return _timed(jobs)


def start_figures(artifact: Path, model: str, text: str, rounds: int = ROUNDS) -> tuple[Figure, ...]:
    """The stages of a first answer, each round in a process of its own."""
    stages = {
        "the command line": "import pcdc.cli",
        "the engine and MLX": "import pcdc_runtime.engine",
        "the artifact": (
            "from pathlib import Path; from pcdc_runtime.codec import read;"
            f" artifact = read(Path({str(artifact)!r}))"
        ),
        # The first import of what loads weights; it brings transformers.
        "import of mlx-lm": "import mlx_lm.utils",
        "tokenizer, weights and their probe": f"loaded = pcdc_runtime.open_model({model!r})",
        "the engine": "engine = pcdc_runtime.Engine(artifact, loaded)",
        "the first answer": f"engine.run({text!r})",
        "the second answer": f"engine.run({text!r})",
    }
    lines = ["import json, time", "marks = [time.perf_counter()]"]
    for code in stages.values():
        lines += [code, "marks.append(time.perf_counter())"]
    lines += ["print(json.dumps(marks))", "engine.close()", "loaded.close()"]
    spent: list[list[float]] = []
    for _ in range(rounds):
        marks = json.loads(_python("\n".join(lines)))
        spent.append([1000 * (after - before) for before, after in pairwise(marks)])
    return tuple(_figure(title, times) for title, times in zip(stages, zip(*spent, strict=True), strict=True))


def _timed(jobs: dict[str, Callable[[], object]]) -> tuple[Figure, ...]:
    """Each job timed once a round, so that what slows the machine down slows all of them."""
    times: dict[str, list[float]] = {title: [] for title in jobs}
    for _ in range(ROUNDS):
        for title, job in jobs.items():
            start = time.perf_counter()
            job()
            times[title].append((time.perf_counter() - start) * 1000)
    return tuple(_figure(title, own) for title, own in times.items())


def _figure(title: str, times: list[float] | tuple[float, ...]) -> Figure:
    return Figure(title, median(times), min(times), max(times))


def _pcdc(arguments: list[str]) -> str:
    return _python(f"import sys; sys.argv = {['pcdc', *arguments]!r}; from pcdc.__main__ import main; main()")


def _python(code: str) -> str:
    """The last line that code prints in a fresh interpreter. Raises CalledProcessError where it fails."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return (done.stdout.splitlines() or [""])[-1]
