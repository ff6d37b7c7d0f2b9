"""The output head of an mlx-lm family, for all token ids or for some.

It is the family's own code, so that logit scales, soft caps and biases are in it: a view of the model whose
trunk gives its input back. For some ids it is a view whose output weights have their rows only.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from .artifact import Ints
from .fast_mlx import Module, mx

PROVED_IDS = 64


class Head:
    """The head of `language`, whose trunk is its item `trunk_key`."""

    def __init__(self, language: Module, trunk_key: str) -> None:
        self._language = language
        self._trunk_key = trunk_key
        self._whole = self._around(language, language[trunk_key])
        self._width = 0

    def __call__(self, hidden: mx.array, ids: Ints | None = None) -> mx.array:
        """Logits of hidden rows, float32 [rows, ids]; all ids where none are given.

        Computes no others, unless `prove` found that this model's head cannot do that.
        """
        if ids is None or not self._width:
            logits = self._run(self._whole, hidden)
            return logits if ids is None else logits[:, mx.array(ids)]
        return self._run(self._at(mx.array(ids)), hidden)

    def prove(self, hidden: mx.array, logits: mx.array, limit: float) -> None:
        """Compute only the ids asked for from now on, if that gives what the whole head gave.

        `logits` are that of `hidden`, and `limit` is how much a logit may differ.
        """
        width = self._width = logits.shape[1]
        ids = np.unique(np.linspace(0, width - 1, PROVED_IDS).astype(np.int32))
        expected = np.array(logits)[:, ids]
        try:
            found = np.array(self(hidden, ids))
        except Exception:
            self._width = 0
            return
        if found.shape != expected.shape or not np.abs(found - expected).max() <= limit:
            self._width = 0

    def _at(self, ids: mx.array) -> Module:
        trunk = _rows(self._language[self._trunk_key], self._width, ids)
        return self._around(_rows(self._language, self._width, ids), trunk)

    def _around(self, language: Module, trunk: Module) -> Module:
        view = copy.copy(language)
        setattr(view, self._trunk_key, _Through(trunk))
        return view

    def _run(self, head: Module, hidden: mx.array) -> mx.array:
        out: mx.array = head(hidden[None])
        return out[0].astype(mx.float32)


def _rows(module: Module, width: int, ids: mx.array) -> Module:
    """A view of a module whose layers with a row for each token id have those of `ids` only."""
    view = copy.copy(module)
    for name, layer in module.items():
        if isinstance(layer, Module) and _per_id(layer.get("weight"), width):
            narrow = copy.copy(layer)
            narrow.update({key: part[ids] for key, part in layer.items() if _per_id(part, width)})
            view[name] = narrow
    return view


def _per_id(part: object, width: int) -> bool:
    return isinstance(part, mx.array) and part.shape[:1] == (width,)


class _Through:
    """Stands where a trunk was: gives its input back, and the trunk's attributes."""

    def __init__(self, trunk: Module) -> None:
        self._trunk = trunk

    def __call__(self, inputs: mx.array, *_args: Any, **_kwargs: Any) -> mx.array:
        return inputs

    def __getattr__(self, key: str) -> Any:
        return getattr(self._trunk, key)
