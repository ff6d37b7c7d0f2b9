"""Which definitions there are: the files that paths name, and those in the folders below them."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from pcdc_runtime.calibration import calibration_path

from .diagnostics import Diagnostic, finding
from .output import SUFFIX
from .parse import catalogs_of

NOT_SOURCES = frozenset({"catalogs", "examples"})
_CALIBRATION = calibration_path(SUFFIX).name


@dataclass(frozen=True)
class Source:
    """A schema file, and its place below the folder it was found in, without suffix."""

    path: Path
    relative: PurePath


def find_sources(paths: Sequence[Path], out: Path) -> tuple[list[Source], list[Diagnostic]]:
    """The schema files that `paths` name: files as they are, folders with every definition below them."""
    sources: dict[Path, Source] = {}
    findings = []
    for path in paths:
        fault = _fault(path)
        if fault:
            found = []
            findings.append(finding("PCDC612", None, str(path), fault, help="check the path"))
        elif path.is_dir():
            unlisted: list[OSError] = []
            below = [p for _, files in source_folders(path, out, unlisted.append) for p in files]
            found = [Source(p, p.relative_to(path).with_suffix("")) for p in below]
            findings += map(_unlisted, unlisted)
            if not found and not unlisted:
                findings.append(
                    finding(
                        "PCDC612", None, str(path), "has no schema below it", help="put a .json schema there"
                    )
                )
        elif path.is_file():
            found = [Source(path, PurePath(path.stem))]
        else:
            found = []
            help = "write the definition to a file first"
            findings.append(finding("PCDC101", None, str(path), "is not a regular file", help=help))
        for source in found:
            sources.setdefault(real(source.path), source)
    return _definitions(sources), findings


def real(path: Path) -> Path:
    """Where a path leads; a loop of links, and what can be no path, lead to themselves."""
    # `Path.resolve` raises an error for both.
    return path if "\0" in str(path) else Path(os.path.realpath(path))


def _fault(path: Path) -> str:
    """Why nothing can be found at a path, if that is so."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    return ""


def _definitions(sources: Mapping[Path, Source]) -> list[Source]:
    """Without the files that others name as their catalog, unless they name catalogs themselves."""
    uses = {place: catalogs_of(source.path) for place, source in sources.items()}
    named = {real(use.path) for found in uses.values() for use in found if use.path is not None}
    return [source for place, source in sources.items() if place not in named or uses[place]]


def source_folders(
    top: Path, out: Path, unlisted: Callable[[OSError], None] | None = None
) -> Iterator[tuple[Path, list[Path]]]:
    """The folders at and below `top` that may hold definitions, each once with those in it.

    Links to folders are followed after all that is not behind one, so that a folder has its own name where
    it has one. `unlisted` is told of each folder that cannot be listed.
    """
    seen = {real(out)} - {real(top)}
    waiting = deque([top])
    while waiting:
        for name, below, files in os.walk(waiting.popleft(), onerror=unlisted):
            folder = Path(name)
            if real(folder) in seen:
                below.clear()
                continue
            seen.add(real(folder))
            below[:] = sorted(n for n in below if n not in NOT_SOURCES and not n.startswith("."))
            waiting += [folder / n for n in below if (folder / n).is_symlink()]
            below[:] = [n for n in below if not (folder / n).is_symlink()]
            definitions = (folder / n for n in sorted(files) if _may_be_definition(n))
            yield folder, [path for path in definitions if _may_be_read(path)]


def _may_be_definition(name: str) -> bool:
    # Beside artifacts, where these and definitions share a folder, there are calibrations.
    return name.endswith(".json") and not name.startswith(".") and not name.endswith(_CALIBRATION)


def _may_be_read(path: Path) -> bool:
    """Whether it is a file, or nothing that can be looked at, which reading it will tell."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _unlisted(error: OSError) -> Diagnostic:
    fact = f"cannot be listed ({error.strerror or error})"
    return finding("PCDC101", None, str(error.filename), fact, "", "check the folder's permissions")
