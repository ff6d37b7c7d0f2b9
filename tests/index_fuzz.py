"""Fuzzing of index files: for any bytes an IndexFileError or an index that keeps every law of its format.

Run as a program it prints how many inputs of each kind came to which end. Input number n of a seed is always
the same bytes. The laws are judged here by plain Python that shares no code with the product.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgpack
import mutations
from index_files import SECTIONS, forged, grouped, make_index, parts, sealed, seeded_index
from mutations import INTS, STRANGE, Random, encode, flipped
from pcdc_runtime.errors import IndexFileError
from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.indexed.layout import header_of, section_bytes

MAX_SECONDS = 1.0
MAX_GROWTH = 100 * 1024 * 1024
NUMBERS = [name for name, size in SECTIONS.items() if size == 4]
HEADER_KINDS = {
    kind: getattr(mutations, kind)
    for kind in ("wrong_type", "strange", "number", "text", "keys", "members", "lies", "longhand", "column")
}


@dataclass
class Report:
    """What became of the inputs: `ends` counts by kind and outcome, `faults` says what must not be."""

    ends: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    facts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    growth: int = 0

    @property
    def count(self) -> int:
        return sum(ends.total() for ends in self.ends.values())


def seeds(folder: Path) -> list[bytes]:
    """Good files: with groups and ids, with many rows, with one label."""
    made = []
    for index in (grouped(), seeded_index(1, 30), make_index([(0, (5,), (6,))], ["x"])):
        write_index(folder / "seed.pcdx", index)
        made.append((folder / "seed.pcdx").read_bytes())
    return made


def number_changed(data: bytes, rng: Random) -> bytes:
    """Numbers of integer sections: off by a little or by far, another's, twice."""
    changed = {}
    for name in rng.choices(NUMBERS, k=rng.choice([1, 1, 1, 2, 3])):
        row = mutations._ints(parts(data)[1][name]) or [0]
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(row))
            row[at] = rng.choice(
                [row[at] - 1, row[at] + 1, row[at] + 1, rng.choice(row), at, *INTS[:9], -(2**31)]
            )
        changed[name] = mutations._bytes(row)
    return forged(data, **changed)


def rows_changed(data: bytes, rng: Random) -> bytes:
    """Whole rows of a section, or of all that belong together: swapped, lost, repeated, in another order."""
    sections = parts(data)[1]
    together = rng.choice([["end", "entry"], ["later", "joins"], *([name] for name in NUMBERS)])
    table = {name: mutations._ints(sections[name]) for name in together}
    size = max(1, len(table[together[0]]))
    first, second = rng.randrange(size), rng.randrange(size)
    change = rng.choice(["swap", "drop", "repeat", "reverse", "more", "empty", "cut"])
    for row in table.values():
        if not row:
            row.append(0)
        if change == "swap":
            row[first], row[second] = row[second], row[first]
        elif change == "drop":
            del row[first]
        elif change == "repeat":
            row.insert(first, row[second])
        elif change == "reverse":
            row.reverse()
        elif change == "more":
            row += row
        elif change == "empty":
            row.clear()
        else:
            del row[first:]
    return forged(data, **table)


def paths_changed(data: bytes, rng: Random) -> bytes:
    """Paths, with their bounds, made anew: few tokens, so that order and doubles are close calls."""
    sections = parts(data)[1]
    count = len(sections["end"]) // 4
    paths = [tuple(rng.choices((4, 5), k=rng.randrange(4))) for _ in range(count)]
    paths = sorted(paths) if rng.random() < 0.8 else paths
    ends = len(sections["ends_offset"]) // 4 - 1
    offset = [0]
    for path in paths:
        offset.append(offset[-1] + len(path))
    end = [rng.randrange(ends) for _ in range(count)]
    if rng.random() < 0.8:
        order = sorted(zip(paths, end, strict=True))
        paths, end = [path for path, _ in order], [number for _, number in order]
        offset = [0]
        for path in paths:
            offset.append(offset[-1] + len(path))
    return forged(data, token=[t for path in paths for t in path], offset=offset, end=end)


def texts_changed(data: bytes, rng: Random) -> bytes:
    """Labels or ids made anew, among them what is no text, blank, hidden, long or there twice."""
    sections = parts(data)[1]
    name = rng.choice(["label", "id"]) if sections["id_offset"] else "label"
    count = len(sections["label_offset"]) // 4 - 1
    pool = [
        *mutations.TEXTS,
        "\u3000",
        "a\u3000",
        "\u200d",
        "a\tb",
        "日本",
        "x" * 2001,
        "é" * 1500,
        "b" * 2000,
    ]
    made = [f"{rng.choice('ab')}{n}".encode() for n in range(count)]
    if rng.random() < 0.8:
        odd = rng.choice([*(text.encode() for text in pool), b"\xff", b"\xed\xa0\x80", b"\xc3", b"\x80"])
        made[rng.randrange(count)] = odd
    if rng.random() < 0.3:
        made[rng.randrange(count)] = rng.choice(made)
    offset = [0]
    for text in made:
        offset.append(offset[-1] + len(text))
    if rng.random() < 0.2:
        at = rng.randrange(len(offset))
        offset[at] += rng.choice([-1, 1])
    return forged(data, **{name: b"".join(made), f"{name}_offset": offset})


def bits_changed(data: bytes, rng: Random) -> bytes:
    """Bits of a section turned over, sealed again."""
    sections = parts(data)[1]
    name = rng.choice([name for name in SECTIONS if sections[name]])
    section = sections[name]
    for _ in range(rng.randrange(1, 4)):
        section = flipped(section, rng.randrange(len(section) * 8))
    return forged(data, **{name: section})


