"""What an index costs to build and to open: a process of its own, so that its memory is nobody else's.

`python benchmarks/large_index.py DEFINITION MODEL FILE` prints the figures as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TypeVar

from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.models import resolve
from pcdc_runtime.tokenizer import encode_texts

from pcdc.diagnostics import Diagnostic
from pcdc.indexing.definition import IndexDefinition
from pcdc.indexing.emit import compile_index
from pcdc.indexing.parse import parse_index_file
from pcdc.indexing.prompting import render_index_prompt
from pcdc.prompt import Target, load_target
from pcdc.tokenization import line_opening

OPENED = 5
ENCODED = 8192
"""How many labels the tokenizer gets at a time."""
CONTINUED = ('"', '"}', '",', '"\n')
"""What a line goes on with: the label's own tokens and each of these decide its forms."""
T = TypeVar("T")


@dataclass(frozen=True)
class Built:
    """One index on disk, and what making it took.

    Times are in seconds of wall clock, `cpu` is that of the process for `compiled`; `tokenizer` is what
    encoding every label's line with each of CONTINUED takes alone, of which compiling leaves out what it can
    prove; `again` is compiling it from itself with nothing changed.
    Opening is the median in milliseconds, `checked_ms` until its rows are checked too; `peak` is in bytes.
    """

    labels: int
    entries: int
    rows: int
    tokens: int
    read: float
    compiled: float
    cpu: float
    tokenizer: float
    written: float
    again: float
    size: int
    opened_ms: float
    checked_ms: float
    peak: int

    @property
    def cells(self) -> list[str]:
        """The figures for people, below BUILT."""
        return [
            f"{self.labels:,}",
            f"{self.entries:,}",
            f"{self.rows:,}",
            f"{self.tokens / self.rows:.1f}",
            f"{self.read:.2f}",
            f"{self.compiled:.2f}",
            f"{self.cpu:.2f}",
            f"{self.tokenizer:.2f}",
            f"{self.written:.2f}",
            f"{self.again:.2f}",
            f"{self.size / 1e6:.1f}",
            f"{self.size / (4 * self.tokens):.2f}",
            f"{self.opened_ms:.1f}",
            f"{self.checked_ms:.1f}",
            f"{self.peak / 2**30:.2f}",
        ]


BUILT = [
    *("labels", "entries", "rows", "tokens each", "read s", "compile s", "CPU s", "tokenizer s", "write s"),
    *("again s", "MB", "x raw ids", "open ms", "check ms", "peak GiB"),
]


def build(definition: Path, model: str, path: Path) -> Built:
    """Build an index in a process of its own. Raises SystemExit with what it said where it fails."""
    command = [sys.executable, __file__, str(definition), model, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{definition.name} is not built: {done.stderr.strip()[-500:]}")
    return Built(**json.loads(done.stdout))


def main(definition_path: str, model: str, path: str) -> None:
    """Read, compile and write an index, open it, and compile it again from itself."""
    target = _given(load_target(resolve(model, weights=False)))
    read, definition = _timed(lambda: _given(parse_index_file(Path(definition_path))))
    used = process_time()
    compiled, index = _timed(lambda: _given(compile_index(definition, target)))
    used = process_time() - used
    peak = _peak()
    written, _ = _timed(lambda: write_index(Path(path), index))
    opened = [_opened(Path(path)) for _ in range(OPENED)]
    found = open_index(Path(path))
    again, same = _timed(lambda: _given(compile_index(definition, target, found)))
    if not same.digest == found.digest == index.digest:
        raise SystemExit("compiling again from the index gives another one")
    tokenizer, _ = _timed(lambda: _encode(definition, target))
    built = Built(
        labels=len(definition.entries.labels),
        entries=index.rows.entries,
        rows=len(index.rows),
        tokens=len(index.rows.token),
        read=read,
        compiled=compiled,
        cpu=used,
        tokenizer=tokenizer,
        written=written,
        again=again,
        size=Path(path).stat().st_size,
        opened_ms=1e3 * median(one for one, _ in opened),
        checked_ms=1e3 * median(both for _, both in opened),
        peak=peak,
    )
    print(json.dumps(asdict(built)))


def _peak() -> int:
    """The most memory that this process had, in bytes."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # What Linux gives as `ru_maxrss` begins with the size of the process that started this one.
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    (most,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
    return 1024 * int(most)


def _given(found: tuple[T | None, list[Diagnostic]]) -> T:
    value, problems = found
    if value is None:
        raise SystemExit(f"{problems[0].subject}: {problems[0].fact}")
    return value


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = perf_counter()
    result = work()
    return perf_counter() - started, result


def _opened(path: Path) -> tuple[float, float]:
    """Seconds until an index is open, and until its rows are checked."""
    started = perf_counter()
    index: Index = open_index(path)
    opened = perf_counter() - started
    _ = index.rows
    return opened, perf_counter() - started


def _encode(definition: IndexDefinition, target: Target) -> None:
    """Encode every line that decides a label's forms."""
    prompt, opening = render_index_prompt(definition, target), line_opening(definition.field)
    labels = definition.entries.labels
    for first in range(0, len(labels), ENCODED):
        for after in CONTINUED:
            lines = [opening + '"' + label + after for label in labels[first : first + ENCODED]]
            encode_texts(target.tokenizer, [prompt.line_text(line) for line in lines])


if __name__ == "__main__":
    main(*sys.argv[1:])
