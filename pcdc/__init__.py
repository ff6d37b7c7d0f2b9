"""pcdc: compile closed-question schemas once, answer every field from one prefill and one tree pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import compile, run_parallel_generation
    from .diagnostics import Diagnostic, SchemaError
    from .schema import FieldDefinition, StructuredSchema
    from .watching import ChangeSet, watch

__version__ = "0.1.0"
__all__ = [
    "ChangeSet",
    "Diagnostic",
    "FieldDefinition",
    "SchemaError",
    "StructuredSchema",
    "compile",
    "run_parallel_generation",
    "watch",
]

# Where each public name lives. Loaded on first use, so that importing pcdc costs next to nothing.
_HOMES = {
    "compile": "api",
    "run_parallel_generation": "api",
    "Diagnostic": "diagnostics",
    "SchemaError": "diagnostics",
    "FieldDefinition": "schema",
    "StructuredSchema": "schema",
    "ChangeSet": "watching",
    "watch": "watching",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
