"""`pcdc eval`: what it prints and writes, its exit codes, and runs that are ended and go on."""

import json
import os
import signal
import subprocess
import time

import pytest
from command_line import ENVIRONMENT, PROGRAM
from pcdc_runtime.calibration import calibration_path, read
from pcdc_runtime.errors import CalibrationError

LABELS = ("BILLING", "BILLING_DISPUTE", "TECH", "a b)")


def lines(count, first=0):
    return [
        json.dumps(
            {
                "context": f"Ticket {n}: {'the printer ' * (n % 5)}is on fire",
                "expected": {"department": LABELS[n % 4], "urgent": n % 3 == 0},
            }
        )
        for n in range(first, first + count)
    ]


@pytest.fixture
def data(tmp_path):
    """24 labelled texts."""
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(lines(24)), encoding="utf-8")
    return path


@pytest.fixture
def evaluate(pcdc, artifact, tiny, tmp_path):
    """Runs `pcdc eval` on a copy of the artifact, into its own folder."""
    copy = tmp_path / "build" / artifact.name
    copy.parent.mkdir()
    copy.write_bytes(artifact.read_bytes())

    def call(data, *more):
        return pcdc("eval", call.artifact, data, "--model", tiny, "--out", tmp_path / "report", *more)

    call.artifact = copy
    call.report = tmp_path / "report"
    return call


def figures(report):
    """A report without what differs from run to run, and the lines where texts stand in their file."""
    for mistake in [one for field in report["fields"] for one in field["mistakes"]]:
        del mistake["line"]
    return {key: report[key] for key in ("fields", "overall")}


def test_a_run_prints_tables_and_writes_the_report(evaluate, data):
    done = evaluate(data)
    assert done.exit_code == 0, done.output
    assert "department" in done.stdout
    assert "urgent" in done.stdout
    for name in ("report.json", "report.html", "scores.jsonl"):
        assert (evaluate.report / name).is_file()
        assert name == "scores.jsonl" or f"written: {evaluate.report / name}" in done.stderr
    assert not calibration_path(evaluate.artifact).exists()
    report = json.loads((evaluate.report / "report.json").read_text(encoding="utf-8"))
    assert report["run"]["measured_texts"] == 24


def test_json_is_the_report_and_nothing_else(evaluate, data):
    done = evaluate(data, "--json")
    report = json.loads(done.stdout)
    assert report == json.loads((evaluate.report / "report.json").read_text(encoding="utf-8"))


