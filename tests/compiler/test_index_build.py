"""Building index definitions: what they become, what is stale, what is reused, what survives a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import saving
from command_line import ENVIRONMENT
from families import family_folder
from pcdc_runtime.indexed.codec import open_index
from pcdc_runtime.models import resolve

from pcdc.build import build
from pcdc.indexing import emit, kind
from pcdc.indexing.parse import parse_index_file
from pcdc.output import LOG_NAME
from pcdc.prompt import load_target

MODEL = str(family_folder("smollm2"))
LABELS = ("Dates, dried", "Dates, fresh", "Figs, dried", "Vanilla", "Va", '"quoted"', "Äpfel und Birnen")


def definition(source="goods.txt", **more):
    catalog = {"source": f"catalogs/{source}", **more.pop("columns", {})}
    field = {"description": "Which goods are these?", "x-catalog": catalog}
    settings = {"index": True, "examples": [{"context": "some dates", "answers": {"goods": LABELS[0]}}]}
    return {"x-pcdc": settings | more, "goods": field}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def write_labels(schemas, labels):
    return write(schemas / "catalogs" / "goods.txt", "".join(f"{label}\n" for label in labels))


@pytest.fixture
def schemas(tmp_path):
    write_labels(tmp_path / "schemas", LABELS)
    write(tmp_path / "schemas" / "tariff.json", definition())
    return tmp_path / "schemas"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def path(out):
    return out / "tariff.smollm2.pcdx"


def outcomes(report):
    return [t.outcome for t in report.targets]


def codes(report):
    return [d.code for d in report.diagnostics]


def labels(path):
    index = open_index(path)
    return [index.labels.label(n) for n in range(len(index.labels))]


def test_an_index_definition_becomes_an_index_beside_the_artifacts(schemas, out, path):
    write(schemas / "support.json", {"late": {"type": "boolean", "description": "Is it late?"}})
    report = build([schemas], [MODEL], out)
    assert (outcomes(report), codes(report)) == (["built", "built"], [])
    assert sorted(p.name for p in out.glob("*.pcd*")) == ["support.smollm2.pcdc", path.name]
    assert [t.artifact for t in report.targets] == [out / "support.smollm2.pcdc", path]
    index = open_index(path)
    assert (index.name, index.model, index.field) == ("tariff", "smollm2", "goods")
    assert index.question == "Which goods are these?"
    assert index.examples == (("some dates", LABELS[0]),)
    assert labels(path) == list(LABELS)


def test_equal_inputs_give_equal_bytes_whatever_was_there(schemas, out, path, tmp_path):
    write_labels(schemas, LABELS[2:])
    build([schemas], [MODEL], out)
    write_labels(schemas, LABELS)
    build([schemas], [MODEL], out)
    build([schemas], [MODEL], tmp_path / "new")
    assert path.read_bytes() == (tmp_path / "new" / path.name).read_bytes()


def test_a_second_build_writes_nothing_and_tokenizes_nothing(schemas, out, path, monkeypatch):
    build([schemas], [MODEL], out)
    before = path.stat()

    def not_wanted(*_args, **_more):
        raise AssertionError("nothing changed")

    monkeypatch.setattr(emit, "tokenize_entries", not_wanted)
    report = build([schemas], [MODEL], out)
    assert [(t.outcome, t.reason) for t in report.targets] == [("fresh", "no input changed")]
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_fresh_index_needs_neither_tokenizer_nor_mlx(schemas, out):
    build([schemas], [MODEL], out)
    code = (
        "import sys; from pathlib import Path; from pcdc.build import build\n"
        "import tokenizers; load = tokenizers.Tokenizer.from_file\n"
        "tokenizers.Tokenizer.from_file = None\n"
        f"report = build([Path({str(schemas)!r})], [{MODEL!r}], Path({str(out)!r}))\n"
        "print([t.outcome for t in report.targets], 'mlx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout == "['fresh'] False\n", done.stderr


def test_a_changed_catalog_tokenizes_new_labels_only_and_says_how_many(schemas, out, path, monkeypatch):
    build([schemas], [MODEL], out)
    encoded, encode = [], emit.tokenize_entries

    def counted(definition, prompt, target, old, progress):
        found = encode(definition, prompt, target, old, progress)
        encoded.append(old)
        return found

    monkeypatch.setattr(emit, "tokenize_entries", counted)
    write_labels(schemas, [*LABELS[1:], "Figs, fresh", "Walnuts"])
    write(schemas / "tariff.json", definition(examples=[]))
    build([schemas], [MODEL], out)
    write_labels(schemas, [*LABELS[2:], "Figs, fresh", "Walnuts", "Hazelnuts"])
    (target,) = build([schemas], [MODEL], out).targets
    assert target.reason == "the catalog changed"
    assert target.changes == ("entries: 1 added, 1 removed", "tokens of 7 of 8 labels reused")
    assert [old is not None for old in encoded] == [True, True]


def test_labels_in_another_order_make_it_stale_and_reuse_all(schemas, out, path):
    build([schemas], [MODEL], out)
    write_labels(schemas, LABELS[::-1])
    (target,) = build([schemas], [MODEL], out).targets
    assert (target.outcome, target.changes) == (
        "built",
        ("entries reordered", f"tokens of {len(LABELS)} of {len(LABELS)} labels reused"),
    )
    assert labels(path) == list(LABELS[::-1])


@pytest.mark.parametrize(
    ("more", "changes"),
    [
        ({"instructions": "Answer as the customs would."}, ("instructions changed",)),
        ({"temperature": 2.0}, ("temperature changed from 1 to 2",)),
        ({"examples": []}, ("examples changed from 1 to 0",)),
        ({"examples": [{"context": "figs", "answers": {"goods": LABELS[2]}}]}, ("examples changed",)),
    ],
)
def test_another_question_makes_it_stale_and_says_what_changed(schemas, out, more, changes):
    build([schemas], [MODEL], out)
    write(schemas / "tariff.json", definition(**more))
    (target,) = build([schemas], [MODEL], out).targets
    assert (target.outcome, target.reason) == ("built", "the definition changed")
    assert target.changes == (*changes, f"tokens of {len(LABELS)} of {len(LABELS)} labels reused")


def test_a_layout_of_the_files_that_means_the_same_is_fresh(schemas, out):
    build([schemas], [MODEL], out)
    (schemas / "tariff.json").write_text(json.dumps(definition(), indent=4), encoding="utf-8")
    (schemas / "catalogs" / "goods.txt").write_bytes("\r\n".join(LABELS).encode())
    assert outcomes(build([schemas], [MODEL], out)) == ["fresh"]


def test_force_rebuilds_what_is_fresh(schemas, out):
    build([schemas], [MODEL], out)
    (target,) = build([schemas], [MODEL], out, force=True).targets
    assert (target.outcome, target.reason) == ("built", "a rebuild was asked for")


def test_a_damaged_index_is_a_miss_a_warning_and_the_same_bytes_again(schemas, out, path):
    build([schemas], [MODEL], out)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-10] ^= 1
    for damaged in (b"", whole[:9], whole[: len(whole) // 2], whole[:-1], bytes(flipped), b"pcdc"):
        saving.replace(path, damaged)
        report = build([schemas], [MODEL], out)
        assert (outcomes(report), codes(report)) == (["built"], ["PCDC610"]), damaged[:20]
        assert report.targets[0].reason.startswith("the index ")
        assert path.read_bytes() == whole


def test_a_broken_catalog_keeps_the_last_good_index(schemas, out, path):
    build([schemas], [MODEL], out)
    good = path.read_bytes()
    for content in (b"only one\n", b"a\nb\xff\n", b"a\n\nb\n"):
        (schemas / "catalogs" / "goods.txt").write_bytes(content)
        report = build([schemas], [MODEL], out)
        assert outcomes(report) == ["failed"]
        assert report.targets[0].artifact == path
        assert report.targets[0].reason == "the index has errors; the last good artifact stays"
        assert path.read_bytes() == good


def test_an_index_with_errors_that_was_never_built_is_told_as_an_index(schemas, out, path):
    write_labels(schemas, LABELS[:1])
    (target,) = build([schemas], [MODEL], out).targets
    assert (target.artifact, target.reason) == (path, "the index has errors")


def test_a_definition_that_cannot_be_read_keeps_what_it_became(schemas, out, path):
    build([schemas], [MODEL], out)
    write(schemas / "tariff.json", "{")
    (target,) = build([schemas], [MODEL], out).targets
    assert (target.artifact, "last good artifact stays" in target.reason) == (path, True)


def test_an_index_that_cannot_be_written_keeps_the_last_good_one(schemas, out, path, monkeypatch):
    build([schemas], [MODEL], out)
    good = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kind, "write_index", full)
    write_labels(schemas, LABELS[1:])
    write(schemas / "tariff.json", definition(examples=[]))
    report = build([schemas], [MODEL], out)
    assert (outcomes(report), codes(report)) == (["failed"], ["PCDC611"])
    assert path.read_bytes() == good


def test_a_rebuild_that_is_killed_keeps_the_last_good_index_and_its_litter_is_swept(schemas, out, path):
    build([schemas], [MODEL], out)
    good = path.read_bytes()
    write_labels(schemas, LABELS[:-1])
    code = (
        "import os, signal; from pathlib import Path; from pcdc.build import build\n"
        "from pcdc_runtime.indexed import codec; sections = codec.section_bytes\n"
        "def killed(index):\n"
        "    yield next(iter(sections(index)))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "codec.section_bytes = killed\n"
        f"build([Path({str(schemas)!r})], [{MODEL!r}], Path({str(out)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == -9
    assert len(list(out.glob(".*.tmp"))) == 1
    assert path.read_bytes() == good
    assert outcomes(build([schemas], [MODEL], out)) == ["built"]
    assert list(out.glob(".*.tmp")) == []
    assert labels(path) == list(LABELS[:-1])


def test_a_definition_that_became_an_index_tells_of_its_artifact(schemas, out, path):
    write(schemas / "tariff.json", {"late": {"type": "boolean", "description": "Is it late?"}})
    build([schemas], [MODEL], out)
    write(schemas / "tariff.json", definition())
    report = build([schemas], [MODEL], out)
    assert (outcomes(report), codes(report)) == (["built"], ["PCDC616"])
    assert report.diagnostics[0].subject == str(out / "tariff.smollm2.pcdc")
    (out / "tariff.smollm2.pcdc").unlink()
    assert codes(build([schemas], [MODEL], out)) == []


def test_an_index_of_another_field_is_replaced_with_a_warning(schemas, out):
    build([schemas], [MODEL], out)
    other = definition(examples=[])
    other["part"] = other.pop("goods")
    write(schemas / "tariff.json", other)
    report = build([schemas], [MODEL], out)
    assert (outcomes(report), codes(report)) == (["built"], ["PCDC615"])


def test_an_index_longer_than_the_models_window_is_an_error(schemas):
    definition, _ = parse_index_file(schemas / "tariff.json")
    target, _ = load_target(resolve(MODEL, weights=False))
    index, _ = emit.compile_index(definition, target)
    fixed = len(index.prompt.head) + len(index.prompt.tail)
    whole = fixed + max(len(index.rows.row(row)) for row in range(len(index.rows)))
    assert emit.compile_index(definition, replace(target, window=whole)) == (index, [])
    for window in (40, fixed, whole - 1):
        none, (problem,) = emit.compile_index(definition, replace(target, window=window))
        assert (none, problem.code, problem.subject) == (None, "PCDC307", "index")
        assert problem.limit == f"the window of smollm2 is {window} tokens"


def test_indexes_of_one_name_in_two_folders_get_names_of_their_own(schemas, out):
    write(schemas / "sub" / "catalogs" / "goods.txt", "A\nB\n")
    write(schemas / "sub" / "tariff.json", definition(examples=[]))
    report = build([schemas / "tariff.json", schemas / "sub" / "tariff.json"], [MODEL], out)
    assert outcomes(report) == ["built", "built"]
    assert len({t.artifact for t in report.targets}) == 2
    assert {t.artifact.suffix for t in report.targets} == {".pcdx"}


def test_a_build_of_an_index_is_logged(schemas, out, path):
    build([schemas], [MODEL], out)
    (line,) = map(json.loads, (out / LOG_NAME).read_text(encoding="utf-8").splitlines())
    assert (line["artifact"], line["outcome"], line["reason"]) == (
        path.name,
        "built",
        "there is no index yet",
    )


def test_a_catalog_of_an_index_is_no_definition(schemas, out):
    write(schemas / "goods.json", list(LABELS))
    other = definition()
    other["goods"]["x-catalog"]["source"] = "goods.json"
    write(schemas / "tariff.json", other)
    report = build([schemas], [MODEL], out)
    assert [Path(t.source).name for t in report.targets] == ["tariff.json"]
