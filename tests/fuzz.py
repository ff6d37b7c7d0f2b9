"""Fuzzing of artifacts: for any bytes an ArtifactError or an equal artifact, in bounded memory and time.

Run as a program it prints how many inputs of each kind came to which end, then runs a sample of what was
accepted through the planner, an engine and `inspect`. Input number n of a seed is always the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from families import family_folder
from mutations import BYTE_KINDS, TREE_KINDS, Seed, flipped, sealed, structured
from pcdc_runtime.artifact import Artifact, WorkedExample
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.engine import Engine  # before `fakes`, which imports MLX: the fast BLAS must be first
from pcdc_runtime.errors import ArtifactError, PcdcError
from pcdc_runtime.rules import RULES

import pcdc
from pcdc.describe import describe

MAX_SECONDS = 1.0
MAX_GROWTH = 200 * 1024 * 1024
PATIENCE = 120.0
SAMPLED = 100
DEFINITION = {
    "x-pcdc": {"examples": [{"context": "Charged twice.", "answers": {"team": "BILLING", "refund": True}}]},
    "team": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE", "TECH"], "description": "Which team?"},
    "level": {"type": "enum", "choices": [1, 2.5, None], "description": "How urgent?"},
    "refund": {"type": "boolean", "description": "Is money wanted back?"},
}


@dataclass
class Report:
    """What became of the inputs: `ends` counts by kind and outcome, `faults` says what must not be."""

    ends: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    facts: Counter[str] = field(default_factory=Counter)
    accepted: dict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    growth: int = 0

    @property
    def count(self) -> int:
        return sum(ends.total() for ends in self.ends.values())


def hand_made() -> Seed:
    """A small artifact that the table fake can run, with shared beginnings, several forms and a null."""
    from fakes import make_artifact, spelled

    fields = {
        "level": spelled("low", "lower", "high"),
        "open": {
            True: [(["t"], [",", "}"])],
            False: [(["f"], [",", "}"])],
            None: [(["n"], ['"']), (["x"], [","])],
        },
    }
    examples = [WorkedExample("Help!", ((0, 2), (1, 0)))]
    return Seed("made", dumps(make_artifact(fields, examples=examples)))


def compiled() -> Seed:
    """An artifact as the compiler writes it, for a real tokenizer."""
    return Seed("compiled", dumps(pcdc.compile(DEFINITION, str(family_folder("smollm2")))))


def inputs(seeds: Sequence[Seed], count: int, number: int) -> Iterator[tuple[str, bytes]]:
    """`count` inputs and their kinds: truncations and flips, all or half of the count, then the others."""
    rng = random.Random(number)
    small = seeds[0]
    plain = [("truncated", s, size) for s in seeds for size in range(len(s.data))]
    plain += [("truncated payload", s, size) for s in seeds for size in range(len(s.payload))]
    plain += [("flipped bit", small, bit) for bit in range(len(small.data) * 8)]
    plain += [("flipped payload bit", small, bit) for bit in range(len(small.payload) * 8)]
    if len(plain) > count // 2:
        plain = rng.sample(plain, count // 2)
    for kind, seed, at in plain:
        yield kind, _plain(kind, seed, at)
    kinds = [*TREE_KINDS, *BYTE_KINDS]
    for n in range(count - len(plain)):
        each = random.Random(f"{number}/{n}")
        kind = "deep" if n % 2000 == 0 else kinds[n % len(kinds)]
        yield kind, structured(each.choices(seeds, [4, 1])[0], kind, each)


def _plain(kind: str, seed: Seed, at: int) -> bytes:
    if kind == "truncated":
        return seed.data[:at]
    if kind == "truncated payload":
        return sealed(seed.payload[:at])
    return flipped(seed.data, at) if kind == "flipped bit" else sealed(flipped(seed.payload, at))


def fuzz(seeds: Sequence[Seed], count: int, number: int = 0) -> Report:
    """Load `count` hostile inputs. Times are of this thread's processor, not of the clock."""
    report = Report()
    first, *_ = [loads(seed.data) for seed in seeds]
    before = _peak()
    for kind, data in inputs(seeds, count, number):
        started = time.thread_time()
        end = judged(data, report)
        took = time.thread_time() - started
        report.slowest = max(report.slowest, took)
        report.ends[kind][end] += 1
        if took > MAX_SECONDS:
            report.faults.append(f"{kind}: {took:.1f} s for {len(data)} bytes")
        if end == "accepted":
            if len(report.accepted[kind]) < SAMPLED and _same_tokenizer(artifact := loads(data), first):
                report.accepted[kind].setdefault(artifact.digest, data)
        elif end != "refused":
            report.faults.append(f"{kind}: {end}: {len(data)} bytes that begin {data[:60].hex()}")
    report.growth = _peak() - before
    if report.growth > MAX_GROWTH:
        report.faults.append(f"memory grew by {report.growth >> 20} MiB")
    return report


