"""A small artifact, and bytes forged of it whose checksum is right."""

import hashlib

import msgpack
import numpy as np
import pytest
from fakes import make_artifact, spelled
from pcdc_runtime.artifact import FORMAT_VERSION, MAGIC, WorkedExample
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.errors import ArtifactError

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


def ints(*values):
    return np.array(values, dtype="<i4").tobytes()


FIELDS = payload()["schema"]["fields"]


def columns(field, **members):
    """The artifact's bytes with columns of a field's choices replaced."""
    rows = payload()["schema"]["fields"]
    assert members.keys() <= rows[field].keys()
    rows[field].update(members)
    return changed("schema", "fields", value=rows)
