"""An index without a definition file: a catalog, and what a command line asks of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pcdc.catalog import Catalog
from pcdc.diagnostics import Diagnostic, finding, has_errors, quoted, sort_diagnostics
from pcdc.labels import check_length, check_name
from pcdc.parse import check_schema_name, unrepeated
from pcdc.shapes import Shapes
from pcdc.source import NOWHERE, Member, Node, Object, Report, Scalar, SchemaSource, Unread, from_python
from pcdc.table import ColumnError

from .definition import Entries, IndexDefinition
from .entries import read_entries
from .pairs import Lookup, read_pairs
from .parse import Found, IndexCatalogs

ARROW = " => "
_FORM = f'an example is "query{ARROW}label"'


def definition_of_catalog(
    path: Path,
    question: str = "",
    examples: Sequence[str] = (),
    *,
    field: str = "answer",
    id: str = "",
    value: str = "",
    instructions: str = "",
) -> Found:
    """The index of a catalog file: what a definition of one field beside it would declare.

    An example is a query and its label with ` => ` between them; either may hold more of them. `id` and
    `value` name columns or keys. The index has the file's stem as its name.
    """
    report = Report(SchemaSource("", ""))
    fault = _fault(path)
    if fault is not None:
        return None, [fault]
    for option, text in (("question", question), ("instructions", instructions), ("field", field)):
        from_python(text, report, f"`--{option}`")
        check_length(f"`--{option}`", text, NOWHERE, report)
    check_name(field, NOWHERE, report)
    check_schema_name(path.stem, report)
    shapes = Shapes(report)
    given = {"source": path.name, "value": value, "id": id}
    node = Object(NOWHERE, {k: Member(NOWHERE, Scalar(NOWHERE, text)) for k, text in given.items() if text})
    catalogs = _Catalogs(report, path.parent, shapes)
    catalog = catalogs.declared(f"field {quoted(field)}", node)
    entries = None if catalog is None else read_entries(catalog, catalogs, report)
    pairs = () if entries is None else _pairs(examples, field, entries, report, shapes)
    diagnostics = sort_diagnostics(unrepeated(report.diagnostics))
    if catalog is None or entries is None or has_errors(diagnostics):
        return None, diagnostics
    use = replace(catalog.use, field=field, index=True)
    return IndexDefinition(path.stem, field, question, instructions, pairs, 1.0, entries, (use,)), diagnostics


def _fault(path: Path) -> Diagnostic | None:
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return None
        fact = "is no regular file"
    except (OSError, ValueError) as error:
        fact = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    help = f"the path is relative to {quoted(os.curdir)}; a database needs a definition file"
    return finding("PCDC101", None, str(path), fact, "a catalog is a file", help)


class _Catalogs(IndexCatalogs):
    """A catalog whose keywords are options."""

    def misfits(self, catalog: Catalog, why: ColumnError) -> None:
        for wrong in why.misfits:
            subject = catalog.subject if wrong.keyword == "source" else f"`--{wrong.keyword}`"
            help = f"name it with `--{wrong.lacks}`" if wrong.lacks else wrong.help
            self._report.add(wrong.code, NOWHERE, subject, wrong.fact, wrong.limit, help)


def _pairs(
    examples: Sequence[str], field: str, entries: Entries, report: Report, shapes: Shapes
) -> tuple[tuple[str, str], ...]:
    halves = [_halves(text) for text in examples]
    lookup = Lookup(entries, {label for each in halves for _, label in each})
    # The last arrow parts them, unless what follows an earlier one is a label.
    items = list[Node]()
    for position, each in enumerate(halves, 1):
        if each:
            query, label = next((half for half in each if lookup.knows(half[1])), each[0])
            pair = {"context": query, "answers": {field: label}}
            items.append(from_python(pair, report, f"example {position}"))
        else:
            fact, help = f"has no {quoted(ARROW)}", "write both, with blanks around the arrow"
            report.add("PCDC237", NOWHERE, f"example {position}", fact, _FORM, help)
            items.append(Unread(NOWHERE))
    return read_pairs(items, field, entries, report, shapes.of_example)


def _halves(text: str) -> list[tuple[str, str]]:
    """What an example may mean, the last arrow first."""
    parts = text.split(ARROW)
    return [(ARROW.join(parts[:at]), ARROW.join(parts[at:])) for at in range(len(parts) - 1, 0, -1)]
