"""A lint's report for people: what each definition came to in tokens, and how much was found."""

from __future__ import annotations

from collections import Counter

from pcdc.diagnostics import visible
from pcdc.show import table, tokens_text

from .linting import LintReport
from .pages import has_page
from .subject import FieldTokens
from .views import FieldJudged, IndexTokens, TargetView


def summary(report: LintReport, *, explain: bool, terminal: bool) -> str:
    """A line for each definition and model, with `explain` its fields and choices, then the counts."""
    shown = [_line(t) + (_explained(t, terminal) if explain else "") for t in report.targets]
    shown += map(_index_line, report.indexes)
    shown += [
        f"{visible(source)}: has errors; further rules run once they are gone\n"
        for source in report.unfinished
    ]
    codes = sorted({d.code for d in report.diagnostics if has_page(d.code)})
    if codes:
        shown.append(f"`pcdc lint --help-rule {codes[0]}` says more of a rule\n")
    return "".join(shown) + _counts(report)


def _line(target: TargetView) -> str:
    choices = sum(len(f.labels) for f in target.fields)
    return (
        f"{visible(target.source)}: {_many(len(target.fields), 'field')}, {_many(choices, 'choice')}; "
        f"{_prompt(target)}, {_many(target.nodes, 'node')}, {_many(target.passes, 'tree pass')}\n"
    )


def _index_line(index: IndexTokens) -> str:
    return (
        f"{visible(index.source)}: index of {_many(index.labels, 'label')}; {_prompt(index)}, "
        f"{index.entries} entries, {_many(index.rows, 'row')}\n"
    )


def _prompt(view: TargetView | IndexTokens) -> str:
    examples = f" ({view.example_tokens} of them examples)" if view.example_tokens else ""
    window = f" of {view.window}" if view.window is not None else ""
    return f"{view.model}: {view.prompt_tokens} prompt tokens{examples}{window}"


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}{'es' if thing.endswith('s') else 's'}"


def _explained(target: TargetView, terminal: bool) -> str:
    rows = [_row(field) for field in target.fields]
    header = ["field", "type", "choices", "tokens", "nodes", "prompt tokens"]
    tables = [table(header, rows, terminal=terminal)]
    rows = [
        [field.name, label, str(len(tokens)), tokens_text(tokens)]
        for field in target.fields
        for label, tokens in zip(field.labels, field.choices, strict=True)
    ]
    tables.append(table(["field", "choice", "count", "tokens"], rows, terminal=terminal))
    if target.judged:
        header = ["field", "judged on", "accuracy", "threshold", "precision", "confidence", "lets through"]
        tables.append(table(header, [_judged(f) for f in target.judged], terminal=terminal))
    return "".join(tables)


def _judged(field: FieldJudged) -> list[str]:
    figures = (field.accuracy, field.minimum, field.precision, field.confidence, field.share)
    return [field.name, str(field.rows), *("-" if f is None else f"{f:.3f}" for f in figures)]


def _row(field: FieldTokens) -> list[str]:
    counts = [len(tokens) for tokens in field.choices]
    span = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return [field.name, field.type, str(len(counts)), span, str(field.nodes), str(field.prompt)]


def _counts(report: LintReport) -> str:
    by_severity = Counter(d.severity for d in report.diagnostics)
    parts = [_many(by_severity["error"], "error"), _many(by_severity["warning"], "warning")]
    if report.ignored:
        parts.append(f"{len(report.ignored)} ignored")
    return ", ".join(parts) + "\n"
