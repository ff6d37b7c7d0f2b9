"""Follows artifact files: what changed is checked whole, then takes the old one's place between requests.

An artifact and the calibration beside it are taken as a pair. Nothing watches and nothing runs in the
background. Files are looked at when a request starts.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from . import calibration as calibration_file
from . import codec
from .artifact import Artifact
from .bound import bind
from .calibration import Calibration, calibration_path
from .errors import ArtifactError, PcdcError, sentence

if TYPE_CHECKING:
    from .bound import Bound
    from .loaded import LoadedModel

T = TypeVar("T")
Stamp: TypeAlias = tuple[int, int, int, int, int]

SETTLE_S = 2.0
"""How long a file's stamp is not trusted after it was first seen: the coarsest clock of a file system.

Two writes within one tick of that clock leave the same stamp.
"""
LOOKS = 8
"""How often two files are looked at in a row until neither changes; then the next request goes on."""

logger = logging.getLogger("pcdc_runtime")


@dataclass(frozen=True)
class Pair:
    """An artifact and what was beside it."""

    artifact: Artifact
    calibration: Calibration | None


class _File(Generic[T]):
    """A path, and what was last seen there. `read` gives None where no file is needed and none is there."""

    def __init__(self, path: Path, read: Callable[[Path], bytes | None], parse: Callable[[bytes], T]) -> None:
        self.path = path
        self.content: str | None = None
        self._read = read
        self._parse = parse
        self._stamp: Stamp | None = None
        self._since = 0.0
        self._settled = False
        self._seen: T | Exception | None = None

    @property
    def seen(self) -> T | Exception | None:
        """What the content is, or why it is refused."""
        return self._seen

    def look(self) -> bool:
        """Whether there is something else than when last looked."""
        if self._settled and self._stamp == stamp_of(self.path):
            return False
        before, self._settled = self.content, False
        # The stamp is taken first: a write after it leaves another one, and the file is read again.
        stamp, now = stamp_of(self.path), monotonic()
        if stamp != self._stamp:
            self._stamp, self._since = stamp, now
        try:
            data = self._read(self.path)
        except Exception as error:
            self.content, self._seen = repr(error), error
            return self.content != before
        content = "" if data is None else hashlib.sha256(data).hexdigest()
        if content != before:
            self.content, self._seen = content, None if data is None else self._parsed(data)
        # Where no file is, there is no stamp that a second write could share.
        self._settled = now - self._since >= SETTLE_S if data is not None else stamp is None
        return content != before

    def _parsed(self, data: bytes) -> T | Exception:
        # Whatever a file does to its reader, the engine goes on with what it has.
        try:
            return self._parse(data)
        except Exception as error:
            return error


class ArtifactFile:
    """The path of an artifact, and what was last seen there and beside it. For one thread at a time.

    With `schema`, an artifact of another schema is refused. Without `calibration`, what is beside it is not
    looked at.
    """

    def __init__(self, path: Path, schema: str | None = None, *, calibration: bool = False) -> None:
        self.path = path
        self.schema = schema
        self._artifact = _File(path, _artifact_bytes, self._checked)
        self._calibration = _calibration_file(calibration_path(path)) if calibration else None
        self._taken: tuple[str | None, ...] = ()
        self._told = ""

    def read(self) -> Pair:
        """What is there now. Raises ArtifactError, also where it never rests, and CalibrationError."""
        if not self._settle():
            raise ArtifactError(
                str(self.path),
                "is being replaced all the time",
                f"it and the calibration beside it were read {LOOKS} times and were others each time",
                "load it when nothing writes there",
            )
        pair = self._pair()
        self._taken = self._contents()
        return pair

    def changed(self) -> Pair | None:
        """What is there, where either file holds other bytes than when last taken, else None.

        Raises ArtifactError, CalibrationError and whatever else reading it raised, once for the same fault
        in a row.
        """
        if not self._settle() or self._contents() == self._taken:
            return None
        told, self._told = self._told, ""
        try:
            pair = self._pair()
        except Exception as error:
            faulty = self._artifact if error is self._artifact.seen else self._calibration
            self._told = f"{error!r}{None if faulty is None else faulty.content}"
            self._taken = self._contents()
            if self._told == told:
                return None
            raise
        self._taken = self._contents()
        return pair

    def _settle(self) -> bool:
        """Look until what was read of both files was there at one time; False where they never rest."""
        for _ in range(LOOKS):
            looked = [self._artifact.look(), self._calibration is not None and self._calibration.look()]
            if not any(looked) or self._fits():
                return True
        return False

    def _fits(self) -> bool:
        """Whether one look is enough: there is one file only, or both say that they belong together."""
        beside = None if self._calibration is None else self._calibration.seen
        artifact = self._artifact.seen
        if isinstance(beside, Calibration) and isinstance(artifact, Artifact):
            return beside.artifact == artifact.digest
        return True

    def _contents(self) -> tuple[str | None, ...]:
        beside = None if self._calibration is None else self._calibration.content
        return (self._artifact.content, beside)

    def _pair(self) -> Pair:
        artifact = self._artifact.seen
        beside = None if self._calibration is None else self._calibration.seen
        for seen in (artifact, beside):
            if isinstance(seen, Exception):
                raise seen
        assert isinstance(artifact, Artifact)
        assert not isinstance(beside, Exception)
        return Pair(artifact, beside)

    def _checked(self, data: bytes) -> Artifact:
        artifact = codec.loads(data, str(self.path))
        if self.schema not in (None, artifact.name):
            raise ArtifactError(
                str(self.path),
                f"holds the schema {artifact.name!r} now",
                f"this engine answers {self.schema!r}",
                "ask the engine of that name",
            )
        return artifact


def _artifact_bytes(path: Path) -> bytes:
    return codec.read_bytes(path)


def _calibration_file(path: Path) -> _File[Calibration]:
    return _File(path, calibration_file.read_bytes, partial(calibration_file.loads, subject=str(path)))


def stamp_of(path: Path) -> Stamp | None:
    """What changes with a file's content even where its time is put back; None where there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Source:
    """What one engine answers from: a pair once and for all, or the one that `file` holds.

    `bound` may be read from any thread. Raises what `bind` raises.
    """

    def __init__(self, pair: Pair, model: LoadedModel, node_budget: int, file: ArtifactFile | None) -> None:
        self._model = model
        self._node_budget = node_budget
        self._file = file
        self.bound: Bound = bind(pair.artifact, model, node_budget, pair.calibration)

    def current(self) -> tuple[Bound, tuple[str, ...]]:
        """On the owner thread: what the next request is answered from, and a warning where a file is refused.

        A new artifact takes over the old one's KV, so its head is prefilled from their common prefix on.
        """
        if self._file is None:
            return self.bound, ()
        old = self.bound.artifact.digest
        try:
            pair = self._file.changed()
            if pair is not None and pair != Pair(self.bound.artifact, self.bound.calibrated.calibration):
                self.bound = bind(pair.artifact, self._model, self._node_budget, pair.calibration)
                if pair.artifact.digest != old:
                    self._model.prefixes.hand_over(old, pair.artifact.digest)
        except PcdcError as error:
            logger.warning("%s; the artifact %s stays in use", error, old[:12])
            return self.bound, (f"reload_refused: {sentence(error.subject, error.fact)}",)
        except Exception as error:
            logger.warning("%s; the artifact %s stays in use", self._file.path, old[:12], exc_info=error)
            return self.bound, (f"reload_refused: {self._file.path} cannot be taken ({error!r:.200})",)
        return self.bound, ()
