"""The sections of an index file as hostile input: time and memory follow the file's size, not what it says.

Everything goes in blocks, and nearly all of it where other threads can run: in hashlib and in numpy.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.structure import check_ends
from pcdc_runtime.visible import BLANKS, MAX_CHOICE_CHARS, hidden
from pcdc_runtime.wire import Malformed, check

from .index import Bytes, Labels, Texts
from .layout import Section
from .rows import Rows

MAX_ROW_TOKENS = 8 * MAX_CHOICE_CHARS
"""A form is the JSON of one label: at most so many bytes, so at most so many tokens."""
_BLOCK = 1 << 17
_BLOCK_BYTES = 1 << 18
_BLOCK_TOKENS = 1 << 18
_CODES = 0x110000
_PLAIN = bytes(range(0x20, 0x7F))


def check_gaps(data: Bytes, before: int, sections: Iterable[Section]) -> None:
    """Refuse a file with something between its header, which ends at `before`, and its sections."""
    for section in sections:
        check(not data[before : section.start].any(), "has something between its sections")
        before = section.stop


def check_digests(data: Bytes, sections: Iterable[Section]) -> None:
    """Refuse bytes that are not those the header is about. Raises Malformed."""
    for section in sections:
        digest = hashlib.sha256(data[section.start : section.stop].data).digest()
        check(digest == section.digest, "does not match its checksum")


def check_rows(rows: Rows, prompt: Iterable[Ints], largest_id: int) -> None:
    """Refuse rows that are not what they are said to be. Raises Malformed.

    The arrays agree in their lengths. `largest_id` is that of all token ids, the prompt's arrays included.
    """
    _check_offset(rows.offset, len(rows.token), 0, MAX_ROW_TOKENS, "a row")
    check_ends(rows.ends)
    check(not len(rows.token) or int(rows.token.min()) >= 0, "has a token id out of range")
    used = [*prompt, rows.token, rows.ends.ids]
    largest = max(int(ids.max()) for ids in used if len(ids))
    check(largest == largest_id, "has another largest token id than it says")
    check(
        int(rows.end.min()) >= 0 and int(rows.end.max()) < len(rows.ends), "has a row of an unknown END set"
    )
    check(
        int(rows.entry.min()) >= 0 and int(rows.entry.max()) < rows.entries, "has a row of an unknown entry"
    )
    spelled = np.zeros(rows.entries, dtype=np.bool_)
    for low in range(0, len(rows), _BLOCK):
        spelled[rows.entry[low : low + _BLOCK]] = True
    check(bool(spelled.all()), "has an entry without a row")
    _check_order(rows)


def check_labels(labels: Labels) -> None:
    """Refuse labels and ids that no catalog has. Raises Malformed."""
    _check_groups(labels)
    _check_texts(labels.texts, "a label", BLANKS)
    if labels.ids is not None:
        _check_texts(labels.ids, "an id")
    _check_distinct(labels.texts if labels.ids is None else labels.ids)


def _check_offset(offset: Ints, total: int, least: int, most: int, what: str) -> None:
    """Bounds begin at 0, end at `total`, and leave each item a size from `least` to `most`."""
    check(offset[0] == 0 and offset[-1] == total, f"has malformed bounds of {what}")
    for low in range(0, len(offset) - 1, _BLOCK):
        part = offset[low : low + _BLOCK + 1]
        # Differences of bounds that fall can overflow.
        check(bool((part[1:] >= part[:-1]).all()) and part[0] >= 0, f"has malformed bounds of {what}")
        sizes = np.diff(part)
        check(int(sizes.min()) >= least and int(sizes.max()) <= most, f"has {what} that is empty or too long")


def _check_order(rows: Rows) -> None:
    """Each row stands before the one that follows it: the first token in which they differ says so."""
    for low, high in _blocks(rows.offset[:-1], _BLOCK_TOKENS):
        first, size = rows.offset[low:high], np.diff(rows.offset[low : high + 2])
        own, other = size[:-1], size[1:]
        here = rows.token[first[0] : first[-1] + own[-1]]
        # The token at the same place of the next row; behind its end stands what is not looked at.
        after = np.arange(first[0], first[-1] + own[-1], dtype=np.int32)
        after += np.repeat(own, own)
        there = rows.token.take(after, mode="clip")
        differ = np.append(np.flatnonzero(here != there), len(here))
        at = differ[np.searchsorted(differ, first - first[0])]
        within = at - (first - first[0]) < np.minimum(own, other)
        rises = rows.end[low:high] < rows.end[low + 1 : high + 1]
        holds = (own < other) | ((own == other) & rises)
        holds[within] = here[at[within]] < there[at[within]]
        check(bool(holds.all()), "has rows that are not in order")


def _check_groups(labels: Labels) -> None:
    """Labels that are not the first of their entry come after the first one."""
    later, joins = labels.later, labels.joins
    if len(later):
        check(bool((later[1:] > later[:-1]).all()), "has groups that are not in order")
        check(later[0] > 0 and later[-1] < len(labels), "has a group with an unknown label")
        known = joins < later - np.arange(len(later), dtype=np.int32)
        check(bool((joins >= 0).all() and known.all()), "has a label that joins an unknown entry")


def _blocks(offset: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of items that these bounds part, of no more than `most` in all but where one alone has more."""
    low, items = 0, len(offset) - 1
    while low < items:
        full = int(np.searchsorted(offset, int(offset[low]) + most, side="right")) - 1
        high = min(max(full, low + 1), low + _BLOCK)
        yield low, high
        low = high


