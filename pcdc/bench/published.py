"""The published reference engine itself, package `pcd-rlcd`, on the weights that ours runs.

What runs is the package's own MLX engine: its prompt, which takes neither instructions nor choices and is
ChatML whatever the model, its token lookup, its passes and its copies of the KV. It keeps no head between
requests. It is given the same names, types, descriptions and choices, the model's own tokenizer as mlx-lm
loads it, and the loaded weights, whose calls are counted.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib import metadata
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pcdc_runtime.artifact import Artifact, CompiledField, Value
from pcdc_runtime.errors import ExtraMissingError, ModelNotSupportedError

from .caches import CountedModel
from .measured import Answer

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

PACKAGE = "pcd_rlcd"
REQUIREMENT = "pcd-rlcd==0.1.4"


class Published:
    """`run_parallel_generation` of the package, for one artifact's schema."""

    key = "pcd-rlcd"

    def __init__(self, artifact: Artifact, loaded: LoadedModel) -> None:
        if loaded.folder is None:
            raise ModelNotSupportedError(
                loaded.name, "is in no folder", "pcd-rlcd reads the tokenizer's own files"
            )
        self._engine: Any
        self._engine, schema = _package()
        version = metadata.version("pcd-rlcd")
        self.title = f"pcd-rlcd {version}, its own short prompt (no choices, no instructions), no head kept"
        self._loaded = loaded
        self._fields = artifact.fields
        self._schema = schema.StructuredSchema({field.name: _declared(field) for field in artifact.fields})
        loaded.call(self._bind)

    def answer(self, context: str) -> Answer:
        """Answer one request. Raises ModelNotSupportedError where the package fails."""
        return self._loaded.call(lambda: self._answer(context))

    def close(self) -> None:
        """Let go of the package's copy that knows the model: without one it would fetch another."""
        del self._engine, self._model

    def _bind(self) -> None:
        """Put the model where the package would load one, on the model's own thread."""
        from mlx_lm.tokenizer_utils import load

        language: Any = self._loaded.language
        self._model = CountedModel(language.language, language.trunk)
        self._engine._model, self._engine._tokenizer = self._model, load(self._loaded.folder)

    def _answer(self, context: str) -> Answer:
        started = perf_counter()
        self._model.restart()
        try:
            found = self._engine.run_parallel_generation(context, self._schema)["parsed_json"]
        except Exception as error:
            raise ModelNotSupportedError(
                "pcd-rlcd", f"fails on {self._loaded.name} ({type(error).__name__}: {error})"
            ) from error
        return Answer(
            values={field.name: _value(field, found[field.name]["value"]) for field in self._fields},
            log_scores=None,
            # Each of its forwards waits for the one before: prefill, all fields, then token by token.
            passes=self._model.forwards,
            forwards=self._model.forwards,
            positions=self._model.positions,
            kv_bytes=self._model.kv_bytes,
            kv_copied=self._model.kv_copied,
            ms=(perf_counter() - started) * 1000,
        )


def make(artifact: Artifact, loaded: LoadedModel) -> Published:
    """The package on one artifact's schema. Raises ExtraMissingError, ModelNotSupportedError."""
    return Published(artifact, loaded)


def _package() -> tuple[ModuleType, ModuleType]:
    """A fresh copy of the package's MLX engine, whose model is a global, and of its schema module.

    The package's own first lines are left out: outside macOS they would choose its PyTorch engine.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise ExtraMissingError(
            "pcd-rlcd",
            "is not installed",
            "it is the published engine that ours is measured against",
            f"install it with `pip install --no-deps {REQUIREMENT}`: PyTorch, which it asks for, is not used",
        )
    _forget()
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        engine = importlib.import_module("pcd_rlcd.engine_mlx")
        return engine, importlib.import_module("pcd_rlcd.schema")
    finally:
        _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _declared(field: CompiledField) -> dict[str, Any]:
    """A field as the package declares it; its booleans have no third answer, so those become text."""
    if field.type == "boolean" and len(field.candidates) == 2:
        return {"type": "boolean", "description": field.description}
    labels = [candidate.label for candidate in field.candidates]
    return {"type": "enum", "description": field.description, "choices": labels}


def _value(field: CompiledField, found: object) -> Value:
    label = str(found).lower() if isinstance(found, bool) else found
    return next(candidate.value for candidate in field.candidates if candidate.label == label)
