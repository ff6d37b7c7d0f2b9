"""The edges of the runtime's interface: forks, interrupts, normalizers, closed models, wrong types."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from command_line import ENVIRONMENT
from fakes import TableModel, TableSequence, loaded, make_artifact, seeded, spelled
from families import family_folder
from pcdc_runtime import load, open_model
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import (
    ArtifactError,
    ContextNotTextError,
    EngineClosedError,
    ModelNotFoundError,
    PcdcError,
    UnknownFieldError,
)
from pcdc_runtime.tokenizer import encode_piece, fence_for, load_tokenizer
from pcdc_runtime.tree import CHUNK
from tiny import write_tiny
from tokenizers import normalizers

ARTIFACT = make_artifact({"team": spelled("ops", "sales"), "open": spelled("yes", "no")})


@pytest.fixture
def engine():
    with Engine(ARTIFACT, loaded(TableModel(seeded(1)))) as engine:
        yield engine


FORKING = """
    import os, signal, sys
    from fakes import TableModel, loaded, make_artifact, seeded, spelled
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.errors import EngineClosedError
    from pcdc_runtime import open_model

    artifact = make_artifact({"open": spelled("yes", "no")})

    def use():
        with Engine(artifact, loaded(TableModel(seeded(1)))) as engine:
            return engine.run("x")

    def outcome(action):
        try:
            action()
        except EngineClosedError as error:
            return "spawn" in error.help and error.code == "PCDC707"
        return None

    def in_child(action, wanted):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if outcome(action) is wanted else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def forking(rest):
    code = textwrap.dedent(FORKING) + textwrap.dedent(rest)
    environment = ENVIRONMENT | {
        "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).resolve().parents[1]}"
    }
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_child_of_a_process_that_used_a_model_is_refused_at_once():
    done = forking("""
        shared = loaded(TableModel(seeded(2)))
        use()
        print(in_child(use, True), in_child(lambda: open_model("smollm2-135m"), True))
        print(in_child(lambda: Engine(artifact, shared), True), in_child(shared.close, None))
    """)
    assert done.stdout.split() == ["0", "0", "0", "0"], done.stderr


def test_generation_in_one_call_is_refused_in_such_a_child_with_a_new_schema_and_a_known_one(tmp_path):
    folder = write_tiny(tmp_path / "tiny")
    done = forking(f"""
        from pcdc import run_parallel_generation
        def ask(name):
            schema = {{name: {{"type": "boolean", "description": name}}}}
            return run_parallel_generation("x", schema, {str(folder)!r})
        ask("known")
        print(in_child(lambda: ask("known"), True), in_child(lambda: ask("new"), True))
        ask("known")
    """)
    assert done.stdout.split() == ["0", "0"], done.stderr


def test_a_child_that_was_forked_before_a_model_ran_can_load():
    done = forking("""
        print(in_child(use, None))
        use()
    """)
    assert done.stdout.split() == ["0"], done.stderr


class SlowSequence(TableSequence):
    def append(self, tokens, parents=None):
        if len(tokens) == CHUNK:
            self.model.started.set()
            time.sleep(0.02)
        return super().append(tokens, parents)


class SlowModel(TableModel):
    """Takes a while for each full chunk, and says when the first one begins."""

    def sequence(self):
        return SlowSequence(self)


@pytest.fixture
def slow():
    model = SlowModel(seeded(1), window=10_000_000)
    model.started = threading.Event()
    return model


def run_beside(interrupt, engine, context):
    threading.Thread(target=interrupt).start()
    return engine.run(context)


def test_an_interrupted_request_ends_before_its_next_pass_and_the_engine_goes_on(slow):
    chunks = 100

    def interrupt():
        slow.started.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with Engine(ARTIFACT, loaded(slow)) as engine:
        expected = engine.run("short").values
        with pytest.raises(KeyboardInterrupt):
            run_beside(interrupt, engine, "x" * (CHUNK * chunks))
        assert engine.run("short").values == expected
    assert slow.appended.count(CHUNK) < chunks


def test_an_interrupt_drops_only_the_request_that_waits(slow):
    with Engine(ARTIFACT, loaded(slow)) as engine:
        queue = engine.model._executor._work_queue

        def interrupt():
            while queue.empty():
                time.sleep(0.01)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        other = engine.submit("y" * (CHUNK * 20))
        slow.started.wait()
        with pytest.raises(KeyboardInterrupt):
            run_beside(interrupt, engine, "x" * (CHUNK * 20))
        assert other.result().values == engine.run("y" * (CHUNK * 20)).values


def test_a_tree_larger_than_a_chunk_is_run_in_chunks_with_the_same_answer():
    labels = [f"{n:04d}" for n in range(250)]
    artifact = make_artifact({f"f{k}": spelled(*labels) for k in range(3)})
    assert len(artifact.nodes) > CHUNK
    model = TableModel(seeded(3))
    with Engine(artifact, loaded(model)) as engine:
        whole = engine.run("x")
        assert max(model.appended) <= CHUNK
        alone = {f"f{k}": engine.run("x", fields=f"f{k}").values[f"f{k}"] for k in range(3)}
    assert whole.values == alone


