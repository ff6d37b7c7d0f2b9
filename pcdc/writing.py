"""The same model writing the JSON itself: the baseline that scores are compared with.

Greedy decoding from the artifact's own prompt, over its cached head. Under llguidance every text that the
grammar forces is appended without a decision, in one forward with the last decided token, so that the
baseline runs as few passes as this way of answering can.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Artifact, Candidate, Ints, Value
from pcdc_runtime.bound import check_window
from pcdc_runtime.errors import ExtraMissingError, ScoreError, TokenizerError
from pcdc_runtime.tokenizer import assemble_prompt, check_tokenizer, encode_text

from .schema import Choice

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from pcdc_runtime.loaded import LoadedModel
    from pcdc_runtime.prefix import Prefix

_PARSER = json.JSONDecoder(object_pairs_hook=list)


@dataclass(frozen=True)
class Written:
    """What a model wrote for one context, and what it took.

    `text` is the whole answer, with what the prompt holds of it already. `values` is None where that is not
    valid, `reason` then says why. `tokens` are those written after the prompt, `decided` tells for each
    whether the model chose it; all others were forced. `passes` counts forwards, `sequential_passes` those
    that wait for one another, `positions` the tokens that went through the model, `kv_bytes` the keys and
    values that the longest moment needed. Times are in milliseconds on the owner thread; `prefill_ms` is 0
    where the prompt went with the first decision in one forward.
    """

    text: str
    values: dict[str, Value] | None
    reason: str
    tokens: tuple[int, ...]
    decided: tuple[bool, ...]
    passes: int
    sequential_passes: int
    positions: int
    kv_bytes: int
    prefill_ms: float
    write_ms: float

    @property
    def decided_tokens(self) -> int:
        """How many tokens the model chose."""
        return sum(self.decided)

    @property
    def forced_tokens(self) -> int:
        """How many tokens the grammar left no choice about."""
        return len(self.tokens) - self.decided_tokens


class Writer:
    """Writes the answers of one artifact on one loaded model; safe to call from any thread.

    The grammar is compiled once. Raises FingerprintMismatchError for a model of another tokenizer,
    ExtraMissingError without llguidance, TokenizerError where llguidance cannot use the tokenizer.
    """

    def __init__(self, artifact: Artifact, model: LoadedModel) -> None:
        check_tokenizer(artifact, model.tokenizer, model.fingerprint, model.name)
        try:
            from llguidance import LLMatcher, LLTokenizer
        except ImportError as error:
            raise ExtraMissingError(
                "llguidance",
                f"cannot be imported ({error})",
                "the model's own JSON is written under llguidance",
                "install it with `pip install 'pcdc[eval]'`",
            ) from error
        self.artifact = artifact
        self.model = model
        width = max(model.language.logits_width, model.tokenizer.get_vocab_size())
        try:
            self._tokenizer = LLTokenizer(model.tokenizer.to_str(), n_vocab=width)
        except ValueError as error:
            raise TokenizerError(
                model.name, f"has a tokenizer that llguidance cannot use ({error})"
            ) from error
        self._specials = {i for i, t in model.tokenizer.get_added_tokens_decoder().items() if t.special}
        self._opening = self._held_by_prompt()
        self._matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(grammar(artifact)))
        # The prompt may spell the opening in tokens that begin before it: the matcher is given its bytes.
        self._matcher.consume_tokens(self._tokenizer.greedy_tokenize(self._opening))
        if self._matcher.is_error():
            raise TokenizerError(artifact.name, f"has no usable grammar ({self._matcher.get_error()})")

    def write(
        self, context: str, *, constrained: bool = True, fast_forward: bool = True, limit: int | None = None
    ) -> Written:
        """Write the answers for one context, greedily.

        Without `constrained` nothing is masked or forced: the model writes what it likes until it ends its
        turn or a JSON object is complete. Without `fast_forward` each token is decided under the mask. At
        most `limit` tokens are written; by default any valid answer fits, and `constrained=False` gets twice
        what the longest one takes. Raises ContextNotTextError, ContextTooLongError, ScoreError,
        EngineClosedError.
        """
        if limit is None:
            longest = longest_answer(self.artifact)
            tokens = len(encode_text(self.model.tokenizer, longest))
            limit = len(longest.encode()) if constrained else 2 * tokens
        rule = partial(_Masked, self._matcher, fast_forward) if constrained else partial(_Free, self)
        return self.model.call(lambda: self._write(context, rule(), limit))

    def text(self, tokens: Sequence[int]) -> str:
        """The answer so far, with what the prompt holds of it."""
        written = self._tokenizer.decode_bytes(list(tokens))
        return (self._opening.encode() + written).decode(errors="replace")

    def ends(self, token: int) -> bool:
        """Whether a token ends the turn."""
        return token in self._specials

    def _held_by_prompt(self) -> str:
        """The beginning of the answer that the prompt's tail ends with."""
        first = _keys(self.artifact)[0]
        tail = self._tokenizer.decode_bytes(self.artifact.prompt.tail.tolist())
        sizes = range(len(first), 0, -1)
        return next((first[:size] for size in sizes if tail.endswith(first[:size].encode())), "")

    def _write(self, context: str, rule: _Rule, limit: int) -> Written:
        prompt = assemble_prompt(self.model.tokenizer, self.artifact.prompt, context)
        check_window(self.model, len(prompt), 1)
        window = self.model.language.window
        limit = limit if window is None else min(limit, window - len(prompt))
        base = len(prompt) - 1
        tokens: list[int] = []
        decided: list[bool] = []
        with self.model.prefixes.lease(self.artifact.digest, len(prompt) + limit) as prefix:
            started, passes = perf_counter(), prefix.sequence.passes
            cached = prefix.advance(prompt[:base], 1)
            prefilled, alone = perf_counter(), prefix.sequence.length > cached
            pending, steps = [int(prompt[-1])], 0
            while len(tokens) < limit:
                forced = rule.forced()[: limit - len(tokens)]
                tokens += forced
                decided += [False] * len(forced)
                pending += forced
                if rule.ended or len(tokens) == limit:
                    break
                token = rule.choose(self._row(prefix, prompt[:base], pending))
                steps += 1
                tokens.append(token)
                decided.append(True)
                pending = [token]
                rule.take(token)
            held = prefix.sequence.length
            prefix.sequence.truncate(min(base, held))
            written = perf_counter()
            passes = prefix.sequence.passes - passes
        text = self.text([t for t in tokens if not self.ends(t)])
        values, reason = read_answer(text, self.artifact)
        if values is None and not rule.ended:
            reason = f"not finished after {limit} tokens"
        return Written(
            text=text,
            values=values,
            reason=reason,
            tokens=tuple(tokens),
            decided=tuple(decided),
            passes=passes,
            sequential_passes=alone + steps,
            positions=held - cached,
            kv_bytes=held * self.model.language.kv_bytes_per_token,
            prefill_ms=(prefilled - started) * 1000 if alone else 0.0,
            write_ms=(written - prefilled) * 1000,
        )

    def _row(self, prefix: Prefix, prompt: Ints, pending: Sequence[int]) -> NDArray[np.float32]:
        """Run what is left of the prompt and the tokens that were written last.

        Gives the logits after them, float32 [logits_width].
        """
        last = max(prefix.sequence.length, len(prompt)) - 1
        ids: Ints = np.array(pending, dtype=np.int32)
        hidden = prefix.branch(ids, np.arange(last, last + len(ids), dtype=np.int32), prompt)
        row: NDArray[np.float32] = np.array(prefix.sequence.logits(hidden, [len(ids) - 1]))[0]
        if np.isnan(row).any() or np.isposinf(row).any():
            raise ScoreError(
                self.artifact.name, "got scores that are not numbers", help="check the model's weights"
            )
        return row


