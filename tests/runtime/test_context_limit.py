"""The largest context there can be: refused before a tokenizer sees it, whichever way it comes in."""

import time

import pytest
from fakes import TableModel, byte_tokenizer, loaded, make_artifact, seeded, spelled
from pcdc_runtime import groups, tokenizer
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import ContextTooLongError
from pcdc_runtime.rules import MAX_CONTEXT_BYTES
from pcdc_runtime.tokenizer import assemble_prompt, check_size

from pcdc.cli import MAX_CONTEXT_BYTES as OF_THE_COMMAND

ARTIFACT = make_artifact({"level": spelled("low", "high")})
WAYS = {
    "run": lambda engine, text: engine.run(text),
    "submit": lambda engine, text: engine.submit(text).result(),
    "compare": lambda engine, text: engine.compare(text),
    "run_many": lambda engine, text: raised(next(engine.run_many([text]))),
    "assemble": lambda engine, text: assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, text),
}


def raised(error):
    raise error


@pytest.fixture
def untokenized(monkeypatch):
    """Texts that a tokenizer was given."""
    seen = []
    encode = tokenizer.encode_text
    monkeypatch.setattr(tokenizer, "encode_text", lambda t, text: seen.append(len(text)) or encode(t, text))
    monkeypatch.setattr(tokenizer, "free_fence", lambda _, fence, text: seen.append(len(text)) or fence)
    return seen


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "text", ["x" * (MAX_CONTEXT_BYTES + 1), "\u5f00" * (MAX_CONTEXT_BYTES // 3 + 1)], ids=["bytes", "utf-8"]
)
def test_a_text_above_the_limit_is_refused_before_it_is_tokenized(way, text, untokenized):
    with Engine(ARTIFACT, loaded(TableModel(seeded(1), window=None))) as engine:
        untokenized.clear()
        with pytest.raises(ContextTooLongError, match="at most 16 MiB"):
            WAYS[way](engine, text)
    assert untokenized == []


@pytest.mark.parametrize("char", ["x", "\u00e9", "\u5f00", "\U0001f44d", "\ud800"])
def test_the_limit_counts_bytes_as_utf8(char):
    fits = MAX_CONTEXT_BYTES // len(char.encode("utf-8", "surrogatepass"))
    check_size(char * fits)
    with pytest.raises(ContextTooLongError):
        check_size(char * (fits + 1))


def test_the_limit_of_the_command_is_that_of_the_runtime():
    assert OF_THE_COMMAND == MAX_CONTEXT_BYTES == 16 * 1024**2


def test_the_time_of_a_refused_text_is_charged_to_nobody(monkeypatch):
    now = [0.0]

    def slow(text):
        if len(text) > 400:
            now[0] += 1000
            raise ContextTooLongError("context", "is too long")

    monkeypatch.setattr(groups, "check_size", slow)
    monkeypatch.setattr(groups, "perf_counter", lambda: time.perf_counter() + now[0])
    with Engine(ARTIFACT, loaded(TableModel(seeded(1), window=None))) as engine:
        first, refused, last = engine.run_many(["a", "x" * 500, "b"])
    assert isinstance(refused, ContextTooLongError)
    assert first.elapsed_ms + last.elapsed_ms < 900_000