def test_a_finished_run_computes_nothing_again(evaluate, data, monkeypatch):
    first = json.loads(evaluate(data, "--json").stdout)

    def refuse(*_, **__):
        raise AssertionError("a model was opened")

    monkeypatch.setattr("pcdc_runtime.loaded.open_model", refuse)
    done = evaluate(data, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == first


def test_csv_gives_the_figures_of_the_same_json_lines(evaluate, data, tmp_path):
    rows = [json.loads(line) for line in lines(24)]
    cells = [[r["context"], r["expected"]["department"], json.dumps(r["expected"]["urgent"])] for r in rows]
    table = tmp_path / "data.csv"
    table.write_text(
        "\n".join(map(",".join, [["context", "department", "urgent"], *cells])), encoding="utf-8"
    )
    from_json = json.loads(evaluate(data, "--json").stdout)
    assert figures(json.loads(evaluate(table, "--json").stdout)) == figures(from_json)


def test_a_limit_draws_texts_by_the_seed(evaluate, data):
    def drawn(*more):
        report = json.loads(evaluate(data, "--json", "--limit", 6, *more).stdout)
        assert report["run"]["measured_texts"] == 6
        return {json.loads(line)["key"] for line in (evaluate.report / "scores.jsonl").open()}

    first = drawn()
    assert drawn() == first
    assert drawn("--seed", 1) > first


def test_a_fit_writes_a_calibration_that_the_runtime_applies(evaluate, data, pcdc, tiny):
    done = evaluate(data, "--fit")
    assert done.exit_code == 0, done.output
    path = calibration_path(evaluate.artifact)
    assert f"written: {path}" in done.stderr
    assert {field.name for field in read(path).fields} == {"department", "urgent"}
    ran = pcdc("run", evaluate.artifact, "--text", "It burns.", "--model", tiny, "--json")
    telemetry = json.loads(ran.stdout)["field_telemetry"]
    assert all(one["calibration"]["id"] == read(path).id_of(name) for name, one in telemetry.items())


def test_mistakes_in_the_data_are_told_at_once_and_nothing_is_run(evaluate, data, monkeypatch):
    monkeypatch.setattr("pcdc.evaluation.command.Opening", None)
    data.write_text('{"context": "x", "expected": {"urgent": "true", "departmnt": 1}}\n{', encoding="utf-8")
    done = evaluate(data)
    assert done.exit_code == 1
    places = [line.partition(": error[")[0] for line in done.stderr.splitlines() if ": error[" in line]
    assert [place.rpartition("data.jsonl")[2] for place in places] == [":1:41", ":1:49", ":2:2"]
    assert not evaluate.report.exists()


def test_what_is_not_read_of_the_data_is_a_warning(evaluate, data):
    whole = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    data.write_text("\n".join(json.dumps({"id": n} | row) for n, row in enumerate(whole)), encoding="utf-8")
    done = evaluate(data)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("PCDC728") == 1
    assert 'has keys that are not read: "id"' in done.stderr


def test_a_file_that_is_no_data_by_its_name_is_a_wrong_call(evaluate, tmp_path):
    path = tmp_path / "router.json"
    path.write_text("{}", encoding="utf-8")
    done = evaluate(path)
    assert done.exit_code == 2
    assert "error[PCDC710]" in done.stderr
    assert "write one a line into a file .jsonl" in done.stderr


def test_of_many_mistakes_the_first_are_told_and_the_others_counted(evaluate, data):
    data.write_text("{}\n" * 120, encoding="utf-8")
    done = evaluate(data)
    assert done.exit_code == 1
    assert done.stderr.count("error[") == 21
    assert ":11:1: error[PCDC720]" in done.stderr
    assert "has 220 more mistakes from here on" in done.stderr


def test_a_text_that_does_not_fit_is_skipped_aloud_and_counted(evaluate, data):
    with data.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"context": "long " * 5000, "expected": {"urgent": True}}))
    done = evaluate(data)
    assert done.exit_code == 0, done.output
    assert "data.jsonl:25:1: warning[PCDC725]" in done.stderr
    report = json.loads((evaluate.report / "report.json").read_text(encoding="utf-8"))
    assert [skipped["line"] for skipped in report["run"]["skipped"]] == [25]
    assert report["run"]["measured_texts"] == 24
    assert "1 skipped" in done.stdout


def test_data_in_which_no_text_fits_is_refused(evaluate, data):
    data.write_text(json.dumps({"context": "long " * 5000, "expected": {"urgent": True}}), encoding="utf-8")
    done = evaluate(data)
    assert done.exit_code == 1
    assert "has no text that fits the model's window" in done.stderr


def test_a_field_without_labels_is_said_aloud(evaluate, data):
    data.write_text(json.dumps({"context": "x", "expected": {"urgent": True}}), encoding="utf-8")
    done = evaluate(data)
    assert 'warning[PCDC724]: field "department" has no label in' in done.stderr


def test_everything_is_measured_at_once(evaluate, data, tmp_path):
    train = tmp_path / "train.jsonl"
    train.write_text("\n".join(lines(30, first=20)), encoding="utf-8")
    options = ("--baseline", "--permute", 2, "--examples-from", train, "--k", 3, "--limit", 8, "--fit")
    done = evaluate(data, *options)
    assert done.exit_code == 0, done.output
    report = json.loads((evaluate.report / "report.json").read_text(encoding="utf-8"))
    assert report["permutation"]["orders"] == 2
    assert len(report["examples"]["examples"]) == 3
    assert report["examples"]["from_texts"] + report["examples"]["shared_texts"] == 30
    assert '"x-pcdc"' in done.stdout
    again = evaluate(data, *options, "--json")
    assert figures(json.loads(again.stdout)) == figures(report)


def test_training_texts_that_are_all_in_the_data_are_refused(evaluate, data):
    done = evaluate(data, "--examples-from", data)
    assert done.exit_code == 1
    assert "has only texts that are in the data as well" in done.stderr


