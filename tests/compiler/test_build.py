"""Building folders of schemas: what is found, what is stale, what survives a fault."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ENVIRONMENT
from families import family_folder
from pcdc_runtime.artifact import FORMAT_VERSION
from pcdc_runtime.codec import read

from pcdc import kinds, lanes
from pcdc.build import build, find_sources

MODEL = str(family_folder("smollm2"))


def definition(*choices, **more):
    return {"team": {"type": "enum", "choices": list(choices), "description": "Which team?", **more}}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def schemas(tmp_path):
    write(tmp_path / "schemas" / "support.json", definition("BILLING", "TECH"))
    return tmp_path / "schemas"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def outcomes(report):
    return [t.outcome for t in report.targets]


def codes(report):
    return [d.code for d in report.diagnostics]


def test_a_second_build_writes_nothing(schemas, out):
    first = build([schemas], [MODEL], out)
    (path,) = out.glob("*.pcdc")
    before = path.stat()
    second = build([schemas], [MODEL], out)
    assert (outcomes(first), outcomes(second)) == (["built"], ["fresh"])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert path.name == "support.smollm2.pcdc"


def test_an_edit_of_equal_length_with_the_old_time_is_seen_and_a_touch_is_not(schemas, out):
    """Field report 32."""
    path = schemas / "support.json"
    build([schemas], [MODEL], out)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("TECH", "TECK"))
    os.utime(path, ns=times)
    edited = build([schemas], [MODEL], out)
    os.utime(path)
    touched = build([schemas], [MODEL], out)
    assert (outcomes(edited), outcomes(touched)) == (["built"], ["fresh"])
    assert edited.targets[0].changes == (
        "field team: choice 'TECH' removed",
        "field team: choice 'TECK' added",
    )


def test_a_layout_of_the_file_that_means_the_same_is_fresh(schemas, out):
    build([schemas], [MODEL], out)
    text = json.dumps(definition("BILLING", "TECH"), indent=4).replace("\n", "\r\n").replace("T", "\\u0054")
    (schemas / "support.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert outcomes(build([schemas], [MODEL], out)) == ["fresh"]


@pytest.fixture
def model(tmp_path):
    """A copy of the model's folder, to be edited."""
    return shutil.copytree(MODEL, tmp_path / "model")


def edit(path, change):
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content, indent=3), encoding="utf-8")


