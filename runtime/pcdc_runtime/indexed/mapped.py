"""An index that lies in a file: its header is known at once, the rest once it is checked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from pcdc_runtime.errors import IndexFileError
from pcdc_runtime.wire import Malformed

from .checking import check_digests, check_gaps, check_labels, check_rows
from .index import Bytes, Index, Labels
from .layout import PROLOGUE, ROW_SECTIONS, Header, content_of
from .rows import Rows


def damaged(subject: str, fact: str) -> IndexFileError:
    return IndexFileError(
        subject, fact, help="rebuild it with `pcdc index`; the definition and its catalog are not touched"
    )


class Checked:
    """One part of a file, judged in the background from the moment on that this is made."""

    def __init__(self, subject: str, judge: Callable[[], None]) -> None:
        self._subject = subject
        self._judge = judge
        self._fact: str | None = None
        self._thread = threading.Thread(target=self._background, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the verdict. Raises IndexFileError, for each who waits."""
        if self._fact is None:
            self._thread.join()
        # Nobody is there to wait for in a process that was forked meanwhile.
        fact = self._judged() if self._fact is None else self._fact
        if fact:
            raise damaged(self._subject, fact)

    def _background(self) -> None:
        # What is no verdict comes up again with who waits.
        with suppress(Exception):
            self._judged()

    def _judged(self) -> str:
        """What is wrong, "" where nothing is. It can run twice at a time and says the same."""
        fact = ""
        try:
            self._judge()
        except Malformed as error:
            fact = str(error)
        self._fact = fact
        return fact


class MappedIndex(Index):
    """An index whose arrays are read-only views into a file's bytes.

    Rows and labels are checked side by side in the background from the moment on that this is made. Who asks
    for rows or labels waits for the end of their check, and where it fails each of them gets an
    IndexFileError. Nothing else waits.
    """

    def __init__(self, subject: str, header: bytes, digest: str, said: Header, data: Bytes) -> None:
        rows, labels = content_of(data, said.sections)
        of_rows = [section for name, section in said.sections.items() if name in ROW_SECTIONS]
        of_labels = [section for name, section in said.sections.items() if name not in ROW_SECTIONS]

        def judge_rows() -> None:
            check_gaps(data, PROLOGUE.size + len(header), said.sections.values())
            check_digests(data, of_rows)
            check_rows(rows, (self.prompt.head, self.prompt.tail), said.largest_id)

        def judge_labels() -> None:
            check_digests(data, of_labels)
            check_labels(labels)

        vars(self).update(
            said.said, header=header, digest=digest, largest_id=said.largest_id, _rows=rows, _labels=labels
        )
        vars(self).update(
            _row_check=Checked(subject, judge_rows), _label_check=Checked(subject, judge_labels)
        )

    _rows: Rows
    _labels: Labels
    _row_check: Checked
    _label_check: Checked

    @property
    def rows(self) -> Rows:
        self._row_check.wait()
        return self._rows

    @property
    def labels(self) -> Labels:
        self._label_check.wait()
        return self._labels

    def check(self) -> None:
        """Wait until the whole file is checked. Raises IndexFileError."""
        self._row_check.wait()
        self._label_check.wait()
