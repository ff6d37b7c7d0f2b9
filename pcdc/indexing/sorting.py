"""Forms in lexicographic order, a few whole-array sorts at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .labels import Forms
from .lines import Flags, Places

_KEY_BITS = 63


def lexicographic(forms: Forms) -> tuple[Places, Flags]:
    """The order of forms by tokens, shorter first, then by what closes them; and which repeat the one before.

    As many tokens as fit are packed into one number and sorted at once; the next ones are looked at only
    where the numbers tie, within each tie. A row is its tokens, a mark below all tokens, then its closing.
    """
    size = np.diff(forms.first)
    largest = max(int(max(part.max(), 0)) for part in (forms.token, forms.closing, np.zeros(1)) if len(part))
    width = (largest + 1).bit_length()
    order = np.arange(len(forms))
    # Rows of one group agree in all that was looked at; `group` belongs to the places of `open_`.
    open_, group = np.arange(len(forms)), np.zeros(len(forms), dtype=np.uint64)
    repeated = np.zeros(len(forms), dtype=np.bool_)
    depth = 0
    while len(open_):
        groups = int(group[-1]) + 1
        count = max((_KEY_BITS - groups.bit_length()) // width, 1)
        key, rows = group, order[open_]
        for position in range(depth, depth + count):
            key = (key << np.uint64(width)) | _symbol(forms, size, rows, position)
        depth += count
        # Places rise and groups are runs of them, so sorting by group first leaves every group where it is.
        ranked = np.argsort(key)
        order[open_], key = rows[ranked], key[ranked]
        same = key[1:] == key[:-1]
        over = size[order[open_]] + 2 <= depth
        repeated[open_[1:][same & over[1:]]] = True
        tied = np.zeros(len(open_), dtype=np.bool_)
        tied[1:] |= same
        tied[:-1] |= same
        tied &= ~over
        starts = np.ones(len(open_), dtype=np.bool_)
        starts[1:] = ~same
        group = np.cumsum(starts[tied], dtype=np.uint64)
        if len(group):
            group -= group[0]
        open_ = open_[tied]
    return order, repeated


def _symbol(forms: Forms, size: Places, rows: Places, position: int) -> NDArray[np.uint64]:
    """What each row has at a position, as a number: a token and one, 0 for the mark, the closing, then 0."""
    sizes = size[rows]
    symbol = np.zeros(len(rows), dtype=np.uint64)
    inside = sizes > position
    symbol[inside] = forms.token[forms.first[rows[inside]] + position] + 1
    last = sizes + 1 == position
    symbol[last] = forms.closing[rows[last]]
    return symbol
