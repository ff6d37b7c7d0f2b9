"""Artifacts as bytes and back: the envelope, and the payload read as hostile input.

`artifact` says what the bytes mean.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgpack

from .artifact import (
    FORMAT_VERSION,
    MAGIC,
    OPENING,
    Artifact,
    Candidate,
    CompiledField,
    EndSets,
    Forms,
    Nodes,
    PromptCut,
    Value,
    WorkedExample,
)
from .errors import ArtifactError
from .payload import CANDIDATE_KEYS, FORM_KEYS, NODE_KEYS
from .rules import MAX_CHOICES, MIN_CHOICES
from .storage import NotRegularError, read_regular
from .structure import check_structure
from .wire import Malformed, as_array, as_list, as_map, as_natural, as_text, check, check_keys, pack, unpack

MAX_BYTES = 128 * 1024 * 1024


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
        payload, digest = _open_envelope(data, subject)
        artifact = _from_payload(payload)
        # The payload is in canonical form, so this is what the artifact would compute.
        vars(artifact)["digest"] = digest.hex()
        return artifact
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


def _open_envelope(data: bytes, subject: str) -> tuple[dict[str, Any], bytes]:
    """The payload's map and its checksum."""
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
    return as_map(inner), digest


def _from_payload(p: dict[str, Any]) -> Artifact:
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
    check_keys(nodes, *NODE_KEYS)
    check_keys(forms, *FORM_KEYS)
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
        nodes=Nodes(**{key: as_array(nodes[key]) for key in NODE_KEYS}),
        forms=Forms(**{key: as_array(forms[key]) for key in FORM_KEYS}),
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
        candidates = _candidates(as_list(row["candidates"]), first_form)
        first_form = candidates[-1].forms[1]
        check(row["type"] in ("boolean", "enum"), "has a field of unknown type")
        fields.append(
            CompiledField(
                name=as_text(row["name"]),
                type=row["type"],
                description=as_text(row["description"]),
                anchor=as_natural(row["anchor"]),
                suffix=as_natural(row["suffix"]),
                candidates=candidates,
            )
        )
    check(len({f.name for f in fields}) == len(fields), "has two fields of one name")
    return tuple(fields)


def _candidates(rows: list[Any], first_form: int) -> tuple[Candidate, ...]:
    """A field's candidates, checked column by column: there can be thousands in an artifact."""
    check(MIN_CHOICES <= len(rows) <= MAX_CHOICES, "has a field with too few or too many choices")
    _check_type(rows, dict, "a map")
    for keys in set(map(tuple, rows)):
        check(keys == CANDIDATE_KEYS, "has unknown, missing or reordered keys")
    labels, values, descriptions, ids, single, counts = zip(*map(dict.values, rows), strict=True)
    for texts in (labels, values, descriptions):
        _check_type(texts, str, "text")
    _check_type(ids, bytes, "an integer array")
    _check_type(single, bool, "a boolean")
    _check_type(counts, int, "a whole number")
    check(min(counts) >= 0 and max(counts) < 2**31, "has a number out of range")
    sizes = list(map(len, ids))
    check(not any(size % 4 for size in sizes), "has an integer array cut short")
    flat = as_array(b"".join(ids)).tolist()
    stops = accumulate((size // 4 for size in sizes), initial=0)
    forms = accumulate(counts, initial=first_form)
    return tuple(
        map(
            Candidate,
            labels,
            map(_value, values, labels),
            descriptions,
            (tuple(flat[start:stop]) for start, stop in pairwise(stops)),
            single,
            pairwise(forms),
        )
    )


def _check_type(values: Sequence[object], wanted: type, name: str) -> None:
    check(set(map(type, values)) == {wanted}, f"has something else where {name} belongs")


_quoted = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _value(text: str, label: str) -> Value:
    # Most values are their own labels, and this is how those are spelled.
    if text == _quoted(label):
        return label
    value: Value = json.loads(text)
    check(value is None or type(value) in (bool, int, float, str), "has a value that is no scalar")
    check(_quoted(value) == text, "has a value that is not in canonical form")
    return value
