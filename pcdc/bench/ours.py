"""Ours as measured methods: the default, and one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from pcdc_runtime.artifact import Artifact, Value
from pcdc_runtime.errors import PcdcError

from .measured import Answer, Method

if TYPE_CHECKING:
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.loaded import LoadedModel
    from pcdc_runtime.result import Result


@dataclass(frozen=True)
class Way:
    """What is changed: the rule, the bound of pruning, no head KV, fields one after another."""

    key: str
    title: str
    rule: str = "joint"
    prune: float | None = None
    cold: bool = False
    one_by_one: bool = False


BOUND = 1e-4
"""Of pruning, where it is on."""

DEFAULT = Way("ours-joint-warm", "ours, joint, no pruning, head warm")
IDENTIFY = Way("ours-identify-warm", "ours, identify, no pruning, head warm", rule="identify")
PRUNED = Way("ours-joint-pruned", f"ours, joint, pruning {BOUND:g}, head warm", prune=BOUND)
COLD = Way("ours-joint-cold", "ours, joint, no pruning, head cold", cold=True)
FIELDS = Way("ours-joint-fields", "ours, joint, no pruning, head warm, fields one by one", one_by_one=True)
WAYS = (DEFAULT, IDENTIFY, PRUNED, COLD, FIELDS)


class Ours:
    """Answers with the runtime's engine, uncalibrated."""

    def __init__(self, way: Way, artifact: Artifact, loaded: LoadedModel) -> None:
        from pcdc_runtime.engine import Engine

        self.key, self.title = way.key, way.title
        self._way = way
        # No head files: a cold head is one that has to be computed.
        self._engine: Engine = Engine(artifact, loaded.share())

    def answer(self, context: str) -> Answer:
        """Answer one request."""
        engine, way = self._engine, self._way
        if way.cold:
            hold(engine.artifact, engine.model, 0)
        names: list[str | None] = [f.name for f in engine.artifact.fields] if way.one_by_one else [None]
        started = perf_counter()
        results = [
            engine.run(context, fields=name, scoring=way.rule, temperature=1.0, prune=way.prune)
            for name in names
        ]
        whole = way.rule == "joint" and way.prune is None
        return _answer(results, (perf_counter() - started) * 1000, scores=whole)

    def close(self) -> None:
        """Give the model back."""
        self._engine.close()


class OursTogether(Ours):
    """Answers many requests as one forest as well."""

    def answer_many(self, contexts: Sequence[str]) -> list[dict[str, Value] | None]:
        """The values for each context."""
        found = self._engine.run_many(contexts, scoring=self._way.rule, temperature=1.0)
        return [None if isinstance(one, PcdcError) else one.values for one in found]


def hold(artifact: Artifact, loaded: LoadedModel, tokens: int) -> None:
    """Let the artifact's prefix hold the first tokens of its head and nothing else.

    Before a request, so that it finds nothing of an earlier text, or nothing at all.
    """
    head = artifact.prompt.head[:tokens]

    def advance() -> None:
        with loaded.prefixes.lease(artifact.digest, len(head)) as prefix:
            prefix.advance(head)

    loaded.call(advance)


def maker(way: Way) -> Callable[[Artifact, LoadedModel], Method]:
    """What makes the method of a way."""
    alone = way.cold or way.one_by_one or way.prune is not None
    kind = Ours if alone else OursTogether
    return lambda artifact, loaded: kind(way, artifact, loaded)


def _answer(results: list[Result], ms: float, *, scores: bool) -> Answer:
    """One answer out of results that came one after another; `scores` where they are whole choices'."""
    answers = [answer for result in results for answer in result.answers]
    return Answer(
        values={answer.name: answer.value for answer in answers},
        log_scores={answer.name: answer.log_scores for answer in answers} if scores else None,
        passes=sum(r.sequential_forward_passes for r in results),
        forwards=sum(r.forward_passes for r in results),
        positions=sum(r.positions for r in results),
        kv_bytes=max(r.kv_bytes for r in results),
        kv_copied=sum(r.kv_copied for r in results),
        ms=ms,
    )
