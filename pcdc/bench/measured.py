"""What every measured way of answering gives, ours and the baselines alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pcdc_runtime.artifact import Value


@dataclass(frozen=True)
class Answer:
    """One request answered by one method, and what it took.

    `values` is None where the output is not valid. `log_scores` holds, where the method has them, the raw
    log score of every whole choice by field, in declaration order, in nats. `passes` counts those that wait
    for one another, `forwards` the calls of the model, `positions` the tokens that went through it (rows x
    columns, padding included), `kv_bytes` the keys and values held at the longest moment, copies included,
    `kv_copied` the bytes of them that were copied, `tokens` those written one after another. `ms` is the
    time on the owner thread, from the context as text to the values.
    """

    values: Mapping[str, Value] | None
    log_scores: Mapping[str, tuple[float, ...]] | None
    passes: int
    forwards: int
    positions: int
    kv_bytes: int
    kv_copied: int
    ms: float
    tokens: int = 0


class Method(Protocol):
    """One way to answer, bound to one artifact and one loaded model.

    A module makes it with `make(artifact: Artifact, loaded: LoadedModel) -> Method`, which raises PcdcError
    where it cannot be measured (ExtraMissingError where its package is absent): the table then names it as
    missing, with the reason. `make` takes no use of the model over; `close` gives back what the method holds.
    `key` is the row's name in data, such as "ours-joint-warm"; `title` its name for people: what answers, by
    which rule, with which pruning, head cold or warm.
    """

    @property
    def key(self) -> str: ...

    @property
    def title(self) -> str: ...

    def answer(self, context: str) -> Answer:
        """Answer one request, head KV warm where the method keeps one; from any thread, raises PcdcError.

        It waits for the model's owner thread (`LoadedModel.call`) and does everything there.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class ManyMethod(Method, Protocol):
    """A method that also answers many requests together."""

    def answer_many(self, contexts: Sequence[str]) -> Sequence[Mapping[str, Value] | None]:
        """The values for each context, in their order."""
        ...
