"""Head files: what they hold is what would be computed, and nothing in the cache can harm an answer."""

import os
import signal
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest
from command_line import ENVIRONMENT
from fakes import WIDTH, byte_tokenizer, make_artifact, spelled
from judging import compiled, target_of
from pcdc_runtime import headfile
from pcdc_runtime.blas import Blas
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import Engine, load
from pcdc_runtime.headfile import HeadFiles, head_files
from pcdc_runtime.loaded import LoadedModel, open_model
from pcdc_runtime.mlx_model import MlxSequence
from pcdc_runtime.model import load_model
from pcdc_runtime.models import DEFAULT, resolve
from seeded import write_folder
from tiny import write_tiny

from pcdc.parse import parse_mapping
from pcdc.prompt import load_target

ARTIFACT = make_artifact({"level": spelled("low", "lower", "high"), "team": spelled("ops", "sales")})
HEAD = ARTIFACT.prompt.head
CONTEXT = "No invoice."


@pytest.fixture(autouse=True)
def worth_keeping(monkeypatch):
    """Every head is, however fast it was computed."""
    monkeypatch.setattr(headfile, "SAVING_S", -1e9)


@pytest.fixture
def run_tokens(monkeypatch):
    """The tokens that went through a model, call by call."""
    ran = []
    append = MlxSequence.append

    def counted(self, tokens, parents=None):
        ran.append(len(tokens))
        return append(self, tokens, parents)

    monkeypatch.setattr(MlxSequence, "append", counted)
    return ran


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("llama"), "llama", vocab_size=WIDTH)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")


def opened(folder, **more):
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return LoadedModel(
        "seeded", lambda: (load_model(folder, float32=False), byte_tokenizer()), folder=folder, **more
    )


def log_scores(result):
    return [answer.log_scores for answer in result.answers]


def answered(folder, heads):
    with Engine(ARTIFACT, opened(folder), heads=heads) as engine:
        return engine.run(CONTEXT)


def notes(result):
    return [warning for warning in result.warnings if warning.startswith("head_cache")]


def only(folder):
    (path,) = folder.iterdir()
    return path


def kept(model, heads, ids):
    """Compute and keep the head `ids`."""

    def job():
        with model.prefixes.lease("any", len(ids)) as prefix:
            prefix.advance(ids)
            heads.keep(model, prefix, ids, 1.0)

    model.call(job)


def restored(model, heads, ids):
    """Whether the head came from its file."""

    def job():
        with model.prefixes.lease("another", len(ids)) as prefix:
            prefix.advance(ids[:0])
            heads.restore(model, prefix, ids)
            return prefix.missing(ids) == 0

    return model.call(job)


def ids_from(first):
    return np.arange(first, first + 20, dtype=np.int32)


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "float32"),
        ("llama", "float16"),
        ("gemma3_text", "bfloat16"),
        ("phi", "float32"),
        ("qwen3_moe", "float32"),
    ],
)
def test_a_head_from_a_file_gives_the_very_scores_of_a_computed_one(tmp_path, run_tokens, family, dtype):
    folder = write_folder(tmp_path / "model", family, dtype, vocab_size=WIDTH)
    alone = answered(folder, None)
    computed = answered(folder, HeadFiles(tmp_path / "heads"))
    assert max(run_tokens) >= len(HEAD)
    run_tokens.clear()
    read = answered(folder, HeadFiles(tmp_path / "heads"))
    assert len(HEAD) not in run_tokens
    assert log_scores(read) == log_scores(computed) == log_scores(alone)
    assert read.head_cached == computed.head_cached >= len(HEAD)
    assert read.kv_copied == computed.kv_copied
    assert not notes(read)


def test_a_quantized_models_head_comes_back_too(tmp_path):
    folder = write_folder(tmp_path / "model", "llama", "bfloat16", bits=4, vocab_size=WIDTH)
    computed = answered(folder, HeadFiles(tmp_path / "heads"))
    assert log_scores(answered(folder, HeadFiles(tmp_path / "heads"))) == log_scores(computed)


def test_the_embedded_model_answers_the_same_from_a_file(tmp_path, run_tokens):
    definition = {"team": {"type": "enum", "choices": ["OPS", "SALES"], "description": "Which team?"}}
    schema, problems = parse_mapping(definition)
    assert schema is not None, problems
    target, problems = load_target(resolve(DEFAULT, weights=True))
    assert target is not None, problems
    artifact = compiled(schema, target)
    results = []
    with open_model(DEFAULT) as model:
        for _ in range(2):
            run_tokens.clear()
            with Engine(artifact, model.share(), heads=HeadFiles(tmp_path)) as engine:
                results.append(engine.run(CONTEXT))
            model.prefixes.hand_over(artifact.digest, "put away")
    assert sum(run_tokens) < len(artifact.prompt.head)
    assert log_scores(results[0]) == log_scores(results[1])


