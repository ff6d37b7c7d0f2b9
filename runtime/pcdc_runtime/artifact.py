"""The artifact: one compiled schema for one model's tokenizer, as a frozen dataclass and as bytes.

File: a msgpack array `[MAGIC, FORMAT_VERSION, sha256(payload), payload]`. The three first members are
checked before a byte of the payload is parsed. The payload is one msgpack map with string keys in the
order in which `to_payload` writes them, and nothing but maps, arrays, text, whole numbers, booleans and byte
strings: no floats, no extension types. Integer arrays are little-endian int32 byte strings.

Forest: nodes are the tokens that a tree pass runs. Node 0 is the last prompt token. `parent[i] < i`,
`depth[i] == depth[parent[i]] + 1`. `field[i]` is -1 for node 0 only. A field's `anchor` is the node after
`{"name":`: everything below it is scored, everything above is forced.

Forms: a surface form is one token path that spells a choice, `node` is its last node, `end` the END set
that closes it there. Events of a form, in order: the token edges from the anchor down to `node`, then the
closing event. `cut` is how many of them `identify` counts. `reads` are bit masks over RULES: which nodes
a rule must run, which forms it sums. An END set is a sorted run of token ids, stored once.

The schema is held as declared: fields and choices in their order, and its worked examples, each a text with
pairs of a field's and a choice's number, fields rising; what the prompt makes of them is in its head.

Choices: a field has them in columns. `labels` has one text each. A choice's value is its label but for those
that `valued` numbers, whose values `values` has in that order, as the text of one JSON array without spaces;
none of them is its label. A choice's description is empty but for those that `described` numbers, whose texts
`descriptions` has, none of them empty. Both arrays of numbers rise. What the forest says is not said again: a
choice's forms are those that name it (`choice` never falls, no choice is left out), and its ids lead from
`suffix` down to its first form's node.

No time, no path and no host is part of it: equal inputs give equal bytes.

Format 2 added the examples to format 1. Format 3 put the choices into columns, and took out of them their
ids, their single-token marks and their counts of forms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from .payload import to_payload
from .rules import RULES as RULES
from .rules import rule_bit as rule_bit
from .wire import Ints as Ints
from .wire import pack

MAGIC = "pcdc"
FORMAT_VERSION = 3
OPENING = b"\x94" + pack(MAGIC)
"""The first bytes of every artifact: an array of four that begins with MAGIC."""
_SHOWN = 6
Value: TypeAlias = bool | int | float | str | None
FieldType: TypeAlias = Literal["boolean", "enum"]


class Candidate(NamedTuple):
    """A choice and what it became. A tuple, because an artifact can have thousands.

    `label` is the text in the prompt, `value` what a result returns. `ids` are the tokens of its first
    form below the field's suffix. `forms` is its half-open range in the form arrays.
    """

    label: str
    value: Value
    description: str
    ids: tuple[int, ...]
    is_single_token: bool
    forms: tuple[int, int]


@dataclass(frozen=True)
class CompiledField:
    """One question with its candidates; `anchor` and `suffix` are node indices."""

    name: str
    type: FieldType
    description: str
    anchor: int
    suffix: int
    candidates: Sequence[Candidate] = field(repr=False)


@dataclass(frozen=True)
class WorkedExample:
    """A text and the answers that the prompt shows for it: pairs of field and choice, by their numbers."""

    context: str
    answers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class PromptCut:
    """How a prompt is put together from static ids and a request's text.

    A prompt is `head + segment + tail`. The segment is the encoding of `pre + context + post` without its
    first `shared` ids (they end the head) and without its last `tail_overlap` ids (they start the tail,
    and are more than zero only where no control token follows the context). `pre` and `post` hold the
    literal `fence` tag around the context. `probes` counts the contexts that placed and proved the cut.
    """

    head: Ints
    pre: str
    post: str
    fence: str
    shared: int
    tail: Ints
    tail_overlap: int
    probes: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Nodes:
    """The forest, one entry per node in every array."""

    token: Ints
    parent: Ints
    depth: Ints
    field: Ints
    reads: Ints

    def __len__(self) -> int:
        return len(self.token)

    def path(self, top: int, node: int) -> tuple[int, ...]:
        """Token ids from below `top` down to `node`. Raises ValueError where `top` is not above it."""
        ids: list[int] = []
        token, parent = self.token.item, self.parent.item
        while node > top:
            ids.append(token(node))
            node = parent(node)
        if node != top:
            raise ValueError(f"node {top} is not above the path's end")
        return tuple(reversed(ids))


@dataclass(frozen=True, eq=False)
class Forms:
    """The surface forms, one entry per form in every array; `choice` counts over all fields."""

    choice: Ints
    node: Ints
    end: Ints
    cut: Ints
    reads: Ints

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, eq=False)
class EndSets:
    """END set `k` is `ids[offset[k]:offset[k + 1]]`, sorted."""

    offset: Ints
    ids: Ints

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, index: int) -> Ints:
        return self.ids[self.offset[index] : self.offset[index + 1]]


@dataclass(frozen=True, repr=False, eq=False)
class Artifact:
    """Everything the runtime needs of one schema for one tokenizer, and nothing it must look up.

    Two of the same digest are equal.
    """

    name: str
    model: str
    instructions: str
    scoring: str
    temperature: float
    fields: tuple[CompiledField, ...]
    examples: tuple[WorkedExample, ...]
    fingerprint: str
    tokenizer_probes: tuple[tuple[str, tuple[int, ...]], ...]
    prompt_version: str
    prompt_text: str
    prompt: PromptCut
    nodes: Nodes
    forms: Forms
    ends: EndSets
    inputs: Mapping[str, str]

    def __repr__(self) -> str:
        names = shortened([repr(f.name) for f in self.fields])
        return f"Artifact({self.name!r}, model={self.model!r}, fields=[{names}], digest={self.digest[:12]!r})"

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Artifact) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def payload(self) -> bytes:
        """The canonical payload bytes, without the envelope."""
        return pack(to_payload(self))

    @cached_property
    def digest(self) -> str:
        """sha256 of the payload, as hexadecimal text: the artifact's identity."""
        return hashlib.sha256(self.payload).hexdigest()

    @cached_property
    def largest_id(self) -> int:
        """The largest token id that the prompt, the nodes or an END set uses."""
        arrays = (self.prompt.head, self.prompt.tail, self.nodes.token, self.ends.ids)
        return max(int(a.max()) for a in arrays if len(a))

    def field(self, name: str) -> CompiledField | None:
        """The field of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)


def shortened(items: Sequence[str]) -> str:
    """Items in one line, with the number of those that are left out."""
    more = [f"... {len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    return ", ".join([*items[:_SHOWN], *more])
