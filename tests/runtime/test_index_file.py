"""Index files: what was written comes back, shared by processes, whole or not at all, never unchecked."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import ENVIRONMENT
from index_files import ENTRY, LABELS, forged, grouped, make_index, parts, sealed, seeded_index
from pcdc_runtime.errors import IndexFileError, IndexSizeError
from pcdc_runtime.indexed import mapped
from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.index import Labels, Texts, narrowed
from pcdc_runtime.indexed.layout import file_size
from pcdc_runtime.storage import sweep

INDEXES = {
    "grouped": grouped(),
    "seeded": seeded_index(1, 40),
    "one": make_index([(0, (), (1,))], ["x"], examples=(), inputs={}),
}
SAID = (
    *("name", "model", "field", "question", "instructions", "examples", "temperature"),
    *("fingerprint", "tokenizer_probes", "prompt_version", "prompt_text", "inputs", "largest_id"),
)


@pytest.fixture(params=INDEXES)
def index(request):
    return INDEXES[request.param]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "products.tiny.pcdx"


def content(index):
    """Everything that an index says, as plain values."""
    rows, labels = index.rows, index.labels
    cut = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(index.prompt).items()}
    row = [(rows.row(n).tolist(), rows.ends[int(rows.end[n])].tolist()) for n in range(len(rows))]
    label = [(labels.id(n), labels.label(n), int(labels.entry[n])) for n in range(len(labels))]
    entry = [labels.of_entry(n).tolist() for n in range(labels.entries)]
    return [getattr(index, k) for k in SAID], cut, row, rows.entry.tolist(), rows.entries, label, entry


def test_what_was_written_comes_back_as_an_equal_index(index, path):
    write_index(path, index)
    back = open_index(path)
    assert content(back) == content(index)
    assert back == index
    assert hash(back) == hash(index)


def test_equal_inputs_give_equal_bytes_also_from_the_file_itself(index, path, tmp_path):
    write_index(path, index)
    write_index(tmp_path / "again", open_index(path))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert file_size(index) == path.stat().st_size
    write_index(path, replace(index, inputs=dict(reversed(index.inputs.items()))))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("key", [k for k in SAID if k not in ("examples", "tokenizer_probes", "largest_id")])
def test_whatever_differs_shows_in_the_digest(key):
    other = {"temperature": 2.0, "inputs": {"a": "b"}}.get(key, "another")
    assert grouped(**{key: other}) != INDEXES["grouped"]


def test_a_section_that_differs_shows_in_the_digest(path):
    digests = set()
    for labels in (["a", "b"], ["a", "c"]):
        for end in (1, 2):
            digests.add(make_index([(0, (5,), (end,)), (1, (6,), (end,))], labels).digest)
    assert len(digests) == 4


def test_the_file_is_laid_out_as_the_format_says(path):
    """Read by other code than the product's, from the prose."""
    index = INDEXES["grouped"]
    write_index(path, index)
    data = path.read_bytes()
    header, sections = parts(data)
    assert data[:8] == b"pcdx\r\n\x1a\n"
    assert index.digest == hashlib.sha256(data[48 : 48 + int.from_bytes(data[12:16], "little")]).hexdigest()
    assert [hashlib.sha256(section).digest() for section in sections.values()] == [
        digest for _, digest in header["sections"].values()
    ]
    bounds = np.frombuffer(sections["label_offset"], "<i4").tolist()
    assert [sections["label"][a:b].decode() for a, b in pairwise(bounds)] == [*LABELS]
    assert np.frombuffer(sections["later"], "<i4").tolist() == [5, 8]
    assert np.frombuffer(sections["joins"], "<i4").tolist() == [1, 0]
    assert len(data) == data.rindex(sections["joins"]) + 8


def test_labels_that_are_their_own_ids_are_stored_once(path):
    index = INDEXES["seeded"]
    write_index(path, index)
    _, sections = parts(path.read_bytes())
    assert sections["id"] == sections["id_offset"] == sections["later"] == sections["joins"] == b""
    assert open_index(path).labels.id(3) == index.labels.label(3)
    for ids in (("a", "b"), ["a", "b"]):
        assert Labels.of(["a", "b"], ids, np.arange(2, dtype=np.int32)).ids is None


def test_arrays_are_views_of_the_file_that_cannot_be_written(path):
    write_index(path, INDEXES["grouped"])
    rows = open_index(path).rows
    for array in (rows.token, rows.offset, rows.end, rows.entry, rows.ends.ids):
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_labels_of_an_entry_are_those_of_equal_forms_first_declared_first():
    labels = INDEXES["grouped"].labels
    assert labels.entry.tolist() == [*ENTRY]
    for entry in range(labels.entries):
        assert labels.of_entry(entry).tolist() == [n for n, e in enumerate(ENTRY) if e == entry]
    assert labels.grouped.tolist() == [0, 1]
    for wrong in (-1, labels.entries):
        with pytest.raises(IndexError):
            labels.of_entry(wrong)
    with pytest.raises(IndexError):
        labels.label(len(labels))


@pytest.mark.parametrize("seed", range(20))
def test_any_grouping_comes_back(seed):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 6, rng.integers(1, 30)).tolist()
    order = list(dict.fromkeys(raw))
    entry = [order.index(e) for e in raw]
    texts = [f"t{n}" for n in range(len(raw))]
    labels = Labels.of(texts, texts, np.array(entry, dtype=np.int32))
    assert labels.entry.tolist() == entry
    assert labels.entries == len(order)
    assert [labels.of_entry(e).tolist() for e in range(len(order))] == [
        [n for n, other in enumerate(entry) if other == e] for e in range(len(order))
    ]


