"""Runs requests: one context in, one result out, one prefill and one tree pass between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, overload

from .artifact import Artifact
from .calibration import Calibration
from .engines import Engines
from .errors import (
    ArtifactError,
    ContextNotTextError,
    EngineClosedError,
    PcdcError,
    UnknownFieldError,
    UnknownScoringError,
    mlx_missing,
)
from .reload import ArtifactFile, Pair, Source
from .result import Result
from .rules import NODE_BUDGET, RULES, check_temperature

try:
    from .asked import Asked
    from .groups import check_budget, check_text, in_groups
    from .headfile import HeadFiles, compute_head, head_files, restore_head
    from .loaded import LoadedModel, model_for
    from .many import KV_BUDGET
    from .passes import run_passes
    from .pruning import check_bound, run_pruned
except ImportError as error:
    if not (error.name or "").startswith("mlx"):
        raise
    raise mlx_missing(error) from error


class Engine:
    """One artifact on one loaded model; `load` makes it. Safe to call from any thread.

    Takes over one use of `model`, which `close` gives back. A tree pass runs at most `node_budget` nodes,
    unless one field alone has more. `calibration` is applied to the fields that it was fitted to. With
    `file`, each request is answered from what that holds when the request starts. Without `prefill`, the
    first request computes the head's KV; with `heads` it is read from there where possible.
    """

    def __init__(
        self,
        artifact: Artifact,
        model: LoadedModel,
        node_budget: int = NODE_BUDGET,
        *,
        calibration: Calibration | None = None,
        file: ArtifactFile | None = None,
        heads: HeadFiles | None = None,
        prefill: bool = True,
    ) -> None:
        if not isinstance(model, LoadedModel):
            raise TypeError(f"an Engine runs on a LoadedModel, as `open_model` gives, not on {_kind(model)}")
        model.check_open()
        self.model = model
        self._closed = False
        try:
            if not isinstance(artifact, Artifact):
                raise TypeError(f"an Engine answers an Artifact, as `load` reads, not {_kind(artifact)}")
            self._source = Source(Pair(artifact, calibration), model, node_budget, file)
            self._heads = heads
            if prefill:
                model.call(partial(compute_head, model, artifact.digest, artifact.prompt.head, heads))
        except BaseException:
            model.close()
            raise

    @property
    def artifact(self) -> Artifact:
        """The artifact that answered last, or is to answer first."""
        return self._source.bound.artifact

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that goes with it, None where there is none."""
        return self._source.bound.calibrated.calibration

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
        prune: float | None = None,
    ) -> Result:
        """Answer the fields (all when None, one when a name) for one context.

        `scoring` and `temperature` default to the artifact's; a temperature given here is applied in place
        of any calibration. Without `legal_mass` it is None and `trie` runs fewer nodes.

        With `prune`, such as 1e-4, branches of a field's choices that cannot matter are left out: every
        probability is within that bound, no choice that has it is lost, and the value is the same. Not for
        `trie`. `FieldResult` says what was left out.

        Raises ContextNotTextError, ContextTooLongError, EngineClosedError, PruningError, ScoreError,
        TemperatureError, UnknownFieldError, UnknownScoringError.
        """
        return self.model.call(self._job(context, fields, scoring, temperature, legal_mass, prune))

    def submit(
        self,
        context: str,
        *,
        fields: Iterable[str] | None = None,
        scoring: str | None = None,
        temperature: float | None = None,
        legal_mass: bool = True,
        prune: float | None = None,
    ) -> Future[Result]:
        """Queue what `run` does.

        Faults of `context`, `scoring`, `temperature` and `prune`, and a field that is no text, are raised
        here, all others by the future.
        """
        return self.model.submit(self._job(context, fields, scoring, temperature, legal_mass, prune))

    def compare(
        self, context: str, rules: Iterable[str] = RULES, *, fields: Iterable[str] | None = None
    ) -> dict[str, Result]:
        """What `run` answers under each of the rules, from one prefill and one tree pass over their nodes.

        Always with legal mass, never calibrated. The times and counts of each result are those of the whole.
        Raises what `run` raises.
        """
        wanted = tuple(dict.fromkeys([rules] if isinstance(rules, str) else rules))
        self._check(context, *wanted)
        if not wanted:
            raise UnknownScoringError("scoring", "was asked for no rule at all", _known_rules())
        return self.model.call(partial(self._answers, context, self._names(fields), wanted))

    def run_many(
        self,
        contexts: Iterable[str],
        *,
        fields: Iterable[str] | None = None,
        scoring: str | None = None,
        temperature: float | None = None,
        legal_mass: bool = True,
        kv_budget: int = KV_BUDGET,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[Result | PcdcError]:
        """What `run` answers to each context, in their order, several of them from one forward.

        Contexts are taken, and results given, as they are wanted: a group of neighbours at a time, as many as
        one forward takes (512 tokens below the head) and whose keys and values, with the head's, stay within
        `kv_budget` bytes. A context that alone needs more is answered as `run` does. What `run` would raise
        about one context, ContextNotTextError, ContextTooLongError, ScoreError or TokenizerError, stands in
        its result's place. Each group is answered from what the artifact's file holds when the group starts.
        `progress` is told after each group how many contexts are done.

        A result's `contexts` says how many shared its passes. Times are equal shares of the group's;
        `forward_passes`, `sequential_forward_passes` and `kv_bytes` are the group's; other counts are the
        context's own, and what serves all is counted at the first. Raises at once what `run` raises about the
        other arguments, and TypeError or ValueError for a `kv_budget` that is no number of bytes.
        """
        if isinstance(contexts, str | bytes):
            limit, help = "they are several texts", "use `run` for one text"
            raise ContextNotTextError("contexts", f"is one {_kind(contexts)}", limit, help)
        rules = () if scoring is None else (scoring,)
        self._check("", *rules)
        names = self._names(fields)
        self._source.bound.chosen(names)
        heat = None if temperature is None else check_temperature(temperature)
        check_budget(kv_budget)
        asking = partial(self._ask, names, rules, heat, bool(legal_mass), calibrated=True)

        def ask() -> Asked:
            self._check("")
            return self.model.call(asking)

        return in_groups(iter(contexts), ask, kv_budget, progress)

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
        prune: float | None,
    ) -> partial[Result]:
        self._check(context, *(() if scoring is None else (scoring,)))
        return partial(
            self._answer,
            context,
            self._names(fields),
            scoring,
            None if temperature is None else check_temperature(temperature),
            bool(legal_mass),
            None if prune is None else check_bound(prune),
        )

    def _check(self, context: object, *rules: object) -> None:
        if self._closed:
            raise EngineClosedError(
                f"engine of {self.artifact.name}", "is closed", help="load the artifact again"
            )
        check_text(context)
        for rule in rules:
            if rule not in RULES:
                raise UnknownScoringError("scoring", f"is {rule!r:.40}", _known_rules())

    def _names(self, fields: object) -> str | tuple[str, ...] | None:
        if fields is None or isinstance(fields, str):
            return fields
        names = tuple(fields) if isinstance(fields, Iterable) else (fields,)
        for name in names:
            if not isinstance(name, str):
                raise UnknownFieldError(
                    self.artifact.name,
                    f"was asked for a field by {_kind(name)}, not by its name",
                    f"its fields: {', '.join(field.name for field in self.artifact.fields)}",
                    "give one name, or several in a list",
                )
        return names

    def _answer(
        self,
        context: str,
        fields: str | tuple[str, ...] | None,
        scoring: str | None,
        temperature: float | None,
        legal_mass: bool,
        prune: float | None,
    ) -> Result:
        rules = None if scoring is None else (scoring,)
        answers = self._answers(context, fields, rules, temperature, legal_mass, prune, calibrated=True)
        (result,) = answers.values()
        return result

    def _answers(
        self,
        context: str,
        fields: str | tuple[str, ...] | None,
        rules: tuple[str, ...] | None,
        temperature: float | None = None,
        legal_mass: bool = True,
        prune: float | None = None,
        *,
        calibrated: bool = False,
    ) -> dict[str, Result]:
        """On the owner thread: the whole of one request, from one artifact, by rule."""
        started = perf_counter()
        asked = self._ask(fields, rules or (), temperature, legal_mass, prune, calibrated=calibrated)
        prompt = asked.prompt(context)
        prefixes, artifact = self.model.prefixes, asked.bound.artifact
        if prune is None:
            scores, counts = run_passes(prefixes, artifact, prompt, asked.passes)
        else:
            plans = [plan for (plan,) in asked.passes]
            weighings = asked.weighings(plans[0].rule)
            scores, counts = run_pruned(prefixes, artifact, prompt, plans, weighings, prune)
        return {
            rule: asked.result(context, prompt, rule, of_field, counts, started)
            for rule, of_field in scores.items()
        }

    def _ask(
        self,
        fields: str | tuple[str, ...] | None,
        rules: tuple[str, ...],
        temperature: float | None,
        legal_mass: bool,
        prune: float | None = None,
        *,
        calibrated: bool,
    ) -> Asked:
        """On the owner thread: what is asked of what is current; no rule is the artifact's."""
        bound, refused = self._source.current()
        chosen = bound.chosen(fields)
        artifact = bound.artifact
        passes = bound.plans(rules or (artifact.scoring,), frozenset(chosen), legal_mass)
        calibrated = calibrated and temperature is None
        restored = restore_head(self.model, artifact.digest, artifact.prompt.head, self._heads)
        warnings = (*refused, *restored)
        return Asked(self.model, bound, warnings, chosen, passes, temperature, calibrated, prune)


