"""What every way of answering is expected to take, before it is run.

Costs are in forwards of a single token. The three rates were fitted to measured answers of all methods on a
CPU: a token that goes through the model with others, what more it takes behind a long context, and the copy
of a token's KV. How long a forward takes is found out while measuring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.rules import rule_bit
from pcdc_runtime.tree import CHUNK

from .branches import deciding
from .ours import Way
from .spellings import spellings
from .tries import roots

WIDTH = 27.0
"""How many positions in one forward take about as long as a forward of one."""
REACH = 2800.0
"""Tokens of context behind which a position takes twice as long."""
COPIES = 900.0
"""Tokens whose KV is copied in the time of a forward."""
VOCABULARY = 1.4
"""What the output head adds to a position, where it runs on all of them and not on a row's last."""

Steps = Callable[[Artifact, int], float]
"""One answer to a text of so many tokens, what follows it in the prompt included."""


@dataclass
class Pace:
    """How long forwards took so far, on one model: seconds, and forwards of a single token."""

    seconds: float = 0.0
    forwards: float = 0.0

    def add(self, seconds: float, forwards: float) -> None:
        """Count what was timed."""
        self.seconds += seconds
        self.forwards += forwards

    def __call__(self, forwards: float) -> float:
        """The seconds that so many take; 0 as long as nothing was timed."""
        return forwards * self.seconds / self.forwards if self.forwards else 0.0


def steps(forwards: float, positions: float, context: float, copied: float = 0.0) -> float:
    """What so much work takes; `context` is the mean number of tokens before a position."""
    return forwards + positions / WIDTH * (1 + context / REACH) + copied / COPIES


def head(artifact: Artifact) -> float:
    """The prefill of the head, which a method that keeps caches of its own does when it is made."""
    tokens = len(artifact.prompt.head)
    return steps(-(-tokens // CHUNK), tokens, tokens / 2)


def nothing(artifact: Artifact) -> float:
    """What making a method takes that keeps nothing of its own."""
    return 0.0


def ours(way: Way) -> Steps:
    """One pass over the text and the nodes that the rule reads; the first node is the end of the prompt."""

    def foreseen(artifact: Artifact, text: int) -> float:
        positions = text + int(np.count_nonzero(artifact.nodes.reads[1:] & rule_bit(way.rule)))
        forwards = len(artifact.fields) if way.one_by_one else -(-positions // CHUNK)
        context = len(artifact.prompt.head) + text
        return steps(forwards, positions, context) + (head(artifact) if way.cold else 0)

    return foreseen


def written(artifact: Artifact, text: int) -> float:
    """A pass for every token of the answer."""
    tokens = _answer_tokens(artifact)
    return steps(tokens, text + tokens, len(artifact.prompt.head) + text)


def forced(artifact: Artifact, text: int) -> float:
    """A pass for every field, in which what is forced goes along."""
    context = len(artifact.prompt.head) + text
    return steps(len(artifact.fields) + 1, text + _answer_tokens(artifact), context)


def published(artifact: Artifact, text: int) -> float:
    """A short prompt of its own, copied twice for every field, and a few rounds."""
    fields = len(artifact.fields)
    prompt = text + sum(len(field.name) + len(field.description) for field in artifact.fields) / 4 + 40
    return steps(4, prompt + 15 * fields, prompt, 2 * fields * prompt)


def rows(artifact: Artifact, text: int) -> float:
    """A row for every field; growing and thinning them moves a part of the copies again."""
    fields = len(artifact.fields)
    context = len(artifact.prompt.head) + text
    return steps(3, text + 8 * fields, context, 1.3 * fields * context)


def branches(artifact: Artifact, text: int) -> float:
    """A row for every branch."""
    found = [len(branch.tokens) for root in roots(artifact) for branch in deciding(root)]
    return _in_rows(artifact, text, found)


def oracle(artifact: Artifact, text: int) -> float:
    """A row for every spelling of every choice."""
    found = [len(spelling.tokens) for spelling in spellings(artifact)]
    return _in_rows(artifact, text, found, VOCABULARY)


def _in_rows(artifact: Artifact, text: int, lengths: list[int], share: float = 1.0) -> float:
    """Each row has its tokens, filled up to the longest of its batch, and a copy of what stands before it."""
    context = len(artifact.prompt.head) + text
    padded = 1.3 * (sum(lengths) + len(lengths))
    return steps(2, text + share * padded, context, len(lengths) * context)


def _answer_tokens(artifact: Artifact) -> float:
    """Tokens of a middling answer: names, values, and what stands between them."""
    return sum(
        int(artifact.nodes.depth[field.anchor])
        + sum(len(candidate.ids) for candidate in field.candidates) / len(field.candidates)
        + 2.5
        for field in artifact.fields
    )
