"""The report of an evaluation as one HTML page, for people who did not run it.

It loads nothing: styles and charts stand in the page, there is no script, and a policy forbids both. Every
text that came from a schema, a data file or a command line is escaped. Equal reports give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import page
from . import report_tables as tables
from . import report_use as use
from .page import Markup, count, plural, table
from .report_field import field_section
from .report_tables import meaning
from .verdict import Report, verdict

SHOWN_SKIPPED = 20
_COMPUTED = (("pcdc", "pcdc"), ("Device", "device"), ("Type of number", "dtype"))

_GUIDE = (
    (
        "Accuracy",
        "is the share of right answers. <b>Macro-F1</b> weighs every choice alike, so it falls when a rare "
        "choice is missed.",
    ),
    (
        "95 % interval:",
        "between which values the figure would likely be on other texts of this kind. Whether two methods "
        "differ is for the paired tests to say; overlapping intervals do not decide it. From too few "
        "distinct texts there is none, and no p-value that rests on resampling them.",
    ),
    (
        "Calibration error (ECE):",
        "how far stated probabilities are from what happens. Of the answers given with .8, 80 % should be "
        "right. A small sample shows some error by chance; <b>by chance up to</b> says how much a perfect "
        "model may show, and the charts have intervals, if all texts are different: of repeated texts chance "
        "does more than they say.",
    ),
    (
        "Log loss",
        "and <b>Brier</b> judge probabilities as a whole; lower is better. <b>AUROC</b>: how well yes and no "
        "are told apart; .5 is chance, 1 is perfect.",
    ),
    (
        "Legal mass:",
        "how much of its probability the model itself gave to the allowed answers. Where it is low, the "
        "model wanted to say something else: look at the choices and the prompt.",
    ),
    ("Threshold:", "act on an answer from this probability on, send the others to review."),
)
_FITTED = (
    "Fitted and judged apart:",
    "a calibration was chosen by cross-validation among the texts fitted on: the simplest that is not "
    "clearly worse than the best. The other texts only judge it and set the thresholds.",
)
_NOT_FITTED = (
    "Nothing was fitted:",
    "all texts judge; with <code>--fit</code> half of them are kept for a calibration.",
)


def html(report: Report) -> str:
    """The page for a report as `report.json` has it."""
    title = f"{report['schema']} on labelled texts"
    parts = [
        *_summary(report),
        use.at_a_glance(report),
        use.thresholds(report),
        use.calibration_in_use(report),
        tables.calibration(report),
        tables.methods(report),
        tables.comparisons(report),
        tables.permutation(report),
        tables.latency(report),
        tables.examples(report),
        *(field_section(report, position, field) for position, field in enumerate(report["fields"], 1)),
        _guide(report),
        _definitions(report),
        _provenance(report),
    ]
    return page.document(title, [part for part in parts if part])


def _summary(report: Report) -> list[Markup]:
    first, *others = verdict(report)
    sentences = [*others, _trust(report)]
    return [page.paragraph(first, lead=True), *(page.paragraph(words) for words in sentences if words)]


def _trust(report: Report) -> str:
    """Whether the probabilities of each field are off by more than chance."""
    judged = [field["methods"].get(report["main"]) for field in report["fields"]]
    bands = [(one["ece"], one["ece_band"]) for one in judged if one and one["ece_band"]]
    off = sum(ece > band[1] for ece, band in bands)
    if not bands:
        return ""
    if not off:
        return "The stated probabilities are off by no more than chance alone explains."
    way = "read those with care" if report["fit"] else "calibrate with --fit before acting on them"
    where = "" if len(bands) == 1 else f" in {off} of {len(bands)} fields"
    return f"The stated probabilities are off by more than chance explains{where}: {way}."


def _provenance(report: Report) -> Markup:
    run = report.get("run", {})
    rows = [
        ("Schema", report["schema"]),
        ("Model", report["model"]),
        ("Method in use", f"{report['main']}: {meaning(report['main'])}"),
        ("Fields", count(len(report["fields"]))),
        ("Texts", _texts(report, run)),
    ]
    if report["fit"]:
        split = f"{report['held_in_texts']} texts fitted on, {report['held_out_texts']} judged on"
        rows.append(("Split", f"{split}; equal texts stay together"))
    rows += [
        *(
            (name, run[key])
            for name, key in (("Artifact", "artifact_file"), ("Data", "data_file"))
            if key in run
        ),
        ("Artifact digest", report["artifact"]),
        ("Data digest", report["data"]),
        ("Weights digest", report["weights"]),
        ("Seed", str(report["seed"])),
        *((title, run[key]) for title, key in _COMPUTED if run.get(key)),
    ]
    return page.section("What was evaluated", [page.pairs(rows), _skipped(run)])


def _texts(report: Report, run: Mapping[str, Any]) -> str:
    asides = []
    if "labelled_texts" in run:
        asides.append(f"{run['labelled_texts']} labelled")
        if run["limit"]:
            asides.append(f"{run['drawn_texts']} drawn by seed")
        if run["shown_as_examples"]:
            asides.append(f"{run['shown_as_examples']} left out, they are examples of the schema")
        if run["skipped"]:
            asides.append(f"{len(run['skipped'])} skipped as too long")
    return f"{report['texts']} measured" + (f" ({'; '.join(asides)})" if asides else "")


def _skipped(run: Mapping[str, Any]) -> Markup:
    skipped = run.get("skipped", [])
    if not skipped:
        return Markup("")
    rows = [[str(one["line"]), one["fact"], one["limit"]] for one in skipped[:SHOWN_SKIPPED]]
    return page.details(
        f"{plural(len(skipped), 'text')} skipped"
        + (f", the first {SHOWN_SKIPPED}" if len(skipped) > SHOWN_SKIPPED else ""),
        [table(["line", "fact", "limit"], rows)],
    )


def _guide(report: Report) -> Markup:
    fitted = _FITTED if report["fit"] else _NOT_FITTED
    items = "\n".join(f"<li><b>{name}</b> {words}</li>" for name, words in (*_GUIDE, fitted))
    return page.section("How to read this", [Markup(f"<ul>\n{items}\n</ul>")])


def _definitions(report: Report) -> Markup:
    known = report["definitions"]
    words = (
        f"Judged on: {known['judged_on']}. Intervals are the {100 * known['interval']:g} % percentile "
        f"intervals of {known['resamples']} resamples of texts, paired between methods; there are none of "
        f"fewer than {known['least_texts']} distinct texts. Where all answers are right, or all wrong, the "
        "interval of accuracy is the exact binomial one (Clopper-Pearson), a distinct text being one trial. "
        f"ECE: up to {known['ece_bins']} bins of equal mass that never part equal probabilities. Log loss in "
        "nats. Brier: half the squared distance between probabilities and label. Accuracy within one field "
        "is compared by an exact McNemar test, a distinct text being one trial, all else by resampling; "
        "p-values are corrected by Holm's method."
    )
    return page.section("Definitions", [page.paragraph(words)])
