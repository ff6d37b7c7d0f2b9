"""Methods of a benchmark that take the times written down for them, on a clock that else stands still."""

import itertools

from fakes import ROOT, make_artifact, spelled

from pcdc.bench import foresight
from pcdc.bench.measured import Answer

ARTIFACT = make_artifact({"team": spelled("ab", "ac", "b"), "urgent": spelled("x", "y")})
CONTEXTS = tuple(f"the {word} ticket, " * 20 for word in ("first", "second", "third"))
assert chr(ROOT) not in "".join(CONTEXTS)
STEP = 0.25


class Clock:
    """Stands still but for what methods take."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """Answers at once and says that it took the next of its times, in seconds."""

    def __init__(self, key, clock, times, log, values=None, scores=None):
        self.key, self.title = key, f"the way {key}"
        self._clock, self._times, self._log = clock, itertools.cycle(times), log
        self._values, self._scores = values or {"team": "ab", "urgent": "x"}, scores

    def answer(self, context):
        seconds = next(self._times)
        self._clock.now += seconds
        self._log.append((self.key, context))
        return Answer(self._values, self._scores, 2, 3, 40, 1000, 10, seconds * 1000)

    def close(self):
        self._log.append((self.key, "closed"))


class FakeTogether(Fake):
    def answer_many(self, contexts):
        self._clock.now += 2.0
        self._log.append((self.key, tuple(contexts)))
        return [self._values for _ in contexts]


def taught():
    """Has seen so many forwards, each of STEP seconds, that nothing changes its mind."""
    return foresight.Pace(STEP * 1e9, 1e9)
