"""Index bytes as hostile input: one kind of error, before anything is served, whatever the bytes."""

import hashlib
import os
import random
import struct
import tracemalloc
from functools import partial

import msgpack
import numpy as np
import pytest
from index_files import (
    LABELS,
    MAGIC,
    SECTIONS,
    fact_of,
    forged,
    grouped,
    parts,
    rows_of,
    sealed,
    two_labels,
    with_header,
)
from mutations import flipped
from pcdc_runtime.codec import dumps, read
from pcdc_runtime.errors import ArtifactError, IndexFileError
from pcdc_runtime.indexed import checking
from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.layout import MAX_HEADER

TOO_LARGE = f"has a header larger than {MAX_HEADER} bytes"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.pcdx"
    write_index(path, grouped())
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Gives the fact for which bytes are refused, by everything that would read them."""
    return partial(fact_of, tmp_path / "hostile.pcdx")


def test_a_file_cut_anywhere_is_refused(data, refused):
    """Field report 34."""
    starts = [data.index(section) for section in parts(data)[1].values() if section]
    sizes = {*range(60), *random.Random(0).sample(range(len(data)), 300)}
    for size in sizes.union(*(range(start - 2, start + 3) for start in starts)):
        refused(data[:size])
    assert refused(data[:10]) == "is damaged or cut short"
    assert refused(data[:-1]) == "is cut short or longer than its header says"


def test_any_flipped_bit_is_refused(data, refused):
    """Field report 34."""
    generator = random.Random(0)
    for bit in {*range(48 * 8), *generator.sample(range(len(data) * 8), 1500)}:
        refused(flipped(data, bit))


def test_bytes_behind_the_end_or_between_sections_are_refused(data, refused):
    assert refused(data + b"\0") == "is cut short or longer than its header says"
    sections = parts(data)[1]
    gap = data.index(sections["offset"]) - 1
    assert data[gap] == 0
    assert refused(data[:gap] + b"\1" + data[gap + 1 :]) == "has something between its sections"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_that_is_not_the_headers_is_refused(data, refused, name):
    header, sections = parts(data)
    sections[name] = bytes(255 - byte for byte in sections[name])
    assert refused(sealed(msgpack.packb(header), sections)) == "does not match its checksum"


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "is not a pcdc index"),
        (b"GGUF\x03", "is not a pcdc index"),
        (MAGIC[:7], "is not a pcdc index"),
        (MAGIC.replace(b"\r\n", b"\n"), "is not a pcdc index"),
        (b'\xef\xbb\xbf\n {"f": {}}', "is a definition file, not an index"),
        (MAGIC, "is damaged or cut short"),
        (struct.pack("<8sII32s", MAGIC, 2, 0, b""), "has index format version 2"),
        (
            struct.pack("<8sII32s", MAGIC, 1, MAX_HEADER + 1, b""),
            f"has a header larger than {MAX_HEADER} bytes",
        ),
        (struct.pack("<8sII32s", MAGIC, 1, 2**32 - 1, b""), f"has a header larger than {MAX_HEADER} bytes"),
        (struct.pack("<8sII32s", MAGIC, 1, 100, b""), "does not match its checksum"),
        (sealed(b"", {}), "is damaged or cut short"),
        (sealed(b"\xdd\xff\xff\xff\xff", {}), "is damaged or cut short"),
        (sealed(b"\x91" * 100_000 + b"\xc0", {}), "is damaged or cut short"),
        (sealed(msgpack.packb(msgpack.Timestamp(1, 2)), {}), "is damaged or cut short"),
        (sealed(msgpack.packb({"name": 1}), {}), "has unknown, missing or reordered keys"),
        (sealed(msgpack.packb([1]), {}), "has something else where a map belongs"),
        (sealed(b"\x82\xa1a\x01\xa1a\x02", {}), "is not in canonical form"),
    ],
)
def test_what_is_no_index_is_told_apart_from_a_damaged_one(refused, data, fact):
    assert refused(data) == fact


def test_a_header_that_is_not_in_canonical_form_is_refused(data, refused):
    header, sections = parts(data)
    packed = msgpack.packb(header)
    longer = packed.replace(b"\xa4name", b"\xd9\x04name", 1)
    assert msgpack.unpackb(longer) == header
    assert refused(sealed(longer, sections)) == "is not in canonical form"


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("name",), 5),
        (("field",), " "),
        (("field",), "a\u202eb"),
        (("field",), "x" * 201),
        (("question",), b"bytes"),
        (("instructions",), None),
        (("examples",), None),
        (("examples",), ["ab"]),
        (("examples",), [["a"]]),
        (("examples",), [["a", "b", "c"]]),
        (("examples",), [["a", 1]]),
        (("examples",), [["a", "b"]] * 1001),
        (("temperature",), 1.0),
        (("temperature",), "0.0"),
        (("temperature",), "NaN"),
        (("temperature",), "1e999"),
        (("temperature",), "2"),
        (("temperature",), "2.00"),
        (("temperature",), "[" * 100_000),
        (("tokenizer",), {}),
        (("tokenizer", "probes"), [["text"]]),
        (("tokenizer", "probes"), [["text", b"\xff\xff\xff\xff"]]),
        (("prompt", "tail"), b""),
        (("prompt", "head"), b"\xff\xff\xff\xff"),
        (("prompt", "head"), b"\x00\x00\x00"),
        (("prompt", "shared"), 4),
        (("prompt", "tail_overlap"), 3),
        (("prompt", "fence"), "other"),
        (("prompt", "probes"), [1]),
        (("inputs",), {"a": 1}),
        (("inputs",), {"b": "1", "a": "2"}),
        (("largest_id",), 59),
        (("largest_id",), 61),
        (("largest_id",), -1),
        (("largest_id",), 2**40),
        (("largest_id",), True),
        (("sections",), {}),
        (("sections",), []),
        (("sections", "extra"), [0, b""]),
        (("sections", "end"), None),
        (("sections", "end"), [11]),
        (("sections", "end"), [11, b"x" * 31]),
        (("sections", "end"), [11, "x" * 32]),
        *(
            ((("sections", name), [count, b"x" * 32]))
            for name in SECTIONS
            for count in (-1, 0, 2**31 - 1, 2**31)
        ),
        (("extra",), 5),
    ],
)
def test_members_of_wrong_type_count_or_range_are_refused(data, refused, keys, value):
    """Field report 35."""
    refused(with_header(data, *keys, value=value))


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("by", [-2, -1, 1, 2, 1000, 2**20])
def test_a_section_that_claims_more_or_fewer_items_than_there_are_is_refused(data, refused, name, by):
    """Field report 35."""
    header, _ = parts(data)
    items, digest = header["sections"][name]
    refused(with_header(data, "sections", name, value=[max(items + by, 0) if items + by else 1, digest]))


def test_lying_counts_take_no_memory(data, refused):
    """Field report 35."""
    hostile = [with_header(data, "sections", n, value=[2**31 - 1, b"x" * 32]) for n in SECTIONS]
    everything = {name: [2**31 - 1, b"x" * 32] for name in SECTIONS}
    hostile.append(with_header(data, "sections", value=everything))
    hostile.append(forged(data, later=range(1, 10), joins=[0] * 9))
    for number in (2**31 - 1, -(2**31)):
        for name in ("offset", "entry", "end", "label_offset", "id_offset", "ends_offset"):
            values = np.frombuffer(parts(data)[1][name], "<i4").tolist()
            hostile.append(forged(data, **{name: [*values[:-1], number]}))
            hostile.append(forged(data, **{name: [values[0], *[number] * (len(values) - 2), values[-1]]}))
    tracemalloc.start()
    for bytes_ in hostile:
        refused(bytes_)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


COLUMNS = [name for name, size in SECTIONS.items() if size == 4]
CHANGES = {
    "drop": lambda values: values[:-1],
    "add": lambda values: [*values, values[-1]],
    "swap": lambda values: [values[-1], *values[1:-1], values[0]],
    "repeat": lambda values: [values[0], values[0], *values[2:]],
    "reverse": lambda values: values[::-1],
    "empty": lambda values: [],
    "fall": lambda values: [-1, *values[1:]],
    "far": lambda values: [*values[:-1], 2**31 - 1],
}
HARMLESS = {
    *(("swap", name) for name in ("end", "entry", "joins")),
    *(("repeat", name) for name in ("token", "offset", "end", "entry", "joins")),
    *(("reverse", name) for name in ("end", "entry", "joins")),
}
"""What gives an index as good as the first: other forms of an entry, other groups, no change."""


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_column_of_wrong_numbers_is_refused(data, refused, name, change):
    """Field report 35."""
    if (change, name) not in HARMLESS:
        values = np.frombuffer(parts(data)[1][name], "<i4").tolist()
        refused(forged(data, **{name: CHANGES[change](values)}))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return two_labels(tmp_path_factory.mktemp("two"))


LONG = [7] * checking.MAX_ROW_TOKENS


@pytest.mark.parametrize(
    "rows",
    [
        (([5], 0, 0), ([5, 1], 0, 1)),
        (([], 0, 0), ([5], 0, 1)),
        (([4, 9, 9], 0, 0), ([5, 1, 1], 0, 1)),
        (([5], 0, 0), ([5], 1, 1)),
        (([5], 1, 0), ([5, 5], 0, 1)),
        (([5, 6], 1, 1), ([5, 7], 0, 0)),
        ((LONG[:-1], 0, 0), (LONG, 0, 1)),
    ],
)
def test_rows_in_order_are_accepted(tmp_path, two, rows):
    path = tmp_path / "a.pcdx"
    path.write_bytes(forged(two, **rows_of(*rows, ends=2)))
    assert len(open_index(path).rows) == 2


@pytest.mark.parametrize(
    "rows",
    [
        (([5, 1], 0, 0), ([5], 0, 1)),
        (([5], 0, 0), ([], 0, 1)),
        (([5, 1, 1], 0, 0), ([4, 9, 9], 0, 1)),
        (([5], 1, 0), ([5], 0, 1)),
        (([5], 0, 0), ([5], 0, 1)),
        (([5, 5], 0, 1), ([5], 1, 0)),
        (([5, 7], 0, 0), ([5, 6], 1, 1)),
        (([5, 7], 0, 0), ([5, 7], 0, 1)),
        (([], 0, 0), ([], 0, 1)),
        ((LONG, 0, 0), (LONG[:-1], 0, 1)),
        ((LONG, 0, 0), (LONG, 0, 1)),
    ],
)
def test_rows_that_do_not_rise_by_tokens_and_then_by_end_set_are_refused(two, refused, rows):
    assert refused(forged(two, **rows_of(*rows, ends=2))) == "has rows that are not in order"


def test_wrong_order_is_found_across_the_blocks_of_the_check(two, refused, monkeypatch):
    monkeypatch.setattr(checking, "_BLOCK", 3)
    tokens = [[n] for n in range(12)]
    for place in range(11):
        wrong = [*tokens]
        wrong[place], wrong[place + 1] = wrong[place + 1], wrong[place]
        rows = [(row, 0, n % 2) for n, row in enumerate(wrong)]
        assert refused(forged(two, **rows_of(*rows))) == "has rows that are not in order"
        missing = [(row, 0, 0) for row in tokens]
        assert refused(forged(two, **rows_of(*missing))) == "has an entry without a row"


@pytest.mark.parametrize(
    ("sections", "fact"),
    [
        (rows_of(([*LONG, 7], 0, 0), ([8], 0, 1)), "has a row that is empty or too long"),
        (rows_of(([5], 0, 0), ([-1], 0, 1)), "has a token id out of range"),
        (rows_of(([5], 0, 0), ([61], 0, 1)), "has another largest token id than it says"),
        (rows_of(([5], 0, 0), ([2**31 - 1], 0, 1)), "has another largest token id than it says"),
        (rows_of(([5], 0, 0), ([6], 1, 1)), "has a row of an unknown END set"),
        (rows_of(([5], -1, 0), ([6], 0, 1)), "has a row of an unknown END set"),
        (rows_of(([5], 0, 0), ([6], 0, 2)), "has a row of an unknown entry"),
        (rows_of(([5], 0, -1), ([6], 0, 1)), "has a row of an unknown entry"),
        (rows_of(([5], 0, 0), ([6], 0, 0)), "has an entry without a row"),
        (rows_of(([5], 0, 0)), "has an entry without a row"),
        ({"ends_offset": [0, 0, 1]}, "has an empty END set"),
        ({"ends_ids": [60, 60], "ends_offset": [0, 2]}, "has an END set that is not sorted"),
        ({"ends_ids": []}, "has malformed END sets"),
        ({"ends_offset": [0]}, "has no END sets"),
        ({"offset": [0, 2**31 - 1, 2]}, "has malformed bounds of a row"),
        ({"offset": [0, -(2**31), 2]}, "has malformed bounds of a row"),
        ({"offset": [1, 1, 2]}, "has malformed bounds of a row"),
        ({"offset": [0, 1, 1]}, "has malformed bounds of a row"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(two, refused, sections, fact):
    """Field report 35."""
    assert refused(forged(two, **sections)) == fact


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    wrong = {
        "pipe": "is not a regular file",
        "": "is a folder",
        "absent.pcdx": "cannot be read (No such file or directory)",
        "nul\0": "cannot be a path (embedded null byte)",
    }
    for name, fact in wrong.items():
        with pytest.raises(IndexFileError) as caught:
            open_index(tmp_path / name)
        assert caught.value.fact == fact


def test_each_of_artifact_and_index_in_the_others_place_is_told_with_the_way_out(tmp_path, data):
    from fakes import make_artifact, spelled

    (tmp_path / "a.pcdx").write_bytes(dumps(make_artifact({"level": spelled("low", "high")})))
    with pytest.raises(IndexFileError, match=r"pcdc run .* in Python with `load`") as caught:
        open_index(tmp_path / "a.pcdx")
    assert caught.value.fact == "is an artifact, not an index"
    (tmp_path / "b.pcdc").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"pcdc select .* in Python with `open_selector`") as caught:
        read(tmp_path / "b.pcdc")
    assert caught.value.fact == "is an index, not an artifact"


def test_the_index_that_hostile_ones_are_made_of_is_accepted(tmp_path, data):
    (tmp_path / "a.pcdx").write_bytes(forged(data))
    index = open_index(tmp_path / "a.pcdx")
    assert [index.labels.label(n) for n in range(len(index.labels))] == [*LABELS]
    assert hashlib.sha256(index.header).hexdigest() == grouped().digest
