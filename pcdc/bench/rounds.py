"""Measures one place: every method in turn on one text, round after round, within a stated time.

The first round goes from the most important method to the least. What is cheap is repeated before what is
expensive, in an order that rotates, so that no method always runs on what another one left in caches or
clocks; before each answer the shared prefix is cut back to the head, so that each pays for its own text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from pcdc_runtime.errors import PcdcError, sentence

from .foresight import Pace, head, steps
from .measured import Answer, ManyMethod, Method
from .methods import Entry
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
ROUNDS_SHARE = 0.85
"""The part of the time that rounds may take; the rest is for many requests together."""
WARM_SHARE = 20
"""A method is warmed up where that takes less than this part of the time."""
REPEAT_SHARE = 5
"""A method is repeated where its answer takes less than this part of the time left."""

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


@dataclass(frozen=True)
class LeftOut:
    """Why a method was not measured that could be; for want of time, the seconds needed and those left."""

    reason: str
    needed: float | None = None
    left: float | None = None


@dataclass
class Tally:
    """What was measured at one place so far. `budget` and `seconds` are times of the wall.

    The default may take what the places have together, `whole`. `missing` and `left_out` say by method why
    it was not measured: it cannot be, or there was no time for it. `many` are requests per second, answered
    together. `titles` are those of the methods that were made, `refused` is why nothing could be measured.
    """

    place: Place
    budget: float
    whole: float = math.inf
    scenario: Scenario | None = None
    titles: dict[str, str] = field(default_factory=dict)
    taken: dict[str, list[Taken]] = field(default_factory=dict)
    many: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    seconds: float = 0.0
    refused: PcdcError | None = None


def measure(
    tally: Tally,
    loaded: LoadedModel,
    entries: Sequence[Entry],
    watch: Watch,
    clock: Clock = perf_counter,
    pace: Pace | None = None,
) -> None:
    """Fill the tally; the first entry is the default, which answers in every round and is counted first.

    A place whose default takes more than the whole time left is not measured, nor is a point of the sweep
    that has no time for the default and one other; a point has no requests together. `pace` is what earlier
    places taught, and learns from this one.
    Whatever ends it early leaves what was measured in the tally.
    """
    started = clock()
    try:
        scenario = tally.scenario = tally.place.open()
        with closing(
            _Bench(tally, scenario, loaded, entries, watch, clock, started, pace or Pace())
        ) as bench:
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
        pace: Pace,
    ) -> None:
        self._tally = tally
        self._artifact = scenario.artifact
        self._loaded = loaded
        self._entries = list(entries)
        self._watch, self._clock, self._started = watch, clock, started
        self._texts = scenario.many(max(TURNS, len(scenario.contexts)))
        self._together = scenario.many(MANY)
        # Begins as no other text does: what keeps the KV of a text gains nothing by it.
        self._warming = f"(0)\n{scenario.contexts[-1][:WARM_CHARACTERS]}"
        self._methods = dict[str, Method]()
        self._cost = dict[str, float]()
        self._text = self._tokens(self._texts[0])
        self._short = self._tokens(self._warming)
        self._context = len(self._artifact.prompt.head) + self._text
        self._pace = pace

    def run(self) -> None:
        """All rounds, then many requests together."""
        if len(self._artifact.fields) == 1:
            self._tally.left_out |= {
                entry.key: LeftOut("one field") for entry in self._entries if entry.several_fields
            }
            self._entries = [entry for entry in self._entries if not entry.several_fields]
        default = self._entries[0]
        if not self._worth_it(head(self._artifact)):
            return
        self._prefill_head()
        # Now the pace is known, also at the first place.
        if not self._worth_it(0.0):
            return
        for number in range(MAX_ROUNDS):
            order = self._order(number)
            if len(order) == 1 and len(self._tally.taken) > 1:
                break
            for entry in order:
                self._turn(entry, number)
            if 2 * self._cost[default.key] > self._left():
                break
        if self._tally.place.point:
            return
        for key in self._tally.taken:
            method = self._methods[key]
            if isinstance(method, ManyMethod):
                self._all_at_once(key, method)

    def close(self) -> None:
        for method in self._methods.values():
            # Something else may have ended the measurement already, and is what should be told.
            with suppress(PcdcError):
                method.close()

    def _worth_it(self, before: float) -> bool:
        """Whether there is time for what comes before and the default, at a point for one other as well.

        Alone, the default would say nothing there.
        """
        is_point = self._tally.place.point is not None
        left = self._left() if is_point else self._tally.whole - self._spent()
        count = 2 if is_point else 1
        needed = self._pace(before) + sum(map(self._foreseen, self._entries[:count]))
        if needed <= left:
            return True
        reason = f"needs about {needed:.3g} s, {max(0.0, left):.2g} s left"
        self._tally.left_out |= {
            entry.key: LeftOut(reason, needed, max(0.0, left)) for entry in self._entries
        }
        return False

    def _prefill_head(self) -> None:
        """The head that methods without one of their own find warm; it tells how long a forward takes."""
        self._watch(f"{self._tally.place.name}: prefill of the head")
        started = self._clock()
        hold(self._artifact, self._loaded, len(self._artifact.prompt.head))
        self._pace.add(self._clock() - started, head(self._artifact))

    def _order(self, number: int) -> list[Entry]:
        if number == 0:
            return self._entries
        again = self._again()
        turn = number % len(self._entries)
        rotated = [*self._entries[turn:], *self._entries[:turn]]
        return [entry for entry in rotated if entry.key in again]

    def _again(self) -> set[str]:
        """What the next round measures: at most half of the time left, so that another round may follow.

        What has no time yet and fits goes before all repetitions but the default's.
        """
        left = self._left()
        known = self._tally.taken.keys() | self._tally.missing
        waiting = [e for e in self._entries if e.key not in known and self._foreseen(e) <= left]
        left -= sum(map(self._foreseen, waiting))
        again, room = {entry.key for entry in (self._entries[0], *waiting)}, left / 2
        for entry in self._entries:
            cost = self._cost.get(entry.key, 0.0)
            if entry.key in self._tally.taken and cost <= min(room, left / REPEAT_SHARE):
                room -= cost
                again.add(entry.key)
        return again

    def _turn(self, entry: Entry, number: int) -> None:
        """One counted answer of a method, if there is time for it."""
        key, default = entry.key, self._entries[0].key
        if key in self._tally.missing:
            return
        foreseen, left = self._foreseen(entry), self._left()
        if key != default and foreseen > left:
            if key not in self._tally.taken:
                reason = f"one answer takes about {foreseen:.3g} s, there were {max(0.0, left):.2g} s left"
                self._tally.left_out[key] = LeftOut(reason, foreseen, max(0.0, left))
            return
        self._watch(f"{self._tally.place.name}, round {number + 1}: {entry.title}")
        text = self._texts[number % len(self._texts)]
        try:
            if key not in self._methods:
                self._make(entry)
            answer, peak = self._answer(key, text)
        except Exception as error:
            if key == default:
                raise
            # A baseline is other people's program: whatever it raises, the others are still measured.
            self._tally.missing[key] = _told(error)
            return
        self._tally.left_out.pop(key, None)
        self._tally.taken.setdefault(key, []).append(Taken(number, text, answer, peak))

    def _make(self, entry: Entry) -> None:
        """Make a method, and warm it up where there is time for that and its first answer."""
        method = self._methods[entry.key] = entry.make(self._artifact, self._loaded)
        self._tally.titles[entry.key] = method.title
        warming = self._pace(entry.steps(self._artifact, self._short))
        small = WARM_SHARE * warming <= self._tally.budget
        if small and warming + self._foreseen(entry) <= self._left():
            self._answer(entry.key, self._warming)
            # A short text's: no measure of the others.
            del self._cost[entry.key]

    def _answer(self, key: str, text: str) -> tuple[Answer, int]:
        """The answer, and the bytes that it took at most on top of those held before."""
        hold(self._artifact, self._loaded, len(self._artifact.prompt.head))
        held = self._loaded.call(_restart_peak)
        started = self._clock()
        answer = self._methods[key].answer(text)
        self._cost[key] = self._clock() - started
        copied = answer.kv_copied / self._loaded.language.kv_bytes_per_token
        self._pace.add(self._cost[key], steps(answer.forwards, answer.positions, self._context, copied))
        return answer, max(0, self._loaded.call(_peak) - held)

    def _foreseen(self, entry: Entry) -> float:
        """Seconds that one answer will take, and before it the making of the method."""
        if entry.key in self._cost:
            return self._cost[entry.key]
        making = 0.0 if entry.key in self._methods else entry.making(self._artifact)
        return self._pace(making + entry.steps(self._artifact, self._text))

    def _all_at_once(self, key: str, method: ManyMethod) -> None:
        if self._spent() + MANY * self._cost[key] > self._tally.budget:
            return
        self._watch(f"{self._tally.place.name}: {MANY} requests together: {method.title}")
        hold(self._artifact, self._loaded, len(self._artifact.prompt.head))
        started = self._clock()
        method.answer_many(self._together)
        self._tally.many[key] = MANY / (self._clock() - started)

    def _spent(self) -> float:
        return self._clock() - self._started

    def _left(self) -> float:
        share = 1.0 if self._tally.place.point else ROUNDS_SHARE
        return share * self._tally.budget - self._spent()

    def _tokens(self, text: str) -> int:
        own = context_tokens(self._loaded.tokenizer, self._artifact, text)
        return own + len(self._artifact.prompt.tail)


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
