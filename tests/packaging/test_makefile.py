"""The Makefile's promises, read from a dry run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pcdc_runtime import embedded

from pcdc.bench import published

ROOT = Path(__file__).resolve().parents[2]
DEMO = [
    "pcdc build schemas/ --model smollm2-135m",
    "pcdc run build/support_triage.smollm2-135m.pcdc --context schemas/examples/support_triage.1.txt",
]


def dry_run(target, folder=ROOT, *settings):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "-n", target, *settings],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout.splitlines()


@pytest.fixture
def fresh(tmp_path):
    """A folder as after a clone, where nothing is installed."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_the_demo_runs_the_two_commands_that_the_readme_states():
    assert dry_run("demo")[-2:] == DEMO
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(command in readme for command in DEMO)


def test_every_target_for_people_is_explained_and_can_be_run():
    (phony,) = (line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if ".PHONY" in line)
    targets = set(phony.split()[1:]) - {"help"}
    assert targets == {line.split()[2] for line in dry_run("help")}
    assert all(dry_run(target) for target in targets)


def test_the_benchmark_of_large_catalogs_is_a_script_of_the_repository(fresh):
    assert dry_run("bench-large")[-1] == "python benchmarks/large.py"
    assert any("[dev,mkl]" in line for line in dry_run("bench-large", fresh))
    assert (ROOT / "benchmarks" / "large.py").is_file()


def test_a_second_run_installs_nothing(fresh):
    assert any("pip" in line for line in dry_run("test", fresh))
    stamp = fresh / ".venv" / ".ready"
    stamp.parent.mkdir()
    stamp.touch()
    assert not [line for line in dry_run("test", fresh) if "pip" in line]


def test_the_python_can_be_chosen(fresh):
    assert "/opt/python -m venv .venv" in dry_run("test", fresh, "PYTHON=/opt/python")


@pytest.mark.parametrize("requirement", [embedded.REQUIREMENT, published.REQUIREMENT])
def test_what_comes_without_its_dependencies_is_pinned(fresh, requirement):
    (line,) = (line for line in dry_run("demo", fresh) if requirement.partition("==")[0] in line)
    assert "--no-deps" in line
    assert f"'{requirement}'" in line


def test_nothing_names_a_package_index():
    for file in (ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"):
        assert "index-url" not in file.read_text(encoding="utf-8")
        assert "--registry" not in file.read_text(encoding="utf-8")
