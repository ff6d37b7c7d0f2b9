"""An index definition and a target in, an index out: the last arrow of the indexing half."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pcdc_runtime.indexed.index import Index, Labels
from pcdc_runtime.tokenizer import probe_encodings

from pcdc.diagnostics import Diagnostic, finding, has_errors
from pcdc.prompt import Target

from .definition import IndexDefinition
from .forms import TokenizedEntries, tokenize_entries
from .freshness import catalog_digest, entry_changes, index_record
from .prompting import INDEX_PROMPT_VERSION, render_index_prompt
from .reading import Progress
from .reuse import FORMS_INPUT, forms_digest


def compile_index(
    definition: IndexDefinition,
    target: Target,
    old: Index | None = None,
    progress: Progress | None = None,
) -> tuple[Index | None, list[Diagnostic]]:
    """Compile one index definition for one target; equal inputs give byte-equal indexes, whatever `old` is.

    Labels that `old` has in the same forms are not tokenized again.
    """
    index, _, problems = compile_from(old, definition, target, progress)
    return index, problems


def compile_from(
    old: Index | None, definition: IndexDefinition, target: Target, progress: Progress | None = None
) -> tuple[Index | None, tuple[str, ...], list[Diagnostic]]:
    """The same, and in the middle what became of the entries of `old`, one line each."""
    prompt = render_index_prompt(definition, target)
    if problems := _too_long(definition, len(prompt.cut.head) + len(prompt.cut.tail), target):
        # Before the labels are tokenized, which can take a minute.
        return None, (), problems
    tokenized, problems = tokenize_entries(definition, prompt, target, old, progress)
    if tokenized is None or has_errors(problems):
        return None, (), problems
    tail = np.concatenate([prompt.cut.tail, np.array(tokenized.opening, dtype=np.int32)])
    fixed, deepest = len(prompt.cut.head) + len(tail), int(np.diff(tokenized.rows.offset).max())
    if too_long := _too_long(definition, fixed, target, deepest):
        return None, (), [*problems, *too_long]
    entries, catalog = definition.entries, catalog_digest(definition.entries)
    record = index_record(definition, catalog, target.fingerprint, target.template_digest)
    index = Index(
        name=definition.name,
        model=target.model,
        field=definition.field,
        question=definition.question,
        instructions=definition.instructions,
        examples=definition.examples,
        temperature=definition.temperature,
        fingerprint=target.fingerprint,
        tokenizer_probes=probe_encodings(target.tokenizer),
        prompt_version=INDEX_PROMPT_VERSION,
        prompt_text=prompt.text,
        prompt=replace(prompt.cut, tail=tail),
        inputs={**record, FORMS_INPUT: forms_digest(prompt, target, definition.field)},
        rows=tokenized.rows,
        labels=Labels.of(entries.labels, entries.ids, tokenized.entry),
    )
    return index, _changes(old, index, tokenized), problems


def _too_long(definition: IndexDefinition, fixed: int, target: Target, deepest: int = 0) -> list[Diagnostic]:
    whole = fixed + deepest
    if target.window is None or whole <= target.window:
        return []
    return [
        finding(
            "PCDC307",
            definition.location,
            "index",
            f"makes a prompt of {fixed} tokens before any text is in it"
            + (f", {whole} with the longest label" if deepest else ""),
            f"the window of {target.model} is {target.window} tokens",
            ("show fewer examples, " if definition.examples else "")
            + "shorten the question, or use a model with a longer window",
        )
    ]


def _changes(old: Index | None, new: Index, tokenized: TokenizedEntries) -> tuple[str, ...]:
    if old is None:
        return ()
    count = tokenized.reused + tokenized.tokenized
    return (*entry_changes(old.labels, new.labels), f"tokens of {tokenized.reused} of {count} labels reused")
