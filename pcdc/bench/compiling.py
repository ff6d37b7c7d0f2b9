"""Figures of the compiler and of starting up: what is waited for before the first answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TypeAlias

from pcdc_runtime.artifact import Artifact
from pcdc_runtime.codec import dumps, loads

from pcdc.diagnostics import SchemaError
from pcdc.emit import compile_schema
from pcdc.prompt import Target
from pcdc.schema import Choice, Field, Schema
from pcdc.show import table

from .figures import spread
from .starting import FROM_FILE

GoOn: TypeAlias = Callable[[], bool]
"""Whether another round may begin; the first one always does."""

ROUNDS = 5
FIELDS, CHOICES, SCHEMAS = 28, 255, 100
_WORDS = (
    "account billing card charge claim credit delivery device error fee hotel invoice login loan merge order",
    "payment phone policy price queue refund rate reset return seat stock store tax team ticket trade user",
)


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Figure:
    """One thing that was timed: the median of its rounds and the quartiles, wall clock in milliseconds."""

    title: str
    ms: float
    lower: float
    upper: float
    rounds: int


def figure_table(figures: Sequence[Figure], *, terminal: bool) -> str:
    """The figures for people; a single round has no quartiles."""
    rows = [
        [
            one.title,
            f"{one.ms:.1f}",
            "-" if one.rounds == 1 else f"{one.lower:.1f} to {one.upper:.1f}",
            str(one.rounds),
        ]
        for one in figures
    ]
    return table(["what", "ms", "quartiles", "rounds"], rows, terminal=terminal)


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
    target: Target,
    model: str,
    artifacts: Sequence[Artifact] = (),
    *,
    fields: int = FIELDS,
    choices: int = CHOICES,
    schemas: int = SCHEMAS,
    go_on: GoOn = _always,
) -> tuple[Figure, ...]:
    """Compiling and loading a wide schema on a warm tokenizer, a build with nothing to do, and help.

    `model` is what a build of the target is asked for; `artifacts` are loaded as well. Raises SchemaError
    where the schema does not compile.
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
            **{f"load artifact {one.name}": partial(loads, dumps(one)) for one in artifacts},
            f"build of {schemas} schemas, nothing to do": lambda: _pcdc(build),
            "pcdc --help": lambda: _pcdc(["--help"]),
            "start of the interpreter": lambda: _python("pass"),
        }
        return _timed(jobs, go_on)


def start_figures(
    artifact: Path, model: str, text: str, rounds: int = ROUNDS, go_on: GoOn = _always
) -> tuple[Figure, ...]:
    """The stages of a first answer, each round in a process of its own, and `pcdc run` as a whole.

    The head computed, and taken from its file where one is worth its while; no file of the user's is used.
    """
    run = ["run", str(artifact), "--text", text, "--model", model, "--no-head-cache"]
    with TemporaryDirectory() as folder:
        arguments = f"Path({str(artifact)!r}), {model!r}, {text!r}, Path({folder!r})"
        code = (
            "import json; from pathlib import Path; from pcdc.bench.starting import stages;"
            f" print(json.dumps(stages({arguments})))"
        )
        _python(code)
        kept = any(Path(folder).iterdir())
        whole = "pcdc run, the whole process, head computed"
        spent: dict[str, list[float]] = {}
        for number in range(rounds):
            if number and not go_on():
                break
            own: dict[str, float] = json.loads(_python(code))
            if not kept:
                del own[FROM_FILE]
            own[whole] = _ms(lambda: _pcdc(run))
            for title, ms in own.items():
                spent.setdefault(title, []).append(ms)
    return tuple(_figure(title, times) for title, times in spent.items())


def _timed(jobs: dict[str, Callable[[], object]], go_on: GoOn) -> tuple[Figure, ...]:
    """Each job timed once a round, so that what slows the machine down slows all of them."""
    times: dict[str, list[float]] = {title: [] for title in jobs}
    for number in range(ROUNDS):
        if number and not go_on():
            break
        for title, job in jobs.items():
            times[title].append(_ms(job))
    return tuple(_figure(title, own) for title, own in times.items())


def _ms(job: Callable[[], object]) -> float:
    start = perf_counter()
    job()
    return (perf_counter() - start) * 1000


def _figure(title: str, times: list[float]) -> Figure:
    quartiles = spread(times)
    return Figure(title, quartiles["median"], quartiles["lower"], quartiles["upper"], len(times))


def _pcdc(arguments: list[str]) -> str:
    return _python(f"import sys; sys.argv = {['pcdc', *arguments]!r}; from pcdc.__main__ import main; main()")


def _python(code: str) -> str:
    """The last line that code prints in a fresh interpreter. Raises CalledProcessError where it fails."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return (done.stdout.splitlines() or [""])[-1]
