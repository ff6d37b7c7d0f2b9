"""Artifact bytes as hostile input: one kind of error, within limits, whatever the bytes."""

import hashlib
import json
import random
import tracemalloc
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from fakes import make_artifact, spelled
from pcdc_runtime import codec
from pcdc_runtime.artifact import FORMAT_VERSION, MAGIC, OPENING, WorkedExample
from pcdc_runtime.codec import MAX_BYTES, dumps, loads, read
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.plan import make_plans
from pcdc_runtime.rules import RULES
from pcdc_runtime.visible import MAX_CHOICE_CHARS

ARTIFACT = make_artifact(
    {
        "level": spelled("low", "lower", "high"),
        "open": {True: [(["t"], [",", "}"])], False: [(["f"], [",", "}"])], None: [(["n"], ['"'])]},
    },
    examples=[WorkedExample("All is well.", ((0, 0), (1, 2))), WorkedExample("Help!", ((1, 0),))],
)
DATA = dumps(ARTIFACT)


def sealed(payload):
    """An envelope with a right checksum around any payload bytes."""
    return msgpack.packb([MAGIC, FORMAT_VERSION, hashlib.sha256(payload).digest(), payload])


def payload():
    return msgpack.unpackb(ARTIFACT.payload)


def changed(*keys, value):
    """The artifact's bytes with one member of the payload replaced, sealed again."""
    whole = payload()
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return sealed(msgpack.packb(whole))


def refused(data):
    with pytest.raises(ArtifactError) as caught:
        loads(data)
    return caught.value.fact


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


def test_forms_of_choices_that_are_far_out_take_no_memory():
    data = changed("forms", "choice", value=ints(0, 1, 2, 3, 4, 2**31 - 1))
    tracemalloc.start()
    assert refused(data) == "has a form of an unknown choice"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_end_set_bounds_whose_differences_overflow_are_refused():
    size = len(ARTIFACT.ends.ids)
    whole = payload()
    whole["ends"]["offset"] = ints(0, 2**31 - 1, -(2**31), -1, size)
    assert refused(sealed(msgpack.packb(whole))) == "has an empty END set"


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


def ints(*values):
    return np.array(values, dtype="<i4").tobytes()


def poked(array, index, value):
    whole = payload()
    column = np.frombuffer(whole[array[0]][array[1]], dtype="<i4").copy()
    column[index] = value
    return changed(*array, value=column.tobytes())


LAST = len(ARTIFACT.nodes) - 1


@pytest.mark.parametrize(
    ("array", "index", "value"),
    [
        (("nodes", "token"), 3, -1),
        (("nodes", "token"), 0, 5),
        (("nodes", "parent"), 0, 0),
        (("nodes", "parent"), 3, 3),
        (("nodes", "parent"), 3, LAST),
        (("nodes", "parent"), LAST, 2**31 - 1),
        (("nodes", "parent"), 3, -1),
        (("nodes", "parent"), LAST, 1),
        (("nodes", "depth"), 3, 99),
        (("nodes", "depth"), 0, 1),
        (("nodes", "field"), 3, 7),
        (("nodes", "field"), 3, -1),
        (("nodes", "field"), LAST, 0),
        (("nodes", "reads"), 3, 8),
        (("nodes", "reads"), 3, -1),
        (("nodes", "reads"), 1, 0),
        (("forms", "choice"), 0, 1),
        (("forms", "choice"), -1, 99),
        (("forms", "node"), 0, LAST + 1),
        (("forms", "node"), 0, -1),
        (("forms", "node"), 0, 0),
        (("forms", "node"), 0, LAST),
        (("forms", "end"), 0, 2),
        (("forms", "end"), 0, -1),
        (("forms", "cut"), 0, 0),
        (("forms", "cut"), 0, 99),
        (("forms", "reads"), 0, 0),
        (("forms", "reads"), 0, 64),
        (("ends", "offset"), 0, 1),
        (("ends", "offset"), 1, 0),
        (("ends", "offset"), -1, 99),
        (("ends", "offset"), 1, -5),
        (("ends", "ids"), 0, -1),
        (("ends", "ids"), 1, 126),
        (("prompt", "head"), 0, -1),
        (("prompt", "tail"), 0, -(2**31)),
        (("prompt", "tail"), -1, 7),
    ],
)
def test_structures_that_do_not_fit_together_are_refused(array, index, value):
    """Field report 35."""
    refused(poked(array, index, value))


