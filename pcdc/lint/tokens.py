"""Rules about the choices as a model's tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pcdc.describe import Token
from pcdc.diagnostics import Diagnostic, finding, quoted, visible
from pcdc.schema import NULL_LABEL, Field

from .choices import SHOWN, listed, place_of
from .subject import Compiled, FieldTokens

MANY_CHOICES = 100
LENGTH_RATIO = 4
LONG_CHOICE = 24


def _each(compiled: Compiled) -> Iterator[tuple[FieldTokens, Field, str]]:
    for tokens, field in zip(compiled.fields, compiled.schema.fields, strict=True):
        yield tokens, field, f"field {quoted(field.name)}"


def _in_tokens(compiled: Compiled) -> str:
    return f"in the tokens of {compiled.target.model}"


def many_choices(compiled: Compiled) -> Iterator[Diagnostic]:
    """A field with more than MANY_CHOICES choices."""
    for field, declared, subject in _each(compiled):
        if len(field.labels) > MANY_CHOICES:
            yield finding(
                "PCDC512",
                declared.location,
                subject,
                f"has {len(field.labels)} choices: {field.prompt} prompt tokens and {field.nodes} nodes "
                + _in_tokens(compiled),
                f"more than {MANY_CHOICES} cost every text, and small models confuse them",
                "group them: ask for the group first, then for the choice within it",
            )


def token_prefix(compiled: Compiled) -> Iterator[Diagnostic]:
    """A choice whose tokens begin another's."""
    for field, declared, subject in _each(compiled):
        pairs = _prefixes(field)
        if pairs:
            shown = ", ".join(f"{quoted(short)} of {quoted(long)}" for short, long in pairs[:SHOWN])
            more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
            yield finding(
                "PCDC514",
                place_of(declared, pairs[0][0]),
                subject,
                f"has a choice that is a token prefix: {shown}{more}, {_in_tokens(compiled)}",
                "the short one wins only where the model would close it there",
                "scores are exact; use texts that differ from the start where the two are confused",
            )


def _prefixes(field: FieldTokens) -> list[tuple[str, str]]:
    paths = {tuple(t.id for t in c): label for label, c in zip(field.labels, field.choices, strict=True)}
    return [
        (paths[path[:size]], label)
        for path, label in paths.items()
        for size in range(1, len(path))
        if path[:size] in paths
    ]


def first_token(compiled: Compiled) -> Iterator[Diagnostic]:
    """Choices that begin with one token, but for those that are a token prefix of another."""
    for field, declared, subject in _each(compiled):
        extended = {long for _, long in _prefixes(field)}
        groups = defaultdict[int, list[tuple[str, tuple[Token, ...]]]](list)
        for label, tokens in zip(field.labels, field.choices, strict=True):
            if tokens and label not in extended:
                groups[tokens[0].id].append((label, tokens))
        shared = [group for group in groups.values() if len(group) > 1]
        if shared:
            shown = "; ".join(map(_shared, shared[:SHOWN]))
            more = f"; and {len(shared) - SHOWN} more groups" if len(shared) > SHOWN else ""
            yield finding(
                "PCDC515",
                place_of(declared, shared[0][0][0]),
                subject,
                f"has choices that begin alike {_in_tokens(compiled)}: {shown}{more}",
                f"scored whole, in {compiled.passes} tree pass{'es' if compiled.passes > 1 else ''}, but "
                "the model decides late",
                "put what differs first where such choices are confused",
            )


def _shared(group: list[tuple[str, tuple[Token, ...]]]) -> str:
    """`3 choices ("P0", "P1", "P2") share 1 token, 'P':47`."""
    paths = [tokens for _, tokens in group]
    same = 0
    while all(len(p) > same and p[same] == paths[0][same] for p in paths):
        same += 1
    spelled = " ".join(f"{visible(repr(t.text))}:{t.id}" for t in paths[0][:same])
    many = f"{same} token{'s' if same > 1 else ''}"
    return f"{len(group)} choices ({listed([label for label, _ in group])}) share {many}, {spelled}"


def merges(compiled: Compiled) -> Iterator[Diagnostic]:
    """Choices of which some character shares a token with a quote."""
    for field, declared, subject in _each(compiled):
        if field.merged:
            yield finding(
                "PCDC516",
                place_of(declared, field.merged[0]),
                subject,
                f"has choices that merge with a quote {_in_tokens(compiled)}: {listed(list(field.merged))}",
                "their last or first token is rare, and other tools read the wrong one",
                "scores are exact; begin and end choices with letters where you can",
            )


def uneven(compiled: Compiled) -> Iterator[Diagnostic]:
    """A field in which one choice takes more than LENGTH_RATIO times the tokens of another."""
    for field, declared, subject in _each(compiled):
        # An absent answer stands for itself, however it is spelled.
        counts = {
            label: len(tokens)
            for label, tokens in zip(field.labels, field.choices, strict=True)
            if label != NULL_LABEL
        }
        short, long = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[long] > LENGTH_RATIO * counts[short]:
            yield finding(
                "PCDC517",
                place_of(declared, long),
                subject,
                f"has choices of {counts[short]} to {counts[long]} tokens {_in_tokens(compiled)}: "
                f"{quoted(short)} {counts[short]}, {quoted(long)} {counts[long]}",
                f"within a field at most {LENGTH_RATIO} times as many",
                "give the choices short labels of like length, and explain them in their descriptions",
            )


def long_choice(compiled: Compiled) -> Iterator[Diagnostic]:
    """A choice of more than LONG_CHOICE tokens."""
    for field, declared, subject in _each(compiled):
        long = [
            (len(tokens), label)
            for label, tokens in zip(field.labels, field.choices, strict=True)
            if len(tokens) > LONG_CHOICE
        ]
        if long:
            count, label = max(long)
            many = "a choice" if len(long) == 1 else f"{len(long)} choices"
            yield finding(
                "PCDC518",
                place_of(declared, label),
                subject,
                f"has {many} of more than {LONG_CHOICE} tokens {_in_tokens(compiled)}: "
                f"{quoted(label)} {count}",
                "every token is a node that every text pays for",
                "use a short label, and put the rest into the choice's description",
            )
