"""The stages of a first answer, timed in the fresh process that calls `stages`.

They begin with imports, so this module imports next to nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from .taps import Function, wrapped

COMMANDS = "import of the command line"
ENGINE = "import of the engine and MLX"
ARTIFACT = "artifact"
MLX_LM = "import of mlx-lm"
TOKENIZER = "tokenizer"
WEIGHTS = "weights"
FLOAT32 = "weights to float32"
PROBE = "probe of the model"
HEAD = "head, computed"
FIRST = "first answer"
SECOND = "second answer"
FROM_FILE = "head, from its file"
STAGES = (
    COMMANDS, ENGINE, ARTIFACT, MLX_LM, TOKENIZER, WEIGHTS, FLOAT32, PROBE, HEAD, FIRST, SECOND, FROM_FILE,
)  # fmt: skip


def stages(artifact: Path, model: str, text: str, heads: Path) -> dict[str, float]:
    """Milliseconds by stage of STAGES, in their order; what a stage holds of another one counts there only.

    `heads` is a folder of head files: the last stage takes the head from there, or writes it there.
    """
    clock = _Clock()
    with clock.stage(COMMANDS):
        import_module("pcdc.cli")
    with clock.stage(ENGINE):
        from pcdc_runtime import codec
        from pcdc_runtime.engine import Engine
        from pcdc_runtime.loaded import open_model
    with clock.stage(ARTIFACT):
        built = codec.read(artifact)
    with clock.stage(MLX_LM):
        import_module("mlx_lm.utils")
    with _pieces(clock), clock.stage(WEIGHTS):
        loaded = open_model(model)
    with loaded:
        with clock.stage(HEAD):
            engine = Engine(built, loaded.share())
        with engine:
            for title in (FIRST, SECOND):
                with clock.stage(title):
                    engine.run(text)
        _from_file(clock, built, loaded, heads)
    return {title: clock.ms[title] for title in STAGES if title in clock.ms}


def _from_file(clock: _Clock, built: Any, loaded: Any, heads: Path) -> None:
    from pcdc_runtime.engine import Engine
    from pcdc_runtime.headfile import HeadFiles

    from .ours import hold

    hold(built, loaded, 0)
    with clock.stage(FROM_FILE):
        engine = Engine(built, loaded.share(), heads=HeadFiles(heads))
    engine.close()


class _Clock:
    """Milliseconds by stage; a stage inside another interrupts it, on whatever thread it runs."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """What runs inside counts for the stage of that title."""
        self._book()
        self._open.append(title)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def _book(self) -> None:
        now = perf_counter()
        if self._open:
            self.ms[self._open[-1]] = self.ms.get(self._open[-1], 0.0) + (now - self._since) * 1000
        self._since = now

    def of(self, title: str) -> Callable[[Function], Function]:
        """A wrapper that counts a function for a stage."""

        def wrapper(own: Function) -> Function:
            def function(*arguments: Any) -> Any:
                with self.stage(title):
                    return own(*arguments)

            return function

        return wrapper


@contextmanager
def _pieces(clock: _Clock) -> Iterator[None]:
    """Let the pieces of loading a model count for themselves.

    Weights are read when they are first evaluated: before they become float32, where they do.
    """
    from pcdc_runtime import loaded, mlx_model, model
    from pcdc_runtime.fast_mlx import mx

    def read_first(own: Function) -> Function:
        def function(name: str, weights: Any, *others: Any) -> Any:
            mx.eval(weights.parameters())
            with clock.stage(FLOAT32):
                plain = own(name, weights, *others)
                mx.eval(plain.parameters())
                return plain

        return function

    with ExitStack() as stack:
        stack.enter_context(wrapped(loaded, "load_tokenizer", clock.of(TOKENIZER)))
        stack.enter_context(wrapped(model, "_as_float32", read_first))
        stack.enter_context(wrapped(mlx_model, "_probe", clock.of(PROBE)))
        yield