FIELDS = payload()["schema"]["fields"]


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("nodes", "token"), b""),
        (("nodes", "token"), b"\x00\x00\x00"),
        (("nodes", "token"), ints(1, 2)),
        (("nodes", "token"), [1, 2]),
        (("nodes", "token"), 2**31),
        (("nodes",), {}),
        (("nodes",), None),
        (("forms", "cut"), b""),
        (("ends", "offset"), b""),
        (("ends", "offset"), ints(0)),
        (("ends", "ids"), b""),
        (("schema", "fields"), []),
        (("schema", "fields"), FIELDS + FIELDS),
        (("schema", "fields"), FIELDS[:1]),
        (("schema", "fields"), [{**FIELDS[0], "labels": FIELDS[0]["labels"] * 100}]),
        (("schema", "fields"), [{**FIELDS[0], "labels": FIELDS[0]["labels"][:1]}]),
        (("schema", "fields"), [{**FIELDS[0], "labels": FIELDS[0]["labels"][:2]}, FIELDS[1]]),
        (("schema", "fields"), [{**FIELDS[0], "labels": [*FIELDS[0]["labels"], "more"]}, FIELDS[1]]),
        (("schema", "fields"), [{**FIELDS[0], "anchor": 2**31}]),
        (("schema", "fields"), [{**FIELDS[0], "anchor": -1}]),
        (("schema", "fields"), [{**FIELDS[0], "anchor": LAST}, FIELDS[1]]),
        (("schema", "fields"), [{**FIELDS[0], "suffix": LAST}, FIELDS[1]]),
        (("schema", "fields"), [{**FIELDS[0], "type": "text"}, FIELDS[1]]),
        (("schema", "fields"), [{**FIELDS[0], "name": FIELDS[1]["name"]}, FIELDS[1]]),
        (("schema", "scoring"), "mean"),
        (("schema", "temperature"), "0.0"),
        (("schema", "temperature"), "NaN"),
        (("schema", "temperature"), "-1.0"),
        (("schema", "temperature"), "true"),
        (("schema", "temperature"), "1e999"),
        (("schema", "temperature"), "2"),
        (("schema", "temperature"), "2.00"),
        (("schema", "temperature"), 1.0),
        (("schema", "instructions"), b"bytes"),
        (("schema", "examples"), None),
        (("schema", "examples"), ["text"]),
        (("schema", "examples"), [[]] * 1001),
        (("schema", "examples"), [{"context": "a"}]),
        (("schema", "examples"), [{"context": 1, "answers": ints(0, 0)}]),
        (("schema", "examples"), [{"context": "a", "answers": [0, 0]}]),
        (("schema", "examples"), [{"context": "a", "answers": b""}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(0)}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(2, 0)}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(-1, 0)}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(0, 3)}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(0, -1)}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(0, 0, 0, 1)}]),
        (("schema", "examples"), [{"context": "a", "answers": ints(1, 0, 0, 0)}]),
        (("prompt", "shared"), 10_000),
        (("prompt", "shared"), -1),
        (("prompt", "shared"), True),
        (("prompt", "tail_overlap"), 10_000),
        (("prompt", "tail"), b""),
        (("prompt", "fence"), ""),
        (("prompt", "fence"), "other"),
        (("prompt", "probes"), [1]),
        (("tokenizer", "probes"), [["text"]]),
        (("tokenizer", "probes"), [[1, b""]]),
        (("inputs",), {"a": 1}),
        (("name",), 5),
        (("extra",), 5),
    ],
)
def test_members_of_wrong_type_count_or_range_are_refused(keys, value):
    """Field report 35."""
    refused(changed(*keys, value=value))


def columns(field, **members):
    """The artifact's bytes with columns of a field's choices replaced."""
    rows = payload()["schema"]["fields"]
    assert members.keys() <= rows[field].keys()
    rows[field].update(members)
    return changed("schema", "fields", value=rows)


def test_columns_say_only_what_labels_and_forest_do_not():
    level, opened = FIELDS
    assert (level["labels"], level["valued"], level["values"]) == (["low", "lower", "high"], b"", "[]")
    assert (opened["valued"], opened["values"]) == (ints(0, 1, 2), "[true,false,null]")
    assert (opened["described"], opened["descriptions"]) == (b"", [])


def test_columns_come_back_at_their_choices():
    described = loads(columns(0, valued=ints(1), values="[7]", described=ints(0, 2), descriptions=["a", "b"]))
    candidates = described.fields[0].candidates
    assert [c.value for c in candidates] == ["low", 7, "high"]
    assert [c.description for c in candidates] == ["a", "", "b"]
    assert described.fields[1] == ARTIFACT.fields[1]