def _same_tokenizer(a: Artifact, b: Artifact) -> bool:
    return (a.fingerprint, a.tokenizer_probes) == (b.fingerprint, b.tokenizer_probes)


def judged(data: bytes, report: Report) -> str:
    """`refused`, `accepted`, or what must not be."""
    try:
        artifact = loads(data)
    except ArtifactError as error:
        report.facts[error.fact] += 1
        return "refused"
    except BaseException as error:
        return f"raised {error!r:.200}"
    digest = hashlib.sha256(artifact.payload).hexdigest()
    return "accepted" if dumps(artifact) == data and artifact.digest == digest else "unequal"


def run_accepted(report: Report, most: int) -> Counter[str]:
    """Plan, run and describe artifacts that were accepted; counts the ends, adds to `report.faults`."""
    from fakes import TableModel, loaded, seeded

    ends: Counter[str] = Counter()
    waiting = [list(found.values()) for found in report.accepted.values()]
    chosen = [row[n] for n in range(SAMPLED) for row in waiting if n < len(row)]
    with loaded(TableModel(seeded(1))) as model:
        for data in chosen[:most]:
            artifact = loads(data)
            try:
                ends[_ran(Engine(artifact, model.share()), artifact)] += 1
            except PcdcError as error:
                ends[f"refused by the engine ({error.code})"] += 1
            except Exception as error:
                report.faults.append(f"engine: {error!r:.300}: {data.hex()}")
    return ends


def _ran(engine: Engine, artifact: Artifact) -> str:
    with engine:
        for rule in RULES:
            for mass in (True, False):
                # A result that does not come in time is a hang, and raises.
                result = engine.submit("Paid twice.", scoring=rule, legal_mass=mass).result(timeout=PATIENCE)
                result.to_json()
    describe(artifact, None)
    return "answered"


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> int:
    """Fuzz, print the counts; 1 where anything happened that must not."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--inputs", type=int, default=160_000)
    parser.add_argument("--run", type=int, default=1000, help="how many accepted artifacts to run")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started = time.perf_counter()
    report = fuzz([hand_made(), compiled()], given.inputs, given.seed)
    for kind, ends in sorted(report.ends.items()):
        print(f"{kind:20} {ends.total():7}  " + ", ".join(f"{end} {n}" for end, n in sorted(ends.items())))
    total = sum(report.ends.values(), Counter())
    print(f"{'all':20} {report.count:7}  " + ", ".join(f"{end} {n}" for end, n in sorted(total.items())))
    print(f"{len(report.facts)} different reasons; slowest {report.slowest:.3f} s; "
          f"memory grew by {report.growth / 2**20:.1f} MiB")  # fmt: skip
    ran = run_accepted(report, given.run)
    print(
        f"run: {ran.total()} accepted artifacts: " + ", ".join(f"{end} {n}" for end, n in sorted(ran.items()))
    )
    print(f"{len(report.faults)} faults, {time.perf_counter() - started:.0f} s")
    for fault in report.faults[:50]:
        print(f"FAULT {fault:.2000}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
