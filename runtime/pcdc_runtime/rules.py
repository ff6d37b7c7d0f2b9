"""What both halves agree on: the scoring rules, how many fields and choices there can be, temperatures."""

from __future__ import annotations

import math

from .errors import TemperatureError

MAX_FIELDS = 1000
MIN_CHOICES = 2
MAX_CHOICES = 255
NODE_BUDGET = 4096
"""Nodes that one tree pass runs at most, unless a single field needs more."""
MAX_CONTEXT_BYTES = 16 * 1024 * 1024
"""UTF-8 bytes of one context at most. A tokenizer takes two hundred times as much memory."""
RULES: tuple[str, ...] = ("joint", "identify", "trie")


def rule_bit(rule: str) -> int:
    """The bit of a scoring rule in the `reads` masks of nodes and forms."""
    return 1 << RULES.index(rule)


def check_temperature(
    temperature: object, *, help: str = "leave it out for 1.0; it changes probabilities, never the answer"
) -> float:
    """The temperature as a float. Raises TemperatureError unless it is a finite number above zero."""
    try:
        if isinstance(temperature, int | float) and not isinstance(temperature, bool):
            number = float(temperature)
            if math.isfinite(number) and number > 0:
                return number
    except OverflowError:
        pass
    raise TemperatureError(
        "temperature", f"is {temperature!r:.40}", "it must be a finite number above 0", help
    )
