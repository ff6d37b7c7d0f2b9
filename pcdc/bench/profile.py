"""Where the time of one request goes, by kind of work.

Each piece is evaluated by itself while it is timed. That stretches small steps, most of all on a GPU: shares
are to be read, not the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pcdc_runtime.artifact import Artifact

from .rates import Clock
from .taps import Function, callers, wrapped

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel
    from pcdc_runtime.mlx_model import MlxModel

WEIGHTS, ATTENTION, ACTIVATION, NORMS, COPIES, HEAD, LSE, REST = (
    "weight products",
    "attention",
    "activation",
    "norms, rotation",
    "keys and values written",
    "output head",
    "log-sum-exp",
    "everything else",
)
KINDS = (WEIGHTS, ATTENTION, ACTIVATION, NORMS, COPIES, HEAD, LSE, REST)


@dataclass(frozen=True)
class Profile:
    """Milliseconds by kind of one warm request; they sum up to the whole of it."""

    artifact: str
    ms: dict[str, float]

    @property
    def total_ms(self) -> float:
        """The whole request, stretched by timing its pieces."""
        return sum(self.ms.values())

    @property
    def text(self) -> str:
        """One line per kind: milliseconds and share."""
        lines = [f"{kind:<24} {ms:9.1f}  {ms / self.total_ms:6.1%}" for kind, ms in self.ms.items()]
        return "\n".join([f"{self.artifact}: ms by kind, one warm request", *lines])


class Ledger:
    """Time by kind; a kind inside another interrupts it."""

    def __init__(self, clock: Clock, evaluate: Callable[..., object]) -> None:
        self.ms = dict.fromkeys(KINDS, 0.0)
        self._clock = clock
        self._evaluate = evaluate
        self._open = [REST]
        self._since = clock()

    def _book(self) -> None:
        now = self._clock()
        self.ms[self._open[-1]] += (now - self._since) * 1000
        self._since = now

    def finish(self) -> dict[str, float]:
        """The milliseconds by kind up to now."""
        self._book()
        return self.ms

    def timed(self, kind: str) -> Callable[[Function], Function]:
        """A wrapper that books a function under `kind`, what it waits for not included."""

        def wrapper(own: Function) -> Function:
            def function(*args: Any, **kwargs: Any) -> Any:
                self._evaluate(args, kwargs)
                self._book()
                self._open.append(kind)
                try:
                    result = own(*args, **kwargs)
                    self._evaluate(result)
                    return result
                finally:
                    self._book()
                    self._open.pop()

            return function

        return wrapper


def profile(artifact: Artifact, loaded: LoadedModel, context: str, *, clock: Clock = perf_counter) -> Profile:
    """Answer one context over a warm head, piece by piece, under the artifact's rule. Raises PcdcError."""
    return loaded.call(partial(_profile, artifact, loaded, context, clock))


def _profile(artifact: Artifact, loaded: LoadedModel, context: str, clock: Clock) -> Profile:
    from pcdc_runtime.engine import Engine

    model: Any = loaded.language
    with Engine(artifact, loaded.share()) as engine:
        engine.run(context)
        with loaded.prefixes.lease(artifact.digest, len(artifact.prompt.head)) as prefix:
            prefix.advance(artifact.prompt.head)
        ledger = Ledger(clock, _evaluate)
        with _tapped(model, ledger):
            engine.run(context)
            ms = ledger.finish()
    return Profile(artifact.name, ms)


@contextmanager
def _tapped(model: MlxModel, ledger: Ledger) -> Iterator[None]:
    """Every layer that does a kind of work, booked under it."""
    from pcdc_runtime import mlx_model, score

    language: Any = model.language
    layers = {type(module) for module in language.modules()}
    places: list[tuple[str, object, str]] = [
        (COPIES, mlx_model.LayerKV, "update_and_fetch"),
        (HEAD, mlx_model.MlxSequence, "logits"),
        (LSE, score, "row_logsumexp"),
    ]
    for ending, kind in (("Linear", WEIGHTS), ("Norm", NORMS), ("Rope", NORMS)):
        places += [(kind, layer, "__call__") for layer in layers if layer.__name__.endswith(ending)]
    for name, kind in (("scaled_dot_product_attention", ATTENTION), ("swiglu", ACTIVATION)):
        places += [(kind, caller, name) for caller in callers(language, name)]
    with ExitStack() as stack:
        for kind, owner, name in places:
            stack.enter_context(wrapped(owner, name, ledger.timed(kind)))
        yield


def _evaluate(*values: Any) -> None:
    """Wait for every array in these."""
    from pcdc_runtime.fast_mlx import mx

    for value in values:
        if isinstance(value, mx.array):
            mx.eval(value)
        elif isinstance(value, tuple | list):
            _evaluate(*value)
        elif isinstance(value, dict):
            _evaluate(*value.values())