@pytest.mark.parametrize(
    "value",
    [
        *("[1]", "{}", "NaN", "Infinity", "", "nul", '"a" ', ' "a"', "1e999", "1e5", "1.50", "01"),
        *('"\\ud800"', '"\\u0061"', '"\\/"', "[" * 100_000, "1" * 100_000, "1,2", "1]["),
    ],
)
def test_a_choices_value_must_be_one_json_scalar_in_its_one_spelling(value):
    assert loads(columns(0, valued=ints(0), values="[1.5]")).fields[0].candidates[0].value == 1.5
    refused(columns(0, valued=ints(0), values=f"[{value}]"))


@pytest.mark.parametrize(
    "values", ["", "1", "null", "{}", '{"0":1}', "[1,]", "[ 1]", "[1] ", '"[1]"', b"[1]", 1, [1]]
)
def test_values_must_be_one_json_array_in_its_one_spelling(values):
    refused(columns(0, valued=ints(0), values=values))


@pytest.mark.parametrize(
    ("numbers", "texts", "fact"),
    [
        ((0, 1), ["a"], "has columns of unequal length"),
        ((0,), ["a", "b"], "has columns of unequal length"),
        ((), ["a"], "has columns of unequal length"),
        ((0,), [], "has columns of unequal length"),
        ((1, 0), ["a", "b"], "has a column whose choices are not in order"),
        ((1, 1), ["a", "b"], "has a column whose choices are not in order"),
        ((2**31 - 1, -(2**31)), ["a", "b"], "has a column whose choices are not in order"),
        ((-1,), ["a"], "has a column with an unknown choice"),
        ((3,), ["a"], "has a column with an unknown choice"),
        ((2**31 - 1,), ["a"], "has a column with an unknown choice"),
        ((-(2**31), 0), ["a", "b"], "has a column with an unknown choice"),
    ],
)
def test_a_column_names_each_choice_once_and_in_order(numbers, texts, fact):
    spelled_out = json.dumps(texts, separators=(",", ":"))
    assert refused(columns(0, valued=ints(*numbers), values=spelled_out)) == fact
    assert refused(columns(0, described=ints(*numbers), descriptions=texts)) == fact


def test_what_a_column_need_not_say_is_refused_in_it():
    assert refused(columns(0, valued=ints(0), values='["low"]')) == "has a value that is its label"
    assert refused(columns(0, described=ints(0), descriptions=[""])) == "has a description that is empty"
    # Another text than its label is a value of its own.
    assert loads(columns(0, valued=ints(1), values='["lowest"]')).fields[0].candidates[1].value == "lowest"
    assert refused(columns(1, valued=ints(0, 1), values='[true,"false"]')) == "has a value that is its label"


ESCAPE, BACKWARDS, COMPOSED, DECOMPOSED = "\x1b", "\u202e", "\u00e9", "e\u0301"


@pytest.mark.parametrize(
    ("labels", "fact"),
    [
        (["low"] * 3, "has two choices with one label"),
        (["low", "high", "low"], "has two choices with one label"),
        (["", "a", "b"], "has a choice that is blank"),
        (["a", " \t\n", "b"], "has a choice that is blank"),
        (["a", "b", "\u2003"], "has a choice that is blank"),
        (["a", "b" * (MAX_CHOICE_CHARS + 1), "c"], "has a choice that is too long"),
        *(
            (["a", f"b{char}b", "c"], "has a choice with characters that do not show")
            for char in (ESCAPE, BACKWARDS, "\0", "\x7f", "\u200b", "\u2028", "\ue000", "\uffff", "\u3164")
        ),
        (["a\u200d", "\u200db", "c"], "has a choice with characters that do not show"),
        ([COMPOSED, "b", DECOMPOSED], "has choices that are canonically equal"),
    ],
)
def test_labels_that_the_compiler_refuses_are_refused(labels, fact):
    assert refused(columns(0, labels=labels)) == fact


@pytest.mark.parametrize(
    "labels",
    [
        ["a\tb", "a\nb", "a b"],
        [COMPOSED, "e", "\U0001f469\u200d\U0001f527"],
        ["b" * MAX_CHOICE_CHARS, " b", "b"],
    ],
)
def test_labels_that_the_compiler_takes_are_taken(labels):
    assert [one.label for one in loads(columns(0, labels=labels)).fields[0].candidates] == labels


