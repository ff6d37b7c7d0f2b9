"""What `pcdc select --contexts` answers: labels of an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pcdc_runtime.errors import ContextNotTextError, ContextTooLongError, PcdcError, ScoreError
from pcdc_runtime.indexed.codec import open_index
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.models import resolve
from pcdc_runtime.weights import weights_digest

from pcdc import __version__
from pcdc.contexts import Line

from .common import as_note
from .contexts import Answer, Answering, Command

if TYPE_CHECKING:
    # Needs MLX.
    from pcdc_runtime.selecting.request import Request

RUN_SEED = "run_seed"
"""Under which key every record has the seed of its run, where something is drawn."""
UNUSED_BITS = 64 - 53
"""A seed has 53 bits, as JSON's numbers are exact up to there."""
OF_ONE_TEXT = (ContextNotTextError, ContextTooLongError, ScoreError)


@dataclass(frozen=True)
class LabelOptions:
    """What `pcdc select` was asked for; `model` None is the index's own.

    The request's seed is that of the run, from which each text's own comes; it was drawn unless `seeded`.
    """

    path: Path
    model: str | None
    head_cache: bool | None
    request: Request
    seeded: bool


def label_command(options: LabelOptions) -> Command:
    """`pcdc select` as a command that answers texts."""

    def read(first: Mapping[str, Any] | None) -> LabelAnswers:
        request, before = options.request, None if first is None else first.get(RUN_SEED)
        # A run that goes on goes on drawing.
        if request.seed is not None and not options.seeded and type(before) is int:
            request = replace(request, seed=before)
        return LabelAnswers(options, open_index(options.path), request)

    return Command("pcdc select", "texts, index, model and options", read)


def seed_of(run: int, line: int) -> int:
    """The seed of one line's text: another for each line, the same wherever a run starts."""
    (drawn,) = np.random.SeedSequence(run, spawn_key=(line,)).generate_state(1, np.uint64)
    return int(drawn) >> UNUSED_BITS


@dataclass(frozen=True)
class LabelAnswers:
    """Answers from an index."""

    options: LabelOptions
    index: Index
    request: Request

    @property
    def stated(self) -> Mapping[str, Any]:
        """The run's seed, where one is used."""
        return {} if self.request.seed is None else {RUN_SEED: self.request.seed}

    def settings(self) -> list[object]:
        """All that decides, the weights by their digest. Raises ModelNotFoundError."""
        given = self.options.model
        name = self.index.model if given is None else given
        weights = weights_digest(resolve(name, weights=True, folders=given is not None).folder)
        return [__version__, self.index.digest, weights, asdict(self.request)]

    @contextmanager
    def opened(self) -> Iterator[Answering]:
        """On the selector that answers from what was read, as `open_selector` opens it."""
        from pcdc_runtime.headfile import head_files
        from pcdc_runtime.loaded import model_for
        from pcdc_runtime.selecting.selector import Selector

        loaded = model_for(self.index.model, self.options.model)
        with Selector(self.index, loaded, heads=head_files(self.options.head_cache)) as selector:

            def answering(lines: Sequence[Line]) -> Iterator[Answer | PcdcError]:
                asked, told = asdict(self.request), set[str]()
                for line in lines:
                    if self.request.seed is not None:
                        asked["seed"] = seed_of(self.request.seed, line.number)
                    try:
                        selection = selector.select(line.context, **asked)
                    except OF_ONE_TEXT as error:
                        yield error
                        continue
                    yield Answer(selection.to_dict(), _new(selection.warnings, told))

            yield answering


def _new(warnings: Sequence[str], told: set[str]) -> list[str]:
    """Notes of what was not told of an earlier text, whatever its figures; that a text is empty is none."""
    notes = []
    for warning in warnings:
        kind = warning.partition(":")[0]
        if kind != "empty_context" and kind not in told:
            told.add(kind)
            notes.append(as_note(warning))
    return notes
