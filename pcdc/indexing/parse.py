"""The definition of an index, from a file to a checked value or to everything that is wrong with it.

The file is an ordinary definition of one field whose `x-pcdc` says `"index": true`; the dialect describes it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from pcdc.catalog import Catalog, Catalogs, Rows
from pcdc.diagnostics import Diagnostic, has_errors, quoted, sort_diagnostics
from pcdc.examples import EXAMPLES
from pcdc.expand import Expanded, Expansion
from pcdc.ignoring import IGNORE, read_ignored
from pcdc.keywords import escape_pointer, looks_like_field, misplaced_index, nearest
from pcdc.labels import check_length, check_name, shown
from pcdc.parse import check_schema_name, is_index, members_of, unrepeated
from pcdc.reader import read_json
from pcdc.shapes import SETTINGS, Shapes
from pcdc.source import NOWHERE, Array, Member, Object, Report, Scalar, kind_of, read_source

from .columns import TOLD
from .definition import MAX_ENTRIES, MIN_ENTRIES, Entries, IndexDefinition
from .entries import check_column, check_distinct, read_entries
from .pairs import answers_of, read_pairs

Found = tuple[IndexDefinition | None, list[Diagnostic]]
_FORM = '{"x-pcdc": {"index": true}, "answer": {"x-catalog": {"source": "cities.txt"}}}'
_SPLIT = "put a long list of choices into a file, and name it under `x-catalog`; this is too long a"


def parse_index_file(path: Path, name: str | None = None) -> Found:
    """The index that a definition file declares; its name is the file's stem unless one is given."""
    source, diagnostics = read_source(path, split=_SPLIT)
    if source is None:
        return None, diagnostics
    report = Report(source)
    root = read_json(report)
    if root is None:
        return None, sort_diagnostics(report.diagnostics)
    if not isinstance(root, Object) or not is_index(root):
        _refuse(root, report, path)
        return None, sort_diagnostics(report.diagnostics)
    return _Parsing(root, report, path.parent, path.stem if name is None else name).parsed()


def _refuse(root: object, report: Report, path: Path) -> None:
    if isinstance(root, Object):
        if _meant(root, report):
            return
        limit = f'an index has `"{SETTINGS}": {{"index": true}}`'
        help = f"add that, or build it as the schema that it is: pcdc build {path}"
        report.add("PCDC241", root.at, "definition", "declares no index", limit, help)
    elif isinstance(root, Scalar | Array):
        limit, help = (
            f"a definition is an object such as {_FORM}",
            "to index a catalog itself, give a question",
        )
        help += ': --question "..."'
        report.add("PCDC241", root.at, "definition", f"is {kind_of(root)}", limit, help)


def _meant(root: Object, report: Report) -> bool:
    """Report what is wrong with `x-pcdc`; gives whether that is why no index is declared."""
    Shapes(report).settings(root)
    meant, own = misplaced_index(root, report), root.get(SETTINGS)
    if isinstance(own, Object):
        asked = own.get("index")
        if asked is None:
            return meant or any(nearest(key, frozenset(["index"])) for key in own.members)
        return meant or not (isinstance(asked, Scalar) and isinstance(asked.value, bool))
    if own is not None:
        return True
    for key, member in root.members.items():
        if nearest(key, frozenset([SETTINGS])) and not looks_like_field(member.value):
            fact, help = f"has the unknown keyword {quoted(key)}", f"did you mean `{SETTINGS}`?"
            report.add("PCDC205", member.at, "definition", fact, "", help)
            meant = True
    return meant


class IndexCatalogs(Catalogs):
    """Catalogs of an index, whose rows are read as columns once the field is known."""

    def __init__(self, report: Report, folder: Path, shapes: Shapes) -> None:
        super().__init__(report, folder, shapes.of_catalog)
        self.named = list[Catalog]()

    def read(self, subject: str, node: Object) -> Rows:
        catalog = self.declared(subject, node)
        if catalog is None:
            return Rows()
        self.named.append(catalog)
        return Rows(uses=(replace(catalog.use, index=True),))


