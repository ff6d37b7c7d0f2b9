"""Worked examples of a definition: texts with the answers that are right for them, read and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from pcdc_runtime.artifact import shortened
from pcdc_runtime.wire import identity

from .diagnostics import quoted
from .keywords import nearest, suggestion
from .schema import Example, Field, label_of
from .source import Array, Member, Node, Object, Report, Scalar, Unread, kind_of

EXAMPLES = "examples"
MAX_EXAMPLES = 100
MAX_EXAMPLE_CHARS = 100_000

ShapeCheck = Callable[[str, Object], frozenset[str]]
Find = Callable[[Field, Scalar], "int | str"]
_FORM = 'write {"context": "...", "answers": {"field name": value}}'


def choice_of(field: Field, given: Scalar) -> int | str:
    """The position of the choice that answers an example, or else a hint for people."""
    wanted = identity(given.value)
    return next((i for i, c in enumerate(field.choices) if identity(c.value) == wanted), _hint(given, field))


def read_examples(
    items: Sequence[Node],
    asked: Mapping[str, Field | None],
    report: Report,
    malformed: ShapeCheck,
    find: Find = choice_of,
) -> tuple[Example, ...]:
    """The examples of a definition whose fields are `asked`; None stands for one that was refused.

    `find` gives what answers a field, or a hint.
    """
    if len(items) > MAX_EXAMPLES:
        fact, help = f"are {len(items)}", "keep the most telling ones; every text pays for them once"
        report.add("PCDC238", items[MAX_EXAMPLES].at, "examples", fact, f"at most {MAX_EXAMPLES}", help)
        return ()
    examples, total, first = list[Example](), 0, dict[str, int]()
    for position, item in enumerate(items, 1):
        example = _example(f"example {position}", item, asked, report, malformed, find)
        if example is None:
            continue
        before, total = total, total + len(example.context)
        if before <= MAX_EXAMPLE_CHARS < total:
            fact = f"have more than {MAX_EXAMPLE_CHARS} characters in their texts by example {position}"
            help = "keep short ones; they stand in front of every text that is asked about"
            report.add("PCDC238", item.at, "examples", fact, "at most that many", help)
        earlier = first.setdefault(example.context, position)
        if earlier != position:
            fact, help = f"has the text of example {earlier}", "keep one, with all its answers"
            report.add("PCDC237", item.at, f"example {position}", fact, "texts are distinct", help)
        examples.append(example)
    return tuple(examples)


def _example(
    subject: str,
    item: Node,
    asked: Mapping[str, Field | None],
    report: Report,
    malformed: ShapeCheck,
    find: Find,
) -> Example | None:
    if isinstance(item, Unread):
        return None
    if not isinstance(item, Object):
        report.add("PCDC237", item.at, subject, f"is {kind_of(item)}", "an example is an object", _FORM)
        return None
    wrong = malformed(subject, item)
    missing = [key for key in ("context", "answers") if key not in item.members]
    for key in missing if not wrong else ():
        report.add("PCDC237", item.at, subject, f"has no `{key}`", "an example has a text and answers", _FORM)
    context, answers = item.get("context"), item.get("answers")
    text = context.value if isinstance(context, Scalar) and isinstance(context.value, str) else None
    if text is not None and not text.strip():
        limit = "an example shows how a text is answered"
        report.add("PCDC237", item.members["context"].value.at, subject, "has a blank text", limit, _FORM)
    found = dict[str, int]()
    if isinstance(answers, Object) and "answers" not in wrong:
        if not answers.members:
            limit = "an example answers at least one field"
            report.add("PCDC237", answers.at, subject, "has no answers", limit, _FORM)
        for name, member in answers.members.items():
            index = _answer(subject, name, member, asked, report, find)
            if index is not None:
                found[name] = index
    if text is None:
        return None
    place = report.source.locate(item.at)
    return Example(text, tuple((name, found[name]) for name in asked if name in found), place)


def _answer(
    subject: str, name: str, member: Member, asked: Mapping[str, Field | None], report: Report, find: Find
) -> int | None:
    if name not in asked:
        help = suggestion(name, frozenset(asked)) or f"the fields are {shortened(list(map(quoted, asked)))}"
        report.add("PCDC235", member.at, subject, f"answers {quoted(name)}, which is no field", "", help)
        return None
    field, given = asked[name], member.value
    if field is None or isinstance(given, Unread):
        return None
    owner = f"{subject}, field {quoted(name)}"
    limit = "an answer is one of the field's choices"
    if isinstance(given, Array | Object):
        help = "write the choice itself"
        report.add("PCDC236", given.at, owner, f"is answered with {kind_of(given)}", limit, help)
        return None
    found = find(field, given)
    if isinstance(found, str):
        report.add("PCDC236", given.at, owner, f"is answered with {_told(given)}", limit, found)
        return None
    return found


def _told(given: Scalar) -> str:
    return quoted(given.value) if isinstance(given.value, str) else given.spelling or json.dumps(given.value)


def _hint(given: Scalar, field: Field) -> str:
    spelled = {c.label: json.dumps(c.value, ensure_ascii=False) for c in field.choices}
    near = nearest(label_of(given.value), frozenset(spelled))
    if near is not None:
        return f"did you mean {spelled[near]}?"
    return f"its choices are {shortened(list(spelled.values()))}"
