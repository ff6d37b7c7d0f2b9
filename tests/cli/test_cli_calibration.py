"""`pcdc run` with a calibration beside the artifact: what it changes and what is said of it."""

import json
import shutil
from dataclasses import replace

import pytest
from fakes import result_of
from fitted import THRESHOLD, calibration, fitted
from pcdc_runtime.calibration import calibration_path, write
from pcdc_runtime.codec import read
from pcdc_runtime.result import AppliedCalibration, FieldResult
from pcdc_runtime.weights import weights_digest

from pcdc.show import result_table


@pytest.fixture
def own(artifact, tmp_path):
    """The artifact in a folder of its own."""
    return shutil.copy(artifact, tmp_path)


def fit(own, tiny, *names, **changes):
    made = read(own)
    fields = [
        fitted(made, name, "temperature", 50.0, threshold=replace(THRESHOLD, minimum=0.01)) for name in names
    ]
    whole = calibration(made, *fields, weights=weights_digest(tiny), **changes)
    write(calibration_path(own), whole)
    return whole


def ask(pcdc, own, tiny, *more):
    done = pcdc("run", own, "--model", tiny, "--text", "x", *more)
    assert done.exit_code == 0, done.output
    return done


def notes(done):
    return {line.split()[0]: line.split("  ")[-1].strip() for line in done.stdout.splitlines()[1:-1]}


def test_the_last_line_says_how_many_fields_are_calibrated(pcdc, own, tiny):
    assert ", scoring joint, uncalibrated, artifact " in ask(pcdc, own, tiny).stdout.splitlines()[-1]
    fit(own, tiny, "urgent")
    assert ", calibrated: 1 of 2 fields, artifact " in ask(pcdc, own, tiny).stdout.splitlines()[-1]
    fit(own, tiny, "urgent", "department")
    done = ask(pcdc, own, tiny)
    assert ", calibrated: 2 of 2 fields, artifact " in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_no_calibration_and_a_temperature_leave_it_out(pcdc, own, tiny):
    plain = json.loads(ask(pcdc, own, tiny, "--json").stdout)["parsed_json"]
    whole = fit(own, tiny, "urgent", "department")
    shown = json.loads(ask(pcdc, own, tiny, "--json").stdout)
    assert shown["parsed_json"]["urgent"]["prob"] < plain["urgent"]["prob"]
    assert shown["field_telemetry"]["urgent"]["calibration"] == {
        "method": "temperature",
        "id": whole.id_of("urgent"),
    }
    for more in (["--no-calibration"], ["--temperature", "1"]):
        assert json.loads(ask(pcdc, own, tiny, "--json", *more).stdout)["parsed_json"] == plain
        assert "uncalibrated" in ask(pcdc, own, tiny, *more).stdout.splitlines()[-1]


def test_a_field_is_marked_by_its_own_threshold_unless_one_is_given(pcdc, own, tiny):
    fit(own, tiny, "department")
    by_default = ask(pcdc, own, tiny)
    assert not notes(by_default)["department"].startswith("below")
    given = ask(pcdc, own, tiny, "--threshold", "0.99")
    assert notes(given)["department"].startswith("below 0.99")
    calibration_path(own).unlink()
    assert "below 0.75" in ask(pcdc, own, tiny, "--temperature", "50").stdout


def test_the_table_marks_exactly_what_goes_to_review():
    answer = FieldResult(
        "", "ops", 0.8, None, False, 2.0, False, False, (("ops", 0.8), ("law", 0.2)), (0, -1)
    )
    given = {
        "sure": {"calibration": AppliedCalibration("bias", "1" * 16, 0.8)},
        "unsure": {"calibration": AppliedCalibration("bias", "1" * 16, 0.93)},
        "untested": {"calibration": AppliedCalibration("bias", "1" * 16)},
        "changed": {"calibration_dropped": "it changed"},
        "raw": {},
    }
    result = result_of(*(replace(answer, name=name, **more) for name, more in given.items()))
    lines = result_table(result, None, terminal=False).splitlines()[1:-1]
    shown = {line.split()[0]: line.partition("2.00")[2].strip() for line in lines}
    assert shown == {
        "sure": "",
        "unsure": "below 0.93",
        "untested": "no threshold",
        "changed": "calibration dropped",
        "raw": "no threshold",
    }
    assert {name for name, note in shown.items() if note} == result.route().review.keys()


def test_only_a_run_without_calibration_has_the_common_threshold():
    low = FieldResult("a", "ops", 0.7, None, False, 2.0, False, False, (("ops", 0.7), ("law", 0.3)), (0, -1))
    assert "below 0.75" in result_table(result_of(low), None, terminal=False)
    applied = replace(low, name="b", calibration=AppliedCalibration("bias", "1" * 16, 0.5))
    assert "below" not in result_table(result_of(low, applied), None, terminal=False)
    assert "below" not in result_table(result_of(replace(low, calibration_dropped="x")), None, terminal=False)


def test_what_was_dropped_is_a_note_with_its_reason(pcdc, own, tiny, program):
    fit(own, tiny, "urgent", "department", scoring="trie")
    note = "note: calibration dropped for department, urgent: it was fitted to the rule trie, not to joint\n"
    assert ask(pcdc, own, tiny).stderr == note
    assert program("run", own, "--model", tiny, "--text", "x").stderr == note


def test_a_damaged_calibration_is_refused_by_its_code_with_a_way_out(pcdc, own, tiny):
    calibration_path(own).write_bytes(b"{}")
    done = pcdc("run", own, "--model", tiny, "--text", "x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error[PCDC604]" in done.stderr
    assert calibration_path(own).name in done.stderr
    assert "pcdc eval --fit" in done.stderr
    ask(pcdc, own, tiny, "--no-calibration")
