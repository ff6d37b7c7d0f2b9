"""The wording of a schema's prompt: what it asks and shows, and what stands around the context."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from .schema import Choice, Field, Schema

PROMPT_VERSION = "2"
FENCE = "input_text"
EXAMPLE_FENCE = "example_text"
MAX_WHOLE_ANSWERS = 16
COPY_RULE = (
    "Each question below is asked on its own. Answer it with exactly one of its lines of JSON, copied."
)
VALUE_RULE = "Answer one question as JSON, with exactly one of its listed values."


@dataclass(frozen=True)
class Layout:
    """A wording: what stands before the context, around it and after it."""

    instructions: Callable[[Schema], str]
    before: str
    after: str


def _question(field: Field) -> str:
    """A field as a question of its own, with its real labels as the answers that are wanted.

    Every label stands in a whole answer, which a small model copies best, except in a long list, where the
    first shows the form for all: the key repeated 255 times costs tokens and brings nothing.
    """
    rows = [field.description] if field.description else []
    for position, choice in enumerate(field.choices):
        whole = position == 0 or len(field.choices) <= MAX_WHOLE_ANSWERS
        answer = _answer(field, choice) if whole else choice.literals[0]
        rows.append(f"{answer} {choice.description}" if choice.description else answer)
    return "\n".join(rows)


def _answer(field: Field, choice: Choice) -> str:
    return f"{{{json.dumps(field.name, ensure_ascii=False)}: {choice.literals[0]}}}"


def _instructions(schema: Schema) -> str:
    task = schema.instructions or "Classify the text."
    # In a long list most lines are bare values, and there is no line of JSON to copy.
    copied = all(len(field.choices) <= MAX_WHOLE_ANSWERS for field in schema.fields)
    rule = COPY_RULE if copied else VALUE_RULE
    # Templates trim a message; what would be trimmed is never in it.
    return "\n\n".join([f"{task}\n{rule}", *map(_question, schema.fields)]).strip()


def worked_examples(schema: Schema, fence: str) -> str:
    """Each example's text in a fence, then one whole answer a line: as every field is asked on its own."""
    fields = {field.name: field for field in schema.fields}
    shown = ["Examples:"]
    for example in schema.examples:
        rows = [f"<{fence}>", example.context, f"</{fence}>"]
        rows += [_answer(fields[name], fields[name].choices[choice]) for name, choice in example.answers]
        shown.append("\n".join(rows))
    return "\n\n".join(shown)


DEFAULT_LAYOUT = Layout(
    instructions=_instructions,
    before=f"<{FENCE}>\n",
    after=f"\n</{FENCE}>",
)