def _check_texts(texts: Texts, what: str, allowed: str = "") -> None:
    """Each text is UTF-8, neither blank nor too long, and of characters that show or are `allowed`."""
    _check_offset(texts.offset, len(texts.data), 1, 4 * MAX_CHOICE_CHARS, what)
    for low, high in _blocks(texts.offset, _BLOCK_BYTES):
        data, start = _cut(texts, low, high)
        try:
            data.tobytes().decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"has {what} that is not UTF-8") from error
        begins = data & 0xC0 != 0x80
        check(bool(begins[start[:-1]].all()), f"has {what} that is not UTF-8")
        for long in np.flatnonzero(np.diff(start) > MAX_CHOICE_CHARS).tolist():
            chars = np.count_nonzero(begins[start[long] : start[long + 1]])
            check(chars <= MAX_CHOICE_CHARS, f"has {what} that is empty or too long")
    _check_shown(texts, what, allowed)


def _check_shown(texts: Texts, what: str, allowed: str) -> None:
    """Texts are looked at one by one only where any has a character that may not show or may be a blank."""
    held = np.zeros(_CODES, dtype=np.bool_)
    for low, high in _blocks(texts.offset, _BLOCK_BYTES):
        data, start = _cut(texts, low, high)
        check(bool(np.logical_or.reduceat(data > 0x20, start[:-1]).all()), f"has {what} that is blank")
        rest = data.tobytes().translate(None, _PLAIN).decode()
        held[np.frombuffer(rest.encode("utf-32-le"), dtype="<u4")] = True
    chars = list(map(chr, np.flatnonzero(held).tolist()))
    if any(char.isspace() and char > "\x7f" for char in chars) or hidden(" ".join(chars), allowed):
        for low, high in _blocks(texts.offset, _BLOCK_BYTES):
            part = [texts[n] for n in range(low, high)]
            check(all(map(str.strip, part)), f"has {what} that is blank")
            check(not hidden(" ".join(part), allowed), f"has {what} with characters that do not show")


def _check_distinct(texts: Texts) -> None:
    """No two texts are equal: those of one hash are compared."""
    keys = np.empty(len(texts), dtype=np.uint64)
    factor = secrets.randbits(63) << 1 | 1
    power, inverse = _powers(factor), _powers(pow(factor, -1, 1 << 64))
    for low, high in _blocks(texts.offset, _BLOCK_BYTES):
        keys[low:high] = _hashes(*_cut(texts, low, high), power, inverse)
    rising = np.sort(keys)
    twice = rising[1:][rising[1:] == rising[:-1]]
    alike = np.flatnonzero(np.isin(keys, twice)).tolist() if len(twice) else []
    check(len({texts[n] for n in alike}) == len(alike), "has two labels with one id")


def _powers(factor: int) -> NDArray[np.uint64]:
    """Those of an odd factor modulo 2**64, one for each byte of a block."""
    return np.cumprod(np.full(_BLOCK_BYTES + 4 * MAX_CHOICE_CHARS, factor, dtype=np.uint64), dtype=np.uint64)


def _hashes(
    data: Bytes, start: Ints, power: NDArray[np.uint64], inverse: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """A polynomial in each text's bytes, modulo 2**64."""
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum(data * power[: len(data)], out=sums[1:])
    return (sums[start[1:]] - sums[start[:-1]]) * inverse[start[:-1]]


def _cut(texts: Texts, low: int, high: int) -> tuple[Bytes, Ints]:
    """The bytes of some texts, and where each begins in them, with the end of the last."""
    offset = texts.offset[low : high + 1]
    return texts.data[offset[0] : offset[-1]], offset - offset[0]
