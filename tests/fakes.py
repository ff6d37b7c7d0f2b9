"""Small real things for runtime tests: a byte tokenizer, models that are tables, artifacts made by hand.

The tokenizer has one token per byte. Other tokens that a test wants to name ("SHIP") get ids from 256 on.
A model is a function from the token path (from the first prompt token on) to one row of logits.
"""

import math
import os
import signal
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
from pcdc_runtime.artifact import (
    Artifact,
    Candidate,
    CompiledField,
    EndSets,
    Forms,
    Nodes,
    PromptCut,
    Value,
    WorkedExample,
)
from pcdc_runtime.engine import Engine
from pcdc_runtime.errors import EngineClosedError
from pcdc_runtime.loaded import KV_LIMIT, LoadedModel
from pcdc_runtime.result import FieldResult, Result
from pcdc_runtime.rules import RULES, rule_bit
from pcdc_runtime.tokenizer import encode_text, fingerprint, probe_encodings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WIDTH = 320
ROOT = ord(">")
"""The last prompt token of every artifact made here; no context or instruction holds it."""

Path = tuple[int, ...]
Rule = Callable[[Path], np.ndarray]
Form = tuple[Sequence[str], Sequence[str]]
"""Tokens below the field's suffix, and the tokens that close the form there."""


def byte_tokenizer() -> Tokenizer:
    """One token per byte, ids 0 to 255, reversible for any text."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    alphabet = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


class Names:
    """Token ids of spelled tokens: a byte for one character, the next free id above 255 for others."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __getitem__(self, token: str) -> int:
        if len(token) == 1 and ord(token) < 256:
            return ord(token)
        return self.ids.setdefault(token, 256 + len(self.ids))


NAMES = Names()


def table(entries: Mapping[tuple[str, ...], Mapping[str, float]], *, forced: bool = True) -> Rule:
    """Logits from probabilities by the tokens after the field's anchor (":"); the rest of a row is "?".

    Where a path is not in the table, and above the anchor, every token is as likely as any other.
    """
    rows = {tuple(NAMES[t] for t in key): value for key, value in entries.items()}

    def rule(path: Path) -> np.ndarray:
        below = path[len(path) - path[::-1].index(ord(":")) :] if ord(":") in path else None
        if below not in rows:
            return np.zeros(WIDTH)
        row = np.full(WIDTH, -np.inf)
        for token, probability in rows[below].items():
            row[NAMES[token]] = math.log(probability)
        rest = 1 - sum(rows[below].values())
        if rest > 1e-12:
            row[ord("?")] = math.log(rest)
        return row

    return rule


def seeded(seed: int) -> Rule:
    """Arbitrary logits, the same for the same path on every machine."""

    def rule(path: Path) -> np.ndarray:
        generator = np.random.default_rng([seed, zlib.crc32(np.array(path, dtype="<i4").tobytes())])
        return (generator.standard_normal(WIDTH) * 3).astype(np.float32)

    return rule


@dataclass
class TableModel:
    """A language model whose logits are `rule(path)`; counts what was asked of it."""

    rule: Rule
    window: int | None = 10_000
    dtype: str = "float32"
    name: str = "table"
    logits_width: int = WIDTH
    kv_bytes_per_token: int = 8
    chunk: int = 1_000_000
    rows_read: list[Path] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)
    sequences: int = 0

    def sequence(self) -> "TableSequence":
        self.sequences += 1
        return TableSequence(self)


