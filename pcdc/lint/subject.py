"""What lint rules look at: a definition in one model's tokens, and what was built of it before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

from pcdc_runtime.artifact import Artifact, CompiledField
from pcdc_runtime.calibration import Calibration, FieldCalibration
from pcdc_runtime.plan import make_plans
from pcdc_runtime.rules import NODE_BUDGET, rule_bit
from pcdc_runtime.tokenizer import encode_text

from pcdc.cache import Decision
from pcdc.describe import Token
from pcdc.diagnostics import Location
from pcdc.prompt import Target, render_prompt
from pcdc.schema import Field, Schema

_OPENING = frozenset(b' "')


@dataclass(frozen=True)
class FieldTokens:
    """One field as tokens; `choices` holds what spells each choice between its quotes, in order.

    `nodes` are those that the schema's rule runs, `prompt` is what the field adds to the prompt, in tokens.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    choices: tuple[tuple[Token, ...], ...]
    merged: tuple[str, ...]
    nodes: int
    prompt: int


class InTokens(Protocol):
    """A schema or an index in one model's tokens."""

    @property
    def noun(self) -> str:
        """`schema` or `index`."""

    @property
    def place(self) -> Location:
        """The whole definition, for what no single line of it is to blame for."""

    @property
    def target(self) -> Target:
        """The model."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt before any text is in it."""

    @property
    def example_tokens(self) -> int:
        """Tokens that the worked examples add to the prompt."""

    @property
    def deepest(self) -> int:
        """Tokens of the longest path below the prompt."""


class Deployed(Protocol):
    """A file that a build left, and whether it is up to date."""

    @property
    def now(self) -> InTokens:
        """What it would be made from now."""

    @property
    def artifact(self) -> Path:
        """Where it is."""

    @property
    def decision(self) -> Decision:
        """Whether a build would make it anew."""


@dataclass(frozen=True)
class Compiled:
    """A schema that was read from `path` and compiled for one model."""

    noun: ClassVar[str] = "schema"
    path: Path
    schema: Schema
    target: Target
    artifact: Artifact

    @property
    def place(self) -> Location:
        return Location(str(self.path), 1, 1)

    @property
    def deepest(self) -> int:
        return int(self.artifact.nodes.depth.max())

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt before any text is in it."""
        return len(self.artifact.prompt.head) + len(self.artifact.prompt.tail)

    @cached_property
    def example_tokens(self) -> int:
        """Tokens that the worked examples add to the prompt."""
        if not self.schema.examples:
            return 0
        bare = render_prompt(replace(self.schema, examples=()), self.target).cut
        return len(self.artifact.prompt.head) - len(bare.head)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Nodes of each field that the schema's rule runs, legal mass included."""
        nodes, scoring = self.artifact.nodes, self.schema.scoring
        wanted = rule_bit(scoring) | (rule_bit("joint") if scoring == "trie" else 0)
        read = nodes.field[(nodes.reads & wanted) != 0].tolist()
        return tuple(read.count(index) for index in range(len(self.schema.fields)))

    @cached_property
    def passes(self) -> int:
        """Tree passes that one text takes."""
        if 1 + sum(self.nodes) <= NODE_BUDGET:
            return 1
        every = range(len(self.schema.fields))
        return len(make_plans(self.artifact, self.schema.scoring, every, True, NODE_BUDGET))

    @cached_property
    def fields(self) -> tuple[FieldTokens, ...]:
        """Every field as tokens."""
        instructions, bare = self.target.frame.layout.instructions, replace(self.schema, examples=())
        without = len(self._encoded(instructions(replace(bare, fields=()))))
        return tuple(
            FieldTokens(
                name=field.name,
                type=field.type,
                labels=tuple(c.label for c in field.candidates),
                choices=tuple(self._spelled(field, c.forms[0]) for c in field.candidates),
                merged=tuple(c.label for c in field.candidates if self._merges(field, range(*c.forms))),
                nodes=nodes,
                prompt=len(self._encoded(instructions(replace(bare, fields=(declared,))))) - without,
            )
            for field, declared, nodes in zip(
                self.artifact.fields, self.schema.fields, self.nodes, strict=True
            )
        )

    def _encoded(self, text: str) -> list[int]:
        return encode_text(self.target.tokenizer, text)

    def _path(self, field: CompiledField, form: int) -> list[tuple[int, bytes]]:
        ids = self.artifact.nodes.path(field.anchor, int(self.artifact.forms.node[form]))
        return list(zip(ids, self.target.vocabulary.bytes_of(list(ids)), strict=True))

    def _spelled(self, field: CompiledField, form: int) -> tuple[Token, ...]:
        path = self._path(field, form)
        while path and _OPENING.issuperset(path[0][1]):
            path.pop(0)
        return tuple(Token(index, spelled.decode(errors="backslashreplace")) for index, spelled in path)

    def _merges(self, field: CompiledField, forms: Sequence[int]) -> bool:
        """Whether one token holds a quote and a part of the choice, before it or after it."""
        ends = self.artifact.forms.end
        return any(int(ends[f]) in self._closing or self._opens_merged(field, f) for f in forms)

    def _opens_merged(self, field: CompiledField, form: int) -> bool:
        opening = next((spelled for _, spelled in self._path(field, form) if b'"' in spelled), b'"')
        return not opening.endswith(b'"')

    @cached_property
    def _closing(self) -> frozenset[int]:
        """END sets of tokens that hold the rest of a choice before its closing quote."""
        ends, vocabulary = self.artifact.ends, self.target.vocabulary
        found = set()
        for index in range(len(ends)):
            spelled = vocabulary.bytes_of(ends[index].tolist())
            if all(b'"' in s and not s.startswith(b'"') for s in spelled):
                found.add(index)
        return frozenset(found)


@dataclass(frozen=True)
class Unbuilt:
    """A definition for which there is nothing at the path of its artifact for one model."""

    now: InTokens
    artifact: Path


@dataclass(frozen=True)
class Built:
    """What `pcdc build` and `pcdc eval` left of a schema for one model, beside what it compiles to now."""

    now: Compiled
    artifact: Path
    decision: Decision
    calibration: Calibration | None

    @property
    def evaluated(self) -> Iterator[tuple[Field, FieldCalibration]]:
        """Fields with their part of the calibration."""
        for field in self.now.schema.fields:
            of_field = self.calibration.field(field.name) if self.calibration else None
            if of_field is not None:
                yield field, of_field


def judged_rows(field: FieldCalibration) -> int:
    """On how many labelled texts, none of which it was fitted on, a field was judged."""
    figures = field.after or field.before
    if figures is not None:
        return figures.rows
    return field.threshold.rows if field.threshold else 0
