"""What a request of 28 fields with 255 choices adds to the KV, on a seeded model of mlx-lm."""

import pytest
from fakes import WIDTH, byte_tokenizer, make_artifact, spelled
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.mlx_model import MlxSequence
from pcdc_runtime.model import load_model
from pcdc_runtime.rules import NODE_BUDGET
from pcdc_runtime.tokenizer import assemble_prompt
from seeded import COMMON, write_folder

FIELDS, CHOICES = 28, 255
LETTERS = "abcdefghijklmnop"
LABELS = [one + other for one in LETTERS for other in LETTERS][:CHOICES]
ARTIFACT = make_artifact({f"q{number}": spelled(*LABELS) for number in range(FIELDS)})
# Keys and values in float32.
BYTES = 2 * 4 * COMMON["num_hidden_layers"] * COMMON["num_key_value_heads"] * COMMON["head_dim"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("wide") / "llama", "llama", vocab_size=WIDTH)


@pytest.mark.parametrize("budget", [NODE_BUDGET, 10**6])
def test_added_kv_is_that_of_the_text_and_of_the_widest_pass_and_nothing_is_copied(
    folder, monkeypatch, budget
):
    lengths = []
    append = MlxSequence.append

    def watched(self, *arguments):
        hidden = append(self, *arguments)
        lengths.append(self.length)
        return hidden

    monkeypatch.setattr(MlxSequence, "append", watched)
    loaded = LoadedModel("llama", lambda: (load_model(folder), byte_tokenizer()))
    with Engine(ARTIFACT, loaded, budget) as engine:
        assert engine.model.language.kv_bytes_per_token == BYTES
        head = len(ARTIFACT.prompt.head)
        first = engine.run("The longest one comes first, and makes all the room there is.")
        for context in ("Another one.", "Yet another, a bit longer."):
            lengths.clear()
            found = engine.run(context)
            prompt = assemble_prompt(byte_tokenizer(), ARTIFACT.prompt, context)
            base = len(prompt) - 1
            widest = max(lengths) - base
            assert found.kv_added == (base - head + widest) * BYTES
            assert found.kv_bytes == max(lengths) * BYTES
            assert found.kv_copied == 0
            assert FIELDS * CHOICES <= found.nodes == first.nodes
            assert found.positions == base - head + found.nodes
            if budget > found.nodes:
                assert widest == found.nodes
            else:
                assert found.nodes / 2 <= widest <= budget
