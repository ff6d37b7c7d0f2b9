"""A folder of artifacts as a mapping of engines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from .errors import ArtifactError, PcdcError
from .reload import ArtifactFile, Pair

if TYPE_CHECKING:
    from .engine import Engine

logger = logging.getLogger("pcdc_runtime")


class Engines(Mapping[str, "Engine"]):
    """The artifacts below a folder as engines by schema name, each of which follows its file.

    Files that appear are found when an unknown name is asked for, and by iteration and `len`. A file that
    cannot be used is left out and logged, once; one that goes away keeps its engine; one whose model cannot
    be had is tried again. Hidden files and folders are not looked at. Safe to use from any thread.
    """

    def __init__(self, folder: Path, open_engine: Callable[[Pair, Path], Engine]) -> None:
        self.folder = folder
        self._open = open_engine
        self._lock = Lock()
        self._closed = False
        self._files: dict[Path, ArtifactFile] = {}
        self._homes: dict[str, Path] = {}
        self._engines: dict[str, Engine] = {}
        self._look()

    def __getitem__(self, schema: str) -> Engine:
        if schema not in self._engines:
            self._look()
        return self._engines[schema]

    def __iter__(self) -> Iterator[str]:
        self._look()
        return iter(tuple(self._engines))

    def __len__(self) -> int:
        self._look()
        return len(self._engines)

    def __repr__(self) -> str:
        return f"Engines({str(self.folder)!r}, schemas={list(self._engines)})"

    def close(self) -> None:
        """Close every engine and look at the folder no more."""
        with self._lock:
            self._closed = True
        for engine in self._engines.values():
            engine.close()

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> None:
        with self._lock:
            paths = () if self._closed else sorted(self.folder.rglob("*.pcdc"))
            for path in paths:
                if not any(part.startswith(".") for part in path.relative_to(self.folder).parts):
                    self._look_at(path)

    def _look_at(self, path: Path) -> None:
        file = self._files.setdefault(path, ArtifactFile(path))
        try:
            pair = file.changed()
            if pair is None or self._homes.get(pair.artifact.name) == path:
                return
            artifact = pair.artifact
            if artifact.name in self._homes:
                raise ArtifactError(
                    str(path),
                    f"holds the schema {artifact.name!r}, as {self._homes[artifact.name]} does",
                    "a folder has one engine for a schema",
                    "load it by its path, or keep one folder a model",
                )
            self._engines[artifact.name] = self._open(pair, path)
            self._homes[artifact.name] = path
        except ArtifactError as error:
            logger.warning("%s", error)
        except PcdcError as error:
            # Not the file's fault, a model that cannot be fetched now: look again next time.
            del self._files[path]
            logger.warning("%s", error)
        except Exception as error:
            # One file that breaks its reader must not keep the others from being found.
            logger.warning("%s cannot be used", path, exc_info=error)
