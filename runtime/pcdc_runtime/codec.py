"""Artifacts as bytes and back: the envelope, and the payload read as hostile input.

`artifact` says what the bytes mean.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import unicodedata
from pathlib import Path
from typing import Any

import msgpack

from .artifact import (
    FORMAT_VERSION,
    MAGIC,
    OPENING,
    Artifact,
    CompiledField,
    EndSets,
    Forms,
    Nodes,
    Value,
    WorkedExample,
)
from .candidates import Candidates
from .errors import ArtifactError
from .indexed.layout import INDEX_MAGIC
from .payload import FIELD_KEYS, FORM_KEYS, NODE_KEYS
from .rules import MAX_CHOICES, MIN_CHOICES
from .storage import NotRegularError, read_regular
from .structure import check_structure
from .target import as_inputs, as_target, as_temperature
from .visible import BLANKS, MAX_CHOICE_CHARS, MAX_NAME_CHARS, hidden
from .wire import (
    Malformed,
    as_array,
    as_list,
    as_map,
    as_natural,
    as_text,
    as_texts,
    canonical_json,
    check,
    check_keys,
    identity,
    pack,
    unpack,
)

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
    if not data.startswith(OPENING):
        raise _stranger(data, subject)
    if len(data) > MAX_BYTES:
        raise _damaged(subject, f"is larger than {MAX_BYTES} bytes")
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
    if data.startswith(INDEX_MAGIC):
        return ArtifactError(
            subject,
            "is an index, not an artifact",
            help=f"find its labels with `pcdc select {shlex.quote(subject)}`, in Python with `open_selector`",
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
    if as_natural(version) != FORMAT_VERSION:
        raise ArtifactError(
            subject,
            f"has format version {version}",
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
    nodes, forms, ends = (as_map(p[k]) for k in ("nodes", "forms", "ends"))
    check_keys(nodes, *NODE_KEYS)
    check_keys(forms, *FORM_KEYS)
    check_keys(ends, "offset", "ids")
    forest = Nodes(**{key: as_array(nodes[key]) for key in NODE_KEYS})
    spelled = Forms(**{key: as_array(forms[key]) for key in FORM_KEYS})
    artifact = Artifact(
        name=as_text(p["name"]),
        model=as_text(p["model"]),
        instructions=as_text(schema["instructions"]),
        scoring=as_text(schema["scoring"]),
        temperature=as_temperature(schema["temperature"]),
        fields=_fields(as_list(schema["fields"]), forest, spelled),
        examples=tuple(map(_example, as_list(schema["examples"]))),
        **as_target(p),
        nodes=forest,
        forms=spelled,
        ends=EndSets(offset=as_array(ends["offset"]), ids=as_array(ends["ids"])),
        inputs=as_inputs(p["inputs"]),
    )
    check_structure(artifact)
    return artifact


def _example(row: object) -> WorkedExample:
    example = as_map(row)
    check_keys(example, "context", "answers")
    answers = as_array(example["answers"])
    check(len(answers) % 2 == 0, "has an answer without a choice")
    pairs = answers.reshape(-1, 2).tolist()
    return WorkedExample(as_text(example["context"]), tuple((field, choice) for field, choice in pairs))


def _fields(rows: list[Any], nodes: Nodes, forms: Forms) -> tuple[CompiledField, ...]:
    check(len(rows) > 0, "has no fields")
    fields, first = [], 0
    for row in map(as_map, rows):
        check_keys(row, *FIELD_KEYS)
        check(row["type"] in ("boolean", "enum"), "has a field of unknown type")
        suffix = as_natural(row["suffix"])
        labels = as_texts(row["labels"])
        check(MIN_CHOICES <= len(labels) <= MAX_CHOICES, "has a field with too few or too many choices")
        _check_labels(labels)
        columns = labels, _values(row, labels), _descriptions(row, len(labels))
        fields.append(
            CompiledField(
                name=as_text(row["name"]),
                type=row["type"],
                description=as_text(row["description"]),
                anchor=as_natural(row["anchor"]),
                suffix=suffix,
                candidates=Candidates(*columns, first, suffix, nodes, forms),
            )
        )
        first += len(labels)
    _check_names([f.name for f in fields])
    return tuple(fields)


def _check_names(names: list[str]) -> None:
    check(len({*names}) == len(names), "has two fields of one name")
    check(all(map(str.strip, names)), "has a field whose name is blank")
    check(max(map(len, names)) <= MAX_NAME_CHARS, "has a field whose name is too long")
    joined = " ".join(names)
    check(not hidden(joined), "has a field whose name holds characters that do not show")
    check(joined.isascii() or _all_differ(names), "has field names that are canonically equal")


def _check_labels(labels: list[str]) -> None:
    check(len({*labels}) == len(labels), "has two choices with one label")
    check(all(map(str.strip, labels)), "has a choice that is blank")
    check(max(map(len, labels)) <= MAX_CHOICE_CHARS, "has a choice that is too long")
    joined = " ".join(labels)
    check(not hidden(joined, BLANKS), "has a choice with characters that do not show")
    check(joined.isascii() or _all_differ(labels), "has choices that are canonically equal")


def _all_differ(texts: list[str]) -> bool:
    """Whether texts that differ do so for every tokenizer too."""
    return len({unicodedata.normalize("NFC", text) for text in texts}) == len(texts)


def _values(row: dict[str, Any], labels: list[str]) -> list[Value]:
    text = as_text(row["values"])
    own = as_list(json.loads(text))
    check({*map(type, own)} <= {bool, int, float, str, type(None)}, "has a value that is no scalar")
    check(canonical_json(own) == text, "has a value that is not in canonical form")
    values: list[Value] = [*labels]
    for number, value in zip(_numbers(row["valued"], len(own), len(labels)), own, strict=True):
        check(value != labels[number], "has a value that is its label")
        values[number] = value
    check(not own or len({*map(identity, values)}) == len(values), "has two choices with one value")
    kinds = {*map(type, own), *([str] if len(own) < len(labels) else [])} - {type(None)}
    check((row["type"] == "boolean") == (kinds == {bool}), "has a field whose values are not of its type")
    return values


def _descriptions(row: dict[str, Any], choices: int) -> list[str]:
    own = as_texts(row["descriptions"])
    check("" not in own, "has a description that is empty")
    descriptions = [""] * choices
    for number, text in zip(_numbers(row["described"], len(own), choices), own, strict=True):
        descriptions[number] = text
    return descriptions


def _numbers(column: object, count: int, choices: int) -> list[int]:
    """The numbers of the choices that a column is about."""
    array = as_array(column)
    check(len(array) == count, "has columns of unequal length")
    numbers: list[int] = array.tolist()
    check(numbers == sorted({*numbers}), "has a column whose choices are not in order")
    check(not numbers or (numbers[0] >= 0 and numbers[-1] < choices), "has a column with an unknown choice")
    return numbers
