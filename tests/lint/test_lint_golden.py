"""Every rule on schemas of its own: `golden/lint/CODE/bad.json` gives `expected.txt`, `good.json` nothing.

Run this file as a script, with the tests' folder on the path, to write the expected files anew; then read the
difference before committing it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import lint_states
import pytest
from pcdc_runtime.models import DEFAULT

from pcdc.diagnostics import RULES, render_text
from pcdc.lint import (
    BUILT_INDEX_RULES,
    BUILT_RULES,
    COMPILED_RULES,
    INDEX_RULES,
    INDEXED_RULES,
    SCHEMA_RULES,
    UNBUILT_RULES,
    lint,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "lint"
LINT = sorted(code for code, rule in RULES.items() if rule.stage == "lint")
REGISTERED = [*SCHEMA_RULES, *COMPILED_RULES, *BUILT_RULES, *UNBUILT_RULES]
OF_INDEXES = [*INDEX_RULES, *INDEXED_RULES, *BUILT_INDEX_RULES]
"""Some of their codes are those of rules about schemas."""


def findings(code, name, place):
    """What a rule finds in its schema of that name; `place` is an empty working folder."""
    shutil.copytree(GOLDEN / code, place, dirs_exist_ok=True)
    source, out = Path(name), Path("build")
    if code in lint_states.BAD:
        prepare = lint_states.BAD[code] if name == "bad.json" else lint_states.good
        prepare(source, out)
    report = lint([source], [DEFAULT], out)
    assert not [d for d in report.diagnostics if d.severity == "error"]
    return [d for d in report.diagnostics if d.code == code]


@pytest.mark.parametrize("code", LINT)
def test_a_rule_finds_what_it_is_for(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = render_text(findings(code, "bad.json", tmp_path))
    assert text
    assert text == (GOLDEN / code / "expected.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", LINT)
def test_a_rule_leaves_alone_what_is_near_it(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert findings(code, "good.json", tmp_path) == []


def test_every_lint_code_has_a_rule_and_a_folder_and_no_other_has():
    codes = [rule.code for rule in REGISTERED]
    of_indexes = {rule.code for rule in OF_INDEXES} - {*codes}
    assert sorted([*codes, *of_indexes, "PCDC541"]) == LINT
    assert sorted(path.name for path in GOLDEN.iterdir()) == LINT


def write_expected():
    """Write every expected file from what lint finds now."""
    for code in LINT:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            text = render_text(findings(code, "bad.json", Path(folder)))
        (GOLDEN / code / "expected.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_expected()
