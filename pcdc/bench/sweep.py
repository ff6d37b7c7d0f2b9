"""The sweep: one property of a request varies, the others stay at a base point, under any tokenizer.

Texts and labels are made so that they take exactly the tokens that a point asks for; that is verified.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pcdc_runtime.artifact import Artifact
from pcdc_runtime.errors import TokenizerError
from pcdc_runtime.tokenizer import assemble_prompt, encode_text
from tokenizers import Tokenizer

from pcdc.diagnostics import SchemaError
from pcdc.emit import compile_schema
from pcdc.prompt import Target
from pcdc.schema import Choice, Field, Schema

TEXTS = 3
"""Texts of each point, measured in turn."""


@dataclass(frozen=True)
class Point:
    """How large a request is: fields, choices of each, tokens of the text and of each candidate.

    `context` counts what the text and its closing fence take, as `Result.context_tokens` does.
    """

    fields: int = 4
    choices: int = 4
    context: int = 50
    length: int = 2

    def __str__(self) -> str:
        fields = "1 field" if self.fields == 1 else f"{self.fields} fields"
        tokens = "1 token" if self.length == 1 else f"{self.length} tokens"
        return f"{fields} x {self.choices} choices of {tokens}, text of {self.context} tokens"


@dataclass(frozen=True)
class Axis:
    """What varies, over which values, and the point at which the rest stays; `unit` names the values."""

    name: str
    unit: str
    values: tuple[int, ...]
    base: Point = Point()

    def points(self) -> tuple[Point, ...]:
        """The points of the axis, smallest first."""
        return tuple(replace(self.base, **{self.name: value}) for value in self.values)


AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("fields", "fields", (1, 4, 16, 28, 64, 128)),
        # 255 choices in each of several fields would not fit a small model's window.
        Axis("choices", "choices of the field", (2, 16, 64, 255), Point(fields=1)),
        Axis("context", "tokens of text", (50, 500, 2000, 6000)),
        Axis("length", "tokens of a candidate", tuple(range(1, 9))),
    )
}

_PROSE = (
    "the parcel came late and box was open when I got home on Monday so we called your team about it they "
    "said that a new one would be sent within two days but nothing has come since then please tell us what "
    "to do next because my order is paid for in full if there no answer by Friday want money back"
)
_WORDS = _PROSE.split()
_ENDS = (".", "s", "!", "a", ",", "1")
_PLAIN = re.compile(r"[a-z]+")


def compile_point(point: Point, target: Target) -> tuple[Artifact, tuple[str, ...]]:
    """The artifact of a point and its texts.

    Raises TokenizerError where no texts or labels have the tokens asked for, SchemaError where the prompt
    is too long for the model.
    """
    draw = random.Random(f"{point}")
    labels = Labels(target.tokenizer, draw)
    fields = tuple(
        Field(
            f"q{number}",
            "enum",
            f"Which fits part {number}?",
            tuple(Choice(label, label) for label in labels.draw(f"q{number}", point)),
        )
        for number in range(1, point.fields + 1)
    )
    artifact, problems = compile_schema(Schema("sweep", fields, "Judge the text."), target)
    if artifact is None:
        raise SchemaError(problems)
    lengths = {len(c.ids) for field in artifact.fields for c in field.candidates}
    if lengths != {point.length}:
        raise _not_made(f"labels of {point.length} tokens: these take {sorted(lengths)}")
    return artifact, tuple(text_of(target.tokenizer, artifact, point.context, draw) for _ in range(TEXTS))


def context_tokens(tokenizer: Tokenizer, artifact: Artifact, text: str) -> int:
    """What a text and its closing fence take of the prompt."""
    cut = artifact.prompt
    return len(assemble_prompt(tokenizer, cut, text)) - len(cut.head) - len(cut.tail)


class Labels:
    """Draws labels of whole words where the vocabulary has such, of letters where it has not."""

    def __init__(self, tokenizer: Tokenizer, draw: random.Random) -> None:
        self._tokenizer = tokenizer
        self._draw = draw
        vocabulary = tokenizer.get_vocab()
        plain = sorted(token for token in vocabulary if _PLAIN.fullmatch(token))
        # Tokens that begin with a blank, however it is spelled there.
        later = {token[1:] for token in vocabulary if _PLAIN.fullmatch(token[1:]) and not token[0].isascii()}
        words = [token for token in plain if 3 <= len(token) <= 7 and token in later]
        self._words, self._joint = (words, " ") if words else (plain, "")

    def draw(self, name: str, point: Point) -> list[str]:
        """Distinct labels for the field of that name, the first two with different first tokens.

        Raises TokenizerError where the vocabulary does not give enough.
        """
        opening = f'{{"{name}": "'
        before = encode_text(self._tokenizer, opening)
        found: dict[str, int] = {}
        for _ in range(100 * (point.choices + 10)):
            if not self._words or len(found) == point.choices:
                break
            label = self._joint.join(self._draw.choices(self._words, k=point.length))
            line = encode_text(self._tokenizer, f'{opening}{label}"')
            fits = len(line) == len(before) + point.length + 1 and line[: len(before)] == before
            if fits and (len(found) != 1 or line[len(before)] not in found.values()):
                found.setdefault(label, line[len(before)])
        if len(found) < point.choices:
            raise _not_made(f"{point.choices} labels of {point.length} tokens")
        return list(found)


def text_of(tokenizer: Tokenizer, artifact: Artifact, wanted: int, draw: random.Random) -> str:
    """A text of exactly so many tokens. Raises TokenizerError where none is found."""

    def missing(text: str) -> int:
        return wanted - context_tokens(tokenizer, artifact, text)

    text = ""
    for _ in range(20):
        text = _grown(text, missing, draw)
        if missing(text) == 0:
            return text
        # Merges can leave a gap that no word fills: other words, then.
        text = " ".join(text.split()[:-3])
    raise _not_made(f"a text of {wanted} tokens")


def _grown(text: str, missing: Callable[[str], int], draw: random.Random) -> str:
    """The text with as many words more as fit, then with what fills the rest."""
    more = max(1, missing(text) // 2)
    while more:
        longer = " ".join([*([text] if text else []), *draw.choices(_WORDS, k=more)])
        left = missing(longer)
        if left >= 0:
            text, more = longer, min(more, max(1, left // 2)) if left else 0
        else:
            more //= 2
    left = missing(text)
    for end in (*(f" {word}" for word in draw.sample(_WORDS, k=4)), *_ENDS):
        if left and (after := missing(text + end)) >= 0:
            text, left = text + end, after
    return text


def _not_made(what: str) -> TokenizerError:
    return TokenizerError(
        "the model's tokenizer",
        f"does not give {what}",
        "a point of the sweep has exactly the tokens it names",
    )