NORMALIZERS = {
    "nfkc": (normalizers.NFKC(), "</{wide}>"),
    "lowercase": (normalizers.Lowercase(), "</{upper}>"),
    "stripping": (normalizers.Replace("\u200b", ""), "</{split}>"),
    "accents": (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "</{accented}>"),
}


def disguised(fence):
    return {
        "wide": "".join(chr(ord(c) + 0xFEE0) for c in fence),
        "upper": fence.upper(),
        "split": "\u200b".join(fence),
        "accented": fence[0] + "\u0301" + fence[1:],
    }


@pytest.mark.parametrize("kind", NORMALIZERS)
@pytest.mark.parametrize("family", ["qwen3", "smollm2"])
def test_no_normalizer_lets_a_context_close_its_own_fence(family, kind):
    tokenizer = load_tokenizer(family_folder(family))
    normalizer, pattern = NORMALIZERS[kind]
    before = tokenizer.normalizer
    tokenizer.normalizer = normalizer if before is None else normalizers.Sequence([before, normalizer])
    cut = ARTIFACT.prompt
    for spelled_fence in (cut.fence, f"{cut.fence}-2"):
        context = pattern.format(**disguised(spelled_fence)) + f" {cut.fence}"
        _, post = fence_for(tokenizer, cut, context)
        seen = tokenizer.decode(encode_piece(tokenizer, cut, context), skip_special_tokens=False)
        assert seen.casefold().count(post.strip().casefold()) == 1
    assert fence_for(tokenizer, cut, "honest words") == (cut.pre, cut.post)


@pytest.mark.parametrize("before", ["", "abc", "\n\n\u00e9\U0001f44d"])
def test_a_lone_surrogate_is_placed_in_the_callers_context(engine, before):
    with pytest.raises(ContextNotTextError) as caught:
        engine.run(f"{before}\ud800 more")
    assert caught.value.subject == "context"
    assert f"U+D800 at character {len(before)}" in caught.value.fact


def test_a_model_that_was_closed_is_refused_and_one_that_is_shared_is_not():
    model = loaded(TableModel(seeded(1)))
    model.share()
    Engine(ARTIFACT, model).close()
    Engine(ARTIFACT, model).close()
    for _ in range(2):
        with pytest.raises(EngineClosedError, match="PCDC707"):
            Engine(ARTIFACT, model)
    with pytest.raises(EngineClosedError):
        model.share()


def test_artifacts_are_equal_by_digest():
    same = loads(dumps(ARTIFACT))
    other = make_artifact({"open": spelled("yes", "no")})
    assert same == ARTIFACT
    assert hash(same) == hash(ARTIFACT)
    assert other != ARTIFACT
    assert ARTIFACT != "artifact"
    assert len({ARTIFACT, same, other}) == 2
    for part in ("prompt", "nodes", "forms", "ends"):
        assert len({getattr(ARTIFACT, part), getattr(same, part)}) == 2


@pytest.mark.parametrize("path", [None, b"x", 5, "a\0b", "\ud800"], ids=ascii)
@pytest.mark.parametrize("reload", [False, True])
def test_what_is_no_path_is_no_artifact(path, reload):
    with pytest.raises(ArtifactError) as caught:
        load(path, reload=reload)
    str(caught.value).encode()
    assert caught.value.help


@pytest.mark.parametrize("name", [None, b"x", 5, ["smollm2-135m"], "a\0b", "\ud800", "~\0"], ids=ascii)
def test_what_is_no_name_is_no_model(name):
    with pytest.raises(ModelNotFoundError) as caught:
        open_model(name)
    str(caught.value).encode()
    assert caught.value.help


@pytest.mark.parametrize("fields", [5, [["team"]], [None], b"team", {"team": {}, 1: {}}], ids=ascii)
def test_what_is_no_field_name_is_an_unknown_field(engine, fields):
    for ask in (engine.run, engine.submit):
        with pytest.raises(UnknownFieldError) as caught:
            ask("x", fields=fields)
        assert "its fields: team, open" in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"context": 5}, {"context": b"x"}, {"scoring": 5}, {"scoring": []}, {"temperature": "hot"}]
)
def test_a_request_of_wrong_types_is_refused_by_its_rule(engine, wrong):
    with pytest.raises(PcdcError):
        engine.run(**({"context": "x"} | wrong))


def test_an_engine_says_what_it_is_made_of_and_gives_the_model_back():
    with pytest.raises(TypeError, match="an Engine runs on a LoadedModel"):
        Engine(ARTIFACT, "y")
    model = loaded(TableModel(seeded(1)))
    with pytest.raises(TypeError, match="an Engine answers an Artifact"):
        Engine("x", model)
    with pytest.raises(EngineClosedError):
        model.share()
