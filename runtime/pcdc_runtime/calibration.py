"""Calibrations: what labelled texts taught about the probabilities of an artifact's fields.

File: one JSON object in a file beside the artifact, with a checksum over its canonical form. A field's
part holds for the field it was fitted to, whose digest it carries, wherever that field stands; the rule,
the prompt version and the weights hold for all of them.

Calibrated probabilities are softmax(log score / temperature + bias) over the field's choices.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .artifact import Artifact
from .errors import CalibrationError
from .rules import MAX_CHOICES, MAX_FIELDS, MIN_CHOICES, RULES
from .storage import read_regular, write_atomic

METHODS = ("nothing", "temperature", "bias", "prior")
FORMAT = 1
MAX_BYTES = 16 * 1024 * 1024
TEMPERATURES = (1e-3, 1e3)
"""The lowest and the highest temperature that a file may hold."""
MAX_BIAS = 1e3
"""The largest bias that a file may hold, in nats, either way."""
MAX_LOG_LOSS = 1e6
"""The largest log loss that a file may hold, in nats."""
_WITH_BIAS = ("bias", "prior")
_MAX_COUNT = 2**53
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Figures:
    """How good probabilities are on `rows` labelled texts; `log_loss` in nats."""

    rows: int
    accuracy: float
    log_loss: float
    brier: float
    ece: float


@dataclass(frozen=True)
class Threshold:
    """Answers with at least the probability `minimum` are right at least as often as `precision`.

    `confidence` is that of the claim; `share` is the part of the `rows` tested that it lets through.
    """

    minimum: float
    precision: float
    confidence: float
    share: float
    rows: int


@dataclass(frozen=True)
class FieldCalibration:
    """What was fitted to one field, for `digest`, as `field_digest` gives it.

    `bias` is in nats, one per choice in declaration order, or empty. `rows` is how many labelled texts it
    was fitted on, `before` and `after` are its figures on others.
    """

    name: str
    digest: str
    method: str
    temperature: float
    bias: tuple[float, ...]
    rows: int
    before: Figures | None
    after: Figures | None
    threshold: Threshold | None


@dataclass(frozen=True)
class Calibration:
    """The calibrations of an artifact's fields, and what they were fitted with.

    `artifact`, `weights` and `data` are sha256 digests; `weights` is empty for a model that is not in a
    folder, `data` where none was used.
    """

    schema: str
    model: str
    artifact: str
    weights: str
    scoring: str
    prompt_version: str
    data: str
    seed: int
    fields: tuple[FieldCalibration, ...]

    def field(self, name: str) -> FieldCalibration | None:
        """The calibration of the field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    def id_of(self, name: str) -> str:
        """16 hexadecimal digits that tell one field's probabilities from those of any other calibration.

        Raises KeyError for a field that has none.
        """
        field = self.field(name)
        if field is None:
            raise KeyError(name)
        whole = [field.digest, field.method, field.temperature, field.bias, self.scoring, self.weights]
        return hashlib.sha256(_canonical(whole)).hexdigest()[:16]


@dataclass(frozen=True)
class CalibratedThreshold:
    """A least probability, and the id of the calibration whose probabilities it was found on."""

    minimum: float
    calibration: str


def calibration_path(artifact: str | Path) -> Path:
    """Where the calibration of an artifact file is: beside it."""
    path = Path(artifact)
    return path.with_name(f"{path.name}.calibration.json")


def field_digest(artifact: Artifact, index: int) -> str:
    """sha256 of what a field asks: its name, type and texts, the schema's instructions, its choices in order.

    Worked examples count with their text and the field's own answer; the other fields do not count.
    """
    field = artifact.fields[index]
    examples = [
        [
            example.context,
            [field.candidates[choice].label for asked, choice in example.answers if asked == index],
        ]
        for example in artifact.examples
    ]
    choices = [[choice.label, choice.value, choice.description] for choice in field.candidates]
    whole = [field.name, field.type, field.description, artifact.instructions, choices, examples]
    return hashlib.sha256(_canonical(whole)).hexdigest()


def read_thresholds(path: str | Path) -> dict[str, CalibratedThreshold]:
    """The thresholds of a calibration file by field, for `Result.route`. Raises CalibrationError."""
    calibration = read(Path(path))
    return {
        field.name: CalibratedThreshold(field.threshold.minimum, calibration.id_of(field.name))
        for field in calibration.fields
        if field.threshold is not None
    }


def read(path: Path) -> Calibration:
    """Load and check one calibration file. Raises CalibrationError, also where there is none."""
    data = read_bytes(path)
    if data is None:
        raise CalibrationError(str(path), "is not there", help="make it with `pcdc eval --fit`")
    return loads(data, str(path))


