"""How an index lies in a file.

File: a prologue of 48 bytes, the header, the sections. The prologue is MAGIC, then as little-endian uint32
INDEX_VERSION and the header's length, then sha256(header), which is the index's digest. The header is one
msgpack map with string keys in the order in which `header_of` writes them, canonical as an artifact's
payload is. Each section begins at the next multiple of 64 bytes; what lies between is zero. The file ends
with its last section.

Sections follow one another in the order of SECTIONS. The header has for each how many items it holds and its
sha256; where it lies follows, and so does every count of the index. Items are little-endian int32, also
where fewer bytes would do: arrays are used where they lie, and all code takes token ids and row numbers in
one type. Texts are bytes of UTF-8.

Rows: row `r` has the tokens `token[offset[r]:offset[r + 1]]`, ends with END set `end[r]` and spells entry
`entry[r]`. Rows rise strictly by their tokens, a shorter one before those that it begins, then by their END
set's number. END set `k` is `ends_ids[ends_offset[k]:ends_offset[k + 1]]`, sorted. The header's `largest_id`
is the largest token id of prompt, rows and END sets.

Labels: label `n` is the text `label[label_offset[n]:label_offset[n + 1]]`, in the order of the catalog, and
its id lies in `id` in the same way. Both sections of ids are empty where each label is its own id. No two ids
are equal. Entries are numbered by their first labels. `later` numbers the labels that are not the first of
their entry, rising, and `joins` has the entry of each. Every entry has a row.

No time, no path and no host is part of it: equal inputs give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from pcdc_runtime.artifact import EndSets, Ints
from pcdc_runtime.payload import target_values
from pcdc_runtime.target import as_inputs, as_target, as_temperature
from pcdc_runtime.visible import MAX_NAME_CHARS, hidden
from pcdc_runtime.wire import (
    as_list,
    as_map,
    as_natural,
    as_text,
    as_texts,
    check,
    check_keys,
    pack,
    unpack,
)

from .index import Bytes, Index, Labels, Texts
from .rows import Rows

INDEX_MAGIC = b"pcdx\r\n\x1a\n"
"""Does not survive a transfer as text, and is no msgpack array."""
INDEX_VERSION = 1
PROLOGUE = Struct("<8sII32s")
MAX_HEADER = 16 * 1024 * 1024
ALIGNMENT = 64
ROW_SECTIONS = ("token", "offset", "end", "entry", "ends_offset", "ends_ids")
SECTIONS: Mapping[str, int] = {
    **dict.fromkeys(ROW_SECTIONS, 4),
    **{"label": 1, "label_offset": 4, "id": 1, "id_offset": 4, "later": 4, "joins": 4},
}
"""The bytes of one item of each."""
_EMPTY = hashlib.sha256().digest()
_INTS = np.empty(0, dtype=np.int32)


class Section(NamedTuple):
    """Where a section lies: `items` from byte `start` up to byte `stop`."""

    start: int
    stop: int
    items: int
    digest: bytes


@dataclass(frozen=True)
class Header:
    """What a file's header says; `said` are the attributes of the index but for its rows and labels."""

    said: Mapping[str, Any]
    largest_id: int
    sections: Mapping[str, Section]