def bytes_changed(data: bytes, rng: Random) -> bytes:
    """The file without a new seal: cut, flipped, longer, or only its beginning before something else."""
    change = rng.randrange(5)
    if change == 0:
        return data[: rng.randrange(len(data))]
    if change == 1:
        return flipped(data, rng.randrange(len(data) * 8))
    if change == 2:
        return data + rng.randbytes(rng.randrange(1, 70))
    if change == 3:
        at = rng.randrange(len(data))
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
    start = data[: rng.choice([0, 4, 8, 12, 16, 48])]
    return start + rng.choice([rng.randbytes(rng.randrange(200)), *(bytes(raw) for raw in STRANGE)])


def header_bytes(data: bytes, rng: Random) -> bytes:
    """Any header, sealed: noise, cut, or flipped."""
    header, sections = parts(data)
    packed = msgpack.packb(header)
    made = rng.choice(
        [
            rng.randbytes(rng.randrange(60)),
            packed[: rng.randrange(len(packed))],
            flipped(packed, rng.randrange(len(packed) * 8)),
            packed + b"\0",
            bytes(rng.choice(STRANGE)),
        ]
    )
    return sealed(made, sections, version=rng.choice([1, 1, 1, 0, 2, 2**32 - 1]))


FILE_KINDS: dict[str, Callable[[bytes, Random], bytes]] = {
    kind.__name__: kind
    for kind in (
        *(number_changed, rows_changed, paths_changed, texts_changed),
        *(bits_changed, bytes_changed, header_bytes),
    )
}


def inputs(good: Sequence[bytes], count: int, number: int) -> Iterator[tuple[str, bytes]]:
    """`count` inputs and their kinds."""
    kinds = [*HEADER_KINDS, *FILE_KINDS, *FILE_KINDS]
    for n in range(count):
        rng = random.Random(f"{number}/{n}")
        kind, data = kinds[n % len(kinds)], rng.choice(good)
        if kind in FILE_KINDS:
            yield kind, FILE_KINDS[kind](data, rng)
        else:
            header, sections = parts(data)
            yield f"header: {kind}", sealed(encode(HEADER_KINDS[kind](header, rng)), sections)


def fuzz(count: int, number: int = 0) -> Report:
    """Open and read `count` hostile files. Times are of the processor, not of the clock."""
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        good, path = seeds(Path(name)), Path(name) / "hostile.pcdx"
        before = _peak()
        for kind, data in inputs(good, count, number):
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            started = time.process_time()
            end = judged(path, data, report)
            took = time.process_time() - started
            report.slowest = max(report.slowest, took)
            report.ends[kind][end] += 1
            if took > MAX_SECONDS:
                report.faults.append(f"{kind}: {took:.1f} s for {len(data)} bytes")
            if end not in ("refused", "accepted"):
                report.faults.append(f"{kind}: {end}: {data.hex()}")
        report.growth = _peak() - before
    if report.growth > MAX_GROWTH:
        report.faults.append(f"memory grew by {report.growth >> 20} MiB")
    return report


def judged(path: Path, data: bytes, report: Report) -> str:
    """`refused`, `accepted`, or what must not be."""
    try:
        index = open_index(path)
        index.check()
    except IndexFileError as error:
        report.facts[error.fact] += 1
        return "refused"
    except BaseException as error:
        return f"raised {error!r:.200}"
    if broken := broken_law(index):
        return f"accepted although {broken}"
    again = sealed(header_of(index), {name: bytes(section) for name, section in section_bytes(index)})
    return "accepted" if again == data else "unequal"


def broken_law(index: Index) -> str:
    """What an accepted index breaks of its format, "" where nothing."""
    rows, labels = index.rows, index.labels
    token, offset = rows.token.tolist(), rows.offset.tolist()
    spelled = [(token[offset[n] : offset[n + 1]], int(rows.end[n])) for n in range(len(rows))]
    if spelled != sorted(spelled) or any(a == b for a, b in pairwise(spelled)):
        return "rows are not in order"
    if {*rows.entry.tolist()} != {*range(rows.entries)}:
        return "entries and rows differ"
    ends = [rows.ends[number].tolist() for number in rows.end.tolist()]
    if not all(ids and ids == sorted({*ids}) for ids in ends):
        return "an END set is not one"
    used = [*token, *rows.ends.ids.tolist(), *index.prompt.head.tolist(), *index.prompt.tail.tolist()]
    if min(used) < 0 or max(used) != index.largest_id:
        return "token ids are out of range"
    members = [labels.of_entry(entry).tolist() for entry in range(rows.entries)]
    if sorted(n for group in members for n in group) != [*range(len(labels))]:
        return "groups are no partition"
    if [group[0] for group in members] != sorted(group[0] for group in members):
        return "entries are not numbered by their first labels"
    texts = [labels.label(n) for n in range(len(labels))]
    ids = [labels.id(n) for n in range(len(labels))]
    if len({*ids}) < len(ids) or not all(map(str.strip, [*texts, *ids])):
        return "an id is there twice, or a text blank"
    shown = all(unicodedata.category(char) not in ("Cs", "Co") for text in texts for char in text)
    return "" if shown and max(map(len, texts)) <= 2000 else "a label is no text that shows"


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> int:
    """Fuzz, print the counts; 1 where anything happened that must not."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--inputs", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report = fuzz(given.inputs, given.seed)
    for kind, ends in sorted(report.ends.items()):
        print(f"{kind:20} {ends.total():7}  " + ", ".join(f"{end} {n}" for end, n in sorted(ends.items())))
    print(
        f"{report.count} index files, {len(report.facts)} different reasons; slowest {report.slowest:.3f} s; "
        f"memory grew by {report.growth / 2**20:.1f} MiB; {len(report.faults)} faults"
    )
    for fault in report.faults[:50]:
        print(f"FAULT {fault:.2000}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
