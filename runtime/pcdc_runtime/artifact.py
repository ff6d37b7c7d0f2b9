"""The artifact: one compiled schema for one model's tokenizer, as a frozen dataclass and as bytes.

File: a msgpack array `[MAGIC, FORMAT_VERSION, sha256(payload), payload]`. The three first members are
checked before a byte of the payload is parsed. The payload is one msgpack map with string keys in the
order in which `dumps` writes them, and nothing but maps, arrays, text, whole numbers, booleans and byte
strings: no floats, no extension types. Integer arrays are little-endian int32 byte strings.

Forest: nodes are the tokens that a tree pass runs. Node 0 is the last prompt token. `parent[i] < i`,
`depth[i] == depth[parent[i]] + 1`. `field[i]` is -1 for node 0 only. A field's `anchor` is the node after
`{"name":`: everything below it is scored, everything above is forced.

Forms: a surface form is one token path that spells a choice, `node` is its last node, `end` the END set
that closes it there. Events of a form, in order: the token edges from the anchor down to `node`, then the
closing event. `cut` is how many of them `identify` counts. `reads` are bit masks over RULES: which nodes
a rule must run, which forms it sums. An END set is a sorted run of token ids, stored once.

No time, no path and no host is part of it: equal inputs give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from .errors import ArtifactError

MAGIC = "pcdc"
FORMAT_VERSION = 1
MAX_BYTES = 128 * 1024 * 1024
MAX_CHOICES = 255
MIN_CHOICES = 2
RULES: tuple[str, ...] = ("joint", "identify", "trie")

Ints: TypeAlias = NDArray[np.int32]
Value: TypeAlias = bool | int | float | str | None
FieldType: TypeAlias = Literal["boolean", "enum"]


def rule_bit(rule: str) -> int:
    """The bit of a scoring rule in `reads` masks."""
    return 1 << RULES.index(rule)


@dataclass(frozen=True)
class Candidate:
    """A choice and what it became.

    `label` is the text in the prompt, `value` what a result returns. `ids` are the tokens of its first
    form below the field's suffix. `forms` is its half-open range in the form arrays.
    """

    label: str
    value: Value
    description: str
    ids: tuple[int, ...]
    is_single_token: bool
    forms: tuple[int, int]


@dataclass(frozen=True)
class CompiledField:
    """One question with its candidates; `anchor` and `suffix` are node indices."""

    name: str
    type: FieldType
    description: str
    anchor: int
    suffix: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class PromptCut:
    """How a prompt is put together from static ids and a request's text.

    A prompt is `head + segment + tail`. The segment is the encoding of `pre + context + post` without its
    first `shared` ids (they end the head) and without its last `tail_overlap` ids (they start the tail,
    and are more than zero only where no control token follows the context). `pre` and `post` hold the
    literal `fence` tag around the context. `probes` counts the contexts that placed and proved the cut.
    """

    head: Ints
    pre: str
    post: str
    fence: str
    shared: int
    tail: Ints
    tail_overlap: int
    probes: tuple[int, int]


@dataclass(frozen=True)
class Nodes:
    """The forest, one entry per node in every array."""

    token: Ints
    parent: Ints
    depth: Ints
    field: Ints
    reads: Ints

    def __len__(self) -> int:
        return len(self.token)

    def path(self, top: int, node: int) -> tuple[int, ...]:
        """Token ids from below `top` down to `node`. Raises ValueError where `top` is not above it."""
        ids: list[int] = []
        while node > top:
            ids.append(int(self.token[node]))
            node = int(self.parent[node])
        if node != top:
            raise ValueError(f"node {top} is not above the path's end")
        return tuple(reversed(ids))


@dataclass(frozen=True)
class Forms:
    """The surface forms, one entry per form in every array; `choice` counts over all fields."""

    choice: Ints
    node: Ints
    end: Ints
    cut: Ints
    reads: Ints

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class EndSets:
    """END set `k` is `ids[offset[k]:offset[k + 1]]`, sorted."""

    offset: Ints
    ids: Ints

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, index: int) -> Ints:
        return self.ids[self.offset[index] : self.offset[index + 1]]


@dataclass(frozen=True)
class Artifact:
    """Everything the runtime needs of one schema for one tokenizer, and nothing it must look up."""

    name: str
    model: str
    instructions: str
    scoring: str
    temperature: float
    fields: tuple[CompiledField, ...]
    fingerprint: str
    tokenizer_probes: tuple[tuple[str, tuple[int, ...]], ...]
    prompt_version: str
    prompt_text: str
    prompt: PromptCut
    nodes: Nodes
    forms: Forms
    ends: EndSets
    inputs: Mapping[str, str]

    @cached_property
    def payload(self) -> bytes:
        """The canonical payload bytes, without the envelope."""
        return _pack(_to_payload(self))

    @cached_property
    def digest(self) -> str:
        """sha256 of the payload, as hexadecimal text: the artifact's identity."""
        return hashlib.sha256(self.payload).hexdigest()

    @cached_property
    def largest_id(self) -> int:
        """The largest token id that the prompt, the nodes or an END set uses."""
        arrays = (self.prompt.head, self.prompt.tail, self.nodes.token, self.ends.ids)
        return max(int(a.max()) for a in arrays if len(a))

    def field(self, name: str) -> CompiledField | None:
        """The field of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)


def dumps(artifact: Artifact) -> bytes:
    """The file's bytes."""
    payload = artifact.payload
    return _pack([MAGIC, FORMAT_VERSION, hashlib.sha256(payload).digest(), payload])