def aligned(position: int) -> int:
    """The next byte at which a section may begin."""
    return -(-position // ALIGNMENT) * ALIGNMENT


def section_bytes(index: Index) -> Iterator[tuple[str, memoryview]]:
    """Every section in the format's order, as bytes that are not copied."""
    rows, labels = index.rows, index.labels
    ids = labels.ids or Texts(np.empty(0, dtype=np.uint8), _INTS)
    arrays = {
        **{"token": rows.token, "offset": rows.offset, "end": rows.end, "entry": rows.entry},
        **{"ends_offset": rows.ends.offset, "ends_ids": rows.ends.ids},
        **{"label": labels.texts.data, "label_offset": labels.texts.offset},
        **{"id": ids.data, "id_offset": ids.offset, "later": labels.later, "joins": labels.joins},
    }
    for name, size in SECTIONS.items():
        whole = np.ascontiguousarray(arrays[name], dtype="<i4" if size == 4 else np.uint8)
        yield name, whole.view(np.uint8).data


def file_size(index: Index) -> int:
    """How many bytes the index's file has."""
    size = PROLOGUE.size + len(index.header)
    for _, data in section_bytes(index):
        size = aligned(size) + len(data)
    return size


def header_of(index: Index) -> bytes:
    """The header's canonical bytes."""
    return pack(
        {
            "name": index.name,
            "model": index.model,
            "field": index.field,
            "question": index.question,
            "instructions": index.instructions,
            "examples": [list(pair) for pair in index.examples],
            "temperature": json.dumps(index.temperature),
            **target_values(index),
            "inputs": {key: index.inputs[key] for key in sorted(index.inputs)},
            "largest_id": index.largest_id,
            "sections": {
                name: [len(data) // SECTIONS[name], hashlib.sha256(data).digest()]
                for name, data in section_bytes(index)
            },
        }
    )


def read_header(header: bytes, size: int) -> Header:
    """Check a header as hostile input; `size` is the file's. Raises Malformed, and what `unpack` raises."""
    values = as_map(unpack(header))
    check(pack(values) == header, "is not in canonical form")
    check_keys(
        values,
        *("name", "model", "field", "question", "instructions", "examples", "temperature"),
        *("tokenizer", "prompt", "inputs", "largest_id", "sections"),
    )
    name = as_text(values["field"])
    check(name.strip() != "" and len(name) <= MAX_NAME_CHARS, "has a field whose name is blank or too long")
    check(not hidden(name), "has a field whose name holds characters that do not show")
    examples = [as_texts(pair) for pair in as_list(values["examples"])]
    check(all(len(pair) == 2 for pair in examples), "has a malformed example")
    said = {
        **{key: as_text(values[key]) for key in ("name", "model", "field", "question", "instructions")},
        "examples": tuple((query, label) for query, label in examples),
        "temperature": as_temperature(values["temperature"]),
        **as_target(values),
        "inputs": as_inputs(values["inputs"]),
    }
    sections = _sections(as_map(values["sections"]), PROLOGUE.size + len(header))
    check(sections["joins"].stop == size, "is cut short or longer than its header says")
    _check_counts({name: section.items for name, section in sections.items()})
    own = sections["id"].digest, sections["id_offset"].digest
    check(own != (sections["label"].digest, sections["label_offset"].digest), "has its labels twice")
    return Header(said, as_natural(values["largest_id"]), sections)


def _sections(table: Mapping[str, Any], position: int) -> dict[str, Section]:
    """Where all sections lie behind a header that ends at `position`."""
    check_keys(table, *SECTIONS)
    sections = {}
    for name, size in SECTIONS.items():
        row = as_list(table[name])
        check(len(row) == 2 and type(row[1]) is bytes and len(row[1]) == 32, "has a malformed section")
        count = as_natural(row[0])
        check(count > 0 or row[1] == _EMPTY, "has a malformed section")
        start = aligned(position)
        position = start + count * size
        sections[name] = Section(start, position, count, row[1])
    return sections


def _check_counts(count: Mapping[str, int]) -> None:
    """Sections that are about the same things have as many of them."""
    rows, labels = count["end"], count["label_offset"] - 1
    check(rows > 0 and count["entry"] == rows and count["offset"] == rows + 1, "has rows of unequal columns")
    check(labels > 0 and count["id_offset"] in (0, labels + 1), "has labels of unequal columns")
    check(count["id"] == 0 or count["id_offset"] > 0, "has ids without their bounds")
    check(count["ends_offset"] > 1, "has no END sets")
    check(count["later"] == count["joins"] < labels, "has groups of unequal columns")
    check(labels - count["later"] <= rows, "has an entry without a row")


def content_of(data: Bytes, sections: Mapping[str, Section]) -> tuple[Rows, Labels]:
    """Rows and labels where they lie in a file's bytes; nothing is looked at."""

    def ints(name: str) -> Ints:
        section = sections[name]
        return data[section.start : section.stop].view("<i4")

    def texts(name: str) -> Texts:
        section = sections[name]
        return Texts(data[section.start : section.stop], ints(f"{name}_offset"))

    labels = Labels(
        texts=texts("label"),
        ids=texts("id") if sections["id_offset"].items else None,
        later=ints("later"),
        joins=ints("joins"),
    )
    ends = EndSets(offset=ints("ends_offset"), ids=ints("ends_ids"))
    rows = Rows(
        token=ints("token"),
        offset=ints("offset"),
        end=ints("end"),
        entry=ints("entry"),
        ends=ends,
        entries=labels.entries,
    )
    return rows, labels
