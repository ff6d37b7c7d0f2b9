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

The schema is held as declared: fields and choices in their order, and its worked examples, each a text with
pairs of a field's and a choice's number, fields rising; what the prompt makes of them is in its head.

No time, no path and no host is part of it: equal inputs give equal bytes.

Format 2 added the examples to format 1.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgpack
import numpy as np

from .errors import ArtifactError
from .rules import MAX_CHOICES, MIN_CHOICES
from .rules import RULES as RULES
from .rules import rule_bit as rule_bit
from .storage import NotRegularError, read_regular
from .structure import check_structure
from .wire import Ints as Ints
from .wire import (
    Malformed,
    as_array,
    as_list,
    as_map,
    as_natural,
    as_text,
    check,
    check_keys,
    int_bytes,
    pack,
    unpack,
)

MAGIC = "pcdc"
FORMAT_VERSION = 2
OPENING = b"\x94" + pack(MAGIC)
"""The first bytes of every artifact: an array of four that begins with MAGIC."""
MAX_BYTES = 128 * 1024 * 1024
_SHOWN = 6
Value: TypeAlias = bool | int | float | str | None
FieldType: TypeAlias = Literal["boolean", "enum"]


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
    candidates: tuple[Candidate, ...] = field(repr=False)


@dataclass(frozen=True)
class WorkedExample:
    """A text and the answers that the prompt shows for it: pairs of field and choice, by their numbers."""

    context: str
    answers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class Forms:
    """The surface forms, one entry per form in every array; `choice` counts over all fields."""

    choice: Ints
    node: Ints
    end: Ints
    cut: Ints
    reads: Ints

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, eq=False)
class EndSets:
    """END set `k` is `ids[offset[k]:offset[k + 1]]`, sorted."""

    offset: Ints
    ids: Ints

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, index: int) -> Ints:
        return self.ids[self.offset[index] : self.offset[index + 1]]


@dataclass(frozen=True, repr=False, eq=False)
class Artifact:
    """Everything the runtime needs of one schema for one tokenizer, and nothing it must look up.

    Two of the same digest are equal.
    """

    name: str
    model: str
    instructions: str
    scoring: str
    temperature: float
    fields: tuple[CompiledField, ...]
    examples: tuple[WorkedExample, ...]
    fingerprint: str
    tokenizer_probes: tuple[tuple[str, tuple[int, ...]], ...]
    prompt_version: str
    prompt_text: str
    prompt: PromptCut
    nodes: Nodes
    forms: Forms
    ends: EndSets
    inputs: Mapping[str, str]

    def __repr__(self) -> str:
        names = shortened([repr(f.name) for f in self.fields])
        return f"Artifact({self.name!r}, model={self.model!r}, fields=[{names}], digest={self.digest[:12]!r})"

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Artifact) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def payload(self) -> bytes:
        """The canonical payload bytes, without the envelope."""
        return pack(_to_payload(self))

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


