"""The pages of the rules: what each finds, why it hurts, an example, what to use instead."""

from __future__ import annotations

from importlib.resources import files

from pcdc.diagnostics import RULES
from pcdc.keywords import suggestion

from .select import UnknownCodeError

_PAGES = files(__package__).joinpath("rules")
_WITH_PAGES = frozenset(name.removesuffix(".md") for p in _PAGES.iterdir() if (name := p.name) != "README.md")


def has_page(code: str) -> bool:
    """Whether a code has a page."""
    return code in _WITH_PAGES


def page(code: str) -> str:
    """A code's page as Markdown; one line where it has none. Raises UnknownCodeError."""
    if has_page(code):
        return _PAGES.joinpath(f"{code}.md").read_text(encoding="utf-8")
    if code not in RULES:
        hint = suggestion(code, _WITH_PAGES)
        raise UnknownCodeError(f"{code!r} is no code" + (f"; {hint}" if hint else ""))
    rule = RULES[code]
    return (
        f"{code}: {rule.title} ({rule.severity} of stage {rule.stage}; it says what helps where it is told)\n"
    )


def opening(code: str) -> str:
    """The first paragraph of a code's page."""
    return page(code).split("\n\n", 2)[1]
