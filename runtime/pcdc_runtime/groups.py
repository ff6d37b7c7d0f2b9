"""Answers many contexts lazily: neighbours are gathered into groups that one forward takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from time import perf_counter
from typing import Any

from .artifact import Ints
from .asked import Asked
from .errors import ContextNotTextError, ContextTooLongError, PcdcError, ScoreError, TokenizerError
from .many import Answered, Group, run_group
from .passes import run_passes
from .result import Result
from .tokenizer import check_size
from .tree import CHUNK

OF_ONE_CONTEXT = (ContextNotTextError, ContextTooLongError, ScoreError, TokenizerError)
"""What says something about one context, and nothing about those beside it."""


@dataclass(frozen=True, eq=False)
class _End:
    """No context comes any more; `error` is why, where the caller's iterator raised."""

    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class _Gathered:
    """Contexts in their order, each with why it has no prompt; the others' prompts; what these took."""

    items: tuple[tuple[str, PcdcError | None], ...]
    group: Group
    seconds: float


def in_groups(
    contexts: Iterator[str],
    ask: Callable[[], Asked],
    kv_budget: int,
    progress: Callable[[int], None] | None,
) -> Iterator[Result | PcdcError]:
    """One result, or the error that stands in its place, for each context, in their order.

    `ask` is called before each group. Contexts are taken in the calling thread, at most one of them further
    than the results that are given. What taking one raises is raised after the results of those before it.
    """
    contexts = _guarded(contexts)
    done, context = 0, next(contexts)
    while not isinstance(context, _End):
        asked = ask()
        gathered, context = _gather(asked, context, contexts, kv_budget)
        answers = asked.model.call(partial(_answer, asked, gathered))
        done += len(answers)
        if progress is not None:
            progress(done)
        yield from answers
    if context.error is not None:
        raise context.error


def _guarded(contexts: Iterator[str]) -> Iterator[Any]:
    """The contexts, and an _End."""
    try:
        # `yield from` would close the caller's generator with this one.
        while True:
            yield next(contexts)
    except StopIteration:
        yield _End()
    except Exception as error:
        yield _End(error)


def _gather(asked: Asked, context: Any, contexts: Iterator[str], kv_budget: int) -> tuple[_Gathered, Any]:
    """The contexts from `context` on that go together, and the one after them or _End."""
    slots = kv_budget // asked.model.language.kv_bytes_per_token if len(asked.passes) == 1 else 0
    group = Group(len(asked.bound.artifact.prompt.head), len(asked.passes[0][0].token))
    items: list[tuple[str, PcdcError | None]] = []
    seconds = 0.0
    while not isinstance(context, _End) and len(items) < CHUNK:
        started = perf_counter()
        try:
            check_text(context)
            joined = group.joined(asked.prompt(context), slots)
        except OF_ONE_CONTEXT as error:
            items.append((context, error))
        else:
            if joined is None:
                break
            group = joined
            items.append((context, None))
            seconds += perf_counter() - started
        context = next(contexts)
    return _Gathered(tuple(items), group, seconds), context


def check_budget(kv_budget: object) -> None:
    """Raises TypeError or ValueError for what is no number of bytes."""
    if isinstance(kv_budget, bool) or not isinstance(kv_budget, Integral):
        raise TypeError(f"kv_budget is {kv_budget!r:.40}, not a whole number of bytes")
    if kv_budget < 0:
        raise ValueError(f"kv_budget is {kv_budget}, less than 0 bytes")


def check_text(context: object) -> None:
    """Raises ContextNotTextError for what is no text, ContextTooLongError for what no tokenizer is given."""
    if not isinstance(context, str):
        raise ContextNotTextError("context", f"is {type(context).__name__}, not text", help="decode it first")
    check_size(context)


def _answer(asked: Asked, gathered: _Gathered) -> list[Result | PcdcError]:
    """On the owner thread: what stands at the contexts' places."""
    started, rule = perf_counter() - gathered.seconds, asked.passes[0][0].rule
    prompts = gathered.group.prompts
    answered = zip(prompts, _run(asked, gathered.group), strict=True)
    places: list[Result | PcdcError] = []
    for context, error in gathered.items:
        if error is not None:
            places.append(error)
            continue
        prompt, answer = next(answered)
        if isinstance(answer, ScoreError):
            places.append(answer)
        else:
            places.append(asked.result(context, prompt, rule, *answer, started))
    share = (perf_counter() - started) * 1000 / max(1, len(prompts))
    return [
        replace(one, elapsed_ms=share, contexts=len(prompts)) if isinstance(one, Result) else one
        for one in places
    ]


def _run(asked: Asked, group: Group) -> Iterable[Answered]:
    prefixes, artifact, first = asked.model.prefixes, asked.bound.artifact, asked.passes[0][0]
    if len(group.prompts) > 1:
        return run_group(prefixes, artifact, group, first)
    return [_run_alone(asked, prompt) for prompt in group.prompts]


def _run_alone(asked: Asked, prompt: Ints) -> Answered:
    try:
        scores, counts = run_passes(asked.model.prefixes, asked.bound.artifact, prompt, asked.passes)
    except ScoreError as error:
        return error
    return scores[asked.passes[0][0].rule], counts
