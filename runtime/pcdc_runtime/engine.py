"""Runs requests: one context in, one result out, one prefill and one tree pass between them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, overload

from .artifact import Artifact
from .bound import check_window
from .calibration import Calibration
from .engines import Engines
from .errors import (
    ArtifactError,
    ContextNotTextError,
    EngineClosedError,
    ExtraMissingError,
    UnknownFieldError,
    UnknownScoringError,
)
from .reload import ArtifactFile, Pair, Source
from .result import FieldResult, Result
from .rules import NODE_BUDGET, RULES
from .tokenizer import assemble_prompt

try:
    from .loaded import LoadedModel, open_model
    from .passes import Counts, run_passes
    from .score import check_temperature, decide, drift_band
except ImportError as error:
    if not (error.name or "").startswith("mlx"):
        raise
    raise ExtraMissingError(
        "mlx",
        f"cannot be imported ({error})",
        "running a model needs MLX, on macOS or Linux",
        "install `pcdc` (or `pcdc-runtime`) again on this machine, it brings `mlx` and `mlx-lm`",
    ) from error


class Engine:
    """One artifact on one loaded model; `load` makes it. Safe to call from any thread.

    Takes over one use of `model`, which `close` gives back. A tree pass runs at most `node_budget` nodes,
    unless one field alone has more. `calibration` is applied to the fields that it was fitted to. With
    `file`, each request is answered from what that holds when the request starts. Without `prefill`, the
    first request computes the head's KV.
    """

    def __init__(
        self,
        artifact: Artifact,
        model: LoadedModel,
        node_budget: int = NODE_BUDGET,
        *,
        calibration: Calibration | None = None,
        file: ArtifactFile | None = None,
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
            if prefill:
                model.call(self._prefill_head)
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
    ) -> Result:
        """Answer the fields (all when None, one when a name) for one context.

        `scoring` and `temperature` default to the artifact's; a temperature given here is applied in place
        of any calibration. Without `legal_mass` it is None and `trie`
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
        """Queue what `run` does.

        Faults of `context`, `scoring` and `temperature`, and a field that is no text, are raised here, all
        others by the future.
        """
        return self.model.submit(self._job(context, fields, scoring, temperature, legal_mass))

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
        self._check(context, *(() if scoring is None else (scoring,)))
        return partial(
            self._answer,
            context,
            self._names(fields),
            scoring,
            None if temperature is None else check_temperature(temperature),
            bool(legal_mass),
        )

    def _check(self, context: object, *rules: object) -> None:
        if self._closed:
            raise EngineClosedError(
                f"engine of {self.artifact.name}", "is closed", help="load the artifact again"
            )
        if not isinstance(context, str):
            raise ContextNotTextError(
                "context", f"is {type(context).__name__}, not text", help="decode it first"
            )
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

    def _prefill_head(self) -> None:
        head = self.artifact.prompt.head
        with self.model.prefixes.lease(self.artifact.digest, len(head)) as prefix:
            prefix.advance(head)

    def _answer(
        self,
        context: str,
        fields: str | tuple[str, ...] | None,
        scoring: str | None,
        temperature: float | None,
        legal_mass: bool,
    ) -> Result:
        rules = None if scoring is None else (scoring,)
        (result,) = self._answers(context, fields, rules, temperature, legal_mass, calibrated=True).values()
        return result

    def _answers(
        self,
        context: str,
        fields: str | tuple[str, ...] | None,
        rules: tuple[str, ...] | None,
        temperature: float | None = None,
        legal_mass: bool = True,
        *,
        calibrated: bool = False,
    ) -> dict[str, Result]:
        """On the owner thread: the whole of one request, from one artifact, by rule."""
        started = perf_counter()
        bound, warnings = self._source.current()
        artifact = bound.artifact
        chosen = bound.chosen(fields)
        heat = artifact.temperature if temperature is None else temperature
        prompt = assemble_prompt(self.model.tokenizer, artifact.prompt, context)
        passes = bound.plans(rules or (artifact.scoring,), frozenset(chosen), legal_mass)
        check_window(self.model, len(prompt), max(plans[0].deepest for plans in passes))
        scores, counts = run_passes(self.model.prefixes, artifact, prompt, passes)
        band = drift_band(self.model.language.dtype)
        results: dict[str, Result] = {}
        for rule, of_field in scores.items():
            corrections = bound.calibrated.under(rule) if calibrated and temperature is None else {}
            answers = tuple(
                decide(
                    artifact.fields[index],
                    of_field[index],
                    heat,
                    upper_bound=rule == "identify",
                    band=band,
                    correction=corrections.get(artifact.fields[index].name, ""),
                )
                for index in chosen
            )
            results[rule] = self._result(
                artifact, context, answers, rule, heat, counts, len(prompt), warnings, started
            )
        return results

    def _result(
        self,
        artifact: Artifact,
        context: str,
        answers: tuple[FieldResult, ...],
        rule: str,
        temperature: float,
        counts: Counts,
        prompt: int,
        refused: tuple[str, ...],
        started: float,
    ) -> Result:
        cut = artifact.prompt
        warnings = ["uncalibrated"] if any(a.calibration is None for a in answers) else []
        if any(a.calibration_dropped for a in answers):
            warnings.append("calibration_dropped")
        warnings += refused
        if not context.strip():
            warnings.append("empty_context")
        if self.model.language.window is None:
            warnings.append("window_unknown")
        return Result(
            answers=answers,
            schema_fields=tuple(field.name for field in artifact.fields),
            scoring=rule,
            temperature=temperature,
            model=self.model.name,
            artifact_digest=artifact.digest,
            elapsed_ms=(perf_counter() - started) * 1000,
            prefill_ms=counts.prefill_ms,
            suffix_eval_ms=counts.tree_ms,
            forward_passes=counts.forwards,
            sequential_forward_passes=counts.sequential,
            head_cached=counts.cached,
            nodes=counts.nodes,
            positions=counts.positions,
            kv_bytes=counts.kv_bytes,
            kv_added=counts.kv_added,
            kv_copied=counts.kv_copied,
            context_tokens=prompt - len(cut.head) - len(cut.tail),
            warnings=tuple(warnings),
        )


