"""The calibration's file: what is written is read, and nothing else is."""

import json
import math
import os
import random
from dataclasses import replace

import pytest
from fakes import make_artifact, spelled
from fitted import calibration, fitted
from hypothesis import given
from hypothesis import strategies as st
from pcdc_runtime import calibration as calibration_file
from pcdc_runtime.artifact import WorkedExample
from pcdc_runtime.calibration import (
    MAX_BYTES,
    CalibratedThreshold,
    calibration_path,
    dumps,
    field_digest,
    loads,
    read,
    read_thresholds,
    write,
)
from pcdc_runtime.errors import CalibrationError

ARTIFACT = make_artifact(
    {"team": spelled("ops", "sales"), "level": spelled("low", "é\n☃"), "open": spelled("yes", "no")}
)
WHOLE = calibration(
    ARTIFACT,
    fitted(ARTIFACT, "team", "bias", 1.25, [0.1, -0.30000000000000004]),
    fitted(ARTIFACT, "level", "prior", bias=[5e-324, 1000.0], threshold=None),
    replace(fitted(ARTIFACT, "open"), before=None, after=None),
)


def content():
    return json.loads(dumps(WHOLE))


def sealed(changed):
    """Bytes of the changed content with a checksum that fits, as somebody who means it would write them."""
    body = {key: value for key, value in changed.items() if key != "checksum"}
    return json.dumps({**body, "checksum": calibration_file._checksum(body)}).encode()


def test_what_is_written_is_read(tmp_path):
    path = calibration_path(tmp_path / "made.table.pcdc")
    assert path.name == "made.table.pcdc.calibration.json"
    write(path, WHOLE)
    assert read(path) == WHOLE
    assert dumps(read(path)) == path.read_bytes() == dumps(WHOLE)


def test_another_layout_of_the_same_content_is_the_same_calibration():
    shuffled = dict(sorted(content().items()))
    assert loads(json.dumps(shuffled).encode()) == WHOLE


@given(st.data())
def test_mutated_bytes_give_the_same_calibration_or_a_calibration_error(data):
    original = dumps(WHOLE)
    at = data.draw(st.integers(0, len(original) - 1))
    upto = data.draw(st.integers(at, min(len(original), at + 40)))
    mutated = original[:at] + data.draw(st.binary(max_size=20)) + original[upto:]
    try:
        assert loads(mutated) == WHOLE
    except CalibrationError:
        return


def test_every_cut_and_every_flipped_bit_is_refused_or_changes_nothing():
    original = dumps(WHOLE)
    for at in range(len(original)):
        flipped = bytearray(original)
        flipped[at] ^= 1 << random.Random(at).randrange(8)
        for mutated in (original[:at], bytes(flipped)):
            try:
                assert loads(mutated) == WHOLE
            except CalibrationError:
                continue


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.just(10**400)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, here=()):
    """The path to every value inside a JSON value, and to the value itself."""
    yield here
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*here, key))


PLACES = list(places(json.loads(dumps(WHOLE))))


@given(st.sampled_from(PLACES), JSON)
def test_any_value_in_any_place_is_refused_or_can_be_written_again(place, value):
    changed = content()
    if place:
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
    else:
        changed = {"format": 1, "value": value}
    try:
        found = loads(sealed(changed))
    except CalibrationError:
        return
    assert loads(dumps(found)) == found


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ((), ("checksum",))], ids=str)
def test_a_number_larger_than_any_float_is_refused_in_every_place(place):
    changed = content()
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 10**400
    with pytest.raises(CalibrationError):
        loads(sealed(changed))


