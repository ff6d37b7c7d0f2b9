"""Artifact bytes as hostile input: one kind of error, within limits, whatever the bytes."""

import random
import tracemalloc
from dataclasses import replace

import msgpack
import pytest
from forged import ARTIFACT, DATA, changed, payload, refused, sealed
from pcdc_runtime import codec
from pcdc_runtime.artifact import FORMAT_VERSION, MAGIC, OPENING
from pcdc_runtime.codec import MAX_BYTES, dumps, loads, read
from pcdc_runtime.errors import ArtifactError


def test_bytes_come_back_as_the_same_artifact_and_the_same_bytes():
    back = loads(DATA)
    assert dumps(back) == DATA
    assert back.digest == ARTIFACT.digest
    assert back.fields == ARTIFACT.fields
    assert back.examples == ARTIFACT.examples


def test_arrays_are_views_that_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        loads(DATA).nodes.token[0] = 1


def test_a_file_cut_at_any_byte_is_refused():
    """Field report 34."""
    for size in range(len(DATA)):
        refused(DATA[:size])


def test_any_flipped_bit_is_refused():
    """Field report 34."""
    generator = random.Random(0)
    bits = {*range(64 * 8), *generator.sample(range(len(DATA) * 8), 2000)}
    for bit in bits:
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        refused(bytes(damaged))


def nested(depth):
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        nested(100_000),
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb(msgpack.Timestamp(1, 2)),
        msgpack.packb([MAGIC, FORMAT_VERSION, msgpack.ExtType(5, b"x"), b""]),
        msgpack.packb({1: 2}),
        b"\x82\xa1a\x01\xa1a\x02",
        msgpack.packb(float("nan")),
        msgpack.packb([MAGIC, FORMAT_VERSION, b"", b""]),
        msgpack.packb([MAGIC, True, b"", b""]),
        msgpack.packb([MAGIC, FORMAT_VERSION + 1, b"", b""]),
        msgpack.packb(["other", FORMAT_VERSION, b"", b""]),
        DATA + b"\x00",
        b"{}",
        b"\xc1",
        "é".encode("latin-1"),
    ],
    ids=lambda data: data[:8].hex() or "empty",
)
def test_hostile_bytes_are_refused(data):
    """Field report 35."""
    refused(data)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "is not a pcdc artifact"),
        (b"GGUF\x03", "is not a pcdc artifact"),
        (msgpack.packb(["other", 1, b"", b""]), "is not a pcdc artifact"),
        (b'{"f": {}}', "is a definition file, not an artifact"),
        (b'{"line": 1}\n{"line": 2}\n', "is not a pcdc artifact"),
        (b"[" * 100_000, "is not a pcdc artifact"),
        (b'\xef\xbb\xbf\n {"f": {}}', "is a definition file, not an artifact"),
        (DATA[:-1], "is damaged or cut short"),
        (DATA[:20], "is damaged or cut short"),
        (DATA + b"\0", "is damaged or cut short"),
        (DATA[:-1] + b"\0", "does not match its checksum"),
    ],
)
def test_what_is_no_artifact_is_told_apart_from_a_damaged_one(data, fact):
    assert refused(data) == fact


def test_a_definition_is_known_by_its_name_too(tmp_path):
    (tmp_path / "route.json").write_text("[broken")
    with pytest.raises(ArtifactError, match=r"pcdc build .*route\.json") as caught:
        read(tmp_path / "route.json")
    assert caught.value.fact == "is a definition file, not an artifact"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",
        nested(100_000),
        msgpack.packb(msgpack.Timestamp(1, 2)),
        msgpack.packb({1: 2}),
        ARTIFACT.payload + b"\x00",
        b"\x82\xa1a\x01\xa1a\x02",
        msgpack.packb([1, 2]),
    ],
    ids=lambda data: data[:8].hex() or "empty",
)
def test_hostile_payloads_are_refused_though_their_checksum_is_right(data):
    """Field report 35."""
    refused(sealed(data))


def test_a_payload_that_is_not_in_canonical_form_is_refused():
    at = ARTIFACT.payload.index(b"\xa4name")
    longer = ARTIFACT.payload[:at] + b"\xd9\x04name" + ARTIFACT.payload[at + 5 :]
    assert msgpack.unpackb(longer) == payload()
    refused(sealed(longer))


def test_an_envelope_that_is_not_in_canonical_form_is_refused():
    assert DATA[6] == FORMAT_VERSION
    longer = DATA[:6] + b"\xcc" + DATA[6:]
    assert msgpack.unpackb(longer) == msgpack.unpackb(DATA)
    assert refused(longer) == "is not in canonical form"


def test_inputs_out_of_order_are_refused():
    assert loads(changed("inputs", value={"a": "1", "b": "2"})).inputs == {"a": "1", "b": "2"}
    refused(changed("inputs", value={"b": "2", "a": "1"}))


def test_headers_that_claim_much_at_every_level_take_no_memory():
    """Field report 35."""
    members = (b"\xdd" + (100_000).to_bytes(4, "big")) * 1000
    for data in (sealed(members + bytes(100_000)), members + bytes(100_000), OPENING + members):
        tracemalloc.start()
        refused(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 50_000_000


def test_a_file_above_the_size_cap_is_refused_unparsed(tmp_path, monkeypatch):
    """Field report 35."""
    monkeypatch.setattr(codec, "MAX_BYTES", len(DATA) - 1)
    refused(DATA)
    path = tmp_path / "large.pcdc"
    path.write_bytes(DATA)
    with pytest.raises(ArtifactError, match="larger"):
        read(path)
    assert MAX_BYTES >= 1 << 20


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, fact in ((tmp_path / "absent.pcdc", "cannot be read"), (tmp_path, "is a folder")):
        with pytest.raises(ArtifactError, match=fact):
            read(path)


def test_equal_artifacts_have_equal_bytes_and_any_change_another_digest():
    assert dumps(replace(ARTIFACT)) == DATA
    assert replace(ARTIFACT, instructions="Other.").digest != ARTIFACT.digest