class _Parsing:
    """One definition of an index, checked on the way."""

    def __init__(self, root: Object, report: Report, folder: Path, name: str) -> None:
        self._root, self._report, self._name = root, report, name
        self._shapes = Shapes(report)
        self._catalogs = IndexCatalogs(report, folder, self._shapes)
        self._expansion = Expansion(root, report, self._shapes.of_field, self._catalogs, MAX_ENTRIES)

    def parsed(self) -> Found:
        root, report = self._root, self._report
        if "x-catalog" in root.members:
            at = root.members["x-catalog"].at
            self._catalogs.misplaced(
                "definition", at, "is in no field", "a catalog has the choices of one field"
            )
        settings = self._shapes.settings(root)
        own = root.get(SETTINGS)
        assert isinstance(own, Object)
        if settings.get("scoring", "joint") != "joint":
            limit = "what is selected from an index is always compared as a whole, as `joint` does"
            at = own.members["scoring"].value.at
            report.add("PCDC243", at, f"`{SETTINGS}`", f"asks for the scoring {settings['scoring']}", limit)
        check_schema_name(self._name, report)
        members = members_of(root, self._expansion, self._shapes, report)
        field = self._one(*members) if members else None
        if field is None:
            return None, sort_diagnostics(unrepeated(report.diagnostics))
        name, member, pointer = field
        ignored = read_ignored(own.get(IGNORE), [name], report)
        check_name(name, member.at, report)
        subject = f"field {quoted(name)}"
        found = self._expansion.expand(subject, member.value, f"{pointer}/{escape_pointer(name)}", member.at)
        given = own.get(EXAMPLES)
        items = given.items if isinstance(given, Array) else ()
        entries = None
        if found is not None:
            check_length(f"description of {subject}", found.description, member.at, report)
            entries = self._entries(subject, found, member, answers_of(items, name))
        examples = read_pairs(items, name, entries, report, self._shapes.of_example)
        diagnostics = sort_diagnostics(unrepeated(report.diagnostics))
        if found is None or entries is None or has_errors(diagnostics):
            return None, diagnostics
        described = found.described_at
        definition = IndexDefinition(
            name=self._name,
            field=name,
            question=found.description,
            instructions=settings.get("instructions", ""),
            examples=examples,
            temperature=float(settings.get("temperature", 1.0)),
            entries=entries,
            catalogs=tuple(replace(use, field=name) for use in found.uses),
            ignored=ignored,
            location=report.source.locate(member.at),
            asked=report.source.locate(member.at if described == NOWHERE else described),
        )
        return definition, diagnostics

    def _one(self, members: dict[str, Member], pointer: str) -> tuple[str, Member, str] | None:
        if not members:
            help = f"such as {_FORM}"
            self._report.add("PCDC202", 0, "definition", "has no fields", "an index has exactly one", help)
            return None
        if len(members) > 1:
            (_, second, *_rest) = members.values()
            fact, help = f"has {len(members)} fields", "make an index of each, in a file of its own"
            self._report.add("PCDC242", second.at, "definition", fact, "an index has exactly one field", help)
            return None
        ((name, member),) = members.items()
        return name, member, pointer

    def _entries(
        self, subject: str, found: Expanded, member: Member, answers: Container[str]
    ) -> Entries | None:
        named, report = self._catalogs.named, self._report
        if not named:
            return self._listed(subject, found, member) if found.whole else None
        others = found.known or found.total or len(named) > 1
        if others:
            fact, limit = (
                "joins a catalog with other answers",
                "the answers of an index are those of one catalog",
            )
            help = "put all of them into the catalog"
            report.add("PCDC243", member.at, subject, fact, limit, help)
            return None
        (catalog,) = named
        kinds = member.value.get("type") if isinstance(member.value, Object) else None
        if isinstance(kinds, Array) and any(isinstance(k, Scalar) and k.value == "null" for k in kinds.items):
            fact, limit = "has a type with null", "the answers of an index are text"
            help = 'take null out of the type, and put a label such as "none of these" into the catalog'
            report.add("PCDC215", kinds.at, subject, fact, limit, help)
        if "description" in catalog.node.members:
            limit = "the prompt of an index lists no answers, and does not explain them"
            at = catalog.node.members["description"].at
            report.add("PCDC243", at, catalog.subject, "has a `description`", limit, "leave it out")
        return read_entries(catalog, self._catalogs, report, answers)

    def _listed(self, subject: str, found: Expanded, member: Member) -> Entries | None:
        """Entries that the definition lists itself."""
        report, known = self._report, found.known
        if found.total > MAX_ENTRIES or found.total < MIN_ENTRIES:
            few = found.total < MIN_ENTRIES
            limit = f"at least {MIN_ENTRIES}" if few else f"at most {MAX_ENTRIES:,}"
            code = "PCDC212" if few else "PCDC213"
            fact = f"has {found.total:,} answer{'' if found.total == 1 else 's'}"
            report.add(code, member.at, subject, fact, f"an index has {limit}")
        told = {d.location for d in report.diagnostics if d.code == "PCDC215"}
        wrong = [d for d in known if not isinstance(d.choice.value, str) and d.choice.location not in told]
        for declared in wrong[:TOLD]:
            help = f'write it as text: "{declared.choice.label}"'
            fact, limit = f"has the answer {shown(declared.choice)}", "the answers of an index are text"
            report.add("PCDC215", declared.at, subject, fact, limit, help)
        noted = next((d for d in known if d.choice.description), None)
        if noted is not None:
            limit = "the prompt of an index lists no answers, and does not explain them"
            report.add("PCDC243", noted.at, subject, "describes an answer", limit, "leave descriptions out")
        labels = [d.choice.label for d in known]

        def spot(number: int) -> tuple[Report, int, str]:
            return report, known[number].at, f"choice {number + 1} of {subject}"

        check_column(labels, "label", spot)
        help = "remove one; in an `x-catalog` with a column of ids, which `id` names, labels may repeat"
        check_distinct(labels, "label", spot, help)
        locations = [d.choice.location for d in known]
        return Entries(labels, labels, lambda n: locations[n])
