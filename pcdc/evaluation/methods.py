"""The methods of an evaluation by name: what each answers, and which are tested against which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .fit import Fit, Selection, prior_bias
from .judge import Judged
from .metrics import Answers
from .split import Bools
from .tables import FieldTable

MAJORITY, WRITTEN, CHOSEN, APPLIED = "majority", "written", "chosen", "applied"


def answers(
    scoring: str,
    table: FieldTable,
    held: Bools,
    selection: Selection | None,
    applied: Fit | None = None,
) -> dict[str, Answers]:
    """What each method answers to the rows that are not held in; `applied` is the calibration in use."""
    counted = table.expected[held] if held.any() else table.expected
    counts = np.bincount(counted, minlength=len(table.labels)) + 1.0
    majority = np.tile(np.log(counts / counts.sum()), (int((~held).sum()), 1))
    found = {MAJORITY: Answers.of(majority)}
    if table.written is not None:
        found[WRITTEN] = Answers(table.written[~held], None)
    raw = Fit("nothing", table.temperature)
    found |= {rule: Answers.of(raw.log_prob(scores[~held])) for rule, scores in table.log_scores.items()}
    fits: dict[str, Fit] = {}
    if selection is not None:
        fits = {name: fit for name, fit in selection.fits.items() if name != "nothing"}
        fits[CHOSEN] = selection.fit
    elif scoring in table.prior:
        fits["prior"] = prior_bias(table.prior[scoring], table.temperature)
    if applied is not None:
        fits[APPLIED] = applied
    scores = table.log_scores[scoring][~held]
    return found | {f"{scoring}+{name}": Answers.of(fit.log_prob(scores)) for name, fit in fits.items()}


def names(judged: Mapping[str, Mapping[str, Judged]]) -> list[str]:
    """The names of all methods, each once."""
    return list(dict.fromkeys(name for methods in judged.values() for name in methods))


def pairs(scoring: str, main: str, among: Sequence[str]) -> list[tuple[str, str]]:
    """Which methods are tested against which: what would be deployed and the raw rule against the rest."""
    rivals = [name for name in among if "+" not in name and name != scoring]
    fitted = [(main, name) for name in (scoring, *(n for n in rivals if n in (MAJORITY, WRITTEN)))]
    return [*(fitted if main != scoring else []), *((scoring, name) for name in rivals)]
