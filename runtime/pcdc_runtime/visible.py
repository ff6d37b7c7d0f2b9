"""What the text of choices and field names may hold: characters that show."""

from __future__ import annotations

import unicodedata

MAX_CHOICE_CHARS = 2000
MAX_NAME_CHARS = 200
BLANKS = "\t\n\r"
"""Control characters that a choice may hold and a name may not."""

# Format characters (Cf) that do show: Arabic and related number signs.
_VISIBLE_FORMAT = frozenset(
    map(chr, [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD])
)
# Invisible without being format characters: grapheme joiner, Hangul and Khmer fillers, empty Braille cell.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNSEEN = frozenset(("Cc", "Co", "Zl", "Zp"))
_JOINERS = frozenset("\u200c\u200d")
_JOINED = frozenset(("Lo", "Mn", "Mc", "Me", "So", "Sk"))


def hidden(text: str, allowed: str = "") -> list[str]:
    """Characters that show nothing or nothing agreed upon, each once; joiners in scripts that need them pass.

    Control, format, private-use and blank-letter characters, line separators, noncharacters.
    """
    if text.isascii() and text.isprintable():
        return []
    unseen = {char for char in {*text}.difference(allowed) if _hides(char)}
    if not unseen:
        return []
    return list(dict.fromkeys(c for at, c in enumerate(text) if c in unseen and not _joins(text, at)))


def _hides(char: str) -> bool:
    category = unicodedata.category(char)
    if category in _UNSEEN or char in _BLANK_LETTERS or (category == "Cf" and char not in _VISIBLE_FORMAT):
        return True
    return ord(char) & 0xFFFE == 0xFFFE or "\ufdd0" <= char <= "\ufdef"


def _joins(text: str, at: int) -> bool:
    """Whether a character is a joiner between two that may be joined."""
    if text[at] not in _JOINERS or not 0 < at < len(text) - 1:
        return False
    return _JOINED.issuperset((unicodedata.category(text[at - 1]), unicodedata.category(text[at + 1])))
