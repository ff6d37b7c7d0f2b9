"""An artifact as plain data for people and scripts: candidates, forms, END sets, trie, collisions.

Needs no weights. Where the tokenizer is at hand, tokens are shown with their text, else with ids only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pcdc_runtime.artifact import RULES, Artifact, CompiledField, rule_bit

from .vocabulary import Vocabulary, shared_beginning

EXAMPLES = 5
TokenBytes = Callable[[list[int]], list[bytes]]


@dataclass(frozen=True)
class Token:
    """One token; `text` is None where no tokenizer is at hand."""

    id: int
    text: str | None


@dataclass(frozen=True)
class FormView:
    """One surface form: its tokens below the field's anchor, its last node, its END set."""

    tokens: tuple[Token, ...]
    node: int
    end: int


@dataclass(frozen=True)
class CandidateView:
    """One choice and the tokens of its first form below the suffix."""

    choice: str
    value: object
    tokens: tuple[Token, ...]
    is_single_token: bool
    forms: tuple[FormView, ...]


@dataclass(frozen=True)
class EndView:
    """One END set by its size, its first tokens, and the bytes that all of its tokens begin with."""

    index: int
    size: int
    examples: tuple[Token, ...]
    remainder: str | None


@dataclass(frozen=True)
class Collisions:
    """Choices whose tokens meet: by first token, as a token prefix, or with a quote beside them.

    `merges` is None where no tokenizer is at hand.
    """

    first_token: tuple[tuple[str, ...], ...]
    prefixes: tuple[tuple[str, str], ...]
    merges: tuple[str, ...] | None


@dataclass(frozen=True)
class TrieRow:
    """One node of a field's trie with the choices that end there.

    A run of nodes without a branch or an end is one row. `parent` is a row number, -1 for the anchor's;
    rows come in depth-first order, flat because a trie can be deeper than recursion goes.
    """

    node: int
    parent: int
    tokens: tuple[Token, ...]
    ends: tuple[str, ...]


@dataclass(frozen=True)
class FieldView:
    """One field; `reads` counts the nodes that each scoring rule runs."""

    name: str
    type: str
    description: str
    suffix: tuple[Token, ...]
    candidates: tuple[CandidateView, ...]
    nodes: int
    reads: dict[str, int]
    ends: tuple[EndView, ...]
    collisions: Collisions
    trie: tuple[TrieRow, ...]


@dataclass(frozen=True)
class ArtifactView:
    """A whole artifact."""

    name: str
    model: str
    digest: str
    scoring: str
    temperature: float
    instructions: str
    nodes: int
    forms: int
    head_tokens: int
    tail_tokens: int
    inputs: dict[str, str]
    fields: tuple[FieldView, ...]
    prompt: str

    def to_dict(self) -> dict[str, Any]:
        """Only JSON types."""
        return asdict(self)


def token_bytes_of(artifact: Artifact, model: str | None = None) -> tuple[TokenBytes | None, str]:
    """The bytes of an artifact's tokens, or None with the reason where its tokenizer is not at hand.

    `model` is an alias, hub id or folder; the artifact's own unless given.
    """
    from pcdc_runtime import models
    from pcdc_runtime.errors import PcdcError
    from pcdc_runtime.tokenizer import check_tokenizer, load_tokenizer

    try:
        files = models.resolve(model or artifact.model, weights=False, folders=model is not None)
        tokenizer = load_tokenizer(files.folder)
        check_tokenizer(artifact, tokenizer, models.fingerprint_of(files.folder), files.name)
    except PcdcError as error:
        return None, f"tokens are shown as ids only: {error.subject} {error.fact}"
    return Vocabulary(tokenizer).bytes_of, ""


def describe(artifact: Artifact, token_bytes: TokenBytes | None) -> ArtifactView:
    """What an artifact holds. `token_bytes` gives the bytes of token ids, None where unknown."""
    shown = _Shown(artifact, token_bytes)
    return ArtifactView(
        name=artifact.name,
        model=artifact.model,
        digest=artifact.digest,
        scoring=artifact.scoring,
        temperature=artifact.temperature,
        instructions=artifact.instructions,
        nodes=len(artifact.nodes),
        forms=len(artifact.forms),
        head_tokens=len(artifact.prompt.head),
        tail_tokens=len(artifact.prompt.tail),
        inputs=dict(artifact.inputs),
        fields=tuple(shown.field(i) for i in range(len(artifact.fields))),
        prompt=artifact.prompt_text,
    )


