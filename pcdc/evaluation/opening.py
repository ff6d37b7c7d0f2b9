"""The model of an evaluation, loaded when the first text needs it: a finished run needs none."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pcdc_runtime.artifact import Artifact
from pcdc_runtime.models import resolve
from pcdc_runtime.weights import weights_digest

if TYPE_CHECKING:
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.loaded import LoadedModel

    from pcdc.writing import Writer


class Opening:
    """Engines and writers by artifact, all on one loaded model; `name` None is the artifact's own.

    Raises PcdcError where the model's files are missing; `weights` is their digest.
    """

    def __init__(self, artifact: Artifact, name: str | None = None) -> None:
        self._name, self._folders = name or artifact.model, name is not None
        self.weights: str = weights_digest(resolve(self._name, weights=True, folders=self._folders).folder)
        self._stack = ExitStack()
        self._model: LoadedModel | None = None
        self._engines: dict[str, Engine] = {}
        self._writers: dict[str, Writer] = {}

    @property
    def arithmetic(self) -> tuple[str, str] | None:
        """The device and the type of number that scores are computed with; None where no model was needed."""
        if self._model is None:
            return None
        from pcdc_runtime.drift import device

        return device(), self._model.language.dtype

    def engine(self, artifact: Artifact) -> Engine:
        """The engine of an artifact, uncalibrated."""
        from pcdc_runtime.engine import Engine

        if artifact.digest not in self._engines:
            engine = Engine(artifact, self._loaded().share())
            self._engines[artifact.digest] = self._stack.enter_context(engine)
        return self._engines[artifact.digest]

    def writer(self, artifact: Artifact) -> Writer:
        """The writer of an artifact."""
        from pcdc.writing import Writer

        if artifact.digest not in self._writers:
            self._writers[artifact.digest] = Writer(artifact, self._loaded())
        return self._writers[artifact.digest]

    def _loaded(self) -> LoadedModel:
        from pcdc_runtime.loaded import open_model

        if self._model is None:
            self._model = self._stack.enter_context(open_model(self._name, folders=self._folders))
        return self._model

    def close(self) -> None:
        """Give the model back."""
        self._stack.close()

    def __enter__(self) -> Opening:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
