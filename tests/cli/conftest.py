"""A whole tiny model folder, a schema, and the command line to run on them."""

from __future__ import annotations

import json
import subprocess

import pytest
from command_line import ENVIRONMENT, PROGRAM
from tiny import write_tiny
from typer.testing import CliRunner

from pcdc.cli import app

DEFINITION = {
    "department": {
        "type": "enum",
        "description": "Which department handles this?",
        "choices": ["BILLING", "BILLING_DISPUTE", "TECH", "a b)"],
    },
    "urgent": {"type": "boolean", "description": "Is it urgent?"},
}
CATALOG = "code,name\nA01,Aspirin\nA02,Acetaminophen\nB01,Warfarin\nB02,Warfarin sodium\nC01,Metformin\n"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A seeded two-layer model with a real tokenizer, as an mlx-lm folder."""
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def artifact(tiny, tmp_path_factory):
    """The definition above, built for the tiny model through the command line."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "support.json").write_text(json.dumps(DEFINITION), encoding="utf-8")
    done = CliRunner().invoke(
        app, ["build", str(folder / "support.json"), "--model", str(tiny), "--out", str(folder)]
    )
    assert done.exit_code == 0, done.output
    return folder / "support.tiny.pcdc"


@pytest.fixture(scope="session")
def index(tiny, tmp_path_factory):
    """A catalog with ids, indexed for the tiny model through the command line."""
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "drugs.csv").write_text(CATALOG, encoding="utf-8")
    columns = ["--id", "code", "--value", "name", "--question", "Which drug is it?"]
    example = ["--example", "he took aspirin => Aspirin"]
    call = [
        "index",
        str(folder / "drugs.csv"),
        *columns,
        *example,
        "--model",
        str(tiny),
        "--out",
        str(folder),
    ]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    (path,) = folder.glob("*.pcdx")
    return path


@pytest.fixture
def pcdc():
    """Runs the command line in this process."""

    def invoke(*arguments, **more):
        return CliRunner().invoke(app, [str(a) for a in arguments], **more)

    return invoke


@pytest.fixture
def program():
    """Runs the command line as a process of its own."""

    def call(*arguments, **more):
        command = [*PROGRAM, *map(str, arguments)]
        usual = {"env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.run(command, check=False, **(usual | more))

    return call
