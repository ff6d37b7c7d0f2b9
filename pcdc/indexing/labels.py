"""The surface forms of many labels: the rules of answer lines, over arrays.

What a form is, and which lines tell it, stands in `pcdc.tokenization`; a law holds that both give the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pcdc_runtime.artifact import Ints

from pcdc.prompt import Prompt, Target
from pcdc.tokenization import NOT_BACK, QUOTE_LOST, QUOTED_CONTINUATIONS, answers, line_opening

from .closing import proved_of
from .lines import QUOTE, Flags, LineReader, Lines, Places, Texts, equal_parts, offsets, spans

Reason: TypeAlias = tuple[str, str, str, str]
_CLEAN = 0
"""The number of the remainder that is a bare quote."""


@dataclass(frozen=True, eq=False)
class Forms:
    """Form `f` is one of label `label[f]`: the tokens `token[first[f]:first[f + 1]]`, closed by `closing[f]`.

    Tokens count from the end of the prompt's tail. What closes is a number that is explained elsewhere.
    """

    label: Ints
    token: Ints
    first: Places
    closing: Ints

    def __len__(self) -> int:
        return len(self.label)

    def row(self, form: int) -> Ints:
        """The tokens of one form."""
        return self.token[self.first[form] : self.first[form + 1]]

    def equal(self, other: Forms) -> Flags:
        """Which forms are the other's form of the same number, whatever their labels."""
        mine, theirs = np.diff(self.first), np.diff(other.first)
        same = equal_parts(self.token, self.first[:-1], mine, other.token, other.first[:-1], theirs)
        same &= self.closing == other.closing
        return same

    def taken(self, chosen: Flags | Places) -> Forms:
        """Some of them, chosen by flags or by numbers."""
        size = np.diff(self.first)[chosen]
        token = self.token[spans(self.first[:-1][chosen], size)]
        return Forms(self.label[chosen], token, offsets(size), self.closing[chosen])