@overload
def load(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: Literal[False] = False,
    calibration: bool = True,
    head_cache: bool | None = None,
) -> Engine: ...


@overload
def load(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: bool,
    calibration: bool = True,
    head_cache: bool | None = None,
) -> Engine | Any: ...


def load(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: bool = False,
    calibration: bool = True,
    head_cache: bool | None = None,
) -> Engine | Engines:
    """An engine for an artifact file, on the model it names or on another with the same tokenizer.

    `model` is an alias, a hub id, a folder, or a loaded model to share; a model already loaded by this
    process is shared in any case. With `calibration`, a calibration file beside the artifact is applied.
    With `reload` the engine follows both files: what is new in them answers the requests that start after,
    once it is checked; a missing artifact, and a damaged or mismatching file, leaves the old ones in use
    and is reported once, in the log and in a result's `warnings`. A folder, with `reload` only, gives an
    `Engines`.

    Keys and values of the head are read from the user's cache where they are there, and written there where
    computing them here took long; requests only read. Not with `head_cache` False, nor with None and
    PCDC_HEAD_CACHE=0 in the environment.

    Raises ArtifactError (FingerprintMismatchError, LogitsWidthError), CalibrationError,
    ModelNotFoundError, HubUnreachableError, ModelNotSupportedError, ContextTooLongError.
    """
    try:
        path = Path(path)
    except TypeError:
        raise ArtifactError(
            "artifact", f"is {_kind(path)}, not a path", help="name a file that `pcdc build` wrote"
        ) from None
    if reload and path.is_dir():
        return Engines(path, partial(_follow, model, calibration, head_cache))
    file = ArtifactFile(path, calibration=calibration)
    pair = file.read()
    return Engine(
        pair.artifact,
        model_for(pair.artifact.model, model),
        calibration=pair.calibration,
        file=file if reload else None,
        heads=head_files(head_cache),
    )


def _follow(
    model: str | Path | LoadedModel | None,
    calibration: bool,
    head_cache: bool | None,
    pair: Pair,
    path: Path,
) -> Engine:
    file = ArtifactFile(path, pair.artifact.name, calibration=calibration)
    return Engine(
        pair.artifact,
        model_for(pair.artifact.model, model),
        file=file,
        heads=head_files(head_cache),
        prefill=False,
    )


def _known_rules() -> str:
    return f"known rules: {', '.join(RULES)}"


def _kind(value: object) -> str:
    return type(value).__name__
