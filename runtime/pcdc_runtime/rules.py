"""What compiler and runtime agree on: the scoring rules, how many fields and choices there can be."""

from __future__ import annotations

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
