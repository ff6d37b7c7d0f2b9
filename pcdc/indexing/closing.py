"""Which labels have one surface form only, told from their last two bytes, so that they are encoded once.

The rules look at each label with several endings, because its last characters may merge with the closing
quote or with what follows. Where the following is proved, none can: every ending gives the tokens of the
body, which is the line up to the closing quote, then a token that begins with the quote. So the body's tokens
and a bare `"` are the only form.

1. The normalizer looks at one character at a time, or is NFC, and a quote composes with nothing. So the body
   is normalised alike whatever follows it.
2. The pre-tokenizer takes its pieces from left to right by the patterns in `_LOCAL`. A piece that holds the
   quote and begins before it is then a run that `_LOCAL` also takes without the quote, up to the body's end,
   unless the body ends in a blank (`\\s+(?!\\S)` looks at what follows). So the pieces of the body are the
   same, but that the last may be longer.
3. The model is BPE. It makes no token but by joining two that stand side by side, and every token of the
   vocabulary that holds a quote after something else holds it after bytes that the body does not end in. So
   nothing is ever joined across the body's end, and both sides are joined as if they stood alone.
4. A model that takes a whole piece for a token without joining (`ignore_merges`) is the exception to 3. There
   the body must end in an ASCII letter or digit, and the pre-tokenizer must end its piece there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pcdc.vocabulary import Vocabulary

PAIRS = 1 << 16
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LOCAL = (
    _CONTRACTION,
    r"\p{N}",
    r"\p{N}{1,3}",
    rf"{_WORD}\p{{L}}+",
    rf"{_WORD}[\p{{L}}\p{{M}}]+",
    *(f"{_WORD}{word}{end}" for word in (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
      for end in ("", f"{_CONTRACTION}?")),
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)  # fmt: skip
_ONE = f"(?:{'|'.join(map(re.escape, _LOCAL))})"
_ALTERNATION = re.compile(rf"{_ONE}(?:\|{_ONE})*")


@dataclass(frozen=True, eq=False)
class Proved:
    """What is proved of a tokenizer.

    `appends`: a body is normalised alike whatever closes it. `once[256 * first + second]`: a body with these
    last two bytes has one form only.
    """

    appends: bool
    once: NDArray[np.bool_]


def proved_of(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Proved:
    """Look at the parts of a tokenizer, and at every token that holds a quote."""
    parts = json.loads(tokenizer.to_str())
    appends = _keeps_places(parts["normalizer"])
    if appends and _joins(parts["model"]) and _cuts_locally(parts["pre_tokenizer"]):
        return Proved(appends, _once(parts, vocabulary))
    return Proved(appends, np.zeros(PAIRS, dtype=np.bool_))


def _once(parts: Mapping[str, Any], vocabulary: Vocabulary) -> NDArray[np.bool_]:
    once = np.ones(PAIRS, dtype=np.bool_)
    by_pair = once.reshape(256, 256)
    for spelled in vocabulary.bytes_of(list(range(len(vocabulary)))):
        quote = spelled.find(b'"', 1)
        while quote > 0:
            if quote == 1:
                by_pair[:, spelled[0]] = False
            else:
                by_pair[spelled[quote - 2], spelled[quote - 1]] = False
            quote = spelled.find(b'"', quote + 1)
    # A backslash or a quote at the end leaves open where the value closes; ask the rules.
    by_pair[:, list(b'\\" \t\n\r\v\f')] = False
    for blank in _wide_blanks():
        by_pair[blank[-2], blank[-1]] = False
    if parts["model"].get("ignore_merges"):
        others = [byte for byte in range(256) if not (byte < 128 and chr(byte).isalnum())]
        by_pair[:, others] = False
        once &= _ends_words(parts["pre_tokenizer"])
    return once


def _joins(model: Mapping[str, Any]) -> bool:
    marks = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    return model["type"] == "BPE" and not any(model.get(mark) for mark in marks)


def _keeps_places(normalizer: Mapping[str, Any] | None) -> bool:
    """Whether the normalised body does not depend on what is appended."""
    match normalizer:
        case None | {"type": "NFC"} | {"type": "Prepend"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(one)}}:
            return len(one) == 1 and one not in '"},\n'
        case {"type": "Sequence", "normalizers": parts}:
            return all(map(_keeps_places, parts))
    return False


def _cuts_locally(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    match pre_tokenizer:
        case None | {"type": "Digits"} | {"type": "ByteLevel", "add_prefix_space": False}:
            return True
        case {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}:
            return True
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            written = pattern.replace("\r", r"\r").replace("\n", r"\n")
            return _ALTERNATION.fullmatch(written) is not None
        case {"type": "Sequence", "pretokenizers": parts}:
            return all(map(_cuts_locally, parts))
    return False


def _ends_words(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    """Whether no piece holds a quote right after a letter or a digit."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "use_regex": True}:
            return True
        case {"type": "Split", "pattern": {"Regex": pattern}}:
            return r"\p{L}+" in pattern and r"\p{N}" in pattern
        case {"type": "Sequence", "pretokenizers": parts}:
            return any(map(_ends_words, parts))
    return False


def _wide_blanks() -> list[bytes]:
    return [chr(c).encode() for c in range(0x80, sys.maxunicode + 1) if chr(c).isspace()]
