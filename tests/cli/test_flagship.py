"""The published call, from nothing to an answer: `pcdc build schemas/ --model qwen2.5-1.5b`, then `pcdc run`.

Everything but the weights is real: the alias, a hub that is asked over HTTP, the whole Qwen tokenizer with
its template, the example definitions, a process of its own for each call. The weights are seeded and tiny.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import ENVIRONMENT, PROGRAM, ROOT
from families import family_folder
from hub import serving
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.codec import read
from pcdc_runtime.indexed.codec import open_index
from pcdc_runtime.models import ALIASES
from seeded import write_folder

ALIAS = "qwen2.5-1.5b"
QWEN_VOCABULARY = 151936
SCHEMAS = ["code_audit", "fraud_routing", "support_triage", "tariff_classification"]
INDEX = "software_license"
DEFINITIONS = sorted([*SCHEMAS, INDEX])
TOKENIZER_FILES = {"config.json", "tokenizer.json", "tokenizer_config.json"}
WEIGHTS = "model.safetensors"


@dataclass
class Machine:
    """A folder with the example schemas, and caches that hold nothing yet."""

    folder: Path

    def pcdc(self, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            k: v for k, v in ENVIRONMENT.items() if not k.startswith("HF_") and "proxy" not in k.lower()
        }
        own = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(self.folder / "hf"),
            "PCDC_CACHE": str(self.folder / "cache"),
        }
        return subprocess.run(
            [*PROGRAM, *arguments],
            env=inherited | own,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )


@dataclass
class Story:
    """What each call printed, and what the hub was asked meanwhile."""

    machine: Machine
    build: subprocess.CompletedProcess[str]
    asked_by_build: list[str]
    rebuild: subprocess.CompletedProcess[str]
    table: subprocess.CompletedProcess[str]
    answer: subprocess.CompletedProcess[str]
    asked_by_runs: list[str]
    offline: subprocess.CompletedProcess[str]

    @property
    def triage(self) -> Artifact:
        """The artifact that the runs answer."""
        return read(self.machine.folder / "build" / f"support_triage.{ALIAS}.pcdc")


def new_machine(folder):
    shutil.copytree(ROOT / "schemas", folder / "schemas")
    return Machine(folder)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    root = tmp_path_factory.mktemp("hub")
    model = root / ALIASES[ALIAS]
    write_folder(model, "qwen2", "float16", bits=4, vocab_size=QWEN_VOCABULARY, max_position_embeddings=32768)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(family_folder("qwen3", full=True) / name, model)
    machine = new_machine(tmp_path_factory.mktemp("machine"))
    build = ["build", "schemas/", "--model", ALIAS]
    run = ["run", f"build/support_triage.{ALIAS}.pcdc", "--context", "schemas/examples/support_triage.1.txt"]
    with serving(root) as hub:
        built, asked_by_build = machine.pcdc(hub.endpoint, *build), list(hub.requests)
    rebuilt = machine.pcdc(hub.endpoint, *build, "--explain")
    with serving(root) as hub:
        table = machine.pcdc(hub.endpoint, *run)
        answer, asked_by_runs = machine.pcdc(hub.endpoint, *run, "--json"), list(hub.requests)
    offline = machine.pcdc(hub.endpoint, *run, "--json")
    return Story(machine, built, asked_by_build, rebuilt, table, answer, asked_by_runs, offline)


def bodies(requests):
    """Names of the files that were sent, in order."""
    return [line.rpartition("/")[2] for line in requests if line.startswith("GET ") and "/resolve/" in line]


def test_build_downloads_the_tokenizer_and_asks_for_no_weights(story):
    assert story.build.returncode == 0, story.build.stderr
    assert sorted(bodies(story.asked_by_build)) == sorted(TOKENIZER_FILES)
    assert not [line for line in story.asked_by_build if "safetensors" in line]
    assert {
        line.split()[1].partition("/resolve/")[0] for line in story.asked_by_build if "resolve" in line
    } == {ALIASES[ALIAS]}


def test_build_writes_what_every_example_becomes(story):
    out = story.machine.folder / "build"
    assert sorted(path.name for path in out.glob("*.pcdc")) == [f"{name}.{ALIAS}.pcdc" for name in SCHEMAS]
    assert [path.name for path in out.glob("*.pcdx")] == [f"{INDEX}.{ALIAS}.pcdx"]
    assert [line.split()[0] for line in story.build.stdout.splitlines()] == ["built"] * len(DEFINITIONS)
    for name in SCHEMAS:
        artifact = read(out / f"{name}.{ALIAS}.pcdc")
        assert (artifact.name, artifact.model) == (name, ALIAS)
        assert artifact.largest_id < QWEN_VOCABULARY
        assert "<|im_start|>" in artifact.prompt_text
    index = open_index(out / f"{INDEX}.{ALIAS}.pcdx")
    assert (index.name, index.model) == (INDEX, ALIAS)
    assert index.largest_id < QWEN_VOCABULARY


def test_a_second_build_without_the_hub_changes_nothing_and_says_why(story):
    assert story.rebuild.returncode == 0, story.rebuild.stderr
    lines = story.rebuild.stdout.splitlines()
    assert [line.split()[0] for line in lines[::2]] == ["fresh"] * len(DEFINITIONS)
    assert [line.strip() for line in lines[1::2]] == [
        f"schemas/{name}.json: no input changed" for name in DEFINITIONS
    ]


def test_run_downloads_the_weights_once(story):
    assert story.table.returncode == 0, story.table.stderr
    assert bodies(story.asked_by_runs) == [WEIGHTS]


def test_run_shows_every_field_in_a_table(story):
    header, *rows, about = story.table.stdout.splitlines()
    assert header.split()[:3] == ["field", "value", "probability"]
    assert [row.split()[0] for row in rows] == [field.name for field in story.triage.fields]
    assert f"model {ALIAS}" in about


def test_run_answers_every_field_with_one_of_its_choices(story):
    artifact, answer = story.triage, json.loads(story.answer.stdout)
    assert story.answer.returncode == 0
    assert answer["schema_match"]
    assert answer["model"] == ALIAS
    assert answer["artifact_digest"] == artifact.digest
    assert answer["sequential_forward_passes"] == 2
    for field in artifact.fields:
        assert answer["parsed_json"][field.name]["value"] in [c.value for c in field.candidates]
        shown = answer["field_telemetry"][field.name]["top_choices"]
        assert sum(choice["probability"] for choice in shown) == pytest.approx(1, abs=1e-6)


def test_without_the_hub_the_same_answer_comes_again(story):
    assert story.offline.returncode == 0, story.offline.stderr
    again, first = (json.loads(done.stdout)["parsed_json"] for done in (story.offline, story.answer))
    assert {name: a["value"] for name, a in again.items()} == {name: a["value"] for name, a in first.items()}
    assert [a["prob"] for a in again.values()] == pytest.approx([a["prob"] for a in first.values()], abs=1e-4)


def test_with_no_hub_and_nothing_cached_a_build_says_so_and_writes_nothing(tmp_path):
    machine = new_machine(tmp_path)
    with serving(tmp_path) as hub:
        gone = hub.endpoint
    done = machine.pcdc(gone, "build", "schemas/", "--model", ALIAS)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("error[") == 1
    assert ALIAS in done.stderr
    assert "help: connect once" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "build").exists()
