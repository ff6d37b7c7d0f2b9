"""`pcdc select`: what is printed where, and what a wrong request says."""

from __future__ import annotations

import json
import math

import pytest
from pcdc_runtime.selecting.outcome import Sampling
from pcdc_runtime.selecting.selection import Selected, Selection

from pcdc.show_selection import selection_table

TEXT = "Started on warfarin."


@pytest.fixture
def select(pcdc, index, tiny):
    def call(*arguments, **more):
        return pcdc("select", index, "--model", tiny, *arguments, **more)

    return call


def test_json_on_a_pipe_is_one_pure_document(program, index, tiny):
    done = program("select", index, "--model", tiny, "--context", "-", "--json", "-k", "2", input=TEXT)
    selection = json.loads(done.stdout)
    assert done.returncode == 0
    assert selection["certified"]
    assert len(selection["answers"]) == 2
    assert {answer["id"] for answer in selection["answers"]} <= {"A01", "A02", "B01", "B02", "C01"}
    assert (selection["model"], selection["entries"]) == ("tiny", 5)


def test_the_table_is_plain_aligned_text_with_a_certificate_below(select):
    done = select("--text", TEXT, "-k", "3")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0].split() == ["rank", "id", "label", "probability", "log-probability"]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3"]
    assert lines[1].index(lines[1].split()[1]) == lines[0].index("id")
    assert lines[4].startswith("certified: no other label can have more than ")
    assert lines[5].startswith("legal mass ")
    assert " 5 entries, index " in lines[5]
    assert "\x1b" not in done.stdout


def test_all_labels_leave_no_other(select):
    lines = select("--text", TEXT, "-k", "9").stdout.splitlines()
    assert lines[6] == "certified: no other label has any probability"


def test_a_file_stdin_and_the_text_itself_give_one_answer(select, tmp_path):
    (tmp_path / "note.txt").write_bytes(TEXT.encode())
    runs = [
        select("--json", "--context", tmp_path / "note.txt"),
        select("--json", "--context", "-", input=TEXT.encode()),
        select("--json", "--text", TEXT),
    ]
    answers = [json.loads(run.stdout)["answers"] for run in runs]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["--method", "trie"], "not certified, trie: another label may have up to "),
        (["--method", "trie", "--beam", "2"], "not certified, trie with a beam of 2: "),
        (["--method", "trie", "--seed", "3"], "not certified, drawn by trie with seed 3: "),
        (["--method", "disc", "--seed", "3"], "not certified, drawn by disc with seed 3, "),
        (["--budget", "1"], "no label was closed within the budget of 1 node: a label may have up to "),
    ],
)
def test_what_is_not_certified_says_why(select, call, said):
    done = select("--text", TEXT, *call)
    assert done.exit_code == 0
    assert any(line.startswith(said) for line in done.stdout.splitlines())


def test_a_seed_gives_the_same_draw_again(select):
    runs = [select("--text", TEXT, "--json", "--method", "disc", "--seed", "11") for _ in range(2)]
    assert len({json.dumps(json.loads(run.stdout)["answers"]) for run in runs}) == 1


def test_a_warning_about_this_run_is_a_note_on_stderr(select):
    done = select("--text", " ", "--json", "--temperature", "0.5")
    warnings = json.loads(done.stdout)["warnings"]
    assert warnings[0] == "empty_context"
    assert [warning.split(":")[0] for warning in warnings[1:]] == ["tempered", "low_legal_mass"]
    empty, *others = done.stderr.splitlines()
    assert empty.startswith("note: empty_context: the text is empty")
    assert others == [f"note: {warning}" for warning in warnings[1:]]


