"""A catalog's labels read batch by batch: their forms, or which of them cannot be used and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from pcdc_runtime.artifact import Ints

from pcdc.diagnostics import Diagnostic, finding, quoted
from pcdc.prompt import Prompt, Target
from pcdc.tokenization import control_spelled
from pcdc.vocabulary import Remainder

from .definition import IndexDefinition
from .labels import Batch, Forms, LabelReader, Reason, joined
from .spellings import ControlSpellings

Progress: TypeAlias = Callable[[int, int, str], None]
"""Told how many of how many are done, and of which stage: "tokenizing" or "sorting"."""
BATCH = 8192
MAX_TOLD = 20
SECONDS_BETWEEN = 0.25


class Teller:
    """Passes progress on, a few times a second at most; the beginning and the end of a stage always."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._next = 0.0

    def at(self, done: int, total: int, stage: str) -> None:
        now = time.monotonic()
        if self._progress is not None and (now >= self._next or done in (0, total)):
            self._next = now + SECONDS_BETWEEN
            self._progress(done, total, stage)


@dataclass(frozen=True, eq=False)
class ClosedForms:
    """Forms with their END sets: `closing` numbers `ends`."""

    forms: Forms
    ends: Sequence[tuple[int, ...]]


def read_labels(
    definition: IndexDefinition, prompt: Prompt, target: Target, numbers: Ints, tell: Teller
) -> tuple[ClosedForms | None, list[Diagnostic]]:
    """The forms of the labels with these numbers. Raises UnstableBoundaryError."""
    reader = LabelReader(prompt, target, definition.field)
    spellings = ControlSpellings(target.vocabulary.control_spellings)
    refusals = _Refusals(definition)
    refusals.add_field(spellings)
    found: list[Forms] = []
    done = 0
    tell.at(0, len(numbers), "tokenizing")
    for labels, batch in _batches(reader, definition.entries.labels, numbers):
        forms, refused = reader.forms(batch)
        found += forms
        refusals.add(batch.number.tolist(), labels, refused, spellings.among(labels))
        done += len(labels)
        tell.at(done, len(numbers), "tokenizing")
    if problems := refusals.told():
        return None, problems
    ends = [tuple(target.vocabulary.end_set(Remainder(rest)).tolist()) for rest in reader.remainders]
    return ClosedForms(joined(found), ends), []


def _batches(
    reader: LabelReader, labels: Sequence[str], numbers: Ints
) -> Iterator[tuple[Sequence[str], Batch]]:
    """Labels in their order; while one batch is worked on, the next one is encoded."""

    def encoded(part: Ints) -> tuple[Sequence[str], Batch]:
        some = [labels[number] for number in part.tolist()]
        return some, reader.batch(some, part)

    parts = [numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH)]
    if not parts:
        return
    with ThreadPoolExecutor(max_workers=1) as ahead:
        coming = ahead.submit(encoded, parts[0])
        for part in parts[1:]:
            ready, coming = coming.result(), ahead.submit(encoded, part)
            yield ready
        yield coming.result()


class _Refusals:
    """Labels that cannot be used: the first of them one by one, the others by their number."""

    def __init__(self, definition: IndexDefinition) -> None:
        self._definition = definition
        self._told: list[Diagnostic] = []
        self._others: list[str] = []

    def add_field(self, spellings: ControlSpellings) -> None:
        name = self._definition.field
        for spelling in spellings.among([name]).values():
            self._told.append(control_spelled(self._definition.location, f"field {quoted(name)}", spelling))

    def add(
        self,
        numbers: Sequence[int],
        labels: Sequence[str],
        refused: Mapping[int, Reason],
        control: Mapping[int, str],
    ) -> None:
        """Add those of one batch: `refused` by number in the catalog, `control` by place in the batch."""
        if not refused and not control:
            return
        for place, (number, label) in enumerate(zip(numbers, labels, strict=True)):
            reason = refused.get(number)
            if place not in control and reason is None:
                continue
            if len(self._told) >= MAX_TOLD:
                self._others.append("PCDC303" if reason is None else reason[0])
                continue
            location = self._definition.entries.locate(number)
            subject = f"label {quoted(label)} of field {quoted(self._definition.field)}"
            if place in control:
                self._told.append(control_spelled(location, subject, control[place]))
            elif reason is not None:
                code, *facts = reason
                self._told.append(finding(code, location, subject, *facts))

    def told(self) -> list[Diagnostic]:
        if not self._others:
            return self._told
        subject, count = f"catalog of field {quoted(self._definition.field)}", len(self._others)
        labels = f"has {count} more label{'' if count == 1 else 's'} that cannot be used"
        return [*self._told, finding(self._others[0], self._definition.location, subject, labels)]
