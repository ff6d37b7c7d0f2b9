"""Hostile artifacts, made from good ones: cut, flipped, or changed in their structure and sealed again.

A changed payload is a tree of msgpack values in which `Raw` stands for any bytes and `Pairs` for a map with
any keys, so that it can hold what no msgpack library writes.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import msgpack
from pcdc_runtime.artifact import FORMAT_VERSION, MAGIC

Random: TypeAlias = random.Random
Slot: TypeAlias = tuple[Any, Any]
"""A container and the index or key of one member."""


class Raw(bytes):
    """Bytes that are written as they are, where a value belongs."""


class Pairs(list):
    """A map as a list of key and value, in which anything may be a key and keys may repeat."""


@dataclass(frozen=True)
class Seed:
    """A good artifact to make hostile ones from."""

    name: str
    data: bytes

    @cached_property
    def payload(self) -> bytes:
        return msgpack.unpackb(self.data)[3]

    def tree(self) -> dict[str, Any]:
        """The payload as a tree of one's own."""
        return msgpack.unpackb(self.payload)


def sealed(payload: bytes) -> bytes:
    """An envelope with a right checksum around any payload."""
    return msgpack.packb([MAGIC, FORMAT_VERSION, hashlib.sha256(payload).digest(), payload])


def encode(value: Any) -> bytes:
    """A tree as bytes."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Pairs):
        members = [part for pair in value for part in pair]
        return msgpack.Packer().pack_map_header(len(value)) + b"".join(map(encode, members))
    if isinstance(value, dict):
        return encode(Pairs(value.items()))
    if isinstance(value, list):
        return msgpack.Packer().pack_array_header(len(value)) + b"".join(map(encode, value))
    return msgpack.packb(value)


def slots(tree: Any) -> Iterator[Slot]:
    """Every place of a tree that holds a value."""
    waiting = [tree]
    while waiting:
        container = waiting.pop()
        for key in container if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], dict | list):
                waiting.append(container[key])


def flipped(data: bytes, bit: int) -> bytes:
    """The bytes with one bit turned over."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


