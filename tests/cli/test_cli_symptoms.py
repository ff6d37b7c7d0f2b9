"""README's "When something looks wrong": each row's commands, run on a case that has the fault."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

import pytest
from fakes import result_of
from pcdc_runtime import blas
from pcdc_runtime.result import FieldResult
from readme_blocks import PAGE, code_spans, section, table_rows

SAME_ANSWER = "every field gives the same answer"
EVEN = "probabilities are nearly even"
FIRST_WORD = "a choice of several words ends as its first word"
BOOLEAN = "validation fails on a boolean"
SLOW = "slower than expected"
UNLISTED = "a value that is not in the list"


@dataclass(frozen=True)
class Row:
    """A row's commands in order, and what else it names as code."""

    commands: tuple[str, ...]
    named: tuple[str, ...]


def rows():
    found = {}
    for symptom, where, what in table_rows(section(PAGE, "## When something looks wrong")):
        spans = code_spans(where) + code_spans(what)
        commands = tuple(span for span in spans if span.startswith("pcdc "))
        found[symptom] = Row(commands, tuple(span for span in spans if span not in commands))
    return found


ROWS = rows()


@pytest.fixture
def built(pcdc, tiny, tmp_path):
    """Builds a definition for the tiny model, through the command line."""

    def build(definition, name="case"):
        (tmp_path / f"{name}.json").write_text(json.dumps(definition), encoding="utf-8")
        done = pcdc("build", tmp_path / f"{name}.json", "--model", tiny, "--out", tmp_path)
        assert done.exit_code == 0, done.output
        return tmp_path / f"{name}.tiny.pcdc"

    return build


@pytest.fixture
def follow(pcdc, tiny, tmp_path):
    """Runs a command of the table on an artifact and a text, and gives its stdout."""

    def call(command, artifact, text="My invoice is wrong."):
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
        stands_for = {"ARTIFACT": artifact, "FILE": tmp_path / "text.txt"}
        words = [stands_for.get(word, word) for word in shlex.split(command)[1:]]
        done = pcdc(*words, "--model", tiny)
        assert done.exit_code == 0, done.output
        return done.stdout

    return call


def shown_rows(table):
    """Value, probability and margin of each field of a run's table."""
    parts = (re.split(r"  +", line) for line in table.splitlines()[1:-1])
    return {name: (value, float(prob), float(margin)) for name, value, prob, _, margin, *_ in parts}


def test_every_symptom_of_the_table_has_a_test_here():
    assert set(ROWS) == {SAME_ANSWER, EVEN, FIRST_WORD, BOOLEAN, SLOW, UNLISTED}


def test_fields_that_all_answer_alike_show_a_missing_question_and_their_tokens(built, follow):
    scale = {"type": "enum", "choices": ["low", "medium", "high"]}
    question = "How angry is the writer?"
    artifact = built({"anger": {**scale, "description": question}, "urgency": scale})
    see_prompt, see_tokens = ROWS[SAME_ANSWER].commands
    asked = follow(see_prompt, artifact)
    anger, urgency = asked.split('{"urgency": "low"}')[0], asked.split('{"anger": "high"}')[1]
    assert question in anger
    assert urgency.strip().startswith('{"urgency": "low"}')
    picture = follow(see_tokens, artifact)
    tokens = {label: re.search(rf"^{label} .*?(:\d.*)  ", picture, re.M)[1] for label in scale["choices"]}
    assert len({tuple(re.findall(r":(\d+)", ids)) for ids in tokens.values()}) == 3


def test_even_probabilities_that_come_from_the_temperature_part_at_a_lower_one(built, follow):
    definition = {"tone": {"type": "enum", "choices": ["calm", "angry", "sad"], "description": "Which tone?"}}
    even = built({**definition, "x-pcdc": {"temperature": 50}})
    (command,) = ROWS[EVEN].commands
    as_built = shown_rows(follow(command.partition(" --temperature")[0], even))["tone"]
    cooler = shown_rows(follow(command, even))["tone"]
    assert as_built[1] == pytest.approx(1 / 3, abs=0.1)
    assert cooler[1] > 0.5
    assert (cooler[0], cooler[2]) == (as_built[0], as_built[2])


def test_a_choice_of_several_tokens_shows_its_trie_and_trie_can_answer_otherwise_than_joint(built, follow):
    labels = [
        "escalate",
        "escalate to the manager",
        "answer by mail",
        "wait for an answer",
        "refund",
        "repair",
    ]
    artifact = built({"step": {"type": "enum", "choices": labels, "description": "What comes next?"}})
    see_tokens, see_trie = ROWS[FIRST_WORD].commands
    picture = follow(see_tokens, artifact)
    heading, no = "single token", "no"
    assert {heading, no, "trie", "joint"} == set(ROWS[FIRST_WORD].named)
    assert re.search(rf"^choice +tokens +{heading} ", picture, re.M)
    assert re.search(rf"^escalate to the manager .* {no} +1$", picture, re.M)
    assert "└── " in picture
    see_joint = see_trie.replace("--scoring trie", "--scoring joint")
    answers = [
        [shown_rows(follow(command, artifact, text))["step"][0] for command in (see_joint, see_trie)]
        for text in ("ticket", "Nobody answers.", "My invoice is wrong.")
    ]
    assert any(joint != trie for joint, trie in answers)


def test_a_boolean_is_native_in_the_json(follow, artifact):
    (command,) = ROWS[BOOLEAN].commands
    raw = follow(command, artifact)
    value = json.loads(raw)["parsed_json"]["urgent"]["value"]
    assert isinstance(value, bool)
    assert {"true", "false"} == set(ROWS[BOOLEAN].named)
    assert f'"value": {str(value).lower()}' in raw


def test_a_slow_request_shows_where_its_time_and_its_tokens_go(built, follow, pcdc, monkeypatch):
    see_run, see_floor, see_machine = ROWS[SLOW].commands

    def scale(count):
        words = [f"level {n}" for n in range(count)]
        return {"scale": {"type": "enum", "choices": words, "description": "Which level?"}}

    small = json.loads(follow(see_run, built(scale(3), "small")))
    large = json.loads(follow(see_run, built(scale(200), "large"), text="word " * 500))
    assert set(ROWS[SLOW].named) <= set(small)
    assert large["nodes"] > small["nodes"] + 150
    assert large["context_tokens"] > small["context_tokens"] + 400
    assert min(large["prefill_ms"], large["suffix_eval_ms"], small["suffix_eval_ms"]) > 0
    assert small["prefill_ms"] == 0
    assert "x above the floor" in follow(see_floor, built(scale(3), "small"))
    monkeypatch.setattr(blas, "load_fast_blas", lambda: blas.Blas("reference", None))
    done = pcdc(*shlex.split(see_machine)[1:])
    assert done.exit_code == 1
    assert re.search(r"^BLAS +reference \(slow: install .*!$", done.stdout, re.M)


def test_a_value_that_is_not_in_the_list_could_not_pass_the_schema_match(follow, artifact):
    (command,) = ROWS[UNLISTED].commands
    (named,) = ROWS[UNLISTED].named
    result = json.loads(follow(command, artifact))
    assert result[named] is True
    listed = [top["choice"] for top in result["field_telemetry"]["department"]["top_choices"]]
    assert result["parsed_json"]["department"]["value"] in listed
    odds = (("calm", 0.9), ("angry", 0.1))
    forged = FieldResult("tone", "furious", 0.9, 0.5, False, 1.0, False, False, odds, (0.0, -2.0))
    assert result_of(forged).to_dict()[named] is False