@overload
def load(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: Literal[False] = False,
    calibration: bool = True,
) -> Engine: ...


@overload
def load(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: bool,
    calibration: bool = True,
) -> Engine | Any: ...


def load(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: bool = False,
    calibration: bool = True,
) -> Engine | Engines:
    """An engine for an artifact file, on the model it names or on another with the same tokenizer.

    `model` is an alias, a hub id, a folder, or a loaded model to share; a model already loaded by this
    process is shared in any case. With `calibration`, a calibration file beside the artifact is applied.
    With `reload` the engine follows both files: what is new in them answers the requests that start after,
    once it is checked; a missing artifact, and a damaged or mismatching file, leaves the old ones in use
    and is reported once, in the log and in a result's `warnings`. A folder, with `reload` only, gives an
    `Engines`. Raises ArtifactError (FingerprintMismatchError, LogitsWidthError), CalibrationError,
    ModelNotFoundError, HubUnreachableError, ModelNotSupportedError, ContextTooLongError.
    """
    try:
        path = Path(path)
    except TypeError:
        raise ArtifactError(
            "artifact", f"is {_kind(path)}, not a path", help="name a file that `pcdc build` wrote"
        ) from None
    if reload and path.is_dir():
        return Engines(path, partial(_follow, model, calibration))
    file = ArtifactFile(path, calibration=calibration)
    pair = file.read()
    return Engine(
        pair.artifact,
        _model_for(pair.artifact, model),
        calibration=pair.calibration,
        file=file if reload else None,
    )


def _follow(model: str | Path | LoadedModel | None, calibration: bool, pair: Pair, path: Path) -> Engine:
    file = ArtifactFile(path, pair.artifact.name, calibration=calibration)
    return Engine(pair.artifact, _model_for(pair.artifact, model), file=file, prefill=False)


def _model_for(artifact: Artifact, model: str | Path | LoadedModel | None) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model.share()
    if model is None:
        return open_model(artifact.model, folders=False)
    return open_model(model)


def _known_rules() -> str:
    return f"known rules: {', '.join(RULES)}"


def _kind(value: object) -> str:
    return type(value).__name__
