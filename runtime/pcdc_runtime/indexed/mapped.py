"""An index that lies in a file: its header is known at once, the rest once it is checked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from pcdc_runtime.errors import IndexFileError
from pcdc_runtime.wire import Malformed

from .checking import check_content, check_sections
from .index import Bytes, Index, Labels
from .layout import PROLOGUE, Header, Section, content_of
from .rows import Rows


def damaged(subject: str, fact: str) -> IndexFileError:
    return IndexFileError(
        subject, fact, help="rebuild it with `pcdc index`; the definition and its catalog are not touched"
    )


class MappedIndex(Index):
    """An index whose arrays are read-only views into a file's bytes.

    The file is checked in the background from the moment on that this is made. Who asks for rows or labels
    waits for the end of that, and where the check fails each of them gets an IndexFileError. Nothing else
    waits.
    """

    def __init__(self, subject: str, header: bytes, digest: str, said: Header, data: Bytes) -> None:
        vars(self).update(
            said.said,
            header=header,
            digest=digest,
            largest_id=said.largest_id,
            _subject=subject,
            _sections=said.sections,
            _data=data,
            _content=content_of(data, said.sections),
            _fact=None,
            _checking=threading.Thread(target=self._background, daemon=True),
        )
        self._checking.start()

    _subject: str
    _sections: Mapping[str, Section]
    _data: Bytes
    _fact: str | None
    _content: tuple[Rows, Labels]
    _checking: threading.Thread

    @property
    def rows(self) -> Rows:
        self.check()
        return self._content[0]

    @property
    def labels(self) -> Labels:
        self.check()
        return self._content[1]

    def check(self) -> None:
        """Wait until the whole file is checked. Raises IndexFileError."""
        if self._fact is None:
            self._checking.join()
        # Nobody is there to wait for in a process that was forked meanwhile.
        fact = self._judged() if self._fact is None else self._fact
        if fact:
            raise damaged(self._subject, fact)

    def _background(self) -> None:
        # What is no verdict comes up again with who waits.
        with suppress(Exception):
            self._judged()

    def _judged(self) -> str:
        """What is wrong with the file, "" where nothing is. It can run twice at a time and says the same."""
        fact = ""
        try:
            rows, labels = self._content
            check_sections(self._data, PROLOGUE.size + len(self.header), self._sections)
            check_content(rows, labels, (self.prompt.head, self.prompt.tail), self.largest_id)
        except Malformed as error:
            fact = str(error)
        vars(self)["_fact"] = fact
        return fact