def joined(parts: Sequence[Forms]) -> Forms:
    """The forms of many parts, in their order."""
    none = np.zeros(0, dtype=np.int32)
    return Forms(
        np.concatenate([none, *(part.label for part in parts)]),
        np.concatenate([none, *(part.token for part in parts)]),
        offsets(np.concatenate([none, *(np.diff(part.first) for part in parts)])),
        np.concatenate([none, *(part.closing for part in parts)]),
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """Some labels on their way: `number` counts them in the catalog; each body is a line up to the quote."""

    number: Ints
    literals: Sequence[str]
    bodies: Lines


class LabelReader:
    """Gives the forms of a field's labels. `remainders` numbers what closes them, as met."""

    def __init__(self, prompt: Prompt, target: Target, field: str) -> None:
        self.lines = LineReader(prompt, target.vocabulary)
        self.remainders: dict[bytes, int] = {b'"': _CLEAN}
        self._vocabulary = target.vocabulary
        self._skipped = len(prompt.skipped)
        self._opening = line_opening(field)
        self._opened = len(self._plain([""]).data)
        self._literal = json.JSONEncoder(ensure_ascii=False).encode
        proved = proved_of(target.tokenizer, target.vocabulary)
        self._appends, self._once = proved.appends, proved.once
        # What is proved of the labels holds for what closes them once it came back as it went in.
        if not self._once[256 * QUOTE + ord("a")] or not self._come_back(answers('"a"')):
            self._once[:] = False

    def batch(self, labels: Sequence[str], number: Ints) -> Batch:
        """Encode the bodies of some labels. Raises UnstableBoundaryError."""
        literals = [self._literal(label) for label in labels]
        return Batch(number, literals, self._encode([literal[:-1] for literal in literals]))

    def forms(self, batch: Batch) -> tuple[list[Forms], dict[int, Reason]]:
        """The forms of a batch, each once, and why labels have none. Raises UnstableBoundaryError."""
        plain = self._plain([literal[:-1] for literal in batch.literals])
        ending = plain.data[plain.at[1:] - 2].astype(np.intp) * 256 + plain.data[plain.at[1:] - 1]
        once = self._once[ending] & batch.bodies.texts.equal(plain)
        once &= plain.closing_quotes(self._opened) < 0
        found = [self._clean(batch.number, batch.bodies, once)]
        refused: dict[int, Reason] = {}
        rest = np.flatnonzero(~once)
        if len(rest):
            literals = [batch.literals[n] for n in rest.tolist()]
            more, refused = self._all_forms(
                Batch(batch.number[rest], literals, batch.bodies.taken(rest)), plain.taken(rest)
            )
            found += more
        return found, refused

    def _all_forms(self, batch: Batch, body: Texts) -> tuple[list[Forms], dict[int, Reason]]:
        number = batch.number
        """The forms that any ending gives; `body` is what the bodies must come back as."""
        *closed, _ = zip(*map(answers, batch.literals), strict=True)
        if self._appends:
            plain = [body.ended(b'"' + after.encode()) for after in QUOTED_CONTINUATIONS]
        else:
            plain = [self._plain(endings) for endings in closed]
        end, quoted = body.sizes, plain[0]
        reasons = np.zeros(len(number), dtype=np.int8)
        merging = [self._encode(endings) for endings in closed]
        for lines, expected in zip(merging, plain, strict=True):
            reasons[(reasons == 0) & ~lines.texts.equal(expected)] = 1
            reasons[(reasons == 0) & (lines.texts.closing_quotes(self._opened) != end)] = 2
        reasons[(reasons == 0) & ~batch.bodies.texts.equal(body)] = 1
        good = reasons == 0
        why = (NOT_BACK, QUOTE_LOST)
        refused = {int(number[n]): why[reasons[n] - 1] for n in np.flatnonzero(~good).tolist()}
        begun = equal_parts(body.data, body.at[:-1], end, quoted.data, quoted.at[:-1], quoted.sizes - 1)
        begun &= quoted.data[quoted.at[1:] - 1] == QUOTE
        candidates = [self._merged(number, lines, end, good) for lines in merging]
        candidates.append(self._clean(number, batch.bodies, good))
        kept = [np.full(len(candidates[0]), True) for _ in merging] + [begun[good]]
        for later, forms in enumerate(candidates):
            for earlier in range(later):
                kept[later] &= ~(kept[earlier] & forms.equal(candidates[earlier]))
        return [forms.taken(which) for forms, which in zip(candidates, kept, strict=True)], refused

    def _clean(self, number: Ints, lines: Lines, chosen: Flags) -> Forms:
        """The forms whose paths are whole lines, which a quote closes."""
        return self._cut(number[chosen], lines, lines.first[:-1][chosen], lines.first[1:][chosen])

    def _merged(self, number: Ints, lines: Lines, end: Places, chosen: Flags) -> Forms:
        """The forms that the lines spell, whose closing quotes are their bytes `end`."""
        quote = (lines.texts.at[:-1] + end)[chosen]
        covering = np.searchsorted(lines.start, quote, side="right") - 1
        size = quote + 1 - lines.start[covering]
        forms = self._cut(number[chosen], lines, lines.first[:-1][chosen], covering)
        merged = np.flatnonzero(size > 1)
        pairs = np.stack([lines.token[covering[merged]].astype(np.int64), size[merged]], axis=1)
        kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
        spelled = self._vocabulary.bytes_of(kinds[:, 0].tolist())
        numbers = [
            self.remainders.setdefault(token[:length], len(self.remainders))
            for token, length in zip(spelled, kinds[:, 1].tolist(), strict=True)
        ]
        forms.closing[merged] = np.array(numbers, dtype=np.int32)[kind.reshape(-1)]
        return forms

    def _cut(self, number: Ints, lines: Lines, first: Places, stop: Places) -> Forms:
        size = np.maximum(stop - first - self._skipped, 0)
        token = lines.token[spans(first + self._skipped, size)]
        return Forms(number, token, offsets(size), np.full(len(number), _CLEAN, dtype=np.int32))

    def _encode(self, endings: Sequence[str]) -> Lines:
        return self.lines.encode([self._opening + ending for ending in endings])

    def _plain(self, endings: Sequence[str]) -> Texts:
        return self.lines.plain([self._opening + ending for ending in endings])

    def _come_back(self, endings: Sequence[str]) -> bool:
        return bool(self._encode(endings).texts.equal(self._plain(endings)).all())