class _Shown:
    def __init__(self, artifact: Artifact, token_bytes: TokenBytes | None) -> None:
        self.artifact = artifact
        self.token_bytes = token_bytes
        self.children: dict[int, list[int]] = defaultdict(list)
        for node, parent in enumerate(artifact.nodes.parent.tolist()):
            self.children[parent].append(node)

    def field(self, index: int) -> FieldView:
        nodes, field = self.artifact.nodes, self.artifact.fields[index]
        mine = nodes.field == index
        candidates = tuple(
            CandidateView(
                choice=c.label,
                value=c.value,
                tokens=self.tokens(c.ids),
                is_single_token=c.is_single_token,
                forms=tuple(self.form(field, form) for form in range(*c.forms)),
            )
            for c in field.candidates
        )
        used = sorted({form.end for c in candidates for form in c.forms})
        ends = tuple(self.end(k) for k in used)
        endings: dict[int, list[str]] = defaultdict(list)
        for candidate in candidates:
            for form in candidate.forms:
                endings[form.node].append(candidate.choice)
        return FieldView(
            name=field.name,
            type=field.type,
            description=field.description,
            suffix=self.tokens(nodes.path(0, field.suffix)),
            candidates=candidates,
            nodes=int(mine.sum()),
            reads={rule: int(((nodes.reads & rule_bit(rule)) != 0)[mine].sum()) for rule in RULES},
            ends=ends,
            collisions=self.collisions(candidates, ends),
            trie=self.trie(field.anchor, index, endings),
        )

    def tokens(self, ids: Sequence[int]) -> tuple[Token, ...]:
        if self.token_bytes is None:
            return tuple(Token(i, None) for i in ids)
        spelled = self.token_bytes(list(ids))
        return tuple(Token(i, b.decode(errors="backslashreplace")) for i, b in zip(ids, spelled, strict=True))

    def form(self, field: CompiledField, form: int) -> FormView:
        node = int(self.artifact.forms.node[form])
        return FormView(
            self.tokens(self.artifact.nodes.path(field.anchor, node)),
            node,
            int(self.artifact.forms.end[form]),
        )

    def end(self, index: int) -> EndView:
        ids = self.artifact.ends[index].tolist()
        remainder = None
        if self.token_bytes is not None:
            remainder = shared_beginning(self.token_bytes(ids)).decode(errors="backslashreplace")
        return EndView(index, len(ids), self.tokens(ids[:EXAMPLES]), remainder)

    def trie(self, anchor: int, field: int, endings: dict[int, list[str]]) -> tuple[TrieRow, ...]:
        rows: list[TrieRow] = []
        waiting = [(anchor, -1)]
        while waiting:
            node, parent = waiting.pop()
            run = [node]
            while run[-1] not in endings and len(below := self.below(run[-1], field)) == 1:
                run.append(below[0])
            ends = tuple(dict.fromkeys(endings.get(run[-1], ())))
            rows.append(TrieRow(run[-1], parent, self.tokens(self.artifact.nodes.token[run].tolist()), ends))
            waiting += [(child, len(rows) - 1) for child in reversed(self.below(run[-1], field))]
        return tuple(rows)

    def below(self, node: int, field: int) -> list[int]:
        return [child for child in self.children[node] if self.artifact.nodes.field[child] == field]

    def collisions(self, candidates: tuple[CandidateView, ...], ends: tuple[EndView, ...]) -> Collisions:
        first: dict[int, list[str]] = defaultdict(list)
        for c in candidates:
            if c.tokens:
                first[c.tokens[0].id].append(c.choice)
        paths = {tuple(t.id for t in c.tokens): c.choice for c in candidates}
        prefixes = tuple(
            (paths[path[:size]], choice)
            for path, choice in paths.items()
            for size in range(1, len(path))
            if path[:size] in paths
        )
        merges = None
        if self.token_bytes is not None:
            closing = {end.index for end in ends if re.fullmatch('.+"', end.remainder or "", re.DOTALL)}
            merges = tuple(
                c.choice
                for c in candidates
                if any(form.end in closing or _opens_merged(form) for form in c.forms)
            )
        return Collisions(tuple(tuple(g) for g in first.values() if len(g) > 1), prefixes, merges)


def _opens_merged(form: FormView) -> bool:
    """Whether one token holds the opening quote and the start of the choice."""
    opening = next((t.text for t in form.tokens if t.text and '"' in t.text), '"')
    return not opening.endswith('"')
