"""An artifact's forest and members: what does not fit together is refused before it is used."""

import random
import tracemalloc

import msgpack
import numpy as np
import pytest
from fakes import make_artifact, spelled
from forged import ARTIFACT, DATA, FIELDS, changed, columns, ints, payload, refused, sealed
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.plan import make_plans
from pcdc_runtime.rules import RULES


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
