"""A watch running in a thread of its own, and what tests wait for."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path

from pcdc_runtime.codec import read

from pcdc.watching import watch

LONG = 60.0


class Watched:
    """Collects the change sets of a watch. Waiting for one that never comes fails after a minute."""

    def __init__(self, paths, models, out, **more):
        self.events, self.failure = [], None
        self._condition = threading.Condition()
        self._watch = watch(paths, models, out, **more)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            for event in self._watch:
                with self._condition:
                    self.events.append(event)
                    self._condition.notify_all()
        except Exception as error:
            self.failure = error
            with self._condition:
                self._condition.notify_all()

    def until(self, holds, what="what the test waits for"):
        """Wait until a predicate over all change sets holds; gives the last of them."""
        with self._condition:
            done = self._condition.wait_for(lambda: self.failure or holds(self.events), LONG)
        if self.failure:
            raise self.failure
        assert done, f"{what} did not happen; there were {[str(e) for e in self.events]}"
        return self.events[-1]

    def next(self, count=1):
        """The change sets from the last call on, of which there must be `count` at least."""
        seen = getattr(self, "_seen", 0)
        self.until(lambda events: len(events) >= seen + count, f"event {seen + count}")
        self._seen = seen + count
        return self.events[seen : seen + count]

    def close(self):
        self._watch.close()
        self._thread.join(LONG)
        assert not self._thread.is_alive()


@contextmanager
def seen_by(read, pause):
    """Collects what `read` gives while the body runs, as a server would see it, every `pause` seconds."""
    seen, stop = [], threading.Event()

    def serve():
        while not stop.is_set():
            seen.append(read())
            time.sleep(pause)

    reader = threading.Thread(target=serve)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()


def built(events) -> list[str]:
    """The stems of the sources built, in order."""
    return [Path(t.source).stem for event in events for t in event.targets if t.outcome == "built"]


def choices(artifact: Path, field: int = 0) -> list[str]:
    """The labels of a field's choices in an artifact."""
    return [candidate.label for candidate in read(artifact).fields[field].candidates]
