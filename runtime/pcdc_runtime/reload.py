"""Follows artifact files: a changed one is checked whole, then takes the old one's place between requests.

Nothing watches and nothing runs in the background. A file is looked at when a request starts.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from . import artifact as artifact_file
from .artifact import Artifact
from .bound import Bound, bind
from .errors import ArtifactError, PcdcError

if TYPE_CHECKING:
    from .loaded import LoadedModel

Stamp: TypeAlias = tuple[int, int, int, int, int]

SETTLE_S = 2.0
"""How long a file's stamp is not trusted after it was first seen: the coarsest clock of a file system.

Two writes within one tick of that clock leave the same stamp.
"""

logger = logging.getLogger("pcdc_runtime")


class ArtifactFile:
    """A path, and what was last seen there. For one thread at a time.

    With `schema`, an artifact of another schema is refused.
    """

    def __init__(self, path: Path, schema: str | None = None) -> None:
        self.path = path
        self.schema = schema
        self._stamp: Stamp | None = None
        self._since = 0.0
        self._settled = False
        self._content: str | None = None

    def read(self) -> Artifact:
        """The artifact that is there now. Raises ArtifactError."""
        return self._checked(self._bytes())

    def changed(self) -> Artifact | None:
        """The artifact, where the file holds other bytes than when last looked at, else None.

        Raises ArtifactError, once for the same fault in a row.
        """
        if self._settled and self._stamp == _stamp(self.path):
            return None
        before = self._content
        try:
            data = self._bytes()
        except ArtifactError:
            if self._content == before:
                return None
            raise
        return None if self._content == before else self._checked(data)

    def _bytes(self) -> bytes:
        # The stamp is taken first: a write after it leaves another one, and the file is read again.
        stamp, now = _stamp(self.path), monotonic()
        if stamp != self._stamp:
            self._stamp, self._since = stamp, now
        try:
            data = artifact_file.read_bytes(self.path)
        except ArtifactError as error:
            self._settled, self._content = False, str(error)
            raise
        self._settled = stamp is not None and now - self._since >= SETTLE_S
        self._content = hashlib.sha256(data).hexdigest()
        return data

    def _checked(self, data: bytes) -> Artifact:
        artifact = artifact_file.loads(data, str(self.path))
        if self.schema not in (None, artifact.name):
            raise ArtifactError(
                str(self.path),
                f"holds the schema {artifact.name!r} now",
                f"this engine answers {self.schema!r}",
                "ask the engine of that name",
            )
        return artifact


def _stamp(path: Path) -> Stamp | None:
    """What changes with a file's content even where its time is put back; None where there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Source:
    """What one engine answers from: an artifact once and for all, or the one that `file` holds.

    `bound` may be read from any thread. Raises what `bind` raises.
    """

    def __init__(
        self, artifact: Artifact, model: LoadedModel, node_budget: int, file: ArtifactFile | None
    ) -> None:
        self._model = model
        self._node_budget = node_budget
        self._file = file
        self.bound = bind(artifact, model, node_budget)

    def current(self) -> tuple[Bound, tuple[str, ...]]:
        """On the owner thread: what the next request is answered from, and a warning where a file is refused.

        A new artifact takes over the old one's KV, so its head is prefilled from their common prefix on.
        """
        if self._file is None:
            return self.bound, ()
        old = self.bound.artifact.digest
        try:
            artifact = self._file.changed()
            if artifact is not None and artifact.digest != old:
                self.bound = bind(artifact, self._model, self._node_budget)
                self._model.prefixes.hand_over(old, artifact.digest)
        except PcdcError as error:
            logger.warning("%s; the artifact %s stays in use", error, old[:12])
            return self.bound, (f"reload_refused: {error.subject}, {error.fact}",)
        return self.bound, ()
