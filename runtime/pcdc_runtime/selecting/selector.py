"""Selects labels of an index for contexts: one prompt in, one selection out."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from time import perf_counter

from pcdc_runtime.errors import EngineClosedError, mlx_missing
from pcdc_runtime.indexed.index import Index

from .outcome import Outcome, Sampling
from .request import Request, requested

try:
    from pcdc_runtime.bound import check_window
    from pcdc_runtime.groups import check_text
    from pcdc_runtime.headfile import HeadFiles, compute_head, restore_head
    from pcdc_runtime.loaded import LoadedModel
    from pcdc_runtime.score import drift_band
    from pcdc_runtime.tokenizer import assemble_prompt

    from .bound import BoundIndex
    from .disc import disc
    from .exact import search
    from .model_beliefs import ModelBeliefs
    from .selection import Selection, answers_of, bound_of, lead_of
    from .source import IndexFile, IndexSource
    from .trie import beam, greedy, sampled
except ImportError as error:
    if not (error.name or "").startswith("mlx"):
        raise
    raise mlx_missing(error) from error

ROOM = 256
"""For how many nodes of a tree there is room from the start: few searches run more."""
LOW_MASS = 1e-3
"""Below which legal mass the question is more likely wrong than the labels."""
NOT_MUCH = 1e-2
"""Below which a legal mass that may be that low is told."""


class Selector:
    """One index on one loaded model; `open_selector` makes it. Safe to call from any thread.

    Takes over one use of `model`, which `close` gives back. With `heads` the head's KV is read from there
    where possible. With a `file`, each request is answered from what that holds when the request starts.
    """

    def __init__(
        self,
        index: Index,
        model: LoadedModel,
        *,
        file: IndexFile | None = None,
        heads: HeadFiles | None = None,
    ) -> None:
        if not isinstance(model, LoadedModel):
            kind = type(model).__name__
            raise TypeError(f"a Selector runs on a LoadedModel, as `open_model` gives, not on {kind}")
        model.check_open()
        self.model = model
        self._closed = False
        self._heads = heads
        try:
            self._source = IndexSource(index, model, file)
            model.call(partial(compute_head, model, index.digest, index.prompt.head, heads, ROOM))
            index.check()
        except BaseException:
            model.close()
            raise

    @property
    def index(self) -> Index:
        """The index that answered last, or is to answer first."""
        return self._source.bound.index

    def __repr__(self) -> str:
        return f"Selector({self.index!r}, model={self.model.name!r})"

    def select(
        self,
        context: str,
        *,
        method: str = "exact",
        k: int | None = None,
        seed: int | None = None,
        beam: int | None = None,
        temperature: float | None = None,
        top: int | None = None,
        budget: int | None = None,
    ) -> Selection:
        """Find the labels that the model believes in for one context.

        - `exact` gives the `k` most probable (1 unless given) with a certificate. It runs at most `budget`
          tokens of labels (2048 unless given) and then gives the best so far and the gap.
        - `trie` is constrained decoding: greedy, with a `seed` drawn, with a `beam` the best `k` of a beam
          search of that width.
        - `disc` draws one label by its share of the catalog's probability, from `k` candidates (4 unless
          given) and again `k` where none is accepted. Without a `seed` one is drawn; the result has it.

        `temperature` is the index's unless given. Other than 1 it tempers the distribution of every token,
        and all that is said is about the tempered model. With `top` only so many of the likeliest tokens are
        looked at where a prefix has many continuations; `missed` bounds what that leaves out.

        Raises ContextNotTextError, ContextTooLongError, EngineClosedError, ScoreError, SelectionError,
        SelectionMismatchError, TemperatureError, UnknownMethodError.
        """
        asked = requested(method, k, seed, beam, temperature, top, budget)
        return self.model.call(self._job(context, asked))

    def submit(
        self,
        context: str,
        *,
        method: str = "exact",
        k: int | None = None,
        seed: int | None = None,
        beam: int | None = None,
        temperature: float | None = None,
        top: int | None = None,
        budget: int | None = None,
    ) -> Future[Selection]:
        """Queue what `select` does. Faults of the arguments are raised here, all others by the future."""
        asked = requested(method, k, seed, beam, temperature, top, budget)
        return self.model.submit(self._job(context, asked))

    def close(self) -> None:
        """Refuse further requests and give the model back; queued requests are still answered."""
        if not self._closed:
            self._closed = True
            self.model.close()

    def __enter__(self) -> Selector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _job(self, context: str, asked: Request) -> partial[Selection]:
        if self._closed:
            raise EngineClosedError(
                f"selector of {self.index.name}", "is closed", help="open the index again"
            )
        check_text(context)
        return partial(self._select, context, asked)

    def _select(self, context: str, asked: Request) -> Selection:
        """On the owner thread: the whole of one request, from one index."""
        started = perf_counter()
        model, prefixes = self.model, self.model.prefixes
        bound, refused = self._source.current()
        index = bound.index
        restored = restore_head(model, index.digest, index.prompt.head, self._heads)
        prompt = assemble_prompt(model.tokenizer, index.prompt, context)
        check_window(model, len(prompt), bound.deepest)
        base, heat = len(prompt) - 1, index.temperature if asked.temperature is None else asked.temperature
        room = min(ROOM, asked.budget or ROOM)
        with prefixes.lease(index.digest, base + room) as prefix:
            sequence = prefix.sequence
            forwards, copied = sequence.passes, sequence.bytes_copied
            beliefs = ModelBeliefs(prefix, prompt, heat, room=room, subject=f"index {index.name}")
            prefilled = perf_counter()
            outcome = _run(asked, bound, beliefs)
            ended = perf_counter()
            added = base - beliefs.cached + beliefs.nodes
            return Selection(
                answers=answers_of(outcome, index.labels, drift_band(model.language.dtype)),
                method=asked.method,
                certified=outcome.certified,
                bound=bound_of(outcome),
                lead=lead_of(outcome),
                legal_mass=outcome.mass,
                missed=outcome.missed,
                temperature=heat,
                k=asked.k,
                seed=asked.seed,
                beam=asked.beam,
                top=asked.top,
                budget=asked.budget,
                sampling=outcome.sampling,
                passes=beliefs.passes,
                nodes=beliefs.nodes,
                forward_passes=sequence.passes - forwards,
                sequential_forward_passes=beliefs.passes + beliefs.prefilled,
                head_cached=beliefs.cached,
                positions=added,
                context_tokens=len(prompt) - len(index.prompt.head) - len(index.prompt.tail),
                kv_bytes=(base + beliefs.nodes) * prefixes.bytes_per_token,
                kv_added=added * prefixes.bytes_per_token,
                kv_copied=sequence.bytes_copied - copied,
                elapsed_ms=(perf_counter() - started) * 1000,
                prefill_ms=beliefs.prefill_ms,
                search_ms=(ended - prefilled) * 1000,
                model=model.name,
                index=index.name,
                index_digest=index.digest,
                entries=index.rows.entries,
                warnings=(*refused, *restored, *self._warnings(context, heat, outcome)),
            )

    def _warnings(self, context: str, heat: float, outcome: Outcome) -> list[str]:
        warnings = []
        if not context.strip():
            warnings.append("empty_context")
        if self.model.language.window is None:
            warnings.append("window_unknown")
        if heat != 1:
            warnings.append(f"tempered: every token's distribution is that at temperature {heat:g}")
        if said := _low_mass(outcome.mass, outcome.sampling):
            warnings.append(
                f"low_legal_mass: the model gives all labels together {said}; the question is the likely"
                " reason: it or its examples should make a label the natural answer"
            )
        return warnings


def _run(asked: Request, bound: BoundIndex, beliefs: ModelBeliefs) -> Outcome:
    rows, verifier = bound.index.rows, bound.verifier(asked.top)
    if asked.method == "exact":
        assert asked.budget is not None
        return search(rows, beliefs, verifier, k=min(asked.k, rows.entries), nodes=asked.budget)
    if asked.method == "disc":
        assert asked.seed is not None
        return disc(rows, beliefs, verifier, k=asked.k, seed=asked.seed)
    if asked.seed is not None:
        return sampled(rows, beliefs, verifier, seed=asked.seed)
    if asked.beam is not None:
        return beam(rows, beliefs, verifier, width=asked.beam, k=asked.k)
    return greedy(rows, beliefs, verifier)


def _low_mass(mass: tuple[float, float] | None, sampling: Sampling | None) -> str:
    """What is known of a legal mass that may be low, by its bounds or by an estimate; "" of any other."""
    least, most = mass or (0.0, 1.0)
    if least >= LOW_MASS:
        return ""
    low, high = f"{least:.1e}", f"{most:.1e}"
    bounds = low if low == high else f"{low} to {high}"
    if most < NOT_MUCH:
        return bounds
    # An estimate may lie outside the bounds, so that it is no figure of its own.
    if sampling is None or 1 - sampling.p_bad >= LOW_MASS:
        return ""
    drawn = len(sampling.weights) - sampling.resampled
    draws = "1 draw" if drawn == 1 else f"{drawn} draws"
    return f"less than {LOW_MASS:.0e} as estimated from {draws}, certainly {bounds}"
