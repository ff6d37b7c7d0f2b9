"""A tokenizer's vocabulary as bytes: what each token spells, and which tokens can close a form."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pcdc_runtime.artifact import Ints
from tokenizers import Tokenizer

JSON_BLANKS = b" \t\n\r"
END_SETS_KEPT = 4096
Beginning = TypeVar("Beginning", bytes, tuple[int, ...])


class Remainder(NamedTuple):
    """What is left to spell when a form's path ends.

    Quoted: the rest of the choice with its closing quote. Bare: the rest of the literal, which a comma, a
    closing brace or a blank must follow.
    """

    rest: bytes
    bare: bool = False


class Vocabulary:
    """Token bytes of one tokenizer, sorted once so that tokens of one prefix are a range."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = json.loads(tokenizer.to_str())
        self.byte_level = _mentions(model, "ByteLevel")
        added = tokenizer.get_added_tokens_decoder()
        self.control_spellings = tuple(
            sorted(token.content for token in added.values() if token.content.strip(" \t\r\n\u2581"))
        )
        self.control_ids = frozenset(added)
        spell = _byte_level if self.byte_level else _sentencepiece
        ids = tokenizer.get_vocab(with_added_tokens=True)
        self._bytes: list[bytes] = [b""] * (max(ids.values()) + 1)
        for text, index in ids.items():
            self._bytes[index] = added[index].content.encode() if index in added else spell(text)
        special = {index for index, token in added.items() if token.special}
        self._sorted = sorted((b, i) for i, b in enumerate(self._bytes) if b and i not in special)
        self._keys = [b for b, _ in self._sorted]
        # The bare literals that every schema has look at the whole vocabulary.
        self._end_set = lru_cache(maxsize=END_SETS_KEPT)(self._found_end_set)

    def __len__(self) -> int:
        """One more than the largest id; not every smaller number is one."""
        return len(self._bytes)

    def bytes_of(self, ids: list[int]) -> list[bytes]:
        """Bytes of each token; never `decode`, which answers for a sequence and not for a token."""
        return [self._bytes[i] for i in ids]

    def plain(self, normalised: str) -> bytes:
        """Bytes that a normalised text must come back as."""
        return (normalised if self.byte_level else normalised.replace("\u2581", " ")).encode()

    def end_set(self, remainder: Remainder) -> Ints:
        """Sorted ids of all non-special tokens whose bytes begin with the remainder and close the value."""
        return self._end_set(remainder)

    def _found_end_set(self, remainder: Remainder) -> Ints:
        ids = (
            i
            for b, i in self._with_prefix(remainder.rest)
            if not remainder.bare or _closes(b, remainder.rest)
        )
        found = np.array(sorted(ids), dtype=np.int32)
        found.setflags(write=False)
        return found

    def _with_prefix(self, prefix: bytes) -> list[tuple[bytes, int]]:
        start = bisect_left(self._keys, prefix)
        stop = start
        while stop < len(self._keys) and self._keys[stop].startswith(prefix):
            stop += 1
        return self._sorted[start:stop]


def shared_beginning(sequences: Sequence[Beginning]) -> Beginning:
    """Longest common prefix: what the first and the last in order have in common."""
    low, high = min(sequences), max(sequences)
    differing = (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b)
    return low[: next(differing, len(low))]


def _closes(spelled: bytes, rest: bytes) -> bool:
    after = spelled[len(rest) :]
    return bool(after) and after.lstrip(JSON_BLANKS)[:1] in (b"", b",", b"}")


def _mentions(part: Any, kind: str) -> bool:
    if isinstance(part, dict):
        if part.get("type") == kind:
            return True
        return any(
            _mentions(part.get(key), kind)
            for key in ("pre_tokenizer", "pretokenizers", "decoder", "decoders")
        )
    return isinstance(part, list) and any(_mentions(item, kind) for item in part)


@lru_cache(maxsize=1)
def _byte_of_char() -> dict[str, int]:
    """GPT-2's byte alphabet, inverted: printable bytes are themselves, the others U+0100 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    others = (b for b in range(256) if b not in set(printable))
    table.update({chr(0x100 + n): b for n, b in enumerate(others)})
    return table


def _byte_level(token: str) -> bytes:
    table = _byte_of_char()
    try:
        return bytes(table[char] for char in token)
    except KeyError:
        return token.encode()


def _sentencepiece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()
