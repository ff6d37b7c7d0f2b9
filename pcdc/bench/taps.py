"""Functions of a running model, replaced for a while so that a benchmark can watch and time them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pcdc_runtime.fast_mlx import Module

Function: TypeAlias = Callable[..., Any]
Wrapper: TypeAlias = Callable[[Function], Function]


@contextmanager
def wrapped(owner: object, name: str, wrapper: Wrapper) -> Iterator[None]:
    """Bind `owner.name` to `wrapper` of what it is bound to, until the block ends."""
    own, inherited = getattr(owner, name), name not in vars(owner)
    setattr(owner, name, wrapper(own))
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def callers(language: Module, name: str) -> list[object]:
    """The Python modules that a model is written in and that hold a function of this name."""
    found = {type(module).__module__ for module in language.modules()}  # type: ignore[no-untyped-call]
    return [sys.modules[module] for module in sorted(found) if callable(vars(sys.modules[module]).get(name))]