class _Masked:
    """The choice of tokens under the grammar."""

    def __init__(self, start: LLMatcher, fast_forward: bool) -> None:
        self._matcher = start.deep_copy()
        self._fast_forward = fast_forward

    @property
    def ended(self) -> bool:
        return self._matcher.is_stopped()

    def forced(self) -> list[int]:
        tokens = self._matcher.compute_ff_tokens() if self._fast_forward else []
        self._matcher.consume_tokens(tokens)
        return tokens

    def choose(self, row: NDArray[np.float32]) -> int:
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: len(row)].astype(bool)
        return int(np.argmax(np.where(allowed, row, -math.inf)))

    def take(self, token: int) -> None:
        self._matcher.consume_token(token)


class _Free:
    """The choice of tokens without a grammar."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._tokens: list[int] = []
        self.ended = False

    def forced(self) -> list[int]:
        return []

    def choose(self, row: NDArray[np.float32]) -> int:
        return int(np.argmax(row))

    def take(self, token: int) -> None:
        self._tokens.append(token)
        self.ended = self._writer.ends(token) or _complete(self._writer.text(self._tokens))


_Rule = _Masked | _Free


def grammar(artifact: Artifact) -> str:
    """The grammar of an artifact's answers for llguidance, in its Lark dialect.

    One object, every field in order, spaced as in the prompt, each value in its declared JSON type. It is not
    taken from a JSON schema because llguidance reads numbers there as floats, which changes their spelling.
    """
    whole = [f"{json.dumps(key, ensure_ascii=False)} F{index}" for index, key in enumerate(_keys(artifact))]
    rules = [
        f"F{index}: "
        + " | ".join(json.dumps(t, ensure_ascii=False) for c in field.candidates for t in literals(c))
        for index, field in enumerate(artifact.fields)
    ]
    return "\n".join([f'start: {" ".join(whole)} "}}"', *rules])


def literals(candidate: Candidate) -> tuple[str, ...]:
    """How the model may write a choice: booleans bare, null also as the text that the prompt shows."""
    spellings = Choice(candidate.value, candidate.label).literals
    return spellings[:1] if isinstance(candidate.value, bool) else spellings


def longest_answer(artifact: Artifact) -> str:
    """The valid answer of the most bytes: no valid answer has more tokens than that."""
    values = [
        max((text for candidate in field.candidates for text in literals(candidate)), key=_bytes)
        for field in artifact.fields
    ]
    return "".join(key + value for key, value in zip(_keys(artifact), values, strict=True)) + "}"


def _bytes(text: str) -> int:
    return len(text.encode())


def read_answer(text: str, artifact: Artifact) -> tuple[dict[str, Value] | None, str]:
    """The values of an answer in the artifact's order, or None and what is wrong with it."""
    try:
        pairs, _ = _PARSER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None, "not JSON"
    if not text.lstrip().startswith("{"):
        return None, "not an object"
    found = dict(pairs)
    names = {field.name for field in artifact.fields}
    if len(found) < len(pairs) or found.keys() - names:
        return None, "a key that is no field, or a key twice"
    if missing := names - found.keys():
        return None, f"{len(missing)} of {len(names)} fields missing"
    values: dict[str, Value] = {}
    for field in artifact.fields:
        spelled = json.dumps(found[field.name], ensure_ascii=False)
        meant = {
            json.dumps(json.loads(t), ensure_ascii=False): c.value
            for c in field.candidates
            for t in literals(c)
        }
        if spelled not in meant:
            return None, f"a value of {field.name!r} that is none of its choices"
        values[field.name] = meant[spelled]
    return values, ""


def _keys(artifact: Artifact) -> list[str]:
    """What stands before each value."""
    keys = [f"{json.dumps(field.name, ensure_ascii=False)}: " for field in artifact.fields]
    return [f"{', ' if index else '{'}{key}" for index, key in enumerate(keys)]


def _complete(text: str) -> bool:
    """Whether a JSON object ends in the text."""
    if "}" not in text:
        return False
    try:
        _PARSER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return False
    return True
