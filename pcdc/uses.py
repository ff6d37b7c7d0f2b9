"""The catalogs that definitions name: which files, and what their databases last answered."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from . import sql
from .parse import catalogs_of
from .schema import CatalogUse
from .standstill import look


@dataclass(frozen=True)
class _Question:
    """What a database is asked; `name` is for people."""

    url: str
    query: str
    folder: Path
    name: str
    seconds: float


class Uses:
    """Catalogs by definition; one that cannot be read keeps those it had, so that they are still watched.

    Databases are asked once in `interval` seconds, in threads of their own, which call `answered` at the end.
    """

    def __init__(self, interval: float, answered: Callable[[], None]) -> None:
        self._interval, self._answered = interval, answered
        self._uses: dict[Path, tuple[str, tuple[CatalogUse, ...]]] = {}
        self._lock = threading.Lock()
        self._answers: dict[_Question, str] = {}
        self._asking = set[_Question]()
        self._asked = -inf

    def files(self, source: Path) -> tuple[Path, ...]:
        """The catalog files that a definition names now."""
        digest = look(source).digest
        known, uses = self._uses.get(source, ("", ()))
        if digest and digest != known:
            named = catalogs_of(source)
            self._uses[source] = digest, named if _is_json(source) else (*named, *uses)
        return tuple(dict.fromkeys(use.path for use in self._of(source) if use.path is not None))

    def ask(self, sources: Iterable[Path], now: float) -> float:
        """Ask the databases of these definitions if it is time to; gives the seconds until the next time."""
        questions = {question for source in sources for question in self._questions(source)}
        if not questions:
            return inf
        again = now - self._asked >= self._interval
        if again:
            self._asked = now
        with self._lock:
            due = {q for q in questions if again or q not in self._answers} - self._asking
            self._asking |= due
        for question in due:
            threading.Thread(target=self._ask, args=(question,), name="pcdc-asks", daemon=True).start()
        return self._asked + self._interval - now

    def answers(self, source: Path) -> dict[str, str] | None:
        """What the databases of a definition last answered, as digests; None until all have answered."""
        questions = self._questions(source)
        with self._lock:
            if any(question not in self._answers for question in questions):
                return None
            return {question.name: self._answers[question] for question in questions}

    def _of(self, source: Path) -> tuple[CatalogUse, ...]:
        return self._uses.get(source, ("", ()))[1]

    def _questions(self, source: Path) -> list[_Question]:
        asked = [(use, use.changes or use.query) for use in self._of(source) if use.path is None]
        return [
            _Question(
                use.url,
                q,
                source.parent,
                f"{use.source} ({q})",
                sql.INDEX_TIMEOUT if use.index and not use.changes else sql.TIMEOUT,
            )
            for use, q in asked
        ]

    def _ask(self, question: _Question) -> None:
        try:
            answer = sql.stream(question.url, question.query, question.folder, _digest, question.seconds)
        except Exception as error:
            # Whatever it is, the build that follows says why.
            answer = getattr(error, "code", type(error).__name__)
        with self._lock:
            changed = self._answers.get(question) != answer
            self._answers[question] = answer
            self._asking.discard(question)
        if changed:
            self._answered()


def _digest(columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> str:
    digest = hashlib.sha256()
    for row in chain([columns], rows):
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return True
