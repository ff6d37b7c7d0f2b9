"""Compare prompt layouts by legal mass, without labels: `python tools/prompt_trial.py [layout...]`.

Every layout asks every example context of the four scenarios on the embedded model. The higher the legal
mass, the less the model wanted to say something that is no answer. Prints medians and the prompt's length.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import open_model
from pcdc_runtime.models import DEFAULT, resolve

from pcdc.emit import compile_schema
from pcdc.parse import parse_file
from pcdc.prompt import COPY_RULE, DEFAULT_LAYOUT, FENCE, VALUE_RULE, Layout, load_target
from pcdc.schema import Field, Schema

ROOT = Path(__file__).resolve().parent.parent / "schemas"
SCENARIOS = ("fraud_routing", "code_audit", "tariff_classification", "support_triage")


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def bullets(field: Field) -> str:
    rows = [f"{quoted(field.name)}: {field.description}"]
    rows += [f"- {c.literals[0]}" + (f": {c.description}" if c.description else "") for c in field.choices]
    return "\n".join(rows)


def one_line(field: Field) -> str:
    values = " | ".join(c.literals[0] for c in field.choices)
    meanings = "; ".join(f"{c.label}: {c.description}" for c in field.choices if c.description)
    rows = f"{field.description}\n{{{quoted(field.name)}: {values}}}"
    return rows + (f"\n({meanings})" if meanings else "")


def whole_answers(field: Field) -> str:
    rows = [field.description]
    rows += [
        f"{{{quoted(field.name)}: {c.literals[0]}}}" + (f" {c.description}" if c.description else "")
        for c in field.choices
    ]
    return "\n".join(rows)


def first_whole(field: Field) -> str:
    rows = whole_answers(field).split("\n")
    values = (c.literals[0] + (f" {c.description}" if c.description else "") for c in field.choices[1:])
    return "\n".join([*rows[:2], *values])


def named_values(field: Field) -> str:
    rows = [f"Question: {field.description}", f"Key: {quoted(field.name)}", "Values:"]
    rows += [c.literals[0] + (f" = {c.description}" if c.description else "") for c in field.choices]
    return "\n".join(rows)


def instructions(render: Callable[[Field], str], rule: str) -> Callable[[Schema], str]:
    def text(schema: Schema) -> str:
        task = schema.instructions or "Classify the text."
        return f"{task}\n{rule}\n\n" + "\n\n".join(map(render, schema.fields))

    return text


EACH = (
    "Each question below is asked on its own. Answer it with one JSON object that has the question's key and "
    "one of its listed values."
)
SHORT = VALUE_RULE
FENCED = f"<{FENCE}>\n"
CLOSED = f"\n</{FENCE}>"
REMIND = CLOSED + "\n\nAnswer with one JSON object: one key, one of its listed values."

LAYOUTS = {
    "default": DEFAULT_LAYOUT,
    "bullets": Layout(instructions(bullets, EACH), FENCED, CLOSED),
    "bullets+reminder": Layout(instructions(bullets, EACH), FENCED, REMIND),
    "one-line": Layout(instructions(one_line, EACH), FENCED, CLOSED),
    "one-line+reminder": Layout(instructions(one_line, EACH), FENCED, REMIND),
    "one-line short": Layout(instructions(one_line, SHORT), FENCED, CLOSED),
    "whole-answers": Layout(instructions(whole_answers, EACH), FENCED, CLOSED),
    "whole-answers+reminder": Layout(instructions(whole_answers, EACH), FENCED, REMIND),
    "first-whole": Layout(instructions(first_whole, EACH), FENCED, CLOSED),
    "whole-answers short": Layout(instructions(whole_answers, SHORT), FENCED, CLOSED),
    "whole-answers copy": Layout(instructions(whole_answers, COPY_RULE), FENCED, CLOSED),
    "named-values": Layout(instructions(named_values, EACH), FENCED, CLOSED),
}


def main(names: list[str]) -> None:
    """Print one row per layout: median legal mass per scenario, over all fields, and prompt tokens."""
    files = resolve(DEFAULT, weights=False)
    with open_model(DEFAULT) as model:
        print(f"{'layout':24}", *(f"{s[:12]:>14}" for s in SCENARIOS), f"{'all fields':>14}  head tokens")
        for name in names or LAYOUTS:
            masses: list[float] = []
            columns, heads = [], []
            target, problems = load_target(files, LAYOUTS[name])
            assert target is not None, problems
            for scenario in SCENARIOS:
                schema, problems = parse_file(ROOT / f"{scenario}.json")
                assert schema is not None, problems
                artifact, problems = compile_schema(schema, target)
                assert artifact is not None, problems
                own = []
                with Engine(artifact, model.share()) as engine:
                    for context in sorted((ROOT / "examples").glob(f"{scenario}.*.txt")):
                        result = engine.run(context.read_text(encoding="utf-8"))
                        own += [f.legal_mass for f in result.fields.values() if f.legal_mass is not None]
                masses += own
                heads.append(len(artifact.prompt.head))
                columns.append(statistics.median(own))
            row = [*columns, statistics.median(masses)]
            print(f"{name:24}", *(f"{v:14.4f}" for v in row), f"  {heads}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