INTS = (-1, 0, 1, 2, 127, 128, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**64 - 1, -(2**31), -(2**63))
TEXTS = (
    "",
    "a",
    "\0",
    "text",
    "joint",
    "</text>",
    "é" * 40,
    "\U0001f44d\ufe0f",
    "x" * 5000,
    "\u202e",
    "\x1b[2J",
    " ",
    "not stated",
    "true",
)
VALUES = (
    *("null", "true", "false", "0", "-0", "1", "-0.0", "1.5", "1e5", "100000.0", "1e999", "NaN", "Infinity"),
    *('"a"', '"a" ', ' "a"', '"\\ud800"', '"\\u0061"', '""', "'a'", "[1]", "{}", "", "nul", "1" * 5000),
    *("[" * 20_000, "9" * 400, "2.5e-324", "\ufeff1", "0x10", "1_000"),
)
HEADERS = tuple(
    Raw(bytes([code]) + claimed)
    for code in (0xDC, 0xDD, 0xDE, 0xDF, 0xD9, 0xDA, 0xDB, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9)
    for claimed in (b"\xff\xff\xff\xff", b"\xff" * 2, b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00", b"\x00")
)
STRANGE = (
    *HEADERS,
    *(Raw(b"\x91" * depth + b"\xc0") for depth in (3, 600, 2000, 50_000)),
    *(Raw(b"\x81\xa1a" * depth + b"\xc0") for depth in (3, 600, 2000)),
    *(Raw((b"\xdd" + (size).to_bytes(4, "big")) * 900) for size in (500, 1000, 20_000)),
    *(
        Raw(msgpack.packb(msgpack.ExtType(code, b"x" * size)))
        for code in (0, 5, 127)
        for size in (0, 1, 16, 99)
    ),
    *(Raw(msgpack.packb(stamp)) for stamp in (msgpack.Timestamp(1, 2), msgpack.Timestamp(2**40, 5))),
    *(Raw(code + b"\xff" * 8) for code in (b"\xca", b"\xcb", b"\xc1", b"\xd4", b"\xd8")),
    *(Raw(b"\xa2" + text) for text in (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0", b"\xc0\x80")),
    Raw(b""),
    Raw(b"\x82\xa1a\x01\xa1a\x02"),
    Raw(b"\x81\x01\x02"),
    Raw(b"\x81\x90\x02"),
)
WRONG = (
    *(None, True, False, 1.0, 0.5, float("nan"), float("inf"), [], {}, b"", b"\0", b"\0" * 4, b"\0" * 4000),
    *([[]], [0] * 300, [0] * 1001, {"a": 1}, {"a": {"a": {}}}),
    *INTS,
    *TEXTS,
)


def wrong_type(tree: Any, rng: Random) -> Any:
    """Something else anywhere."""
    container, key = rng.choice(list(slots(tree)))
    container[key] = rng.choice(WRONG)
    return tree


def strange(tree: Any, rng: Random) -> Any:
    """Bytes anywhere that no writer of artifacts writes: giant headers, deep nesting, extension types."""
    container, key = rng.choice(list(slots(tree)))
    container[key] = rng.choice(STRANGE)
    return tree


def number(tree: Any, rng: Random) -> Any:
    """A count or an index that is off by a little or by far."""
    places = [(c, k) for c, k in slots(tree) if type(c[k]) is int]
    for container, key in rng.sample(places, rng.choice([1, 1, 1, 2, 4, len(places)])):
        near = [container[key] + step for step in (-2, -1, 1, 2)]
        container[key] = rng.choice([*INTS, *(n for n in near if -(2**63) <= n < 2**64)])
    return tree


def text(tree: Any, rng: Random) -> Any:
    """Another text where one belongs; most of these are artifacts still."""
    container, key = rng.choice([(c, k) for c, k in slots(tree) if type(c[k]) is str])
    container[key] = rng.choice([*TEXTS, *(chr(rng.randrange(32, 0xD800)) for _ in range(3))])
    return tree


def value(tree: Any, rng: Random) -> Any:
    """What a choice answers, or the temperature, as another JSON literal."""
    literal = rng.choice([*VALUES, f"{rng.uniform(-9, 9)!r}", str(rng.randrange(2**70))])
    if rng.random() < 0.2:
        tree["schema"]["temperature"] = literal
        return tree
    field = rng.choice(tree["schema"]["fields"])
    number = rng.randrange(len(field["labels"]))
    field["valued"] = _bytes([number])
    field["values"] = rng.choice([f"[{literal}]"] * 8 + [literal, f"[{literal},{literal}]", f"[ {literal}]"])
    return tree


def choices(tree: Any, rng: Random) -> Any:
    """The columns of a field's choices: numbers that repeat, fall or are none, texts too many or few."""
    field = rng.choice(tree["schema"]["fields"])
    count = len(field["labels"])
    numbers = sorted(rng.sample(range(count), rng.randrange(1, count + 1)))
    texts = [rng.choice(TEXTS[1:]) for _ in numbers]
    change = rng.choice(["none", "repeat", "fall", "far", "more", "less", "empty", "label"])
    at = rng.randrange(len(numbers))
    if change == "repeat":
        numbers.insert(at, numbers[at])
        texts.insert(at, texts[at])
    elif change == "fall":
        numbers.reverse()
    elif change == "far":
        numbers[rng.choice([0, -1])] = rng.choice([-1, count, 2**31 - 1, -(2**31)])
    elif change == "more":
        texts.append("more")
    elif change == "less":
        del texts[at]
    elif change == "empty":
        texts[rng.randrange(len(texts))] = ""
    elif change == "label":
        texts[at] = field["labels"][numbers[at] % count]
    if rng.random() < 0.5:
        field["described"], field["descriptions"] = _bytes(numbers), texts
    else:
        field["valued"] = _bytes(numbers)
        field["values"] = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return tree


def keys(tree: Any, rng: Random) -> Any:
    """A map with keys that repeat, lack, are too many, are out of order, or are no text."""
    tree["inputs"] |= {"format": "1", "key": "0", "schema": "2"}
    places = [(c, k) for c, k in slots(tree) if isinstance(c[k], dict)]
    container, key = rng.choice(places)
    pairs = Pairs(container[key].items())
    at = rng.randrange(len(pairs))
    name, held = pairs[at]
    other = rng.choice([0, -1, 2**40, b"key", None, 1.5, True, "unknown", "", name.upper(), Raw(b"\x90")])
    change = rng.choice(["repeat", "drop", "add", "swap", "rename", "shuffle", "twice", "replace"])
    if change == "repeat":
        pairs.append((name, held))
    elif change == "drop":
        del pairs[at]
    elif change == "add":
        pairs.insert(at, (other, held))
    elif change == "swap":
        to = rng.randrange(len(pairs))
        pairs[at], pairs[to] = pairs[to], pairs[at]
    elif change == "rename":
        pairs[at] = (other, held)
    elif change == "shuffle":
        rng.shuffle(pairs)
    elif change == "twice":
        pairs *= 2
    else:
        pairs[at] = (name, rng.choice(WRONG))
    container[key] = pairs
    return tree


def members(tree: Any, rng: Random) -> Any:
    """A list with members repeated, lost, swapped or exchanged with another's."""
    lists = [c[k] for c, k in slots(tree) if isinstance(c[k], list) and c[k]]
    chosen = rng.choice(lists)
    change = rng.choice(["double", "drop", "swap", "cross", "many", "empty"])
    if change == "double":
        chosen.insert(rng.randrange(len(chosen)), rng.choice(chosen))
    elif change == "drop":
        del chosen[rng.randrange(len(chosen))]
    elif change == "swap":
        rng.shuffle(chosen)
    elif change == "cross":
        chosen[rng.randrange(len(chosen))] = deepcopy(rng.choice(rng.choice(lists)))
    elif change == "many":
        chosen *= rng.choice([2, 128, 256, 600])
    else:
        chosen.clear()
    return tree


COLUMNS = ("nodes", "forms", "ends")


def column(tree: Any, rng: Random) -> Any:
    """Numbers of an integer array: out of range, of another row, a parent after its child, a set unsorted."""
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        holder, key = _array(tree, rng)
        row = _ints(holder[key]) or [0]
        at = rng.randrange(len(row))
        near = [row[at] + step for step in (-1, 1)]
        row[at] = rng.choice(
            [*near, *near, -1, 0, at, at + 1, len(row), rng.choice(row), *INTS[:9], -(2**31)]
        )
        holder[key] = _bytes(row)
    return tree


def rows(tree: Any, rng: Random) -> Any:
    """Integer arrays that are longer, shorter, cut in a number, shuffled or another's."""
    holder, key = _array(tree, rng)
    change = rng.choice(["more", "less", "cut", "shuffle", "other", "empty", "wide", "overflow", "reverse"])
    row = _ints(holder[key]) or [0]
    if change == "more":
        row += rng.choices(row, k=rng.choice([1, 2, 50]))
    elif change == "less":
        del row[rng.randrange(len(row)) :]
    elif change == "shuffle":
        rng.shuffle(row)
    elif change == "reverse":
        row.reverse()
    elif change == "overflow":
        row[1:-1] = [2**31 - 1, -(2**31), -1]
    holder[key] = _bytes(row)
    if change == "cut":
        holder[key] = holder[key][: -rng.choice([1, 2, 3])]
    elif change == "empty":
        holder[key] = b""
    elif change == "wide":
        holder[key] = struct.pack(f"<{len(row)}q", *row)
    elif change == "other":
        there, name = _array(tree, rng)
        holder[key] = there[name]
    return tree


def everywhere(tree: Any, rng: Random) -> Any:
    """The same row of all node arrays moved, repeated or lost, as a careful forger would."""
    section = tree[rng.choice(["nodes", "forms"])]
    table = {key: _ints(section[key]) for key in section}
    size = len(table[next(iter(table))])
    first, second = rng.randrange(size), rng.randrange(size)
    change = rng.choice(["swap", "repeat", "drop", "copy"])
    for row in table.values():
        if change == "swap":
            row[first], row[second] = row[second], row[first]
        elif change == "repeat":
            row.append(row[first])
        elif change == "drop":
            del row[first]
        else:
            row[first] = row[second]
    for key, row in table.items():
        section[key] = _bytes(row)
    return tree


def deep(tree: Any, rng: Random) -> Any:
    """A chain of many nodes below the last one, with many forms at its end, all of it consistent."""
    depth, count = rng.choice([(3000, 5), (2000, 900), (1000, 1900), (30_000, 60), (60_000, 60_000)])
    nodes = {key: _ints(data) for key, data in tree["nodes"].items()}
    last, level = len(nodes["token"]) - 1, nodes["depth"][-1]
    more = range(1, depth + 1)
    nodes["token"] += [65] * depth
    nodes["parent"] += [last + step - 1 for step in more]
    nodes["depth"] += [level + step for step in more]
    nodes["field"] += [nodes["field"][-1]] * depth
    nodes["reads"] += [7] * depth
    tree["nodes"] = {key: _bytes(row) for key, row in nodes.items()}
    forms = {key: _ints(data) for key, data in tree["forms"].items()}
    for key, held in (
        ("choice", forms["choice"][-1]),
        ("node", last + depth),
        ("end", 0),
        ("cut", 1),
        ("reads", 7),
    ):
        forms[key] += [held] * count
    tree["forms"] = {key: _bytes(row) for key, row in forms.items()}
    return tree


def lies(tree: Any, rng: Random) -> Any:
    """A header that claims more or fewer members or bytes than follow."""
    container, key = rng.choice(
        [(c, k) for c, k in slots(tree) if isinstance(c[k], dict | list | str | bytes)]
    )
    written = encode(container[key])
    body = written[len(written) - _body_size(container[key], written) :]
    claimed = rng.choice([0, 1, len(body) + rng.choice([-1, 1, 4]), 2**16, 2**31, 2**32 - 1]) % 2**32
    code = {dict: 0xDF, list: 0xDD, str: 0xDB, bytes: 0xC6}[type(container[key])]
    container[key] = Raw(bytes([code]) + claimed.to_bytes(4, "big") + body)
    return tree


def longhand(tree: Any, rng: Random) -> Any:
    """The same value in a longer spelling than the canonical one."""
    container, key = rng.choice([(c, k) for c, k in slots(tree) if _has_length(c[k])])
    held = container[key]
    if isinstance(held, int):
        container[key] = Raw(rng.choice([b"\xd3", b"\xcf"]) + held.to_bytes(8, "big"))
    else:
        written = encode(held)
        body = written[len(written) - _body_size(held, written) :]
        code = {dict: 0xDF, list: 0xDD, str: 0xDB, bytes: 0xC6}[type(held)]
        size = len(held.encode()) if isinstance(held, str) else len(held)
        container[key] = Raw(bytes([code]) + size.to_bytes(4, "big") + body)
    return tree


def _has_length(held: Any) -> bool:
    return isinstance(held, dict | list | str | bytes) or (type(held) is int and held >= 0)


def _body_size(held: Any, written: bytes) -> int:
    if isinstance(held, str):
        return len(held.encode())
    if isinstance(held, bytes):
        return len(held)
    parts = [part for pair in held.items() for part in pair] if isinstance(held, dict) else held
    return sum(len(encode(part)) for part in parts)


def _array(tree: Any, rng: Random) -> Slot:
    return rng.choice([(c, k) for c, k in slots(tree) if type(c[k]) is bytes])


def _ints(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4]))


def _bytes(row: list[int]) -> bytes:
    return struct.pack(f"<{len(row)}I", *(n % 2**32 for n in row))


def envelope(seed: Seed, rng: Random) -> bytes:
    """The four outer members changed, the payload left alone."""
    whole: Any = msgpack.unpackb(seed.data)
    change = rng.randrange(6)
    if change == 0:
        whole[rng.randrange(4)] = rng.choice(WRONG + STRANGE)
    elif change == 1:
        whole.insert(rng.randrange(5), rng.choice(WRONG + STRANGE))
    elif change == 2:
        del whole[rng.randrange(4)]
    elif change == 3:
        rng.shuffle(whole)
    elif change == 4:
        whole = longhand(whole, rng)
    else:
        whole = lies(whole, rng)
    return encode(whole)


def trailing(seed: Seed, rng: Random) -> bytes:
    """Bytes after the payload's object or after the envelope, or before it."""
    more = rng.choice([b"\0", b"\xc0", seed.data, seed.payload, rng.randbytes(rng.randrange(1, 40))])
    return rng.choice([sealed(seed.payload + more), seed.data + more, more + seed.data])


def noise(seed: Seed, rng: Random) -> bytes:
    """No artifact at all, or only the beginning of one."""
    body = rng.choice([rng.randbytes(rng.randrange(200)), *(bytes(raw) for raw in STRANGE)])
    start = seed.data[: rng.choice([0, 6, 7, 9, 41, 44])]
    return rng.choice([body, start + body, sealed(body), sealed(seed.payload[:20] + body)])


def flips(seed: Seed, rng: Random) -> bytes:
    """Several bits of the payload turned over, sealed again."""
    payload = seed.payload
    for _ in range(rng.randrange(1, 6)):
        payload = flipped(payload, rng.randrange(len(payload) * 8))
    return sealed(payload)


TREE_KINDS: dict[str, Callable[[Any, Random], Any]] = {
    kind.__name__: kind
    for kind in (
        wrong_type,
        strange,
        number,
        text,
        value,
        choices,
        keys,
        members,
        column,
        rows,
        everywhere,
        lies,
        longhand,
    )
}
BYTE_KINDS: dict[str, Callable[[Seed, Random], bytes]] = {
    kind.__name__: kind for kind in (envelope, trailing, noise, flips)
}


def structured(seed: Seed, kind: str, rng: Random) -> bytes:
    """One input of a kind; now and then two kinds of change in one payload."""
    if kind in BYTE_KINDS:
        return BYTE_KINDS[kind](seed, rng)
    change = deep if kind == "deep" else TREE_KINDS[kind]
    tree = seed.tree()
    if rng.random() < 0.1:
        tree = rng.choice([number, text, value, column])(tree, rng)
    return sealed(encode(change(tree, rng)))
