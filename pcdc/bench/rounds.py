"""Measures one place: every method in turn on one text, round after round, within a stated time.

The order rotates from round to round, so that no method always runs on what another one left in caches or
clocks; before each answer the shared prefix is cut back to the head, so that each pays for its own text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from pcdc_runtime.errors import PcdcError, sentence

from .measured import Answer, ManyMethod, Method
from .methods import GUIDED, WIDTH, Entry
from .ours import hold
from .scenarios import Place, Scenario
from .sweep import context_tokens

if TYPE_CHECKING:
    from pcdc_runtime.loaded import LoadedModel

MAX_ROUNDS = 9
MANY = 8
"""Requests that are answered together where a method can."""
TURNS = 3
WARM_CHARACTERS = 200
WARM_SHARE = 20
"""A method is warmed up where that takes less than this part of the time."""

Watch = Callable[[str], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Taken:
    """One counted answer: in which round, to which text.

    `peak_bytes` is what MLX held at most meanwhile on top of what it held before: not the weights, not KV
    that was kept, and nothing that NumPy holds.
    """

    round: int
    text: str
    answer: Answer
    peak_bytes: int


@dataclass
class Tally:
    """What was measured at one place so far. `budget` and `seconds` are times of the wall.

    `missing` and `left_out` say by method why it was not measured: it cannot be, or there was no time for
    it. `many` are requests per second, answered together. `titles` are those of the methods that were made,
    `refused` is why nothing could be measured.
    """

    place: Place
    budget: float
    scenario: Scenario | None = None
    titles: dict[str, str] = field(default_factory=dict)
    taken: dict[str, list[Taken]] = field(default_factory=dict)
    many: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    refused: PcdcError | None = None


def measure(
    tally: Tally,
    loaded: LoadedModel,
    entries: Sequence[Entry],
    watch: Watch,
    clock: Clock = perf_counter,
) -> None:
    """Fill the tally; the first entry is the default, which answers in every round and is counted first.

    Whatever ends it early leaves what was measured in the tally.
    """
    started = clock()
    try:
        scenario = tally.scenario = tally.place.open()
        with closing(_Bench(tally, scenario, loaded, entries, watch, clock, started)) as bench:
            bench.run()
    except PcdcError as error:
        tally.refused = error
    finally:
        tally.seconds = clock() - started


class _Bench:
    def __init__(
        self,
        tally: Tally,
        scenario: Scenario,
        loaded: LoadedModel,
        entries: Sequence[Entry],
        watch: Watch,
        clock: Clock,
        started: float,
    ) -> None:
        self._tally = tally
        self._artifact = scenario.artifact
        self._loaded = loaded
        self._entries = entries
        self._watch, self._clock, self._started = watch, clock, started
        self._texts = scenario.many(max(TURNS, len(scenario.contexts)))
        self._together = scenario.many(MANY)
        # Begins as no other text does: what keeps the KV of a text gains nothing by it.
        self._warming = f"(0)\n{scenario.contexts[-1][:WARM_CHARACTERS]}"
        self._methods = dict[str, Method]()
        self._cost = dict[str, float]()
        self._steps_of_text = self._tokens(self._texts[0]) / WIDTH
        self._step = 0.0

    def run(self) -> None:
        """All rounds, then many requests together."""
        default = self._entries[0]
        for number in range(MAX_ROUNDS):
            ran = [self._turn(entry, number) for entry in self._order(number)]
            alone = sum(ran) <= 1 and number > 1 and len(self._entries) > 1
            if alone or self._spent() + 2 * self._cost.get(default.key, 0) > 0.85 * self._tally.budget:
                break
        for key, method in self._methods.items():
            if isinstance(method, ManyMethod):
                self._all_at_once(key, method)

    def close(self) -> None:
        for method in self._methods.values():
            # Something else may have ended the measurement already, and is what should be told.
            with suppress(PcdcError):
                method.close()

    def _order(self, number: int) -> list[Entry]:
        """Cheap ones first in the first round: their times tell what the others will take."""
        if number == 0:
            default, *others = self._entries
            return [default, *sorted(others, key=lambda entry: entry.steps(self._artifact))]
        turn = number % len(self._entries)
        return [*self._entries[turn:], *self._entries[:turn]]

    def _turn(self, entry: Entry, number: int) -> bool:
        """One counted answer of a method, if there is time for it."""
        key, default = entry.key, self._entries[0].key
        if key in self._tally.missing:
            return False
        foreseen = self._foreseen(entry)
        left = 0.85 * self._tally.budget - self._spent()
        if key != default and foreseen > left:
            if key not in self._tally.taken:
                self._tally.left_out[key] = (
                    f"one answer takes about {foreseen:.3g} s, there were {max(0.0, left):.2g} s left"
                )
            return False
        self._watch(f"{self._tally.place.name}, round {number + 1}: {entry.title}")
        text = self._texts[number % len(self._texts)]
        try:
            if key not in self._methods:
                self._make(entry, warm=key == default or WARM_SHARE * foreseen < self._tally.budget)
            answer, peak = self._answer(key, text)
        except Exception as error:
            if key == default:
                raise
            # A baseline is other people's program: whatever it raises, the others are still measured.
            self._tally.missing[key] = _told(error)
            return False
        self._tally.left_out.pop(key, None)
        self._tally.taken.setdefault(key, []).append(Taken(number, text, answer, peak))
        if key == GUIDED:
            self._step = answer.ms / 1000 / (answer.passes + answer.positions / WIDTH)
        return True

    def _make(self, entry: Entry, *, warm: bool) -> None:
        method = self._methods[entry.key] = entry.make(self._artifact, self._loaded)
        self._tally.titles[entry.key] = method.title
        if not warm:
            return
        self._answer(entry.key, self._warming)
        seconds = self._cost.pop(entry.key)
        if not self._step:
            steps = entry.steps(self._artifact) + self._tokens(self._warming) / WIDTH
            self._step = seconds / steps

    def _answer(self, key: str, text: str) -> tuple[Answer, int]:
        """The answer, and the bytes that it took at most on top of those held before."""
        hold(self._artifact, self._loaded, len(self._artifact.prompt.head))
        held = self._loaded.call(_restart_peak)
        started = self._clock()
        answer = self._methods[key].answer(text)
        self._cost[key] = self._clock() - started
        return answer, max(0, self._loaded.call(_peak) - held)

    def _foreseen(self, entry: Entry) -> float:
        """Seconds that one answer will take."""
        steps = entry.steps(self._artifact) + self._steps_of_text
        return self._cost.get(entry.key, steps * self._step)

    def _all_at_once(self, key: str, method: ManyMethod) -> None:
        self._watch(f"{self._tally.place.name}: {MANY} requests together: {method.title}")
        if self._spent() + MANY * self._cost[key] > self._tally.budget:
            return
        hold(self._artifact, self._loaded, len(self._artifact.prompt.head))
        started = self._clock()
        method.answer_many(self._together)
        self._tally.many[key] = MANY / (self._clock() - started)

    def _spent(self) -> float:
        return self._clock() - self._started

    def _tokens(self, text: str) -> int:
        return context_tokens(self._loaded.tokenizer, self._artifact, text)


def _restart_peak() -> int:
    """Forget the peak so far; gives the bytes that are held now. On the owner thread."""
    from pcdc_runtime.fast_mlx import mx

    mx.reset_peak_memory()
    return mx.get_active_memory()


def _peak() -> int:
    from pcdc_runtime.fast_mlx import mx

    return mx.get_peak_memory()


def _told(error: Exception) -> str:
    """Why a method is missing, in one line."""
    if not isinstance(error, PcdcError):
        return f"{type(error).__name__}: {error}"
    return "; ".join(part for part in (sentence(error.subject, error.fact, error.limit), error.help) if part)