def shortened(items: Sequence[str]) -> str:
    """Items in one line, with the number of those that are left out."""
    more = [f"... {len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    return ", ".join([*items[:_SHOWN], *more])


def dumps(artifact: Artifact) -> bytes:
    """The file's bytes."""
    payload = artifact.payload
    return pack([MAGIC, FORMAT_VERSION, hashlib.sha256(payload).digest(), payload])


def read(path: Path) -> Artifact:
    """Load and check one artifact file. Raises ArtifactError; an unreadable file is one too."""
    return loads(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The bytes to give to `loads`: never many more than it takes. Raises ArtifactError."""
    try:
        return read_regular(path, MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise ArtifactError(str(path), "is a folder", help="name one artifact in it") from error
    except NotRegularError as error:
        raise ArtifactError(
            str(path), "is not a regular file", help="name a file that `pcdc build` wrote"
        ) from error
    except OSError as error:
        raise ArtifactError(
            str(path), f"cannot be read ({error.strerror})", help="build it with `pcdc build`"
        ) from error
    except ValueError as error:
        raise ArtifactError(
            ascii(str(path)), f"cannot be a path ({error})", help="name a file that `pcdc build` wrote"
        ) from error


def loads(data: bytes, subject: str = "artifact") -> Artifact:
    """Check bytes as hostile input, then give the artifact. Raises ArtifactError and nothing else.

    Integer arrays of the result are read-only views into `data`'s payload.
    """
    if len(data) > MAX_BYTES:
        raise _damaged(subject, f"is larger than {MAX_BYTES} bytes")
    if not data.startswith(OPENING):
        raise _stranger(data, subject)
    try:
        return _from_payload(_open_envelope(data, subject), subject)
    except ArtifactError:
        raise
    except Malformed as error:
        raise _damaged(subject, str(error)) from error
    except (
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        msgpack.exceptions.UnpackException,
    ) as error:
        raise _damaged(subject, "is damaged or cut short") from error


def _damaged(subject: str, fact: str) -> ArtifactError:
    return ArtifactError(subject, fact, help="rebuild it with `pcdc build`; the source schema is not touched")


def _stranger(data: bytes, subject: str) -> ArtifactError:
    if subject.endswith(".json") or _is_json_object(data):
        return ArtifactError(
            subject,
            "is a definition file, not an artifact",
            help=f"compile it with `pcdc build {shlex.quote(subject)}`, then name the file that this writes",
        )
    return ArtifactError(subject, "is not a pcdc artifact", help="name a file that `pcdc build` wrote")


def _is_json_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def _open_envelope(data: bytes, subject: str) -> dict[str, Any]:
    whole = unpack(data)
    _, version, digest, payload = whole
    if type(version) is not int or version != FORMAT_VERSION:
        raise ArtifactError(
            subject,
            f"has format version {version!r}",
            f"this version reads {FORMAT_VERSION}",
            "rebuild it with `pcdc build`",
        )
    if type(digest) is not bytes or type(payload) is not bytes:
        raise Malformed("has something else where a checksum and its payload belong")
    if hashlib.sha256(payload).digest() != digest:
        raise Malformed("does not match its checksum")
    inner = unpack(payload)
    if pack(inner) != payload or pack(whole) != data:
        raise Malformed("is not in canonical form")
    return as_map(inner)


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
                            "ids": int_bytes(np.array(c.ids, dtype=np.int32)),
                            "is_single_token": c.is_single_token,
                            "forms": c.forms[1] - c.forms[0],
                        }
                        for c in f.candidates
                    ],
                }
                for f in a.fields
            ],
            "examples": [
                {"context": e.context, "answers": int_bytes(np.array(e.answers, dtype=np.int32))}
                for e in a.examples
            ],
        },
        "tokenizer": {
            "fingerprint": a.fingerprint,
            "probes": [[text, int_bytes(np.array(ids, dtype=np.int32))] for text, ids in a.tokenizer_probes],
        },
        "prompt": {
            "version": a.prompt_version,
            "text": a.prompt_text,
            "head": int_bytes(a.prompt.head),
            "pre": a.prompt.pre,
            "post": a.prompt.post,
            "fence": a.prompt.fence,
            "shared": a.prompt.shared,
            "tail": int_bytes(a.prompt.tail),
            "tail_overlap": a.prompt.tail_overlap,
            "probes": list(a.prompt.probes),
        },
        "nodes": {key: int_bytes(getattr(a.nodes, key)) for key in _NODE_KEYS},
        "forms": {key: int_bytes(getattr(a.forms, key)) for key in _FORM_KEYS},
        "ends": {"offset": int_bytes(a.ends.offset), "ids": int_bytes(a.ends.ids)},
        "inputs": {key: a.inputs[key] for key in sorted(a.inputs)},
    }


_NODE_KEYS = ("token", "parent", "depth", "field", "reads")
_FORM_KEYS = ("choice", "node", "end", "cut", "reads")


def _from_payload(p: dict[str, Any], subject: str) -> Artifact:
    check_keys(p, "name", "model", "schema", "tokenizer", "prompt", "nodes", "forms", "ends", "inputs")
    schema = as_map(p["schema"])
    check_keys(schema, "instructions", "scoring", "temperature", "fields", "examples")
    tokenizer = as_map(p["tokenizer"])
    check_keys(tokenizer, "fingerprint", "probes")
    prompt = as_map(p["prompt"])
    check_keys(
        prompt, "version", "text", "head", "pre", "post", "fence", "shared", "tail", "tail_overlap", "probes"
    )
    nodes, forms, ends, inputs = (as_map(p[k]) for k in ("nodes", "forms", "ends", "inputs"))
    check_keys(nodes, *_NODE_KEYS)
    check_keys(forms, *_FORM_KEYS)
    check_keys(ends, "offset", "ids")
    check_keys(inputs, *sorted(map(as_text, inputs)))
    probes = [as_natural(n) for n in as_list(prompt["probes"])]
    check(len(probes) == 2, "has wrong probe counts")
    artifact = Artifact(
        name=as_text(p["name"]),
        model=as_text(p["model"]),
        instructions=as_text(schema["instructions"]),
        scoring=as_text(schema["scoring"]),
        temperature=_temperature(as_text(schema["temperature"])),
        fields=_fields(as_list(schema["fields"])),
        examples=tuple(map(_example, as_list(schema["examples"]))),
        fingerprint=as_text(tokenizer["fingerprint"]),
        tokenizer_probes=tuple(_probe(as_list(pair)) for pair in as_list(tokenizer["probes"])),
        prompt_version=as_text(prompt["version"]),
        prompt_text=as_text(prompt["text"]),
        prompt=PromptCut(
            head=as_array(prompt["head"]),
            pre=as_text(prompt["pre"]),
            post=as_text(prompt["post"]),
            fence=as_text(prompt["fence"]),
            shared=as_natural(prompt["shared"]),
            tail=as_array(prompt["tail"]),
            tail_overlap=as_natural(prompt["tail_overlap"]),
            probes=(probes[0], probes[1]),
        ),
        nodes=Nodes(**{key: as_array(nodes[key]) for key in _NODE_KEYS}),
        forms=Forms(**{key: as_array(forms[key]) for key in _FORM_KEYS}),
        ends=EndSets(offset=as_array(ends["offset"]), ids=as_array(ends["ids"])),
        inputs={key: as_text(value) for key, value in inputs.items()},
    )
    check_structure(artifact)
    return artifact


def _temperature(text: str) -> float:
    value: float = json.loads(text)
    check(type(value) is float and 0 < value < float("inf"), "has a temperature out of range")
    check(json.dumps(value) == text, "has a temperature that is not in canonical form")
    return value


def _probe(pair: Sequence[object]) -> tuple[str, tuple[int, ...]]:
    check(len(pair) == 2, "has a malformed tokenizer probe")
    ids = as_array(pair[1])
    check(bool((ids >= 0).all()), "has a token id out of range")
    return as_text(pair[0]), tuple(ids.tolist())


def _example(row: object) -> WorkedExample:
    example = as_map(row)
    check_keys(example, "context", "answers")
    answers = as_array(example["answers"])
    check(len(answers) % 2 == 0, "has an answer without a choice")
    pairs = answers.reshape(-1, 2).tolist()
    return WorkedExample(as_text(example["context"]), tuple((field, choice) for field, choice in pairs))


def _fields(rows: list[Any]) -> tuple[CompiledField, ...]:
    check(len(rows) > 0, "has no fields")
    fields, first_form = [], 0
    for row in map(as_map, rows):
        check_keys(row, "name", "type", "description", "anchor", "suffix", "candidates")
        candidates = []
        for c in map(as_map, as_list(row["candidates"])):
            check_keys(c, "label", "value", "description", "ids", "is_single_token", "forms")
            value = json.loads(as_text(c["value"]))
            check(value is None or type(value) in (bool, int, float, str), "has a value that is no scalar")
            written = json.dumps(value, ensure_ascii=False, allow_nan=False)
            check(written == c["value"], "has a value that is not in canonical form")
            check(type(c["is_single_token"]) is bool, "has something else where a boolean belongs")
            last = first_form + as_natural(c["forms"])
            candidates.append(
                Candidate(
                    label=as_text(c["label"]),
                    value=value,
                    description=as_text(c["description"]),
                    ids=tuple(as_array(c["ids"]).tolist()),
                    is_single_token=c["is_single_token"],
                    forms=(first_form, last),
                )
            )
            first_form = last
        check(MIN_CHOICES <= len(candidates) <= MAX_CHOICES, "has a field with too few or too many choices")
        check(row["type"] in ("boolean", "enum"), "has a field of unknown type")
        fields.append(
            CompiledField(
                name=as_text(row["name"]),
                type=row["type"],
                description=as_text(row["description"]),
                anchor=as_natural(row["anchor"]),
                suffix=as_natural(row["suffix"]),
                candidates=tuple(candidates),
            )
        )
    check(len({f.name for f in fields}) == len(fields), "has two fields of one name")
    return tuple(fields)
