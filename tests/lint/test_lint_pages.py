"""The pages of the lint rules: each has an example that breaks its rule and one that does not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import lint_states
import pytest
from pcdc_runtime.models import DEFAULT

from pcdc.diagnostics import RULES, render_text
from pcdc.lint import lint

PAGES = Path(__file__).resolve().parents[2] / "pcdc" / "lint" / "rules"
LINT = {code for code, rule in RULES.items() if rule.stage == "lint"}
OLDER = {"PCDC218", "PCDC251", "PCDC252", "PCDC254"}
"""Rules that `pcdc build` tells as well."""
CODES = sorted(path.stem for path in PAGES.glob("PCDC*.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections(code):
    """The text of a page by heading; what stands before the first one is under its title."""
    parts = re.split(r"^#{1,2} (.*)$", (PAGES / f"{code}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def found(section, code, place, prepare=None):
    """Codes that lint finds in a section's example."""
    source, out = place / "schema.json", place / "build"
    for language, body in _BLOCK.findall(section):
        if language == "json":
            source.write_text(body, encoding="utf-8")
        elif code not in lint_states.BAD:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["bash", "-ec", body], cwd=place, env=os.environ | {"PATH": path}, check=True)
    if prepare:
        prepare(source, out)
    return {d.code for d in lint([source], [DEFAULT], out).diagnostics}


def test_every_rule_has_a_page():
    assert set(CODES) == LINT | OLDER


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_what_why_and_what_instead(code):
    parts = sections(code)
    assert list(parts) == [
        f"{code}: {RULES[code].title}",
        "Why it hurts",
        "Example",
        "Use instead",
        "Leave it out",
    ]
    assert all(text.strip() for text in parts.values())


@pytest.mark.parametrize("code", CODES)
def test_a_pages_example_breaks_its_rule(code, tmp_path):
    assert code in found(sections(code)["Example"], code, tmp_path, lint_states.BAD.get(code))


@pytest.mark.parametrize("code", sorted(set(CODES) - set(lint_states.BAD)))
def test_what_a_page_advises_keeps_its_rule(code, tmp_path):
    codes = found(sections(code)["Use instead"], code, tmp_path)
    assert (tmp_path / "schema.json").exists()
    assert code not in codes


@pytest.mark.parametrize("code", sorted(lint_states.BAD))
def test_what_is_built_and_evaluated_keeps_the_rules_about_it(code, tmp_path):
    assert code not in found(sections(code)["Example"], code, tmp_path, lint_states.good)


@pytest.mark.parametrize("code", sorted(lint_states.BAD))
def test_a_message_on_a_page_is_what_lint_says(code, tmp_path, monkeypatch):
    example = sections(code)["Example"]
    monkeypatch.chdir(tmp_path)
    found(example, code, Path(), lint_states.BAD[code])
    told = lint([Path("schema.json")], [DEFAULT], Path("build")).diagnostics
    for language, body in _BLOCK.findall(example):
        assert language != "text" or body == render_text(d for d in told if d.code == code)


def test_the_list_of_pages_is_that_of_the_registry():
    rows = [f"| [{code}]({code}.md) | {RULES[code].title} | {RULES[code].severity} |" for code in CODES]
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[.*$", text, re.MULTILINE) == rows