@pytest.mark.parametrize(
    ("numbers", "values"),
    [
        ((0, 1), "[1,1]"),
        ((0, 1), "[1,1.0]"),
        ((0, 1), "[0,-0.0]"),
        ((0, 2), "[null,null]"),
        ((0, 2), "[true,true]"),
        ((1,), '["low"]'),
        ((0, 1), '["x","x"]'),
    ],
)
def test_two_choices_with_one_value_are_refused(numbers, values):
    assert refused(columns(0, valued=ints(*numbers), values=values)) == "has two choices with one value"


def test_values_are_equal_as_in_json():
    back = loads(columns(0, valued=ints(0, 1, 2), values='[1,true,"1"]'))
    assert [type(one.value) for one in back.fields[0].candidates] == [int, bool, str]


@pytest.mark.parametrize("values", ["[1,0,null]", "[1,1,null]", '[true,"no",null]', "[true,0,null]"])
def test_a_boolean_field_has_booleans_and_null_only(values):
    assert FIELDS[1]["type"] == "boolean"
    refused(columns(1, values=values))


def test_the_type_of_a_field_is_that_of_its_values():
    fact = "has a field whose values are not of its type"
    assert refused(columns(0, type="boolean")) == fact
    assert refused(columns(1, type="enum")) == fact
    assert refused(columns(1, valued=ints(0), values="[true]")) == fact
    assert refused(columns(1, values='[true,"yes",null]')) == fact


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, f"a{ESCAPE}", f"a{BACKWARDS}", "a\n"])
def test_names_that_the_compiler_refuses_are_refused(name):
    assert "name" in refused(columns(0, name=name))


def test_names_that_are_canonically_equal_are_refused():
    rows = payload()["schema"]["fields"]
    rows[0]["name"], rows[1]["name"] = COMPOSED, DECOMPOSED
    assert refused(changed("schema", "fields", value=rows)) == "has field names that are canonically equal"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("valued", value) for value in (b"\0", [0], None, "0")),
        *(("described", value) for value in (b"\0\0\0", [], 0, "")),
        *(("labels", value) for value in (None, "low", [], ["low", "lower", 1], ["low", "lower", None], {})),
        *(("descriptions", value) for value in (None, "", {}, b"")),
    ],
)
def test_a_column_of_another_kind_is_refused(member, value):
    refused(columns(0, **{member: value}))


def test_forms_whose_choices_fall_or_leave_one_out_are_refused():
    choice = ARTIFACT.forms.choice.tolist()
    assert choice == [0, 1, 2, 3, 4, 5]
    fact = "has forms whose choices are not in order"
    assert refused(changed("forms", "choice", value=ints(1, 0, 2, 3, 4, 5))) == fact
    for wrong in ((0, 0, 2, 3, 4, 5), (0, 1, 2, 3, 4, 4), (1, 1, 2, 3, 4, 5)):
        assert refused(changed("forms", "choice", value=ints(*wrong))) == "has a choice without a form"


def test_a_suffix_beside_a_choices_path_is_refused():
    level = ARTIFACT.fields[0]
    ends = [int(ARTIFACT.forms.node[c.forms[0]]) for c in level.candidates]
    fact = "has a choice that is not below its field's suffix"
    for beside in (ends[0], ends[2]):
        assert refused(columns(0, suffix=beside)) == fact
    assert refused(columns(0, suffix=ARTIFACT.fields[1].suffix)) == "has an anchor in another field"


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_anchor_or_suffix_is_nowhere_but_where_the_compiler_puts_it(steps):
    """A moved anchor cuts edges that all choices share, a suffix moved up leaves out some of them."""
    made = make_artifact({"f": spelled("abcd", "abce"), "g": spelled("x", "y")})
    row = msgpack.unpackb(made.payload)["schema"]["fields"][0]

    def moved(**tops):
        whole = msgpack.unpackb(made.payload)
        whole["schema"]["fields"][0].update(tops)
        return refused(sealed(msgpack.packb(whole)))

    def above(node):
        for _ in range(steps):
            node = max(0, int(made.nodes.parent[node]))
        return node

    shared = "has a form cut where choices still share their path"
    assert moved(anchor=above(row["anchor"])) == shared
    assert moved(suffix=above(row["suffix"])) == "has a suffix that is not all that its field's choices share"
    assert moved(anchor=0, suffix=0) == "has a suffix that is not all that its field's choices share"
    assert moved(anchor=row["suffix"], suffix=row["anchor"]) == "has a suffix that is not below its anchor"
    assert moved(anchor=row["suffix"]) == "has a form cut outside its path"


