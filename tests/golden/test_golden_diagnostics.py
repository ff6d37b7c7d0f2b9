"""Diagnostics of whole files, byte for byte: `definitions/NAME` gives `expected/NAME.txt` and `.json`.

Run this file as a script to write the expected files anew; then read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcdc.diagnostics import render_json, render_text
from pcdc.indexing.parse import parse_index_file
from pcdc.parse import is_index_file, parse_file

GOLDEN = Path(__file__).resolve().parent
CASES = sorted(path.name for path in (GOLDEN / "definitions").iterdir() if path.is_file())


def outputs(name):
    """The rendered diagnostics of a case by file name; call it from the folder of definitions."""
    parse = parse_index_file if is_index_file(Path(name)) else parse_file
    _, diagnostics = parse(Path(name))
    return {f"{name}.txt": render_text(diagnostics), f"{name}.json": render_json(diagnostics)}


@pytest.mark.parametrize("name", CASES)
def test_diagnostics_are_the_golden_ones(name, monkeypatch):
    monkeypatch.chdir(GOLDEN / "definitions")
    for file, text in outputs(name).items():
        assert text.encode() == (GOLDEN / "expected" / file).read_bytes()


def test_every_expected_file_belongs_to_a_case():
    expected = {path.name for path in (GOLDEN / "expected").iterdir()}
    assert expected == {f"{name}.{ending}" for name in CASES for ending in ("txt", "json")}


def write_expected():
    """Write every expected file from what the compiler says now."""
    os.chdir(GOLDEN / "definitions")
    (GOLDEN / "expected").mkdir(exist_ok=True)
    for name in CASES:
        for file, text in outputs(name).items():
            (GOLDEN / "expected" / file).write_bytes(text.encode())


if __name__ == "__main__":
    write_expected()