def test_what_is_deployed_is_measured_and_data_that_it_was_fitted_on_is_named(evaluate, data):
    evaluate(data, "--fit", "--precision", 0.5)
    fitted = read(calibration_path(evaluate.artifact))
    done = evaluate(data)
    assert done.exit_code == 0, done.output
    assert "warning[PCDC727]" in done.stderr
    assert "all 24 texts taken from" in done.stderr
    assert "report.html (in place of an earlier one)" in done.stderr
    report = json.loads((evaluate.report / "report.json").read_text(encoding="utf-8"))
    assert report["main"] == "joint+applied"
    in_use = report["run"]["calibration"]["fields"]
    assert {name: one["id"] for name, one in in_use.items()} == {
        f.name: fitted.id_of(f.name) for f in fitted.fields
    }
    assert all(field["threshold"] is None for field in report["fields"])
    raw = evaluate(data, "--no-calibration")
    assert "warning[" not in raw.stderr
    assert "joint, per field" in raw.stdout


def test_without_texts_the_report_quotes_none(evaluate, data, tmp_path):
    train = tmp_path / "train.jsonl"
    train.write_text("\n".join(lines(30, first=20)), encoding="utf-8")

    def quoted(*more):
        assert evaluate(data, "--examples-from", train, "--k", 2, *more).exit_code == 0
        files = (evaluate.report / name for name in ("report.json", "report.html"))
        return ["is on fire" in file.read_text(encoding="utf-8") for file in files]

    assert quoted() == [True, True]
    assert quoted("--no-texts") == [False, False]


def test_the_order_of_a_schema_is_said_first_where_it_decides(evaluate, data):
    shown = evaluate(data, "--permute", 2).stdout
    report = json.loads((evaluate.report / "report.json").read_text(encoding="utf-8"))
    much = report["permutation"]["overall"]["mean"] > 0.1
    assert ("change when nothing but the order" in shown) == much
    assert shown.index("other orders of fields and choices") < shown.index("per text:")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["no.pcdc", "data.jsonl"], 2),
        (["{artifact}", "no.jsonl"], 2),
        (["{artifact}", "data.xml"], 2),
        (["{artifact}", "{data}", "--limit", "0"], 2),
        (["{artifact}", "{data}", "--k", "3"], 2),
        (["{artifact}", "{data}", "--out", "{data}"], 2),
    ],
)
def test_the_call_decides_the_exit_code(pcdc, artifact, tiny, data, arguments, code):
    filled = [a.format(artifact=artifact, data=data) for a in arguments]
    done = pcdc("eval", *filled, "--model", tiny)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output