def test_another_layout_of_the_models_files_is_fresh(schemas, out, model):
    build([schemas], [str(model)], out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        before = (model / name).read_bytes()
        edit(model / name, lambda content: None)
        assert (model / name).read_bytes() != before
    assert outcomes(build([schemas], [str(model)], out)) == ["fresh"]


def test_a_changed_chat_template_makes_it_stale(schemas, out, model):
    """Field report 32."""
    build([schemas], [str(model)], out)
    edit(model / "tokenizer_config.json", lambda c: c.update(chat_template=c["chat_template"] + "{# new #}"))
    (target,) = build([schemas], [str(model)], out).targets
    assert (target.outcome, target.reason) == ("built", "the chat template of model changed")


def test_a_changed_merge_makes_it_stale(schemas, out, model):
    """Field report 32."""
    build([schemas], [str(model)], out)
    edit(model / "tokenizer.json", lambda content: content["model"]["merges"].pop())
    (target,) = build([schemas], [str(model)], out).targets
    assert (target.outcome, target.reason) == ("built", "the tokenizer of model changed")


def test_a_damaged_artifact_is_a_miss_a_warning_and_the_same_bytes_again(schemas, out):
    build([schemas], [MODEL], out)
    (path,) = out.glob("*.pcdc")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (
        b"",
        whole[:1],
        whole[: len(whole) // 2],
        whole[:-1],
        bytes(flipped),
        b"\xdd\xff\xff\xff\xff",
    ):
        path.write_bytes(damaged)
        report = build([schemas], [MODEL], out)
        assert (outcomes(report), codes(report)) == (["built"], ["PCDC610"])
        assert report.diagnostics[0].severity == "warning"
        assert path.read_bytes() == whole


def test_an_artifact_of_another_format_is_a_miss_that_is_named_and_made_again(schemas, out):
    build([schemas], [MODEL], out)
    (path,) = out.glob("*.pcdc")
    whole = path.read_bytes()
    assert whole[6] == FORMAT_VERSION
    for version in (FORMAT_VERSION - 1, FORMAT_VERSION + 1):
        path.write_bytes(whole[:6] + bytes([version]) + whole[7:])
        report = build([schemas], [MODEL], out)
        assert (outcomes(report), codes(report)) == (["built"], ["PCDC610"])
        assert f"has format version {version}" in report.targets[0].reason
        assert path.read_bytes() == whole


def test_a_broken_source_hides_no_other_and_keeps_its_last_good_artifact(schemas, out):
    write(schemas / "other.json", definition("A", "B"))
    build([schemas], [MODEL], out)
    good = (out / "other.smollm2.pcdc").read_bytes()
    write(schemas / "other.json", '{"team": {"type": "enum", "choices": ["A"')
    write(schemas / "support.json", definition("BILLING", "TECH", "SALES"))
    write(schemas / "third.json", definition("same", "same"))
    report = build([schemas], [MODEL], out)
    assert outcomes(report) == ["failed", "built", "failed"]
    assert [Path(d.location.path).name for d in report.diagnostics] == ["other.json", "third.json"]
    assert "last good artifact stays" in report.targets[0].reason
    assert "last good" not in report.targets[2].reason
    assert (out / "other.smollm2.pcdc").read_bytes() == good


def test_a_model_that_is_not_there_hides_neither_the_others_nor_the_schemas_faults(schemas, out):
    write(schemas / "bad.json", "[]")
    report = build([schemas], ["no-such-model", MODEL], out)
    assert outcomes(report) == ["failed", "built"]
    assert "PCDC401" in codes(report)
    assert len(report.diagnostics) == 2


def test_a_model_with_an_unusable_template_is_reported_once_for_all_schemas(schemas, out, model):
    write(schemas / "other.json", definition("A", "B"))
    edit(model / "tokenizer_config.json", lambda c: c.update(chat_template="{{ no_such_name.x.y }}"))
    report = build([schemas], [str(model)], out)
    assert outcomes(report) == ["failed", "failed"]
    assert len(report.diagnostics) == 1


def test_a_damaged_tokenizer_is_a_diagnostic(schemas, out, model):
    (model / "tokenizer.json").write_text("{")
    report = build([schemas], [str(model)], out)
    assert (outcomes(report), codes(report)) == (["failed"], ["PCDC401"])


def test_a_folder_gives_every_definition_below_it_and_nothing_else(schemas, tmp_path):
    for name in (
        "a/b/deep.json",
        "catalogs/rows.json",
        "a/examples/one.json",
        ".git/x.json",
        "out/y.json",
        "n.txt",
        "._x.json",
    ):
        write(schemas / name, "{}")
    sources, findings = find_sources([schemas, schemas / "support.json"], schemas / "out")
    assert [s.relative.as_posix() for s in sources] == ["support", "a/b/deep"]
    assert findings == []


def test_outputs_inside_the_source_folder_are_no_sources(schemas):
    first = build([schemas], [MODEL], schemas / "build")
    second = build([schemas], [MODEL], schemas / "build")
    assert (outcomes(first), outcomes(second)) == (["built"], ["fresh"])


@pytest.mark.parametrize("name", ["support.yaml", "support.yml"])
def test_a_yaml_file_given_by_name_is_refused_by_the_parser(tmp_path, out, name):
    report = build([write(tmp_path / name, "team: [a, b]")], [MODEL], out)
    assert (outcomes(report), codes(report)) == (["failed"], ["PCDC103"])


def test_a_path_that_is_not_there_and_a_folder_without_schemas_are_reported(tmp_path, out):
    (tmp_path / "empty").mkdir()
    report = build([tmp_path / "nowhere", tmp_path / "empty"], [MODEL], out)
    assert (report.targets, codes(report)) == ((), ["PCDC612", "PCDC612"])


def test_names_that_differ_by_case_or_by_a_hostile_character_all_survive(tmp_path, out):
    """Field report 36."""
    names = ["risk", "Risk", "CON", "é", "e\u0301", "a b", "-x", "x" * 200]
    for name in names:
        write(tmp_path / "s" / "in" / f"{name}.json", definition(f"only {name}", "B"))
    report = build([tmp_path / "s"], [MODEL], out)
    assert outcomes(report) == ["built"] * len(names)
    files = [p.relative_to(out).as_posix() for p in out.rglob("*.pcdc")]
    assert len({f.lower() for f in files}) == len(names)
    assert all(f.startswith("in/") for f in files)
    assert outcomes(build([tmp_path / "s"], [MODEL], out)) == ["fresh"] * len(names)


def test_one_schema_for_several_models_gives_one_artifact_each(schemas, out):
    report = build([schemas], [MODEL, str(family_folder("qwen3")), MODEL], out)
    assert sorted(p.name for p in out.glob("*.pcdc")) == ["support.qwen3.pcdc", "support.smollm2.pcdc"]
    assert [t.model for t in report.targets] == ["smollm2", "qwen3"]


@pytest.mark.parametrize(("count", "outcome"), [(255, "built"), (256, "failed")])
def test_255_choices_compile_and_256_do_not(tmp_path, out, count, outcome):
    path = write(tmp_path / "many.json", definition(*(f"code {n}" for n in range(count))))
    report = build([path], [MODEL], out)
    assert outcomes(report) == [outcome]
    assert all("256" in d.fact and "255" in d.limit for d in report.diagnostics)


def test_an_output_folder_that_is_a_file_is_a_diagnostic(schemas, out):
    out.write_text("in the way")
    report = build([schemas], [MODEL], out)
    assert outcomes(report) == ["failed"]
    assert "PCDC611" in codes(report)


def test_of_an_artifact_that_was_there_before_only_is_said_that_it_is_unchanged(schemas, out, monkeypatch):
    def limits(folder):
        report = build([schemas], [MODEL], folder, force=True)
        return [d.limit for d in report.diagnostics if d.code == "PCDC611"]

    build([schemas], [MODEL], out)
    (path,) = out.glob("*.pcdc")

    def failing(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(kinds, "write_atomic", failing)
    assert limits(out) == ["the artifact that was there before is unchanged"]
    assert limits(path) == limits(out / "new") == [""]


@pytest.mark.parametrize(
    ("fault", "help"),
    [
        (errno.ENOSPC, "free some space, or choose another folder with --out"),
        (errno.EDQUOT, "free some space, or choose another folder with --out"),
        (errno.EACCES, "make the folder writable, or choose another folder with --out"),
        (errno.EROFS, "make the folder writable, or choose another folder with --out"),
        (errno.ENOENT, "choose another folder with --out"),
    ],
)
def test_what_helps_depends_on_why_nothing_could_be_written(schemas, out, monkeypatch, fault, help):
    def failing(*_):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(kinds, "write_atomic", failing)
    told = [d.help for d in build([schemas], [MODEL], out).diagnostics if d.code == "PCDC611"]
    assert told == [help]


def test_a_full_disk_keeps_the_old_artifact(schemas, out):
    """Field report 34."""
    build([schemas], [MODEL], out)
    (path,) = out.glob("*.pcdc")
    old = path.read_bytes()
    write(schemas / "support.json", definition("BILLING", "TECH", "SALES"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        report = build([schemas], [MODEL], out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "PCDC611" in codes(report)
    assert path.read_bytes() == old
    assert [p.name for p in out.iterdir() if p.suffix == ".tmp"] == []


def test_the_log_explains_every_decision_and_decides_nothing(schemas, out):
    build([schemas], [MODEL], out)
    build([schemas], [MODEL], out)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["outcome"], line["reason"]) for line in lines] == [
        ("built", "there is no artifact yet"),
        ("fresh", "no input changed"),
    ]
    (out / "log.jsonl").write_bytes(b"\xff\x00 no log at all")
    assert outcomes(build([schemas], [MODEL], out)) == ["fresh"]


def test_a_log_that_cannot_be_written_is_only_a_warning(schemas, out):
    (out / "log.jsonl").mkdir(parents=True)
    report = build([schemas], [MODEL], out)
    assert (outcomes(report), codes(report)) == (["built"], ["PCDC613"])


BUILD_SCRIPT = """
import os, sys
from pathlib import Path
from pcdc.build import build
os.umask(int(sys.argv[4], 8))
report = build([Path(sys.argv[1])], [sys.argv[2]], Path(sys.argv[3]))
print(*(t.outcome for t in report.targets))
"""


def test_artifacts_are_equal_bytes_for_any_hash_seed_folder_and_umask(schemas, tmp_path):
    """Field report 36."""
    running = []
    for seed, umask in (("0", "022"), ("1", "077"), ("2", "000")):
        place = tmp_path / f"place-{seed}"
        shutil.copytree(schemas, place / "schemas")
        arguments = ["schemas", MODEL, "out", umask]
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", BUILD_SCRIPT, *arguments],
                cwd=place,
                env={**ENVIRONMENT, "PYTHONHASHSEED": seed},
            )
        )
    assert [process.wait() for process in running] == [0, 0, 0]
    made = {(tmp_path / f"place-{n}" / "out" / "support.smollm2.pcdc").read_bytes() for n in range(3)}
    assert len(made) == 1


def test_processes_that_build_one_schema_together_leave_one_whole_artifact(schemas, out):
    """Field report 34."""
    arguments = [str(schemas), MODEL, str(out), "022"]
    command = [sys.executable, "-c", BUILD_SCRIPT, *arguments]
    running = [subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) for _ in range(4)]
    printed = [process.communicate()[0].decode().strip() for process in running]
    assert set(printed) <= {"built", "fresh"}
    assert read(out / "support.smollm2.pcdc").name == "support"
    assert sorted(p.name for p in out.iterdir()) == ["log.jsonl", "support.smollm2.pcdc"]


NO_OP_SCRIPT = """
import sys
from pathlib import Path
import tokenizers
loads = []
class Counting:
    def __new__(cls, model):
        return tokenizers.Tokenizer(model)
    @staticmethod
    def from_file(path):
        loads.append(path)
        return tokenizers.Tokenizer.from_file(path)
import pcdc_runtime.tokenizer
pcdc_runtime.tokenizer.Tokenizer = Counting
from pcdc.build import build
report = build([Path(sys.argv[1])], [sys.argv[2]], Path(sys.argv[3]))
print(len(report.targets), {t.outcome for t in report.targets}, len(loads))
print([name for name in ("transformers", "mlx", "mlx_lm", "torch") if name in sys.modules])
"""


def test_a_build_of_100_fresh_schemas_loads_no_tokenizer_no_transformers_and_no_mlx(tmp_path, out):
    for number in range(100):
        write(tmp_path / "s" / f"schema-{number}.json", definition("A", f"B{number}"))
    command = [sys.executable, "-c", NO_OP_SCRIPT, str(tmp_path / "s"), MODEL, str(out)]
    environment = {**ENVIRONMENT, "PCDC_CACHE": str(tmp_path / "cache")}
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)
    )
    counted, loaded = first.stdout.splitlines()
    assert counted.startswith("100 {'built'}")
    assert int(counted.split()[-1]) > 0
    # A template is rendered in a process of its own.
    assert loaded == "[]"
    assert second.stdout.splitlines() == ["100 {'fresh'} 0", "[]"]


