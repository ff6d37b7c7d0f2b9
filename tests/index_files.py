"""Small seeded indexes, and files forged of them: any section, any header, with checksums that are right."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from pcdc_runtime.artifact import PromptCut
from pcdc_runtime.errors import IndexFileError
from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.index import Index, Labels
from saving import replace
from tables import make_rows

MAGIC, VERSION, ALIGNMENT = b"pcdx\r\n\x1a\n", 1, 64
SECTIONS = {
    **dict.fromkeys(("token", "offset", "end", "entry", "ends_offset", "ends_ids"), 4),
    **{"label": 1, "label_offset": 4, "id": 1, "id_offset": 4, "later": 4, "joins": 4},
}
"""The sections in their order and the bytes of one item of each, as the format says."""
LABELS = ("Schuhe", "Schuh", "größer", "日本", "a\tb", "Schuh", "Ärmel", "日本語", "Schuhe", "می‌خواهم")
ENTRY = (0, 1, 2, 3, 4, 1, 5, 6, 0, 7)
WORDS = ("red", "blue", "größe", "日本", "shoe", "box", "Ω", "x" * 30)


def make_index(
    forms: Sequence[tuple[int, Sequence[int], Sequence[int]]],
    labels: Sequence[str],
    ids: Sequence[str] | None = None,
    entry: Sequence[int] | None = None,
    **changed: Any,
) -> Index:
    """An index of forms `(entry, path, ids of its END set)`; without `entry` each label is one."""
    said: dict[str, Any] = {
        "name": "products",
        "model": "tiny",
        "field": "product",
        "question": "Which product?",
        "instructions": "Answer with a product.",
        "examples": (("It pinches my toes.", labels[0]), ("Too big.", labels[-1])),
        "temperature": 1.0,
        "fingerprint": "f" * 64,
        "tokenizer_probes": (("a b", (3, 4)),),
        "prompt_version": "1",
        "prompt_text": "<text>…</text> product:",
        "prompt": PromptCut(
            head=np.array([1, 2, 3], dtype=np.int32),
            pre="\n<text>",
            post="</text>",
            fence="text",
            shared=1,
            tail=np.array([7, 8], dtype=np.int32),
            tail_overlap=0,
            probes=(2, 3),
        ),
        "inputs": {"catalog": "0" * 64, "definition": "1" * 64},
        **changed,
    }
    numbers = np.array(range(len(labels)) if entry is None else entry, dtype=np.int32)
    columns = Labels.of(labels, labels if ids is None else ids, numbers)
    return Index(**said, rows=make_rows(forms), labels=columns)


def grouped(**changed: Any) -> Index:
    """Ten labels with ids, of eight entries: labels of several scripts, several forms, an empty path."""
    forms = [(e, (40 + e % 3, 50 + e, 60)[: 2 + e % 2], (9, 10, 11)) for e in range(8)]
    forms += [(0, (40,), (12,)), (5, (), (13, 14)), (2, (42, 52), (9, 12))]
    return make_index(forms, LABELS, [f"p{n}" for n in range(len(LABELS))], ENTRY, **changed)


def seeded_index(seed: int, entries: int) -> Index:
    """Random labels, which are their own ids, with one or two random forms each."""
    rng = random.Random(seed)
    labels = [f"{rng.choice(WORDS)} {rng.choice(WORDS)} {n}" for n in range(entries)]
    paths: dict[tuple[tuple[int, ...], int], int] = {}
    for entry in range(entries):
        for _ in range(rng.choice([1, 1, 2])):
            path = tuple(rng.randrange(20) for _ in range(rng.randrange(1, 6)))
            paths.setdefault((path, rng.randrange(3)), entry)
        paths[(*path, 20 + entry), 0] = entry
    return make_index([(e, path, (30, 31 + end)) for (path, end), e in paths.items()], labels)


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A file's header and sections."""
    length = struct.unpack_from("<I", data, 12)[0]
    header = msgpack.unpackb(data[48 : 48 + length])
    sections, position = {}, 48 + length
    for name, size in SECTIONS.items():
        start = -(-position // ALIGNMENT) * ALIGNMENT
        position = start + header["sections"][name][0] * size
        sections[name] = data[start:position]
    return header, sections


def sealed(header: bytes, sections: Mapping[str, bytes], version: int = VERSION) -> bytes:
    """A file with a right prologue around any header and sections."""
    data = struct.pack("<8sII", MAGIC, version, len(header)) + hashlib.sha256(header).digest() + header
    for section in sections.values():
        data += bytes(-len(data) % ALIGNMENT) + section
    return data


def forged(data: bytes, **changed: bytes | Sequence[int]) -> bytes:
    """A file with sections changed (bytes, or the numbers of an integer section), all else in agreement."""
    header, sections = parts(data)
    for name, value in changed.items():
        sections[name] = value if isinstance(value, bytes) else np.array(value, dtype="<i4").tobytes()
    header["sections"] = {
        name: [len(section) // SECTIONS[name], hashlib.sha256(section).digest()]
        for name, section in sections.items()
    }
    return sealed(msgpack.packb(header), sections)


def with_header(data: bytes, *keys: str, value: Any) -> bytes:
    """A file with one member of its header replaced."""
    header, sections = parts(data)
    inner = header
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return sealed(msgpack.packb(header), sections)


def two_labels(folder: Path) -> bytes:
    """A file of two labels whose sections are to be replaced."""
    write_index(folder / "two.pcdx", make_index([(0, (5,), (60,)), (1, (6,), (60,))], ["a", "b"]))
    return (folder / "two.pcdx").read_bytes()


def rows_of(*rows: tuple[Sequence[int], int, int], ends: int = 1) -> dict[str, Sequence[int]]:
    """Sections of rows `(tokens, END set, entry)` and END sets of one id each."""
    return {
        "token": [token for tokens, _, _ in rows for token in tokens],
        "offset": np.cumsum([0, *(len(tokens) for tokens, _, _ in rows)]).tolist(),
        "end": [end for _, end, _ in rows],
        "entry": [entry for _, _, entry in rows],
        "ends_offset": list(range(ends + 1)),
        "ends_ids": [60] * ends,
    }


def fact_of(path: Path, data: bytes) -> str:
    """For which fact bytes are refused. Raises AssertionError where anything would serve them."""
    replace(path, data)
    try:
        index = open_index(path)
    except IndexFileError as error:
        return error.fact
    facts = []
    for gate in (index.check, lambda: index.rows, lambda: index.labels):
        try:
            gate()
        except IndexFileError as error:
            facts.append(error.fact)
    # Rows and labels are judged apart: what is wrong with one is wrong with the whole.
    assert len(facts) >= 2
    assert facts[0] in facts[1:]
    return facts[0]