def read(path: Path) -> Artifact:
    """Load and check one artifact file. Raises ArtifactError; an unreadable file is one too."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ArtifactError(
            str(path), f"cannot be read ({error.strerror})", help="build it with `pcdc build`"
        ) from error
    return loads(data, str(path))


def loads(data: bytes, subject: str = "artifact") -> Artifact:
    """Check bytes as hostile input, then give the artifact. Raises ArtifactError and nothing else.

    Integer arrays of the result are read-only views into `data`'s payload.
    """
    if len(data) > MAX_BYTES:
        raise _damaged(subject, f"is larger than {MAX_BYTES} bytes")
    try:
        return _from_payload(_open_envelope(data, subject), subject)
    except ArtifactError:
        raise
    except _Malformed as error:
        raise _damaged(subject, str(error)) from error
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise _damaged(subject, f"is malformed ({error})") from error


class _Malformed(Exception):
    """A structural check failed; the text is the fact."""


def _damaged(subject: str, fact: str) -> ArtifactError:
    return ArtifactError(subject, fact, help="rebuild it with `pcdc build`; the source schema is not touched")


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def _refuse_ext(code: int, _data: bytes) -> object:
    raise _Malformed(f"holds extension type {code}")


def _unique(pairs: list[tuple[object, object]]) -> dict[object, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Malformed("repeats a map key")
    return result


def _unpack(data: bytes) -> Any:
    size = len(data)
    return msgpack.unpackb(
        data,
        raw=False,
        strict_map_key=True,
        ext_hook=_refuse_ext,
        object_pairs_hook=_unique,
        max_str_len=size,
        max_bin_len=size,
        max_array_len=size,
        max_map_len=size,
        max_ext_len=0,
    )


def _open_envelope(data: bytes, subject: str) -> dict[str, Any]:
    outer = _unpack(data)
    if not (isinstance(outer, list) and len(outer) == 4 and outer[0] == MAGIC):
        raise _Malformed("is not a pcdc artifact")
    _, version, digest, payload = outer
    if type(version) is not int or version != FORMAT_VERSION:
        raise ArtifactError(
            subject,
            f"has format version {version!r}",
            f"this version reads {FORMAT_VERSION}",
            "rebuild it with `pcdc build`",
        )
    if type(digest) is not bytes or type(payload) is not bytes:
        raise _Malformed("is not a pcdc artifact")
    if hashlib.sha256(payload).digest() != digest:
        raise _Malformed("does not match its checksum")
    inner = _unpack(payload)
    if _pack(inner) != payload:
        raise _Malformed("is not in canonical form")
    return _map(inner)


def _ints(values: Ints) -> bytes:
    return np.ascontiguousarray(values, dtype="<i4").tobytes()


def _to_payload(a: Artifact) -> dict[str, object]:
    return {
        "name": a.name,
        "model": a.model,
        "schema": {
            "instructions": a.instructions,
            "scoring": a.scoring,
            "temperature": json.dumps(a.temperature),
            "fields": [
                {
                    "name": f.name,
                    "type": f.type,
                    "description": f.description,
                    "anchor": f.anchor,
                    "suffix": f.suffix,
                    "candidates": [
                        {
                            "label": c.label,
                            "value": json.dumps(c.value, ensure_ascii=False),
                            "description": c.description,
                            "ids": _ints(np.array(c.ids, dtype=np.int32)),
                            "is_single_token": c.is_single_token,
                            "forms": c.forms[1] - c.forms[0],
                        }
                        for c in f.candidates
                    ],
                }
                for f in a.fields
            ],
        },
        "tokenizer": {
            "fingerprint": a.fingerprint,
            "probes": [[text, _ints(np.array(ids, dtype=np.int32))] for text, ids in a.tokenizer_probes],
        },
        "prompt": {
            "version": a.prompt_version,
            "text": a.prompt_text,
            "head": _ints(a.prompt.head),
            "pre": a.prompt.pre,
            "post": a.prompt.post,
            "fence": a.prompt.fence,
            "shared": a.prompt.shared,
            "tail": _ints(a.prompt.tail),
            "tail_overlap": a.prompt.tail_overlap,
            "probes": list(a.prompt.probes),
        },
        "nodes": {key: _ints(getattr(a.nodes, key)) for key in _NODE_KEYS},
        "forms": {key: _ints(getattr(a.forms, key)) for key in _FORM_KEYS},
        "ends": {"offset": _ints(a.ends.offset), "ids": _ints(a.ends.ids)},
        "inputs": {key: a.inputs[key] for key in sorted(a.inputs)},
    }


_NODE_KEYS = ("token", "parent", "depth", "field", "reads")
_FORM_KEYS = ("choice", "node", "end", "cut", "reads")


def _from_payload(p: dict[str, Any], subject: str) -> Artifact:
    _keys(p, "name", "model", "schema", "tokenizer", "prompt", "nodes", "forms", "ends", "inputs")
    schema = _map(p["schema"])
    _keys(schema, "instructions", "scoring", "temperature", "fields")
    tokenizer = _map(p["tokenizer"])
    _keys(tokenizer, "fingerprint", "probes")
    prompt = _map(p["prompt"])
    _keys(prompt, "version", "text", "head", "pre", "post", "fence", "shared", "tail", "tail_overlap", "probes")
    nodes, forms, ends, inputs = (_map(p[k]) for k in ("nodes", "forms", "ends", "inputs"))
    _keys(nodes, *_NODE_KEYS)
    _keys(forms, *_FORM_KEYS)
    _keys(ends, "offset", "ids")
    probes = [_natural(n) for n in _list(prompt["probes"])]
    _check(len(probes) == 2, "has wrong probe counts")
    artifact = Artifact(
        name=_text(p["name"]),
        model=_text(p["model"]),
        instructions=_text(schema["instructions"]),
        scoring=_text(schema["scoring"]),
        temperature=_temperature(_text(schema["temperature"])),
        fields=_fields(_list(schema["fields"])),
        fingerprint=_text(tokenizer["fingerprint"]),
        tokenizer_probes=tuple(_probe(_list(pair)) for pair in _list(tokenizer["probes"])),
        prompt_version=_text(prompt["version"]),
        prompt_text=_text(prompt["text"]),
        prompt=PromptCut(
            head=_array(prompt["head"]),
            pre=_text(prompt["pre"]),
            post=_text(prompt["post"]),
            fence=_text(prompt["fence"]),
            shared=_natural(prompt["shared"]),
            tail=_array(prompt["tail"]),
            tail_overlap=_natural(prompt["tail_overlap"]),
            probes=(probes[0], probes[1]),
        ),
        nodes=Nodes(**{key: _array(nodes[key]) for key in _NODE_KEYS}),
        forms=Forms(**{key: _array(forms[key]) for key in _FORM_KEYS}),
        ends=EndSets(offset=_array(ends["offset"]), ids=_array(ends["ids"])),
        inputs={_text(k): _text(v) for k, v in inputs.items()},
    )
    _check(artifact.scoring in RULES, "names an unknown scoring rule")
    _check_prompt(artifact.prompt)
    _check_nodes(artifact)
    _check_ends(artifact.ends)
    _check_forms(artifact)
    return artifact


def _check(holds: bool | np.bool_, fact: str) -> None:
    if not holds:
        raise _Malformed(fact)


def _map(value: object) -> dict[str, Any]:
    _check(type(value) is dict, "has something else where a map belongs")
    assert isinstance(value, dict)
    return value


def _list(value: object) -> list[Any]:
    _check(type(value) is list, "has something else where an array belongs")
    assert isinstance(value, list)
    return value


def _text(value: object) -> str:
    _check(type(value) is str, "has something else where text belongs")
    assert isinstance(value, str)
    return value


def _natural(value: object) -> int:
    _check(type(value) is int, "has something else where a whole number belongs")
    assert isinstance(value, int)
    _check(0 <= value < 2**31, "has a number out of range")
    return value


def _array(value: object) -> Ints:
    _check(type(value) is bytes, "has something else where an integer array belongs")
    assert isinstance(value, bytes)
    _check(len(value) % 4 == 0, "has an integer array cut short")
    return np.frombuffer(value, dtype="<i4")


def _keys(value: Mapping[str, object], *expected: str) -> None:
    _check(tuple(value) == expected, "has unknown, missing or reordered keys")


def _temperature(text: str) -> float:
    value = json.loads(text)
    _check(type(value) in (int, float) and 0 < value < float("inf"), "has a temperature out of range")
    return float(value)


def _probe(pair: Sequence[object]) -> tuple[str, tuple[int, ...]]:
    _check(len(pair) == 2, "has a malformed tokenizer probe")
    ids = _array(pair[1])
    _check(bool((ids >= 0).all()), "has a token id out of range")
    return _text(pair[0]), tuple(ids.tolist())


def _fields(rows: list[Any]) -> tuple[CompiledField, ...]:
    _check(len(rows) > 0, "has no fields")
    fields, first_form = [], 0
    for row in map(_map, rows):
        _keys(row, "name", "type", "description", "anchor", "suffix", "candidates")
        candidates = []
        for c in map(_map, _list(row["candidates"])):
            _keys(c, "label", "value", "description", "ids", "is_single_token", "forms")
            value = json.loads(_text(c["value"]))
            _check(value is None or type(value) in (bool, int, float, str), "has a value that is no scalar")
            _check(type(c["is_single_token"]) is bool, "has something else where a boolean belongs")
            last = first_form + _natural(c["forms"])
            candidates.append(
                Candidate(
                    label=_text(c["label"]),
                    value=value,
                    description=_text(c["description"]),
                    ids=tuple(_array(c["ids"]).tolist()),
                    is_single_token=c["is_single_token"],
                    forms=(first_form, last),
                )
            )
            first_form = last
        _check(MIN_CHOICES <= len(candidates) <= MAX_CHOICES, "has a field with too few or too many choices")
        _check(row["type"] in ("boolean", "enum"), "has a field of unknown type")
        fields.append(
            CompiledField(
                name=_text(row["name"]),
                type=row["type"],
                description=_text(row["description"]),
                anchor=_natural(row["anchor"]),
                suffix=_natural(row["suffix"]),
                candidates=tuple(candidates),
            )
        )
    _check(len({f.name for f in fields}) == len(fields), "has two fields of one name")
    return tuple(fields)


def _check_prompt(prompt: PromptCut) -> None:
    _check(bool((prompt.head >= 0).all() and (prompt.tail >= 0).all()), "has a token id out of range")
    _check(len(prompt.tail) > 0, "has no tail")
    _check(prompt.shared <= len(prompt.head), "has a prompt cut outside its head")
    _check(prompt.tail_overlap <= len(prompt.tail), "has a prompt cut outside its tail")
    _check(prompt.fence != "" and prompt.fence in prompt.pre and prompt.fence in prompt.post, "has no fence")


def _check_nodes(a: Artifact) -> None:
    n = a.nodes
    size = len(n)
    _check(size > 0, "has no nodes")
    _check(all(len(getattr(n, key)) == size for key in _NODE_KEYS), "has node arrays of unequal length")
    _check(bool((n.token >= 0).all()), "has a token id out of range")
    _check(n.parent[0] == -1 and n.depth[0] == 0 and n.field[0] == -1, "has a malformed root node")
    _check(n.token[0] == a.prompt.tail[-1], "has a root node that is not the last prompt token")
    parent = n.parent[1:]
    _check(bool((parent >= 0).all() and (parent < np.arange(1, size)).all()), "has a node before its parent")
    _check(bool((n.depth[1:] == n.depth[parent] + 1).all()), "has a node of wrong depth")
    field = n.field[1:]
    _check(bool((field >= 0).all() and (field < len(a.fields)).all()), "has a node of an unknown field")
    above = n.field[parent]
    _check(bool(((above == field) | (above == -1)).all()), "has a node below another field's")
    _check(bool((n.reads >= 0).all() and (n.reads < 1 << len(RULES)).all()), "has an unknown rule bit")
    _check(bool(((n.reads[1:] & ~n.reads[parent]) == 0).all()), "reads a node but not its parent")


def _check_ends(ends: EndSets) -> None:
    offset = ends.offset
    _check(len(offset) > 1 and offset[0] == 0 and offset[-1] == len(ends.ids), "has malformed END sets")
    _check(bool((np.diff(offset) > 0).all()), "has an empty END set")
    _check(bool((ends.ids >= 0).all()), "has a token id out of range")
    rising = np.diff(ends.ids) > 0
    rising[offset[1:-1] - 1] = True
    _check(bool(rising.all()), "has an END set that is not sorted")


def _check_forms(a: Artifact) -> None:
    f, nodes = a.forms, a.nodes
    _check(all(len(getattr(f, key)) == len(f) for key in _FORM_KEYS), "has form arrays of unequal length")
    counts = [c.forms[1] - c.forms[0] for field in a.fields for c in field.candidates]
    _check(min(counts) > 0, "has a choice without a form")
    _check(np.array_equal(f.choice, np.repeat(np.arange(len(counts)), counts)), "has form counts that disagree")
    _check(bool((f.node >= 0).all() and (f.node < len(nodes)).all()), "has a form at an unknown node")
    _check(bool((f.end >= 0).all() and (f.end < len(a.ends)).all()), "has a form with an unknown END set")
    _check(bool((f.reads >= 0).all() and (f.reads < 1 << len(RULES)).all()), "has an unknown rule bit")
    for index, field in enumerate(a.fields):
        _check(max(field.anchor, field.suffix) < len(nodes), "has an anchor outside the forest")
        _check(nodes.field[field.anchor] in (-1, index), "has an anchor in another field")
        for candidate in field.candidates:
            _check_candidate(a, index, field, candidate)


def _check_candidate(a: Artifact, index: int, field: CompiledField, candidate: Candidate) -> None:
    for form in range(*candidate.forms):
        node = int(a.forms.node[form])
        _check(a.nodes.field[node] in (-1, index), "has a form in another field")
        events = int(a.nodes.depth[node] - a.nodes.depth[field.anchor]) + 1
        _check(1 <= int(a.forms.cut[form]) <= events, "has a form cut outside its path")
        a.nodes.path(field.anchor, node)
    ids = a.nodes.path(field.suffix, int(a.forms.node[candidate.forms[0]]))
    _check(ids == candidate.ids, "has candidate ids that disagree with the forest")
    _check(candidate.is_single_token == (len(candidate.ids) == 1), "has a wrong single-token mark")
    _check(
        all(any(int(a.forms.reads[f]) & (1 << b) for f in range(*candidate.forms)) for b in range(len(RULES))),
        "has a choice that a rule never reads",
    )