def read_bytes(path: Path) -> bytes | None:
    """The bytes to give to `loads`, never many more than it takes; None where there is no file.

    Raises CalibrationError where there is one that cannot be read.
    """
    try:
        return read_regular(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(str(path), f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _damaged(ascii(str(path)), f"cannot be a path ({error})") from error


def write(path: Path, calibration: Calibration) -> None:
    """Put a calibration's file in its place as a whole. Raises CalibrationError, OSError."""
    write_atomic(path, dumps(calibration))


def dumps(calibration: Calibration) -> bytes:
    """The file's bytes. Raises CalibrationError for what `loads` would refuse."""
    try:
        content = _content(calibration)
        data = json.dumps(
            content | {"checksum": _checksum(content)}, ensure_ascii=False, allow_nan=False, indent=1
        ).encode()
    except (TypeError, ValueError) as error:
        raise CalibrationError("calibration", f"cannot be written ({error})") from error
    loads(data + b"\n")
    return data + b"\n"


def loads(data: bytes, subject: str = "calibration") -> Calibration:
    """Check bytes as hostile input, then give the calibration. Raises CalibrationError and nothing else."""
    if len(data) > MAX_BYTES:
        raise _damaged(subject, f"is larger than {MAX_BYTES} bytes")
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
        return _from_content(content)
    except _Refused as error:
        raise _damaged(subject, str(error)) from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise _damaged(subject, "is not strict JSON in UTF-8") from error


class _Refused(Exception):
    """A check failed; the text is the fact."""


def _damaged(subject: str, fact: str) -> CalibrationError:
    return CalibrationError(
        subject,
        fact,
        help="make it again with `pcdc eval --fit`, or remove it: answers are uncalibrated then",
    )


def _canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _checksum(content: Mapping[str, object]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _content(calibration: Calibration) -> dict[str, Any]:
    return {"format": FORMAT, **asdict(calibration)}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Refused("repeats a key")
    return result


def _refuse_constant(name: str) -> None:
    raise _Refused(f"holds {name}, which is no number")


def _check(holds: bool, fact: str) -> None:
    if not holds:
        raise _Refused(fact)


def _from_content(value: object) -> Calibration:
    version = value.get("format") if isinstance(value, dict) else None
    _check(type(version) is int, "is not a calibration")
    _check(version == FORMAT, f"has format version {version!r:.40}, this version reads {FORMAT}")
    content = _map(
        value,
        "format schema model artifact weights scoring prompt_version data seed fields checksum",
    )
    rows = content["fields"]
    _check(
        type(rows) is list and len(rows) <= MAX_FIELDS, "has something else where a list of fields belongs"
    )
    fields = tuple(map(_field, rows))
    _check(len({field.name for field in fields}) == len(fields), "names a field twice")
    scoring = _text(content["scoring"])
    _check(scoring in RULES, f"has the unknown scoring rule {scoring!r:.40}")
    calibration = Calibration(
        schema=_text(content["schema"]),
        model=_text(content["model"]),
        artifact=_digest(content["artifact"]),
        weights=_digest(content["weights"], optional=True),
        scoring=scoring,
        prompt_version=_text(content["prompt_version"]),
        data=_digest(content["data"], optional=True),
        seed=_count(content["seed"]),
        fields=fields,
    )
    _check(content["checksum"] == _checksum(_content(calibration)), "does not match its checksum")
    return calibration


def _field(value: object) -> FieldCalibration:
    content = _map(value, "name digest method temperature bias rows before after threshold")
    method = _text(content["method"])
    _check(method in METHODS, f"has the unknown method {method!r:.40}")
    bias = content["bias"]
    _check(type(bias) is list, "has something else where a list of biases belongs")
    _check(bool(bias) == (method in _WITH_BIAS), f"has biases that do not go with the method {method!r}")
    _check(not bias or MIN_CHOICES <= len(bias) <= MAX_CHOICES, "has a wrong number of biases")
    return FieldCalibration(
        name=_text(content["name"]),
        digest=_digest(content["digest"]),
        method=method,
        temperature=_number(content["temperature"], *TEMPERATURES),
        bias=tuple(_number(nats, -MAX_BIAS, MAX_BIAS) for nats in bias),
        rows=_count(content["rows"]),
        before=_figures(content["before"]),
        after=_figures(content["after"]),
        threshold=_threshold(content["threshold"]),
    )


def _figures(value: object) -> Figures | None:
    if value is None:
        return None
    content = _map(value, "rows accuracy log_loss brier ece")
    return Figures(
        rows=_count(content["rows"]),
        accuracy=_number(content["accuracy"], 0, 1),
        log_loss=_number(content["log_loss"], 0, MAX_LOG_LOSS),
        brier=_number(content["brier"], 0, 2),
        ece=_number(content["ece"], 0, 1),
    )


def _threshold(value: object) -> Threshold | None:
    if value is None:
        return None
    content = _map(value, "minimum precision confidence share rows")
    shares = {key: _number(content[key], 0, 1) for key in ("minimum", "precision", "confidence", "share")}
    return Threshold(**shares, rows=_count(content["rows"]))


def _map(value: object, keys: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Refused("has something else where an object belongs")
    _check(set(value) == set(keys.split()), "has unknown or missing keys")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Refused("has something else where text belongs")
    return value


def _digest(value: object, *, optional: bool = False) -> str:
    text = _text(value)
    _check(_SHA256.fullmatch(text) is not None or (optional and not text), "has a digest that is none")
    return text


def _count(value: object) -> int:
    if type(value) is not int:
        raise _Refused("has something else where a whole number belongs")
    _check(0 <= value < _MAX_COUNT, "has a number out of range")
    return value


def _number(value: object, lowest: float, highest: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Refused("has something else where a number belongs")
    # A whole number can be larger than any float: it is compared before it becomes one.
    _check(lowest <= value <= highest, "has a number out of range")
    return float(value)
