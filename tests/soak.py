"""The watch soak: another process saves, `pcdc watch` builds, engines of a third program answer meanwhile.

    python tests/soak.py [SAVES]

Six definitions are each saved in another editor's way, as fast as answers with the new choices come, and all
the while a catalog is rewritten in 50 chunks. Every choice carries the number of its save, so that an answer
tells which save it is made from and whether the list is whole. Prints counts and the time from save to new
answer; exits with 1 if a save was lost, a partial or older list was served, or something was built that had
not changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path

from pcdc_runtime.blas import load_fast_blas

# Before anything imports MLX: later it has no effect.
load_fast_blas()

import pcdc_runtime as rt  # noqa: E402
from command_line import ENVIRONMENT, PROGRAM, ROOT  # noqa: E402
from saving import PATTERNS  # noqa: E402
from tiny import write_tiny  # noqa: E402

SAVES = 10_000
ROWS = 100
PATIENCE = 60.0


@dataclass
class Tally:
    """What happened to the saves of one file, whose lists have `size` choices."""

    name: str
    size: int
    saves: int = 0
    answers: int = 0
    torn: int = 0
    backwards: int = 0
    lost: int = 0
    seconds: list[float] = field(default_factory=list)


class Saver:
    """One process that saves files, and says when it was done."""

    def __init__(self) -> None:
        command = [sys.executable, str(ROOT / "tests" / "saving.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._turn = threading.Lock()

    def save(self, pattern: str, path: Path, content: str) -> float:
        """The time at which the file was saved."""
        with self._turn:
            print(json.dumps([pattern, str(path), content]), file=self._process.stdin, flush=True)
            return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


class Watching:
    """`pcdc watch` as a process; counts what it says that it built."""

    def __init__(self, schemas: Path, model: Path, out: Path) -> None:
        command = [*PROGRAM, "watch", str(schemas), "--model", str(model), "--out", str(out), "--json"]
        self._process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        self.built: Counter[str] = Counter()
        self.other: Counter[str] = Counter()
        self.started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            event = json.loads(line)
            for target in event["targets"]:
                counts = self.built if target["outcome"] == "built" else self.other
                counts[Path(target["source"]).stem] += 1
            self.other.update(d["code"] for d in event["diagnostics"])
            self.started.set()

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait()
        self._reader.join()
        return code


def definition(number: int) -> str:
    choices = [f"{number} yes", f"{number} no"]
    return json.dumps({"answer": {"type": "enum", "choices": choices, "description": "Which?"}})


def catalog(number: int) -> str:
    return "".join(f"{number} {row}\n" for row in range(ROWS))


def serve(tally: Tally, engine: rt.Engine, save: Callable[[int], float], numbers: Iterable[int]) -> None:
    """Save again and again, each time waiting until an answer has the new choices."""
    last = 0
    for number in numbers:
        saved = save(number)
        tally.saves += 1
        while last < number:
            values = [value for value, _ in engine.run("text").fields["answer"].distribution]
            answered = time.monotonic()
            tally.answers += 1
            found = {int(value.partition(" ")[0]) for value in values}
            tally.torn += len(found) != 1 or len(values) != tally.size
            tally.backwards += max(found) < last
            last = max(found)
            if answered - saved > PATIENCE:
                tally.lost += 1
                return
            time.sleep(0.005)
        tally.seconds.append(max(0.0, answered - saved))


def soak(folder: Path, saves: int) -> dict[str, object]:
    """Run it in an empty folder; gives the counts."""
    schemas, out = folder / "schemas", folder / "out"
    codes = schemas / "catalogs" / "codes.txt"
    codes.parent.mkdir(parents=True)
    model = write_tiny(folder / "tiny")
    for pattern in PATTERNS:
        (schemas / pattern).mkdir()
        (schemas / pattern / f"{pattern}.json").write_text(definition(0), encoding="utf-8")
    codes.write_text(catalog(0), encoding="utf-8")
    use = {"type": "string", "description": "Which?", "x-catalog": {"source": "catalogs/codes.txt"}}
    (schemas / "catalog.json").write_text(json.dumps({"answer": use}), encoding="utf-8")
    watching, saver, codes_saver = Watching(schemas, model, out), Saver(), Saver()
    if not watching.started.wait(PATIENCE):
        raise RuntimeError("pcdc watch did not start")
    done = threading.Event()
    with contextlib.ExitStack() as stack:
        for one in (saver, codes_saver):
            stack.callback(one.close)

        def worker(tally: Tally, artifact: Path, save: Callable[[int], float], numbers: Iterable[int]):
            engine = stack.enter_context(rt.load(artifact, model=str(model), reload=True))
            return threading.Thread(target=serve, args=(tally, engine, save, numbers))

        tallies, threads = [], []
        for place, name in enumerate(PATTERNS):
            each = saves // len(PATTERNS) + (place < saves % len(PATTERNS))
            path = schemas / name / f"{name}.json"

            def save(number: int, name: str = name, path: Path = path) -> float:
                return saver.save(name, path, definition(number))

            tallies.append(Tally(name, 2))
            artifact = out / name / f"{name}.tiny.pcdc"
            threads.append(worker(tallies[-1], artifact, save, range(1, each + 1)))
        rewritten = Tally("catalog", ROWS)
        rewriter = worker(
            rewritten,
            out / "catalog.tiny.pcdc",
            lambda number: codes_saver.save("chunks", codes, catalog(number)),
            takewhile(lambda _: not done.is_set(), count(1)),
        )
        start = time.monotonic()
        for thread in (*threads, rewriter):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        rewriter.join()
        wall = time.monotonic() - start
    time.sleep(0.5)
    code = watching.interrupt()
    both = [*tallies, rewritten]
    seconds = sorted(s for t in tallies for s in t.seconds)
    return {
        "saves": sum(t.saves for t in tallies),
        "catalog rewrites": rewritten.saves,
        "answers": sum(t.answers for t in both),
        "lost": sum(t.lost for t in both),
        "torn": sum(t.torn for t in both),
        "older than one before": sum(t.backwards for t in both),
        "builds": sum(watching.built.values()) - len(both),
        "builds too many or too few": sum(abs(watching.built[t.name] - 1 - t.saves) for t in both),
        "other outcomes": dict(watching.other),
        "exit code of Ctrl-C": code,
        "litter": sorted(str(p.relative_to(out)) for p in out.rglob("*.tmp")),
        "seconds": round(wall, 1),
        "save to answer, 50th": percentile(seconds, 50),
        "save to answer, 99th": percentile(seconds, 99),
        "catalog to answer, 50th": percentile(sorted(rewritten.seconds), 50),
        "catalog to answer, 99th": percentile(sorted(rewritten.seconds), 99),
    }


def percentile(ordered: list[float], part: int) -> float | None:
    """Nearest rank, in seconds."""
    return round(ordered[-(-len(ordered) * part // 100) - 1], 3) if ordered else None


def faults(counts: dict[str, object], saves: int) -> list[str]:
    """What must not be."""
    wanted = {
        "saves": saves,
        "lost": 0,
        "torn": 0,
        "older than one before": 0,
        "builds too many or too few": 0,
        "other outcomes": {},
        "exit code of Ctrl-C": 130,
        "litter": [],
    }
    return [f"{name}: {counts[name]}, not {value}" for name, value in wanted.items() if counts[name] != value]


def main() -> int:
    saves = int(sys.argv[1]) if len(sys.argv) > 1 else SAVES
    with tempfile.TemporaryDirectory() as folder:
        counts = soak(Path(os.path.realpath(folder)), saves)
    for name, value in counts.items():
        print(f"{name:28} {value}")
    wrong = faults(counts, saves)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