def test_a_process_cuts_a_models_template_once_until_the_model_changes(schemas, out, tmp_path, monkeypatch):
    write(schemas / "other.json", definition("A", "B"))
    model = shutil.copytree(MODEL, tmp_path / "own")
    calls = []
    load = lanes.load_target
    monkeypatch.setattr(lanes, "load_target", lambda files: calls.append(files) or load(files))
    assert outcomes(build([schemas], [str(model)], out)) == ["built", "built"]
    write(schemas / "other.json", definition("A", "C"))
    assert outcomes(build([schemas], [str(model)], out)) == ["built", "fresh"]
    assert len(calls) == 1
    config = model / "tokenizer_config.json"
    config.write_text(config.read_text().replace("<|im_end|>\\n", "<|im_end|>\\n\\n"))
    build([schemas], [str(model)], out)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["x" * 5000, "\0", "missing", "support.json/below"])
def test_a_path_that_no_file_can_have_is_a_finding(schemas, out, name):
    report = build([schemas / name, schemas], [MODEL], out)
    assert (codes(report), outcomes(report)) == (["PCDC612"], ["built"])


@pytest.mark.parametrize("answers", [[False], [True, False]])
def test_a_source_that_is_not_ready_before_and_after_it_is_read_is_left_out(schemas, out, answers):
    write(schemas / "other.json", definition("only one"))
    report = build([schemas], [MODEL], out, ready=lambda p: p.stem == "support" or bool(answers.pop(0)))
    assert [(t.outcome, t.artifact.stem) for t in report.targets] == [("built", "support.smollm2")]
    assert (answers, report.diagnostics) == ([], ())
