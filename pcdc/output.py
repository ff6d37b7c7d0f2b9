"""Where artifacts are written: names that every file system takes, and the build log."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from pcdc_runtime.indexed.codec import SUFFIX_INDEX

SUFFIX = ".pcdc"
NOUNS = {SUFFIX: "schema", SUFFIX_INDEX: "index"}
"""How the names of what a build writes end, and the kind of definition that each is made from."""
LOG_NAME = "log.jsonl"
OLD_LOG_NAME = "log.old.jsonl"
MAX_LOG = 4 * 1024 * 1024
MAX_PART = 80
RESERVED = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)


def safe_part(text: str) -> str:
    """One component of a file name that every file system takes, holding only `[a-z0-9._-]`.

    Where that changes the text, 8 digest characters keep it apart from others that reduce to the same.
    """
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    reduced = re.sub(r"[^a-z0-9._-]+", "-", folded).strip(".-")[:MAX_PART]
    if reduced.split(".")[0] in RESERVED:
        reduced = reduced.replace(".", "-")
    elif reduced == text != "":
        return text
    return f"{reduced or 'unnamed'}-{short_digest(text)}"


def short_digest(text: str) -> str:
    """The 8 digest characters that keep two names apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def artifact_names(sources: Sequence[tuple[PurePath, str, str]]) -> list[PurePath]:
    """Relative artifact paths for `(path below its root without suffix, model, source as given)`.

    The folders of the relative path are mirrored. Where two would share a name, also by case or by where
    the dot between schema and model stands, both get digest characters of their source: of its path below
    the folder that they share, so that it does not matter how and from where a path is spelled.
    """
    plain = [_named(relative, model) for relative, model, _ in sources]
    taken = Counter(plain)
    places: dict[PurePath, list[str]] = {}
    for name, (_, _, source) in zip(plain, sources, strict=True):
        if taken[name] > 1:
            places.setdefault(name, []).append(os.path.realpath(source))
    return [
        name
        if taken[name] == 1
        else _named(relative, model, short_digest(f"{_below(source, places[name])}\0{model}"))
        for name, (relative, model, source) in zip(plain, sources, strict=True)
    ]


def plain_name(relative: PurePath, model: str) -> PurePath:
    """The path that an artifact has where no other is in its way."""
    return _named(relative, model)


def _below(source: str, places: Sequence[str]) -> str:
    top = os.path.commonpath([str(PurePath(place).parent) for place in places])
    return PurePath(os.path.relpath(os.path.realpath(source), top)).as_posix()


def _named(relative: PurePath, model: str, digest: str = "") -> PurePath:
    # A path that is only a dot has no parts.
    *folders, schema = relative.parts or (".",)
    stem = f"{safe_part(schema)}-{digest}" if digest else safe_part(schema)
    return PurePath(*map(safe_part, folders), f"{stem}.{safe_part(model)}{SUFFIX}")


def append_log(folder: Path, line: Mapping[str, object]) -> None:
    """Add one line to the folder's build log. Raises OSError. Nothing reads it but people.

    A log of MAX_LOG bytes becomes the old log, in place of the one before: watching for months fills no disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_NAME
    with suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG:
            log.replace(folder / OLD_LOG_NAME)
    # What is no Unicode comes only from file names; this is how JSON spells it.
    data = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
