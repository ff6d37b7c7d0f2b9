"""What `pcdc run --contexts` answers: every field of an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcdc_runtime.errors import PcdcError
from pcdc_runtime.models import resolve
from pcdc_runtime.reload import ArtifactFile, Pair
from pcdc_runtime.result import Result
from pcdc_runtime.weights import weights_digest

from pcdc import __version__
from pcdc.contexts import Line

from .common import notes_of
from .contexts import Answer, Answering, Command


@dataclass(frozen=True)
class FieldOptions:
    """What `pcdc run` was asked for; `model` None is the artifact's own.

    `fields` gives the wanted names out of all, None for all.
    """

    path: Path
    model: str | None
    calibration: bool
    head_cache: bool | None
    fields: Callable[[Sequence[str]], list[str] | None]
    scoring: str | None
    temperature: float | None


def field_command(options: FieldOptions) -> Command:
    """`pcdc run` as a command that answers texts."""

    def read(_: Mapping[str, Any] | None) -> FieldAnswers:
        pair = ArtifactFile(options.path, calibration=options.calibration).read()
        return FieldAnswers(options, pair, options.fields([field.name for field in pair.artifact.fields]))

    return Command("pcdc run", "texts, artifact, model, calibration and options", read)


@dataclass(frozen=True)
class FieldAnswers:
    """Answers from an artifact and the calibration beside it; `names` None are all fields."""

    options: FieldOptions
    pair: Pair
    names: list[str] | None

    @property
    def stated(self) -> Mapping[str, Any]:
        """Nothing is drawn."""
        return {}

    def settings(self) -> list[object]:
        """All that decides, the weights by their digest. Raises ModelNotFoundError."""
        options, pair = self.options, self.pair
        weights = weights_digest(resolve(self._model, weights=True, folders=self._folders).folder)
        calibration = pair.calibration if options.temperature is None else None
        ids = [] if calibration is None else [calibration.id_of(field.name) for field in calibration.fields]
        digest = pair.artifact.digest
        return [__version__, digest, weights, ids, self.names, options.scoring, options.temperature]

    @contextmanager
    def opened(self) -> Iterator[Answering]:
        """On the engine that answers from what was read, as `load` opens it."""
        from pcdc_runtime.engine import Engine
        from pcdc_runtime.headfile import head_files
        from pcdc_runtime.loaded import open_model

        options = self.options
        model = open_model(self._model, folders=self._folders)
        heads = head_files(options.head_cache)
        with Engine(self.pair.artifact, model, calibration=self.pair.calibration, heads=heads) as engine:

            def answering(lines: Sequence[Line]) -> Iterator[Answer | PcdcError]:
                results = engine.run_many(
                    (line.context for line in lines),
                    fields=self.names,
                    scoring=options.scoring,
                    temperature=options.temperature,
                )
                for result in results:
                    yield _answer(result) if isinstance(result, Result) else result

            yield answering

    @property
    def _model(self) -> str:
        return self.pair.artifact.model if self.options.model is None else self.options.model

    @property
    def _folders(self) -> bool:
        return self.options.model is not None


def _answer(result: Result) -> Answer:
    return Answer(result.to_dict(), notes_of(result, empty=False))