REFUSED = {
    "not JSON": (lambda c: b"{", "strict JSON"),
    "not UTF-8": (lambda c: b"\xff" + dumps(WHOLE), "strict JSON"),
    "an array": (lambda c: b"[]", "not a calibration"),
    "deep": (lambda c: b"[" * 100_000, "strict JSON"),
    "a later format": (lambda c: sealed(c | {"format": 2}), "format version 2, this version reads 1"),
    "a key twice": (lambda c: dumps(WHOLE).replace(b'"seed"', b'"seed": 7, "seed"'), "repeats a key"),
    "a key more": (lambda c: sealed(c | {"comment": ""}), "unknown or missing keys"),
    "a changed number": (lambda c: dumps(WHOLE).replace(b"1.25", b"1.26"), "checksum"),
    "not a number": (lambda c: dumps(WHOLE).replace(b"1.25", b"NaN"), "NaN"),
    "infinite": (lambda c: dumps(WHOLE).replace(b"1.25", b"1e999"), "out of range"),
    "temperature 0": (lambda c: sealed(_field(c, temperature=0)), "out of range"),
    "temperature -1": (lambda c: sealed(_field(c, temperature=-1.0)), "out of range"),
    "a huge temperature": (lambda c: sealed(_field(c, temperature=10**400)), "out of range"),
    "a true temperature": (lambda c: sealed(_field(c, temperature=True)), "a number belongs"),
    "a huge log loss": (lambda c: sealed(_before(c, log_loss=10**400)), "out of range"),
    "a log loss beyond any": (lambda c: sealed(_before(c, log_loss=2e6)), "out of range"),
    "huge rows": (lambda c: sealed(_before(c, rows=10**400)), "out of range"),
    "a huge Brier": (lambda c: sealed(_before(c, brier=10**400)), "out of range"),
    "a huge bias": (lambda c: sealed(_field(c, bias=[0, 1e4])), "out of range"),
    "one bias": (lambda c: sealed(_field(c, bias=[1])), "wrong number of biases"),
    "no bias": (lambda c: sealed(_field(c, bias=[])), "do not go with the method 'bias'"),
    "a method": (lambda c: sealed(_field(c, method="magic")), "unknown method"),
    "a rule": (lambda c: sealed(c | {"scoring": "best"}), "unknown scoring rule"),
    "a digest": (lambda c: sealed(_field(c, digest="")), "digest that is none"),
    "a field twice": (lambda c: sealed(c | {"fields": c["fields"][:1] * 2}), "names a field twice"),
    "too large": (lambda c: b" " * (MAX_BYTES + 1), "larger than"),
}


def _field(changed, **values):
    return changed | {"fields": [changed["fields"][0] | values]}


def _before(changed, **values):
    return _field(changed, before=changed["fields"][0]["before"] | values)


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_file_is_refused_with_its_fault_and_a_way_out(wrong):
    make, fact = REFUSED[wrong]
    with pytest.raises(CalibrationError) as refused:
        loads(make(content()))
    assert fact in refused.value.fact
    assert "pcdc eval --fit" in refused.value.help


def test_what_could_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "c.json"
    for temperature in (0.0, math.nan, math.inf, "1", object()):
        with pytest.raises(CalibrationError):
            write(path, replace(WHOLE, fields=(replace(WHOLE.fields[0], temperature=temperature),)))
    with pytest.raises(CalibrationError):
        write(path, replace(WHOLE, schema="\ud800"))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, fact in ((tmp_path, "is a folder"), (tmp_path / "pipe", "regular"), (tmp_path / "no", "there")):
        with pytest.raises(CalibrationError, match=fact):
            read(path)


def test_the_digest_of_a_field_tells_what_it_asks_and_nothing_of_the_others():
    def digest(artifact, name="team"):
        return field_digest(artifact, [field.name for field in artifact.fields].index(name))

    def made(team=("ops", "sales"), level=("low", "high")):
        return make_artifact({"level": spelled(*level), "team": spelled(*team)})

    same = digest(made())
    assert digest(make_artifact({"team": spelled("ops", "sales")})) == same
    assert digest(made(level=("low", "higher"))) == same
    assert len({same, digest(made(("sales", "ops"))), digest(made(("ops", "sale")))}) == 3
    assert digest(replace(made(), instructions="Look.")) != same
    field = made().fields[1]
    for change in ({"description": "Who?"}, {"type": "boolean"}, {"name": "Team"}):
        changed = replace(field, **change)
        assert digest(replace(made(), fields=(made().fields[0], changed)), changed.name) != same
    shown = WorkedExample("text", ((0, 0), (1, 1)))
    assert digest(replace(made(), examples=(shown,))) != same
    other = replace(shown, answers=((0, 1), (1, 1)))
    assert digest(replace(made(), examples=(shown,))) == digest(replace(made(), examples=(other,)))


def test_the_id_tells_probabilities_apart_and_nothing_else():
    base = WHOLE.id_of("team")
    assert len(base) == 16

    def changed(**values):
        return replace(WHOLE, fields=(replace(WHOLE.fields[0], **values),)).id_of("team")

    assert changed(threshold=None, before=None, rows=1) == base
    ids = {base, changed(temperature=1.5), changed(bias=(0.1, 0.2)), changed(digest="0" * 64)}
    ids |= {replace(WHOLE, scoring="trie").id_of("team"), replace(WHOLE, weights="0" * 64).id_of("team")}
    assert len(ids) == 6
    with pytest.raises(KeyError):
        WHOLE.id_of("nobody")


def test_thresholds_are_read_with_the_calibration_they_belong_to(tmp_path):
    write(tmp_path / "c.json", WHOLE)
    assert read_thresholds(tmp_path / "c.json") == {
        name: CalibratedThreshold(0.8, WHOLE.id_of(name)) for name in ("team", "open")
    }