class TableSequence:
    """Slots as (token, parent); a hidden row is the slot's number."""

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.slots: list[tuple[int, int]] = []
        self.passes = 0
        self.bytes_copied = 0

    @property
    def length(self) -> int:
        return len(self.slots)

    @property
    def bytes_held(self) -> int:
        return self.length * self.model.kv_bytes_per_token

    def append(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> mx.array:
        first = self.length
        if parents is None:
            parents = np.arange(first - 1, first + len(tokens) - 1)
        assert len(tokens) == len(parents) > 0
        for slot, (token, parent) in enumerate(zip(tokens.tolist(), parents.tolist(), strict=True), first):
            assert -1 <= parent < slot
            self.slots.append((token, parent))
        self.passes += -(-len(tokens) // self.model.chunk)
        self.model.appended.append(len(tokens))
        return mx.arange(first, self.length)

    def reserve(self, slots: int) -> None:
        """Lists need no room."""

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length
        del self.slots[length:]

    def logits(self, hidden: mx.array, rows: Sequence[int], ids: np.ndarray | None = None) -> mx.array:
        paths = [self.path(int(hidden[row].item())) for row in rows]
        self.model.rows_read += paths
        whole = np.array([self.model.rule(path) for path in paths], dtype=np.float32)
        return mx.array(whole if ids is None else whole[:, ids])

    def path(self, slot: int) -> Path:
        tokens: list[int] = []
        while slot >= 0:
            token, slot = self.slots[slot]
            tokens.append(token)
        return tuple(reversed(tokens))


def loaded(model: TableModel, kv_limit: int = KV_LIMIT) -> LoadedModel:
    """The table model on an owner thread of its own, with the byte tokenizer."""
    return LoadedModel(model.name, lambda: (model, byte_tokenizer()), kv_limit)


def forked(engine: Engine) -> int:
    """0 where a forked process gets EngineClosedError from the engine, above 0 otherwise, -9 for a hang."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            engine.run("b")
        except EngineClosedError:
            engine.close()
            status = 0
        finally:
            os._exit(status)
    for _ in range(400):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def spelled(*labels: str) -> dict[Value, list[Form]]:
    """Choices spelled byte by byte and closed by a quote."""
    return {label: [(list(label), ['"'])] for label in labels}


def make_artifact(
    fields: Mapping[str, Mapping[Value, Sequence[Form]]],
    *,
    scoring: str = "joint",
    temperature: float = 1.0,
    examples: Sequence[WorkedExample] = (),
) -> Artifact:
    """An artifact of the fields' choices with their forms; a field's anchor is the ":" after its name."""
    tokenizer = byte_tokenizer()
    forest = _Forest()
    compiled = tuple(forest.add(index, name, choices) for index, (name, choices) in enumerate(fields.items()))
    pre, post = "<text>\n", "\n</text>\n"
    return Artifact(
        name="made",
        model="table",
        instructions="Answer.",
        scoring=scoring,
        temperature=temperature,
        fields=compiled,
        examples=tuple(examples),
        fingerprint=fingerprint(tokenizer),
        tokenizer_probes=probe_encodings(tokenizer),
        prompt_version="1",
        prompt_text="Answer.",
        prompt=PromptCut(
            head=_ints(encode_text(tokenizer, "Answer.\n" + pre)),
            pre=pre,
            post=post,
            fence="text",
            shared=len(pre),
            tail=_ints(encode_text(tokenizer, "A>")),
            tail_overlap=0,
            probes=(1, 1),
        ),
        nodes=Nodes(*map(_ints, (forest.token, forest.parent, forest.depth, forest.owner, forest.reads))),
        forms=Forms(*(_ints([row[column] for row in forest.forms]) for column in range(5))),
        ends=EndSets(
            _ints([0, *np.cumsum([len(end) for end in forest.ends])]),
            _ints([i for end in forest.ends for i in end]),
        ),
        inputs={},
    )


def result_of(*answers: FieldResult) -> Result:
    """A result that holds these answers; the rest of it is made up."""
    return Result(
        answers=answers,
        schema_fields=tuple(answer.name for answer in answers),
        scoring="joint",
        temperature=1.0,
        model="table",
        artifact_digest="0123456789abcdef",
        elapsed_ms=3.0,
        prefill_ms=1.0,
        suffix_eval_ms=2.0,
        forward_passes=2,
        sequential_forward_passes=2,
        head_cached=0,
        nodes=9,
        positions=20,
        kv_bytes=2000,
        kv_added=1500,
        kv_copied=0,
        context_tokens=5,
        warnings=(),
    )


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


class _Forest:
    """Grows the arrays field by field; END sets are numbered as they come."""

    def __init__(self) -> None:
        self.token, self.parent, self.depth, self.owner, self.reads = [ROOT], [-1], [0], [-1], [0b111]
        self.forms: list[tuple[int, ...]] = []
        self.ends: list[Path] = []
        self.choices = 0

    def add(self, owner: int, name: str, choices: Mapping[Value, Sequence[Form]]) -> CompiledField:
        children: dict[tuple[int, int], int] = {}
        anchor = self._walk(0, [NAMES[t] for t in f"{name}:"], owner, children)
        events: list[tuple[int, list[tuple[int, int]]]] = []
        for number, forms in enumerate(choices.values()):
            for tokens, closing in forms:
                end = tuple(sorted(NAMES[t] for t in closing))
                if end not in self.ends:
                    self.ends.append(end)
                path = [NAMES[t] for t in tokens]
                self.forms.append((self.choices + number, self._walk(anchor, path, owner, children), 0, 0, 0))
                events.append((number, [*((0, t) for t in path), (1, self.ends.index(end))]))
        self._finish(events)
        paths = [[t for kind, t in form if kind == 0] for _, form in events]
        shared = next(
            n for n in range(len(min(paths, key=len)), -1, -1) if len({tuple(p[:n]) for p in paths}) == 1
        )
        suffix = self._walk(anchor, paths[0][:shared], owner, children)
        candidates, first = [], len(self.forms) - len(events)
        for number, (value, forms) in enumerate(choices.items()):
            ids = tuple(next(p for (n, _), p in zip(events, paths, strict=True) if n == number)[shared:])
            last = first + len(forms)
            candidates.append(Candidate(_label(value), value, "", ids, len(ids) == 1, (first, last)))
            first = last
        self.choices += len(choices)
        kind = "boolean" if {type(value) for value in choices if value is not None} == {bool} else "enum"
        return CompiledField(name, kind, "", anchor, suffix, tuple(candidates))

    def _finish(self, events: list[tuple[int, list[tuple[int, int]]]]) -> None:
        counted: set[tuple[tuple[int, int], ...]] = set()
        for position, (number, form) in enumerate(events, len(self.forms) - len(events)):
            others = [other for n, other in events if n != number]
            cut = next(n for n in range(1, len(form) + 1) if all(o[:n] != form[:n] for o in others))
            reads = 0b111 if tuple(form[:cut]) not in counted else 0b111 & ~rule_bit("identify")
            counted.add(tuple(form[:cut]))
            choice, node = self.forms[position][:2]
            self.forms[position] = (choice, node, form[-1][1], cut, reads)

    def _walk(self, node: int, path: Sequence[int], owner: int, children: dict[tuple[int, int], int]) -> int:
        for token in path:
            if (node, token) not in children:
                children[node, token] = len(self.token)
                self.token.append(token)
                self.parent.append(node)
                self.depth.append(self.depth[node] + 1)
                self.owner.append(owner)
                self.reads.append((1 << len(RULES)) - 1)
            node = children[node, token]
        return node


def _label(value: Value) -> str:
    return value if isinstance(value, str) else str(value).lower()