def test_a_head_file_is_safetensors(folder, tmp_path):
    answered(folder, HeadFiles(tmp_path))
    tensors, about = mx.load(str(only(tmp_path)), return_metadata=True)
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        f"layers.{layer}.{kind}": (1, 2, len(HEAD), 8) for layer in range(2) for kind in ("keys", "values")
    }
    assert about["format"] == "pcdc head 1"
    assert len(about["content"]) == 64


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def halved(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def lengthened(path):
    path.write_bytes(path.read_bytes() + b"\0")


def replaced(old, new):
    def replace(path):
        data = path.read_bytes()
        assert data.count(old) >= 1
        path.write_bytes(data.replace(old, new, 1))

    return replace


def flipped(place):
    def flip(path):
        data = bytearray(path.read_bytes())
        data[place(data)] ^= 1
        path.write_bytes(data)

    return flip


def huge_header(path):
    path.write_bytes((2**60).to_bytes(8, "little") + path.read_bytes()[8:])


def foreign(path):
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def pickled(path):
    # Whoever unpickled this would end the process.
    path.write_bytes(b"cos\n_exit\n(I1\ntR.".ljust(path.stat().st_size, b"."))


def not_a_number(path):
    data = path.read_bytes()
    path.write_bytes(data[:-4] + np.float32("nan").tobytes())


def linked(path):
    copy = path.with_name("copy")
    path.rename(copy)
    path.symlink_to(copy)


def piped(path):
    path.unlink()
    os.mkfifo(path)


def header_end(data):
    return 8 + int.from_bytes(data[:8], "little")


DAMAGES = {
    "cut": cut,
    "halved": halved,
    "emptied": emptied,
    "lengthened": lengthened,
    "length of the header": flipped(lambda data: 0),
    "header": flipped(lambda data: header_end(data) // 2),
    "first number": flipped(header_end),
    "last number": flipped(lambda data: len(data) - 1),
    "huge header": huge_header,
    "other shape": replaced(b"[1,2,", b"[2,1,"),
    "other type": replaced(b'"F32"', b'"I32"'),
    "other digest": replaced(b'"content":"', b'"content":"0'),
    "other offsets": replaced(b'"data_offsets":[0,', b'"data_offsets":[1,'),
    "other name": replaced(b"layers.1.keys", b"layers.9.keys"),
    "not a number": not_a_number,
    "foreign": foreign,
    "pickle": pickled,
    "link": linked,
    "pipe": piped,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_told_of_once_and_replaced(folder, tmp_path, run_tokens, damage):
    good = answered(folder, HeadFiles(tmp_path))
    path = only(tmp_path)
    whole = path.read_bytes()
    damage(path)
    with Engine(ARTIFACT, opened(folder), heads=HeadFiles(tmp_path)) as engine:
        results = [engine.run(CONTEXT) for _ in range(2)]
    assert [log_scores(result) for result in results] == [log_scores(good)] * 2
    assert [len(notes(result)) for result in results] == [1, 0]
    assert str(path) in notes(results[0])[0]
    assert not path.is_symlink()
    assert path.read_bytes() == whole
    run_tokens.clear()
    assert not notes(answered(folder, HeadFiles(tmp_path)))
    assert len(HEAD) not in run_tokens


def test_a_folder_in_a_files_place_costs_a_warning_only(folder, tmp_path):
    good = answered(folder, HeadFiles(tmp_path))
    path = only(tmp_path)
    path.unlink()
    path.mkdir()
    result = answered(folder, HeadFiles(tmp_path))
    assert notes(result)
    assert log_scores(result) == log_scores(good)
    assert only(tmp_path).is_dir()


def test_a_damaged_file_leaves_no_number_behind(folder, tmp_path):
    """What was read before the damage showed is not what a later request attends to."""
    good = answered(folder, HeadFiles(tmp_path))
    not_a_number(only(tmp_path))
    heads = HeadFiles(tmp_path)
    with opened(folder) as model:
        assert not restored(model, heads, HEAD)
        with Engine(ARTIFACT, model.share(), heads=heads) as engine:
            assert log_scores(engine.run(CONTEXT)) == log_scores(good)


def test_where_nothing_can_be_written_the_answer_is_given_with_a_warning(folder, tmp_path):
    (tmp_path / "file").touch()
    result = answered(folder, HeadFiles(tmp_path / "file" / "heads"))
    (note,) = notes(result)
    assert "cannot be written" in note
    assert "PCDC_CACHE" in note
    assert log_scores(result) == log_scores(answered(folder, None))


def test_a_full_disk_costs_a_warning_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(file, *_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(headfile, "_write", full)
    result = answered(folder, HeadFiles(tmp_path))
    assert "No space left on device); free some space" in notes(result)[0]
    assert not list(tmp_path.iterdir())
    assert log_scores(result) == log_scores(answered(folder, None))


def test_a_user_without_a_home_has_no_head_files(monkeypatch):
    def homeless():
        raise FileNotFoundError

    monkeypatch.setattr(headfile, "cache_dir", homeless)
    assert head_files(True) is None


def test_heads_used_longest_ago_make_room_and_files_of_others_stay(folder, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"x" * 10_000)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 10_000)
    (tmp_path / f"{'0' * 32}-{'0' * 32}.safetensors").mkdir()
    others = set(tmp_path.iterdir())
    with opened(folder) as model:
        heads = HeadFiles(tmp_path)
        written = []
        for first in (0, 20, 40):
            kept(model, heads, ids_from(first))
            (path,) = set(tmp_path.iterdir()) - others - set(written)
            os.utime(path, ns=(0, len(written)))
            written.append(path)
        assert restored(model, heads, ids_from(0))
        heads.limit = 3 * written[0].stat().st_size
        kept(model, heads, ids_from(60))
        assert [path.exists() for path in written] == [True, False, True]
        heads.limit = written[0].stat().st_size
        kept(model, heads, ids_from(80))
        assert len(set(tmp_path.iterdir()) - others) == 1
        assert restored(model, heads, ids_from(80))
        heads.limit -= 1
        kept(model, heads, ids_from(100))
        assert not restored(model, heads, ids_from(100))
        assert restored(model, heads, ids_from(80))
    assert others < set(tmp_path.iterdir())


def test_a_head_that_is_computed_fast_is_not_kept(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(headfile, "SAVING_S", 1e9)
    answered(folder, HeadFiles(tmp_path / "heads"))
    assert not (tmp_path / "heads").exists()


@pytest.mark.parametrize(
    ("wanted", "switch", "used"),
    [
        (None, "", True),
        (None, "1", True),
        (None, "0", False),
        (None, " Off", False),
        (False, "1", False),
        (True, "0", True),
    ],
)
def test_the_argument_decides_and_then_the_environment(tmp_path, tiny, monkeypatch, wanted, switch, used):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PCDC_HEAD_CACHE", switch)
    path = tmp_path / "t.pcdc"
    path.write_bytes(dumps(ticket("OPS", "SALES")))
    with load(path, tiny, head_cache=wanted) as engine:
        engine.run(CONTEXT)
    assert (tmp_path / "cache" / "heads").exists() == used


def ticket(*teams):
    definition = {"team": {"type": "enum", "choices": [*teams], "description": "Which team handles it?"}}
    schema, problems = parse_mapping(definition, name="ticket")
    assert schema is not None, problems
    return compiled(schema, target_of("smollm2"))


def test_a_rebuilt_artifact_with_the_same_head_finds_its_file(tmp_path, folder, run_tokens):
    again = make_artifact({"level": spelled("low", "high")})
    assert again.digest != ARTIFACT.digest
    answered(folder, HeadFiles(tmp_path))
    run_tokens.clear()
    with Engine(again, opened(folder), heads=HeadFiles(tmp_path)) as engine:
        engine.run(CONTEXT)
    assert len(HEAD) not in run_tokens


@pytest.mark.parametrize("at_once", [False, True])
def test_requests_of_an_engine_that_follows_a_file_take_heads_from_theirs(
    tmp_path, tiny, monkeypatch, run_tokens, at_once
):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    path, other = tmp_path / "ticket.pcdc", tmp_path / "other.pcdc"
    old = ticket("A", "B")
    new = ticket(*(f"{number} and a long name for a team" for number in range(60)))
    other.write_bytes(dumps(new))
    with load(other, tiny, head_cache=True) as engine:
        expected = engine.run(CONTEXT)
    path.write_bytes(dumps(old))
    with load(path, tiny, reload=True, head_cache=True) as engine:
        engine.run(CONTEXT)
        path.write_bytes(dumps(new))
        run_tokens.clear()
        (result,) = engine.run_many([CONTEXT]) if at_once else [engine.run(CONTEXT)]
    head = len(new.prompt.head)
    assert result.head_cached >= head
    assert sum(run_tokens) < head
    np.testing.assert_allclose(
        np.concatenate(log_scores(result)), np.concatenate(log_scores(expected)), atol=1e-5
    )


def test_a_head_that_made_room_for_others_is_read_again(folder, tmp_path):
    other = make_artifact({"level": spelled("low", "high")})
    room = 80_000
    for heads, cached in ((HeadFiles(tmp_path), len(HEAD)), (None, 0)):
        with (
            opened(folder, kv_limit=room) as model,
            Engine(ARTIFACT, model.share(), heads=heads) as first,
            Engine(other, model.share(), heads=heads) as second,
        ):
            assert model.prefixes.bytes_held < room < 2 * model.prefixes.bytes_held
            assert [engine.run(CONTEXT).head_cached for engine in (first, second)] == [cached] * 2


def test_requests_write_nothing(folder, tmp_path):
    with Engine(ARTIFACT, opened(folder), heads=HeadFiles(tmp_path / "heads"), prefill=False) as engine:
        engine.run(CONTEXT)
    assert not (tmp_path / "heads").exists()


def test_whatever_decides_the_numbers_changes_the_name(folder, tmp_path, monkeypatch):
    def name(ids=HEAD, where=folder):
        with opened(where) as model:
            heads = HeadFiles(tmp_path / "heads")
            kept(model, heads, ids)
            (path,) = set(tmp_path.glob("heads/*")) - known
            known.add(path)
            return path.name

    known = set()
    names = [name()]
    names.append(name(ids_from(0)))
    names.append(name(where=write_folder(tmp_path / "a", "llama", seed=1, vocab_size=WIDTH)))
    names.append(name(where=write_folder(tmp_path / "b", "llama", "bfloat16", vocab_size=WIDTH)))
    changes = [
        (headfile.metadata, "version", lambda _: "0"),
        (headfile.platform, "machine", lambda: "other"),
        (headfile, "load_fast_blas", lambda: Blas("other", None)),
        (headfile, "_code", lambda: "other"),
    ]
    for place, attribute, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(place, attribute, value)
            names.append(name())
    assert len(set(names)) == len(names)


def test_weights_that_are_replaced_under_a_running_model_are_not_taken_for_its_own(tmp_path):
    folder = write_folder(tmp_path / "model", "llama", vocab_size=WIDTH)
    heads = HeadFiles(tmp_path / "heads")
    with opened(folder) as old:
        write_folder(folder, "llama", seed=1, vocab_size=WIDTH)
        kept(old, heads, HEAD)
        assert not heads.folder.exists()
        assert not heads.notes
        expected = answered(folder, heads)
        assert not restored(old, heads, HEAD)
    assert log_scores(answered(folder, heads)) == log_scores(expected)


def test_a_model_of_no_folder_has_no_head_files(folder, tmp_path):
    with LoadedModel("made", lambda: (load_model(folder), byte_tokenizer())) as model:
        kept(model, HeadFiles(tmp_path / "heads"), HEAD)
    assert not (tmp_path / "heads").exists()


WRITER = """
import os, signal, sys
from pcdc_runtime import headfile, load
headfile.SAVING_S = -1e9
if sys.argv[3:] == ["die"]:
    def write(file, *_):
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    headfile._write = write
with load(sys.argv[1], sys.argv[2], head_cache=True) as engine:
    print(repr(engine.run("No invoice.").answers[0].log_scores))
"""


def writer(tmp_path, tiny, *more):
    path = tmp_path / "ticket.pcdc"
    if not path.exists():
        path.write_bytes(dumps(ticket("OPS", "SALES")))
    command = [sys.executable, "-c", WRITER, str(path), str(tiny), *more]
    environment = {**ENVIRONMENT, "PCDC_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_writers_that_are_killed_or_meet_do_no_harm(tmp_path, tiny):
    with writer(tmp_path, tiny, "die") as killed:
        killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert only(tmp_path / "cache" / "heads").name.startswith(".")
    processes = [writer(tmp_path, tiny) for _ in range(2)]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    path = only(tmp_path / "cache" / "heads")
    assert not path.name.startswith(".")
    number = path.stat().st_ino
    with writer(tmp_path, tiny) as process:
        said.append(process.communicate()[0])
    assert path.stat().st_ino == number
    assert len(set(said)) == 1