def started(artifact, data, tiny, out):
    command = [*PROGRAM, "eval", str(artifact), str(data), "--model", str(tiny), "--out", str(out), "--json"]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_lines(path, count, process):
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize(("by", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_ended_goes_on_where_it_was(evaluate, tiny, tmp_path, by, code):
    data = tmp_path / "many.jsonl"
    data.write_text("\n".join(lines(300)), encoding="utf-8")
    scores = evaluate.report / "scores.jsonl"
    with started(evaluate.artifact, data, tiny, evaluate.report) as process:
        wait_for_lines(scores, 5, process)
        os.kill(process.pid, by)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    if by != signal.SIGKILL:
        assert f"what was measured is in {scores}; the same command goes on from there" in errors
    kept = scores.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1]
    assert 5 <= whole.count(b"\n") < 300
    scores.write_bytes(whole + whole[:50])
    done = evaluate(data, "--json")
    assert done.exit_code == 0, done.output
    assert scores.read_bytes().startswith(whole)
    records = [json.loads(line) for line in scores.read_bytes().splitlines()]
    assert len({record["key"] for record in records}) == len(records) == 300 + 4 + 1


@pytest.mark.parametrize("link", [os.symlink, os.link, os.rename])
def test_data_is_never_written_to(evaluate, data, link):
    evaluate.report.mkdir()
    place = evaluate.report / "scores.jsonl"
    before = data.read_bytes()
    link(data, place)
    done = evaluate(place)
    assert done.exit_code == 2, done.output
    assert "error[PCDC712]" in done.stderr
    assert "which it reads" in done.stderr
    assert place.read_bytes() == before


@pytest.mark.parametrize("output", ["report.json", "report.html"])
def test_an_artifact_is_never_written_to(evaluate, data, output):
    evaluate.report.mkdir()
    evaluate.artifact = evaluate.artifact.rename(evaluate.report / output)
    before = evaluate.artifact.read_bytes()
    done = evaluate(data)
    assert done.exit_code == 2, done.output
    assert "which it reads" in done.stderr
    assert evaluate.artifact.read_bytes() == before


def test_training_texts_are_never_written_to(evaluate, data, tmp_path):
    (tmp_path / "report").mkdir()
    train = evaluate.report / "scores.jsonl"
    train.write_text("\n".join(lines(9, first=50)), encoding="utf-8")
    before = train.read_bytes()
    for more in (("--examples-from", train), ()):
        done = evaluate(data, *more)
        assert done.exit_code == 2, done.output
        assert "error[PCDC712]" in done.stderr
        assert train.read_bytes() == before


def test_a_folder_that_is_a_file_and_a_file_that_is_a_folder_are_told_first(evaluate, data, tmp_path):
    (tmp_path / "report").write_text("", encoding="utf-8")
    assert "is a file, not a folder" in evaluate(data).stderr
    (tmp_path / "report").unlink()
    (tmp_path / "report" / "report.html").mkdir(parents=True)
    done = evaluate(data)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is a folder where a file is to be written" in done.stderr


@pytest.mark.parametrize(
    "option", [("--seed", 2**53), ("--seed", -1), ("--precision", "nan"), ("--confidence", "nan")]
)
def test_a_number_that_no_report_can_hold_is_refused_first(evaluate, data, option):
    done = evaluate(data, *option)
    assert done.exit_code == 2
    assert not evaluate.report.exists()


def test_the_largest_seed_is_fitted_with(evaluate, data):
    done = evaluate(data, "--fit", "--seed", 2**53 - 1)
    assert done.exit_code == 0, done.output
    assert read(calibration_path(evaluate.artifact)).seed == 2**53 - 1


def test_a_refused_calibration_leaves_the_report(evaluate, data, monkeypatch):
    def refuse(_):
        raise CalibrationError("calibration", "has a number out of range")

    monkeypatch.setattr("pcdc.evaluation.command.calibration_file.dumps", refuse)
    done = evaluate(data, "--fit")
    assert done.exit_code == 2
    assert "error[PCDC712]" in done.stderr
    assert "is not written: it has a number out of range" in done.stderr
    assert "department" in done.stdout
    for name in ("report.json", "report.html"):
        assert f"written: {evaluate.report / name}" in done.stderr
    assert not calibration_path(evaluate.artifact).exists()


def test_a_calibration_without_a_place_is_told_before_anything_is_measured(evaluate, data):
    calibration_path(evaluate.artifact).mkdir()
    done = evaluate(data, "--fit")
    assert done.exit_code == 2
    assert "is a folder where a file is to be written" in done.stderr
    assert not evaluate.report.exists()


def test_what_a_killed_run_left_is_swept_and_nothing_else(evaluate, data):
    evaluate.report.mkdir()
    beside = calibration_path(evaluate.artifact)
    random = "0123456789abcdef"
    own = [
        *(evaluate.report / f".{name}.{random}.tmp" for name in ("report.json", "report.html")),
        beside.with_name(f".{beside.name}.{random}.tmp"),
    ]
    others = [evaluate.report / f".notes.{random}.tmp", evaluate.report / ".report.json.mine.tmp"]
    for path in (*own, *others):
        path.write_text("half", encoding="utf-8")
    assert evaluate(data).exit_code == 0
    assert [path.exists() for path in (*own, *others)] == [False] * 3 + [True] * 2


def test_every_long_step_is_said(evaluate, data):
    said = [line for line in evaluate(data).stderr.splitlines() if line.startswith("note: ")]
    assert [line for line in said if "texts" not in line] == [
        "note: reading data.jsonl",
        "note: reading the model's files",
        "note: judging",
        "note: writing the report",
    ]
