"""The command line: arguments in, text out. Data goes to stdout, notes and diagnostics to stderr.

Exit codes: 0 clean, 1 findings in a schema, a context or by `doctor`, 2 anything else that is wrong: the
call, a file, a model, an artifact; 130 interrupted, 143 terminated.
"""

from __future__ import annotations

# Each module adds its commands to the program, and the help lists them in this order.
# isort: off
from . import build, index, lint, run, select, evaluate, bench, inspect, models  # noqa: F401

# isort: on
from .common import MAX_CONTEXT_BYTES, app, exit_code, main

__all__ = ["MAX_CONTEXT_BYTES", "app", "exit_code", "main"]
