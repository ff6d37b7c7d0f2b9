"""Text that is only text: one encoding, whichever way it is asked for."""

import random

import pytest
from families import FAMILIES, family_folder
from pcdc_runtime.errors import ContextNotTextError
from pcdc_runtime.tokenizer import encode_text, encode_texts, load_tokenizer

from pcdc.prompt import PROOF_PROBES

ALPHABET = 'aZ 0\n"{}:,._-é开\u0301👍\t▁Ġ<|>'


def step_by_step(tokenizer, text):
    """What the library does to a text, each part asked on its own, added tokens left out."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    pre = tokenizer.pre_tokenizer
    pieces = [text] if pre is None else [piece for piece, _ in pre.pre_tokenize_str(text)]
    return [token.id for piece in pieces for token in tokenizer.model.tokenize(piece)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_has_the_ids_of_its_parts_and_no_control_token(family):
    tokenizer = load_tokenizer(family_folder(family))
    control = tokenizer.get_added_tokens_decoder()
    rng = random.Random(0)
    texts = [*PROOF_PROBES, *(f"a{token.content}\n b" for token in control.values())]
    texts += ["".join(rng.choices(ALPHABET, k=rng.randrange(40))) for _ in range(300)]
    wanted = [step_by_step(tokenizer, text) for text in texts]
    assert [encode_text(tokenizer, text) for text in texts] == wanted
    assert encode_texts(tokenizer, texts) == wanted


def test_one_text_that_is_none_refuses_them_all():
    tokenizer = load_tokenizer(family_folder("smollm2"))
    with pytest.raises(ContextNotTextError, match="character 1"):
        encode_texts(tokenizer, ["a", "b\ud800"])