def test_a_cut_is_the_first_event_that_one_choice_has_alone():
    made = make_artifact({"f": spelled("abc", "abde")})
    assert made.forms.cut.tolist() == [3, 3]

    def cut(*cuts):
        whole = msgpack.unpackb(made.payload)
        whole["forms"]["cut"] = ints(*cuts)
        return refused(sealed(msgpack.packb(whole)))

    shared, alone = "where choices still share their path", "below where its choice is alone"
    assert [cut(*cuts) for cuts in ((2, 3), (1, 1), (4, 3), (3, 4), (3, 5))] == [
        f"has a form cut {where}" for where in (shared, shared, alone, alone, alone)
    ]


def test_nodes_that_no_compiler_grows_are_refused():
    nodes = payload()["nodes"]
    last = {key: data[-4:] for key, data in nodes.items()}
    whole = payload()
    whole["nodes"] = {key: data + last[key] for key, data in nodes.items()}
    assert refused(sealed(msgpack.packb(whole))) == "has two nodes of one token below one parent"
    whole["nodes"]["token"] = nodes["token"] + ints(77)
    assert refused(sealed(msgpack.packb(whole))) == "has a node that leads to no form"


@pytest.mark.parametrize("size", [1, 63, 64, 65, 500])
def test_ids_are_the_path_below_the_suffix_however_long_it_is(size):
    long = make_artifact({"f": spelled("a" * size, "b" * size, "c")})
    told = [candidate.ids for candidate in long.fields[0].candidates]
    assert [len(ids) for ids in told] == [size, size, 1]
    back = loads(dumps(long)).fields[0].candidates
    assert [candidate.ids for candidate in back] == told
    assert [candidate.is_single_token for candidate in back] == [size == 1, size == 1, True]


def test_candidates_made_when_asked_for_are_the_tuple_they_stand_for():
    back, told = loads(DATA).fields[0].candidates, ARTIFACT.fields[0].candidates
    assert (len(back), back[-1], back[1:], list(back)) == (3, told[-1], told[1:], list(told))
    assert back == told
    assert told == back
    assert back != told[:2]
    assert back != list(told)
    assert hash(back) == hash(told)
    assert repr(back) == repr(told)
    assert back.index(told[1]) == 1


def test_a_deep_forest_with_many_forms_is_refused_before_it_is_walked():
    depth, forms = 60_000, 60_000
    nodes = payload()["nodes"]
    grown = {
        "token": nodes["token"] + ints(*[65] * depth),
        "parent": nodes["parent"] + ints(LAST, *range(LAST + 1, LAST + depth)),
        "depth": nodes["depth"]
        + ints(*range(int(ARTIFACT.nodes.depth[LAST]) + 1, 1 + depth + int(ARTIFACT.nodes.depth[LAST]))),
        "field": nodes["field"] + ints(*[1] * depth),
        "reads": nodes["reads"] + ints(*[7] * depth),
    }
    columns = {key: np.frombuffer(data, "<i4") for key, data in payload()["forms"].items()}
    more = {"choice": columns["choice"][-1], "node": LAST + depth, "end": 0, "cut": 1, "reads": 7}
    whole = payload()
    whole["nodes"] = grown
    whole["forms"] = {key: columns[key].tobytes() + ints(*[more[key]] * forms) for key in columns}
    data = sealed(msgpack.packb(whole))
    assert refused(data) == "has too many tokens in its forms"


def test_whatever_loads_can_be_planned_and_nothing_else_is_raised():
    generator = random.Random(1)
    accepted = 0
    for _ in range(400):
        whole = payload()
        section = generator.choice(["nodes", "forms", "ends"])
        key = generator.choice(list(whole[section]))
        column = np.frombuffer(whole[section][key], "<i4").copy()
        column[generator.randrange(len(column))] = generator.choice([*range(-2, 40), 2**31 - 1])
        whole[section][key] = column.tobytes()
        try:
            hostile = loads(sealed(msgpack.packb(whole)))
        except ArtifactError:
            continue
        accepted += 1
        for rule in RULES:
            assert make_plans(hostile, rule, (0, 1), True, 4096)
    assert accepted < 200


def test_equal_artifacts_have_equal_bytes_and_any_change_another_digest():
    assert dumps(replace(ARTIFACT)) == DATA
    assert replace(ARTIFACT, instructions="Other.").digest != ARTIFACT.digest