def test_numbers_are_passed_on(select):
    call = ["--temperature", "2", "--top", "3", "--budget", "40", "-k", "2"]
    selection = json.loads(select("--text", TEXT, "--json", *call).stdout)
    assert [selection[key] for key in ("temperature", "top", "budget", "k")] == [2.0, 3, 40, 2]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give either --context or --text or --contexts"),
        (["--text", "x", "--context", "-"], 2, "give either --context or --text or --contexts"),
        (["--text", "x", "--method", "exakt"], 2, "PCDC714"),
        (["--text", "x", "-k", "0"], 2, "PCDC715"),
        (["--text", "x", "--seed", "1"], 2, "PCDC716"),
        (["--text", "x", "--temperature", "0"], 2, "PCDC703"),
        (["--context", "nowhere.txt"], 2, "PCDC710"),
        (["--text", "x" * 40_000], 1, "PCDC701"),
    ],
)
def test_a_wrong_request_is_one_diagnostic_and_its_exit_code(select, arguments, code, said):
    done = select(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_call_is_told_before_a_file_is_read(pcdc):
    done = pcdc("select", "nowhere.pcdx", "--text", "x", "--method", "bream")
    assert "PCDC714" in done.stderr


def test_an_artifact_is_refused_with_the_way_out(pcdc, artifact, tiny):
    done = pcdc("select", artifact, "--model", tiny, "--text", "x")
    assert done.exit_code == 2
    assert "pcdc run" in done.stderr


def test_an_index_of_another_tokenizer_is_refused(pcdc, index):
    done = pcdc("select", index, "--model", "smollm2-135m", "--text", "x")
    assert done.exit_code == 2
    assert "PCDC602" in done.stderr


def shown(**changes):
    answer = Selected("A1", ("A1",), "ab", -0.5, -0.5, (0.25, 0.5), 1.0, False)
    made = {
        "answers": (answer,),
        "method": "exact",
        "certified": True,
        "bound": 0.01,
        "lead": 2.0,
        "legal_mass": (0.5, 0.75),
        "missed": 0.0,
        "temperature": 1.0,
        "k": 1,
        "seed": None,
        "beam": None,
        "top": None,
        "budget": 2048,
        "sampling": None,
        "passes": 2,
        "nodes": 9,
        "forward_passes": 3,
        "sequential_forward_passes": 3,
        "head_cached": 5,
        "positions": 20,
        "context_tokens": 7,
        "kv_bytes": 1,
        "kv_added": 1,
        "kv_copied": 0,
        "elapsed_ms": 3.0,
        "prefill_ms": 1.0,
        "search_ms": 2.0,
        "model": "table",
        "index": "drugs",
        "index_digest": "0123456789abcdef",
        "entries": 1000,
    }
    return selection_table(Selection(**(made | changes)), terminal=False).splitlines()


def test_ids_have_a_column_unless_the_labels_are_the_ids():
    own = Selected("ab", ("ab",), "ab", -0.5, -0.5, (0.25, 0.25), 1.0, False)
    several = Selected("A1", ("A1", "A2", "A3"), "ab", -0.5, -0.2, (0.25, 0.25), 1.0, True)
    assert shown(answers=(own,))[:2] == [
        "rank  label  probability  log-probability",
        "1     ab     0.2500       -0.5000",
    ]
    assert shown(answers=(several,))[:2] == [
        "rank  id       label  probability  log-probability     note",
        "1     A1 (+2)  ab     0.2500       -0.5000 to -0.2000  near tie",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "certified: no other label can have more than 0.0100 of the model's probability"),
        (
            {"certified": False, "lead": -0.25},
            "not certified within 2048 nodes: another label may have up to 0.0100 of the model's probability,"
            " gap 0.25 nats",
        ),
        (
            {"certified": False, "missed": 2e-4, "top": 50, "lead": 1.5},
            "not certified with --top 50: another label may have up to 0.0100 of the model's probability,"
            " 1.50 nats less than the last answer",
        ),
        (
            {
                "certified": False,
                "method": "disc",
                "seed": 7,
                "k": 4,
                "sampling": Sampling(7, 4, False, 2, (0.5, 0.25, 0.5, 0.25, 0.1, 0.1)),
                "lead": -math.inf,
            },
            "not certified, drawn by disc with seed 7, resampled after 4 rejections, p_b about 0.5000:"
            " another label may have up to 0.0100 of the model's probability, and the last answer none",
        ),
        (
            {"answers": (), "certified": False},
            "no label was closed within the budget of 2048 nodes: a label may have up to 0.0100 of the"
            " model's probability; give --budget more",
        ),
        (
            {"certified": False, "method": "trie", "lead": math.inf},
            "not certified, trie: no other label has any probability",
        ),
    ],
    ids=["certified", "budget", "top", "disc", "nothing found", "none left"],
)
def test_the_line_below_says_what_is_known_of_all_others(changes, said):
    assert shown(**changes)[-2] == said


def test_the_last_line_is_about_the_run():
    assert shown(temperature=0.5, missed=0.01)[-1] == (
        "legal mass 0.5000 to 0.7500, missed at most 0.0100, prefill 1.0 ms, search 2.0 ms, 3 passes,"
        " 9 nodes, 7 context tokens, temperature 0.5 of every token, 1000 entries,"
        " index 0123456789ab, model table"
    )
