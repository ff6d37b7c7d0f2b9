"""`pcdc lint`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcdc.diagnostics import render_json, render_text

from .common import Models, Out, Sources, app, exit_code, on_terminal, print_json, put

if TYPE_CHECKING:
    from pcdc.lint import LintReport


class LintFormat(StrEnum):
    """How what lint finds is printed."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"


Codes = list[str] | None


def _help_rule(code: str | None) -> None:
    if code is None:
        return
    from pcdc.lint.pages import page
    from pcdc.lint.select import UnknownCodeError

    try:
        put(page(code), end="")
    except UnknownCodeError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit


@app.command()
def lint(
    paths: Sources,
    model: Models = None,
    out: Out = Path("build"),
    format: Annotated[
        LintFormat, typer.Option("--format", help="How findings are printed.")
    ] = LintFormat.text,
    explain: Annotated[
        bool, typer.Option("--explain", help="List the tokens of every choice, and every threshold.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Leave with 1 for warnings as well.")] = False,
    select: Annotated[
        Codes, typer.Option("--select", metavar="CODES", help="Only these warnings, such as PCDC515,PCDC25.")
    ] = None,
    ignore: Annotated[
        Codes,
        typer.Option(
            "--ignore", metavar="CODES", help="Not these warnings; PCDC53 are those about builds. Repeatable."
        ),
    ] = None,
    help_rule: Annotated[
        str | None,
        typer.Option(
            "--help-rule",
            metavar="CODE",
            callback=_help_rule,
            is_eager=True,
            help="Print a rule's page: what it finds, why it hurts, what to use instead.",
        ),
    ] = None,
) -> None:
    """Check schemas and indexes before they are deployed. Needs no weights; writes nothing.

    What --out holds is checked as well: PCDC535 tells that a schema is not built. Before a build, as in an
    editor, leave such warnings out with --ignore PCDC53; before a deployment, keep them and add --strict.

    Examples:

        pcdc lint schemas/

        pcdc lint support.json --explain --ignore PCDC53

        pcdc lint --help-rule PCDC515

        pcdc lint schemas/ --strict --format sarif > lint.sarif
    """
    from pcdc_runtime.models import DEFAULT

    from pcdc.lint import UnknownCodeError, selection
    from pcdc.lint import lint as run_lint

    try:
        wanted = selection(select or [], ignore or [])
    except UnknownCodeError as error:
        raise typer.BadParameter(str(error)) from None
    report = run_lint(paths, model or [DEFAULT], out).selected(wanted)
    _print(report, format, explain)
    code = exit_code(report.diagnostics)
    if code or (strict and report.diagnostics):
        raise typer.Exit(code or 1)


def _print(report: LintReport, format: LintFormat, explain: bool) -> None:
    if format is LintFormat.json:
        ignored = [
            {"reason": i.reason, **record}
            for i, record in zip(
                report.ignored, json.loads(render_json(i.diagnostic for i in report.ignored)), strict=True
            )
        ]
        found = json.loads(render_json(report.diagnostics))
        print_json(report.to_dict(explain=explain) | {"diagnostics": found, "ignored": ignored})
    elif format is LintFormat.github:
        from pcdc.lint.formats import github

        put(github(report.diagnostics), end="")
    elif format is LintFormat.sarif:
        from pcdc.lint.formats import sarif

        print_json(sarif(report))
    else:
        from pcdc.lint.show import summary

        terminal = on_terminal(sys.stdout)
        put(render_text(report.diagnostics, color=terminal), end="")
        put(summary(report, explain=explain, terminal=terminal), end="")
