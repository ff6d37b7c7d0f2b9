"""The prompt of an index: the question and its worked examples, with no answers listed."""

from __future__ import annotations

import json

from pcdc.prompt import Prompt, Target, fill_prompt
from pcdc.wording import PROMPT_VERSION

from .definition import IndexDefinition

INDEX_PROMPT_VERSION = f"{PROMPT_VERSION}.1"
"""Of the frame, which schemas have too, and of this wording."""
# Of those tried, the wording that gave labels the most probability on the embedded model.
TASK = "Answer the question about the text. The answer is one name from a catalog."
RULE = "Answer with exactly one line of JSON, with the name exactly as the catalog writes it."


def render_index_prompt(definition: IndexDefinition, target: Target) -> Prompt:
    """Fill a target's frame with one index's question and examples, and place the cut."""
    texts = [query for query, _ in definition.examples]
    return fill_prompt(target, _instructions(definition), texts, lambda fence: _examples(definition, fence))


def _instructions(definition: IndexDefinition) -> str:
    task = f"{definition.instructions or TASK}\n{RULE}"
    # Templates trim a message; what would be trimmed is never in it.
    return "\n\n".join(part for part in (task, definition.question) if part).strip()


def _examples(definition: IndexDefinition, fence: str) -> str:
    """Each example's query in a fence, then the whole answer."""
    shown = ["Examples:"]
    for query, label in definition.examples:
        shown.append(f"<{fence}>\n{query}\n</{fence}>\n{_answer(definition.field, label)}")
    return "\n\n".join(shown)


def _answer(field: str, label: str) -> str:
    return f"{{{json.dumps(field, ensure_ascii=False)}: {json.dumps(label, ensure_ascii=False)}}}"
