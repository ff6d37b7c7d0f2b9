"""README.md taken apart: its blocks, its tables, and when a shown output is the real one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
ELLIPSIS = "..."

_BLOCK = re.compile(
    r"^(?:<!-- (?P<key>file|exit): (?P<argument>\S+) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# What differs from machine to machine, and from run to run, each with what takes its place.
_VARYING = (
    (re.compile(r"\b\d+(?:\.\d+)? ms\b"), "# ms"),
    (re.compile(r"(?<![\w.=-])\d+\.\d+(?![\w.-])"), "#"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "#"),
    # A column of numbers is as wide as its numbers; whether a note stands there depends on the number.
    (re.compile(r"(?<=#) {2,}"), "  "),
    (re.compile(r"(?<=#)  below #$", re.MULTILINE), ""),
    # `pcdc doctor`: what this machine has. `pcdc models`: what it holds.
    (re.compile(r"^(\S.*?  +)\S.*?  +ok$", re.MULTILINE), r"\1#  ok"),
    (re.compile(r"^(\S+ +\S+ +)(?:yes|no)$", re.MULTILINE), r"\1#"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block, with what the comment above it says: the file it is, or its exit code."""

    language: str
    body: str
    file: str | None
    exit_code: int


@dataclass(frozen=True)
class Call:
    """One command with the output that the page shows for it, stdout and stderr as they came."""

    command: str
    shown: str
    exit_code: int


def blocks(page: str) -> list[Block]:
    """Every fenced block in order."""
    return [
        Block(
            language=match["language"],
            body=match["body"],
            file=match["argument"] if match["key"] == "file" else None,
            exit_code=int(match["argument"]) if match["key"] == "exit" else 0,
        )
        for match in _BLOCK.finditer(page)
    ]


def calls(block: Block) -> list[Call]:
    """The commands of a console block; all but the last end with 0."""
    before, *parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)
    assert not before, f"output without a command: {before!r}"
    split = [part.partition("\n") for part in parts]
    codes = [0] * (len(split) - 1) + [block.exit_code]
    return [Call(command, shown, code) for (command, _, shown), code in zip(split, codes, strict=True)]


def normalised(output: str) -> list[str]:
    """Lines without what may differ from machine to machine."""
    for pattern, instead in _VARYING:
        output = pattern.sub(instead, output)
    return [line.rstrip() for line in output.strip("\n").split("\n")]


def shows(shown: str, real: str) -> bool:
    """Whether a shown output is the real one; a line of three dots stands for any lines, or for none."""
    left = normalised(real)
    first, *others = _runs(normalised(shown))
    if not others:
        return left == first
    if left[: len(first)] != first:
        return False
    left = left[len(first) :]
    *middle, last = others
    for run in middle:
        at = next((n for n in range(len(left) - len(run) + 1) if left[n : n + len(run)] == run), None)
        if at is None:
            return False
        left = left[at + len(run) :]
    return len(left) >= len(last) and left[len(left) - len(last) :] == last


def _runs(lines: Sequence[str]) -> list[list[str]]:
    runs: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == ELLIPSIS:
            runs.append([])
        else:
            runs[-1].append(line)
    return runs


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level, _, _ = heading.partition(" ")
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", page, re.M | re.S)
    assert found, heading
    return found[1]


def table_rows(text: str) -> Iterator[list[str]]:
    """The cells of the only table in a text, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code_spans(text: str) -> list[str]:
    """What stands between single backquotes, line breaks taken as blanks."""
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
