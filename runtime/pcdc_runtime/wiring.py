"""Puts this package's attention and activation where an mlx-lm family's own code calls its.

The families import these functions by name, so the names are bound anew in their modules. What they are bound
to asks first who is calling: outside a forest pass everything goes to mlx-lm's own function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .attention import attend, attends_in_blocks
from .exponential import in_numpy, swiglu
from .fast_mlx import Module, mx

_in_pass = ContextVar("_in_pass", default=False)


@contextmanager
def forest_pass() -> Iterator[None]:
    """What the current thread runs inside belongs to a forest pass."""
    token = _in_pass.set(True)
    try:
        yield
    finally:
        _in_pass.reset(token)


def wire(language: Module) -> None:
    """Bind the names anew in every module whose classes a model is made of; once each."""
    for module in language.modules():  # type: ignore[no-untyped-call]
        namespace = vars(sys.modules[type(module).__module__])
        for name, replacement in _REPLACEMENTS.items():
            own = namespace.get(name)
            if callable(own) and own.__module__ != __name__:
                namespace[name] = replacement(own)


def _attention(own: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def scaled_dot_product_attention(
        queries: mx.array,
        keys: Any,
        values: Any,
        cache: Any,
        scale: float,
        mask: Any,
        sinks: mx.array | None = None,
    ) -> mx.array:
        if _in_pass.get() and attends_in_blocks(queries, keys, values, sinks):
            blocks = cache.blocks(mask)
            if blocks is not None:
                return attend(queries, keys, values, scale, blocks)
        return own(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)

    return scaled_dot_product_attention


def _activation(own: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def gated(gate: mx.array, x: mx.array) -> mx.array:
        if _in_pass.get() and in_numpy(gate, x):
            return swiglu(gate, x)
        return own(gate, x)

    return gated


_REPLACEMENTS = {"scaled_dot_product_attention": _attention, "swiglu": _activation}