@pytest.mark.parametrize("entry", [[1, 0], [0, 2], [-1, 0], [0, -1]])
def test_entries_must_be_numbered_by_their_first_labels(entry):
    with pytest.raises(ValueError, match="first labels"):
        Labels.of(["a", "b"], ["a", "b"], np.array(entry, dtype=np.int32))


def test_texts_come_back_whatever_their_script():
    texts = ["", "a", "größer", "日本", "\U0001f44d", "a\0b"]
    column = Texts.of(texts)
    assert [column[n] for n in range(len(column))] == texts


def test_a_catalog_too_large_to_count_is_refused():
    assert narrowed(np.array([0, 2**31 - 1])).dtype == np.int32
    with pytest.raises(IndexSizeError, match="2147483648"):
        narrowed(np.array([0, 2**31]))


class Held:
    """A check of contents that waits until it is let go."""

    def __init__(self, monkeypatch):
        self.go = threading.Event()
        for name in ("check_rows", "check_labels"):
            monkeypatch.setattr(mapped, name, self.waiting(getattr(mapped, name)))

    def waiting(self, check):
        def wait(*given):
            assert self.go.wait(60)
            check(*given)

        return wait


def test_nothing_can_be_read_before_the_check_passed_but_the_header(path, monkeypatch):
    write_index(path, INDEXES["grouped"])
    held = Held(monkeypatch)
    index = open_index(path)
    assert (index.question, index.digest) == ("Which product?", INDEXES["grouped"].digest)
    assert index.largest_id == 60
    read = []
    waiting = [
        threading.Thread(target=lambda: read.append(len(index.rows))),
        threading.Thread(target=lambda: read.append(len(index.labels))),
        threading.Thread(target=lambda: read.append(index.check())),
    ]
    for thread in waiting:
        thread.start()
    waiting[0].join(0.2)
    assert read == []
    held.go.set()
    for thread in waiting:
        thread.join(60)
    assert {*read} == {11, 10, None}


def test_a_check_that_failed_fails_for_every_caller_and_again(path):
    write_index(path, INDEXES["grouped"])
    path.write_bytes(forged(path.read_bytes(), end=[99] * 11))
    index = open_index(path)
    seen = []

    def look():
        for read in (lambda: index.rows, lambda: index.rows, index.check, lambda: index.rows):
            try:
                read()
            except IndexFileError as error:
                seen.append((error.subject, error.fact))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [(str(path), "has a row of an unknown END set")] * 16


def test_a_child_forked_during_the_check_does_not_wait_for_a_thread_that_it_lacks(path, monkeypatch):
    write_index(path, INDEXES["grouped"])
    held = Held(monkeypatch)
    index = open_index(path)
    child = os.fork()
    if child == 0:
        held.go = threading.Event()
        held.go.set()
        signal.alarm(30)
        os._exit(len(index.rows))
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    finally:
        held.go.set()
    index.check()


READER = """
import json, sys
from pathlib import Path
from pcdc_runtime.indexed.codec import open_index
index = open_index(Path(sys.argv[1]))
index.check()
print(index.digest, flush=True)
sys.stdin.readline()
print([index.labels.label(n) for n in range(len(index.labels))] == json.loads(sys.argv[2]), flush=True)
"""


def reader(path, labels):
    command = [sys.executable, "-c", READER, str(path), json.dumps(labels)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_processes_share_a_file_and_keep_it_when_another_takes_its_place(path):
    write_index(path, INDEXES["grouped"])
    readers = [reader(path, LABELS) for _ in range(2)]
    assert [r.stdout.readline().strip() for r in readers] == [INDEXES["grouped"].digest] * 2
    write_index(path, INDEXES["seeded"])
    assert open_index(path) == INDEXES["seeded"]
    assert [r.communicate("\n", timeout=60)[0].strip() for r in readers] == ["True"] * 2


WRITER = """
import sys, os, signal
from pathlib import Path
from index_files import seeded_index
from pcdc_runtime.indexed import codec
sections = codec.section_bytes
def killed(index):
    for number, section in enumerate(sections(index)):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield section
index = seeded_index(2, 40)
index.digest
codec.section_bytes = killed
codec.write_index(Path(sys.argv[1]), index)
"""


@pytest.mark.parametrize("section", [0, 7])
def test_a_killed_writer_leaves_the_last_good_file_and_what_a_sweep_takes(path, section):
    """Field report 34."""
    write_index(path, INDEXES["grouped"])
    places = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(Path(__file__).parents[1])])
    command = [sys.executable, "-c", WRITER, str(path), str(section)]
    done = subprocess.run(command, env={**ENVIRONMENT, "PYTHONPATH": places})
    assert done.returncode == -signal.SIGKILL
    assert len(list(path.parent.iterdir())) == 2
    assert content(open_index(path)) == content(INDEXES["grouped"])
    sweep(path.parent, path.name)
    assert list(path.parent.iterdir()) == [path]


def test_a_writer_that_fails_leaves_the_last_good_file_and_nothing_else(path, monkeypatch):
    """Field report 34."""
    write_index(path, INDEXES["grouped"])
    monkeypatch.setattr("pcdc_runtime.storage.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_index(path, INDEXES["seeded"])
    assert list(path.parent.iterdir()) == [path]
    assert open_index(path) == INDEXES["grouped"]


def test_a_forged_file_of_equal_content_is_the_same_file(path):
    write_index(path, INDEXES["grouped"])
    data = path.read_bytes()
    header, sections = parts(data)
    assert forged(data) == data
    assert sealed(INDEXES["grouped"].header, sections) == data
    assert [*header["sections"]] == [*sections]
