"""Runs requests: one context in, one result out, one prefill and one tree pass between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter

from . import artifact as artifact_file
from .artifact import Artifact, Ints
from .errors import (
    ContextNotTextError,
    ContextTooLongError,
    EngineClosedError,
    ExtraMissingError,
    LogitsWidthError,
    UnknownFieldError,
    UnknownScoringError,
)
from .plan import Plan, make_plans
from .result import FieldResult, Result
from .rules import RULES
from .tokenizer import assemble_prompt, check_tokenizer

try:
    from .loaded import LoadedModel, open_model
    from .score import FieldScores, check_temperature, decide, drift_band, read, weigh
except ImportError as error:
    if not (error.name or "").startswith("mlx"):
        raise
    raise ExtraMissingError(
        "mlx",
        f"cannot be imported ({error})",
        "running a model needs MLX, on macOS or Linux",
        "install `pcdc` (or `pcdc-runtime`) again on this machine, it brings `mlx` and `mlx-lm`",
    ) from error

NODE_BUDGET = 4096
PLANS_KEPT = 64


@dataclass(frozen=True)
class _Run:
    """What the passes of one request took, counted."""

    prefill_ms: float
    tree_ms: float
    forwards: int
    sequential: int
    cached: int
    nodes: int


class Engine:
    """One artifact on one loaded model; `load` makes it. Safe to call from any thread.

    Takes over one use of `model`, which `close` gives back. A tree pass runs at most `node_budget` nodes,
    unless one field alone has more.
    """

    def __init__(self, artifact: Artifact, model: LoadedModel, node_budget: int = NODE_BUDGET) -> None:
        self.artifact = artifact
        self.model = model
        self._closed = False
        self._plans = lru_cache(PLANS_KEPT)(partial(_plans, artifact, node_budget))
        try:
            check_tokenizer(artifact, model.tokenizer, model.fingerprint, model.name)
            width = model.language.logits_width
            if artifact.largest_id >= width:
                raise LogitsWidthError(
                    artifact.name,
                    f"uses token {artifact.largest_id}",
                    f"the logits of {model.name} end at {width - 1}",
                    f"recompile with `pcdc build --model {model.name}`",
                )
            self._check_window(len(artifact.prompt.head) + len(artifact.prompt.tail), 0)
            model.call(self._prefill_head)
        except BaseException:
            model.close()
            raise

    def __repr__(self) -> str:
        return f"Engine({self.artifact!r}, model={self.model.name!r})"

    def run(
        self,
        context: str,
        *,
        fields: Iterable[str] | None = None,
        scoring: str | None = None,
        temperature: float | None = None,
        legal_mass: bool = True,
    ) -> Result:
        """Answer the fields (all when None, one when a name) for one context.

        `scoring` and `temperature` default to the artifact's. Without `legal_mass` it is None and `trie`
        runs fewer nodes. Raises ContextNotTextError, ContextTooLongError, EngineClosedError, ScoreError,
        TemperatureError, UnknownFieldError, UnknownScoringError.
        """
        return self.model.call(self._job(context, fields, scoring, temperature, legal_mass))

    def submit(
        self,
        context: str,
        *,
        fields: Iterable[str] | None = None,
        scoring: str | None = None,
        temperature: float | None = None,
        legal_mass: bool = True,
    ) -> Future[Result]:
        """Queue what `run` does. Faults of the arguments are raised here, all others by the future."""
        return self.model.submit(self._job(context, fields, scoring, temperature, legal_mass))

    def close(self) -> None:
        """Refuse further requests and give the model back; queued requests are still answered."""
        if not self._closed:
            self._closed = True
            self.model.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _job(
        self,
        context: str,
        fields: Iterable[str] | None,
        scoring: str | None,
        temperature: float | None,
        legal_mass: bool,
    ) -> partial[Result]:
        if self._closed:
            raise EngineClosedError(
                f"engine of {self.artifact.name}", "is closed", help="load the artifact again"
            )
        if not isinstance(context, str):
            raise ContextNotTextError(
                "context", f"is {type(context).__name__}, not text", help="decode it first"
            )
        rule = self.artifact.scoring if scoring is None else scoring
        if rule not in RULES:
            raise UnknownScoringError("scoring", f"is {rule!r:.40}", f"known rules: {', '.join(RULES)}")
        chosen = self._chosen(fields)
        heat = check_temperature(self.artifact.temperature if temperature is None else temperature)
        return partial(self._answer, context, chosen, rule, heat, bool(legal_mass))

    def _chosen(self, fields: Iterable[str] | None) -> tuple[int, ...]:
        names = [field.name for field in self.artifact.fields]
        wanted = (
            names if fields is None else list(dict.fromkeys([fields] if isinstance(fields, str) else fields))
        )
        unknown = [name for name in wanted if name not in names]
        if unknown or not wanted:
            raise UnknownFieldError(
                self.artifact.name,
                f"has no field {', '.join(map(repr, unknown))}"
                if unknown
                else "was asked for no field at all",
                f"its fields: {', '.join(names)}",
                _nearest(unknown, names),
            )
        return tuple(names.index(name) for name in wanted)

    def _prefill_head(self) -> None:
        head = self.artifact.prompt.head
        with self.model.prefixes.lease(self.artifact.digest, len(head)) as prefix:
            prefix.advance(head)

    def _answer(
        self, context: str, chosen: tuple[int, ...], rule: str, temperature: float, legal_mass: bool
    ) -> Result:
        """On the owner thread: the whole of one request."""
        started = perf_counter()
        cut = self.artifact.prompt
        prompt = assemble_prompt(self.model.tokenizer, cut, context)
        plans = self._plans(rule, frozenset(chosen), legal_mass)
        self._check_window(len(prompt), max(plan.deepest for plan in plans))
        scores, run = self._run(prompt, plans)
        band = drift_band(self.model.language.dtype)
        answers = tuple(
            decide(
                self.artifact.fields[index],
                scores[index],
                temperature,
                upper_bound=rule == "identify",
                band=band,
            )
            for index in chosen
        )
        return self._result(context, answers, rule, temperature, run, len(prompt), started)

    def _run(self, prompt: Ints, plans: Sequence[Plan]) -> tuple[dict[int, FieldScores], _Run]:
        base = len(prompt) - 1
        slots = base + max(len(plan.token) for plan in plans)
        scores: dict[int, FieldScores] = {}
        with self.model.prefixes.lease(self.artifact.digest, slots) as prefix:
            started, passes = perf_counter(), prefix.sequence.passes
            cached = prefix.advance(prompt[:base])
            prefilled = perf_counter()
            for plan in plans:
                hidden = prefix.sequence.append(plan.token, plan.parent + base)
                weighed = weigh(plan, read(prefix.sequence, hidden, plan), self.artifact.fields)
                scores.update(zip(plan.fields, weighed, strict=True))
                prefix.sequence.truncate(base)
            ended = perf_counter()
            return scores, _Run(
                prefill_ms=(prefilled - started) * 1000,
                tree_ms=(ended - prefilled) * 1000,
                forwards=prefix.sequence.passes - passes,
                sequential=(cached < base) + len(plans),
                cached=cached,
                nodes=sum(len(plan.token) for plan in plans),
            )

    def _check_window(self, prompt: int, deepest: int) -> None:
        window = self.model.language.window
        if window is not None and prompt + deepest > window:
            raise ContextTooLongError(
                "context",
                f"makes a prompt of {prompt} tokens, {prompt + deepest} with the deepest path",
                f"the window of {self.model.name} is {window} tokens",
                "shorten the text, or run a model with a longer window",
            )

    def _result(
        self,
        context: str,
        answers: tuple[FieldResult, ...],
        rule: str,
        temperature: float,
        run: _Run,
        prompt: int,
        started: float,
    ) -> Result:
        cut = self.artifact.prompt
        warnings = ["uncalibrated"]
        if not context.strip():
            warnings.append("empty_context")
        if self.model.language.window is None:
            warnings.append("window_unknown")
        return Result(
            answers=answers,
            scoring=rule,
            temperature=temperature,
            model=self.model.name,
            artifact_digest=self.artifact.digest,
            elapsed_ms=(perf_counter() - started) * 1000,
            prefill_ms=run.prefill_ms,
            suffix_eval_ms=run.tree_ms,
            forward_passes=run.forwards,
            sequential_forward_passes=run.sequential,
            head_cached=run.cached,
            nodes=run.nodes,
            context_tokens=prompt - len(cut.head) - len(cut.tail),
            warnings=tuple(warnings),
        )


def _nearest(unknown: Sequence[str], names: Sequence[str]) -> str:
    by_spelling = {name.casefold(): name for name in names}
    close = [get_close_matches(str(name).strip().casefold(), by_spelling, n=1) for name in unknown]
    near = dict.fromkeys(by_spelling[spelling] for found in close for spelling in found)
    return f"did you mean {' and '.join(map(repr, near))}?" if near else ""


def load(path: str | Path, model: str | Path | LoadedModel | None = None) -> Engine:
    """An engine for an artifact file, on the model it names or on another with the same tokenizer.

    `model` is an alias, a hub id, a folder, or a loaded model to share; a model already loaded by this
    process is shared in any case. Raises ArtifactError (FingerprintMismatchError, LogitsWidthError),
    ModelNotFoundError, HubUnreachableError, ModelNotSupportedError, ContextTooLongError.
    """
    compiled = artifact_file.read(Path(path))
    if isinstance(model, LoadedModel):
        return Engine(compiled, model.share())
    if model is None:
        return Engine(compiled, open_model(compiled.model, folders=False))
    return Engine(compiled, open_model(str(model)))


def _plans(
    artifact: Artifact, budget: int, rule: str, fields: frozenset[int], legal_mass: bool
) -> tuple[Plan, ...]:
    return make_plans(artifact, rule, fields, legal_mass, budget)
