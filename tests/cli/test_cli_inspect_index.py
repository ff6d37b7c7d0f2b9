"""`pcdc inspect` of an index file, and files in each other's place."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from index_files import forged, grouped, make_index, seeded_index
from mutations import flipped
from pcdc_runtime.indexed.codec import write_index
from saving import replace


@pytest.fixture
def index(tmp_path):
    path = tmp_path / "products.tiny.pcdx"
    write_index(path, grouped())
    return path


def test_the_json_says_how_much_of_everything_there_is(pcdc, index):
    view = json.loads(pcdc("inspect", index, "--json").stdout)
    made = grouped()
    assert (view["name"], view["model"], view["field"]) == ("products", "tiny", "product")
    assert (view["question"], view["digest"]) == ("Which product?", made.digest)
    assert (view["entries"], view["labels"], view["has_ids"]) == (8, 10, True)
    assert (view["rows"], view["tokens"]) == (11, len(made.rows.token))
    assert (view["head_tokens"], view["tail_tokens"], view["examples"]) == (3, 2, 2)
    assert view["file_bytes"] == index.stat().st_size
    assert view["raw_id_bytes"] == 4 * len(made.rows.token)
    assert view["inputs"] == dict(made.inputs)
    assert [[row["id"] for row in group] for group in view["groups"]] == [["p0", "p8"], ["p1", "p5"]]
    assert [[row["label"] for row in group] for group in view["groups"]] == [["Schuhe"] * 2, ["Schuh"] * 2]


def test_people_read_the_same_figures(pcdc, index):
    done = pcdc("inspect", index)
    assert (done.exit_code, done.stderr) == (0, "")
    size, raw = index.stat().st_size, 4 * len(grouped().rows.token)
    for line in (
        "index products, model tiny, field product, temperature 1",
        "question: Which product?",
        "prompt: 3 head tokens, 2 tail tokens, 2 worked examples",
        "catalog: 8 entries, 10 labels, with ids",
        f"file: {size:,} bytes, {size / raw:.2f} times the raw ids ({raw:,} bytes)",
        "grouped: 2 entries of 4 labels",
        "one answer: 'Schuhe (p0)', 'Schuhe (p8)'",
    ):
        assert line in done.stdout.splitlines()


def test_the_prompt_alone(pcdc, index):
    assert pcdc("inspect", index, "--prompt").stdout == f"{grouped().prompt_text}\n"


def test_labels_without_ids_and_many_groups_are_told_in_few_lines(pcdc, tmp_path):
    path = tmp_path / "many.tiny.pcdx"
    write_index(path, seeded_index(1, 30))
    assert "catalog: 30 entries, 30 labels, which are their own ids" in pcdc("inspect", path).stdout
    labels = [f"l{n // 2}" for n in range(60)]
    forms = [(n, (n,), (99,)) for n in range(30)]
    write_index(path, make_index(forms, labels, [*map(str, range(60))], [n // 2 for n in range(60)]))
    shown = pcdc("inspect", path).stdout
    assert "one answer: 18 more" in shown
    assert shown.count("one answer:") == 13
    assert len(json.loads(pcdc("inspect", path, "--json").stdout)["groups"]) == 30


def test_what_a_text_holds_does_not_reach_the_terminal_raw(pcdc, tmp_path):
    path = tmp_path / "odd.tiny.pcdx"
    write_index(
        path, grouped(question="Which\x1b[2J one?\nnone", name="a\u202eb", inputs={"\x1b": "\x1b[2J"})
    )
    done = pcdc("inspect", path)
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_an_index_is_known_by_its_bytes_and_by_its_name(pcdc, index, tmp_path):
    shutil.copy(index, tmp_path / "named.pcdc")
    assert pcdc("inspect", tmp_path / "named.pcdc").stdout == pcdc("inspect", index).stdout
    (tmp_path / "empty.pcdx").write_bytes(b"")
    done = pcdc("inspect", tmp_path / "empty.pcdx")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "PCDC617" in done.stderr
    assert "is not a pcdc index" in done.stderr
    done = pcdc("inspect", tmp_path / "absent.pcdx")
    assert done.exit_code == 2
    assert "PCDC617" in done.stderr
    assert "cannot be read" in done.stderr


def test_each_file_in_the_others_place_is_told_with_the_way_out(pcdc, index, artifact, tiny, tmp_path):
    done = pcdc("run", index, "--text", "It pinches.", "--model", tiny)
    assert done.exit_code == 2
    assert "is an index, not an artifact" in done.stderr
    assert f"pcdc select {index}" in done.stderr
    shutil.copy(artifact, tmp_path / "a.pcdx")
    done = pcdc("inspect", tmp_path / "a.pcdx")
    assert done.exit_code == 2
    assert "is an artifact, not an index" in done.stderr
    assert "pcdc run" in done.stderr


def test_no_damage_gives_a_traceback(pcdc, index):
    good = index.read_bytes()
    rng = random.Random(5)
    hostile = [good[: rng.randrange(len(good))] for _ in range(20)]
    hostile += [flipped(good, rng.randrange(len(good) * 8)) for _ in range(20)]
    hostile += [forged(good, **{name: [-1, 5]}) for name in ("offset", "end", "later", "label_offset")]
    for data in hostile:
        # What was opened before may still be checked: bytes taken from under it would end the process.
        replace(index, data)
        for more in ((), ("--json",), ("--prompt",)):
            done = pcdc("inspect", index, *more)
            assert (done.exit_code, done.stdout) == (2, "")
            assert done.stderr.startswith("error[PCDC617]: ")
