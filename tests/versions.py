"""Artifacts as they follow each other in one file: each tells its number in its head and in every choice."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
from fakes import byte_tokenizer, make_artifact, spelled
from pcdc_runtime.tokenizer import encode_text

DIGITS = 3
SHARED = len("Answer ")
"""How many leading tokens of the head two versions share at least."""

WRITER = """
import sys, time
from pathlib import Path
folder, path, times = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
contents = [file.read_bytes() for file in sorted(folder.iterdir())]
for turn in range(times):
    {write}
    time.sleep(0.002)
"""
ATOMICALLY = """
    beside = path.with_name("beside.tmp")
    beside.write_bytes(contents[turn % len(contents)])
    beside.replace(path)
"""
IN_CHUNKS = """
    data = contents[turn % len(contents)]
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(data), len(data) // 5):
            file.write(data[start : start + len(data) // 5])
            time.sleep(0.001)
"""


@cache
def version(number, name="made"):
    """Fields `team` and `level`, whose choices end with the number; odd versions have one choice more."""
    text = f"{number:0{DIGITS}}"
    labels = ["a", "b", "ab", *(["c"] if number % 2 else [])]
    made = make_artifact(
        {field: spelled(*(f"{label}{text}" for label in labels)) for field in ("team", "level")}
    )
    head = np.array(encode_text(byte_tokenizer(), f"Answer {text}.\n" + made.prompt.pre), dtype=np.int32)
    return replace(made, name=name, prompt=replace(made.prompt, head=head))


def numbers(result):
    """The versions that the distributions of a result come from; one for a whole result."""
    return {int(value[-DIGITS:]) for answer in result.answers for value, _ in answer.distribution}


def written_by_another_process(write, contents, path, times):
    """A process that writes the files of the folder `contents` to `path` in turn, the last one at the end."""
    script = WRITER.format(write=write.strip())
    return subprocess.Popen([sys.executable, "-c", script, str(contents), str(path), str(times)])
