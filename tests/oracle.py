"""Brute force over P(tokens | prompt): the judge of every scoring path.

It shares no code with what it judges. From the product it takes one thing, the prompt's text. It reads the
tokenizer file itself, encodes whole conversations with the tokenizer's own `encode`, spells tokens by its own
table and runs one full forward pass for every token sequence that spells an answer.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

LogProbs = Callable[[Sequence[int], int], Sequence[np.ndarray]]
"""(whole token sequence, first position) -> log-probabilities of the next token after each position from the
first one on, a row of V float64 for each."""


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def total(values: Sequence[float]) -> float:
    values = [v for v in values if v != -math.inf]
    if not values:
        return -math.inf
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))


class Oracle:
    """One tokenizer's judge; `log_probs` may be exchanged, what was found out about the tokenizer stays."""

    def __init__(self, tokenizer_file: Path, log_probs: LogProbs) -> None:
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.log_probs = log_probs
        data = json.loads(tokenizer_file.read_text(encoding="utf-8"))
        text = json.dumps([data.get("pre_tokenizer"), data.get("decoder")])
        byte_level = "ByteLevel" in text
        printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
        alphabet = {chr(b): b for b in printable}
        for count, b in enumerate(b for b in range(256) if b not in printable):
            alphabet[chr(256 + count)] = b
        self.spelling: dict[int, bytes] = {}
        for token, index in data["model"]["vocab"].items():
            if byte_level:
                whole = all(c in alphabet for c in token)
                self.spelling[index] = bytes(alphabet[c] for c in token) if whole else token.encode()
            elif len(token) == 6 and token[:3] == "<0x":
                self.spelling[index] = bytes.fromhex(token[3:5])
            else:
                self.spelling[index] = token.replace("\u2581", " ").encode()
        special = set()
        for added in data["added_tokens"]:
            self.spelling[added["id"]] = added["content"].encode()
            if added["special"]:
                special.add(added["id"])
        self.plain = {i: s for i, s in self.spelling.items() if i not in special and s}
        self.closers = cache(self._closers)
        self.events = lru_cache(maxsize=4096)(self._events)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _closers(self, rest: bytes, quoted: bool) -> list[int]:
        found = []
        for index, spelled in self.plain.items():
            if not spelled.startswith(rest):
                continue
            after = spelled[len(rest) :]
            if quoted or (after and (after.strip(b" \t\n\r") == b"" or after.lstrip(b" \t\n\r")[0] in b",}")):
                found.append(index)
        return found

    def _events(self, prompt: str, name: str, literal: str) -> set[tuple[tuple[int, ...], bytes, bool]]:
        """(whole token sequence, what is left of the value, quoted?) of every spelling of one literal."""
        quoted = literal.startswith('"')
        line = prompt + "{" + json.dumps(name, ensure_ascii=False) + ": " + literal
        stop = line[:-1] if quoted else line
        events = set()
        for follow in ("", "}", ",", "\n") if quoted else ("", "}", ",", "\n", " "):
            ids = self._encode(line + follow)
            # The value's last byte is found from the right: what follows the value is known text.
            remaining = len((line + follow)[len(stop) :].encode())
            path = list(ids)
            taken = b""
            while path and len(taken) < remaining:
                taken = self.spelling[path.pop()] + taken
            rest = taken[: len(taken) - remaining] + (b'"' if quoted else b"")
            events.add((tuple(path), rest, quoted))
        clean = self._encode(stop)
        if (
            self.tokenizer.decode(clean, skip_special_tokens=False)
            == self.tokenizer.decode(self._encode(line), skip_special_tokens=False)[: -1 if quoted else None]
        ):
            events.add((tuple(clean), b'"' if quoted else b"", quoted))
        return events

    def anchor(self, prompt: str, name: str, literals: Sequence[str]) -> int:
        """How many tokens stand before the value, whatever the value is."""
        line = prompt + "{" + json.dumps(name, ensure_ascii=False) + ": "
        whole = [self._encode(line + v) for v in ('"a', '"1', '" ', "true", "null", "1", "-1")]
        whole += [list(path) for literal in literals for path, _, _ in self.events(prompt, name, literal)]
        size = 0
        while all(len(w) > size for w in whole) and len({w[size] for w in whole}) == 1:
            size += 1
        return size

    def score(self, prompt: str, name: str, choices: Sequence[Sequence[str]]) -> list[float]:
        """log P(choice and END | prompt, everything up to the value) for each choice, under `joint`."""
        start = self.anchor(prompt, name, [literal for literals in choices for literal in literals])
        scores = []
        for literals in choices:
            parts = []
            for path, rest, quoted in sorted(set().union(*(self.events(prompt, name, v) for v in literals))):
                rows = self.log_probs(path, start - 1)
                logp = sum(float(rows[i - start][path[i]]) for i in range(start, len(path)))
                parts.append(logp + total([float(rows[-1][t]) for t in self.closers(rest, quoted)]))
            scores.append(total(parts))
        return scores
