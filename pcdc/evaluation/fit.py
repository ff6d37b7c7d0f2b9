"""Calibrations of one field's scores, fitted on held-in rows, and the choice among them.

Calibrated probabilities are softmax(log score / temperature + bias). `temperature` fits the first alone,
`bias` both (vector scaling, Guo et al. 2017), `prior` takes the negative log of the choices' mean
probability over texts without content as bias (contextual calibration, Zhao et al. 2021) and needs no
labels.

The fitted ones minimise log loss plus Gaussian penalties: log temperature around that of the schema with
standard deviation TEMPERATURE_SPREAD, each bias around 0 with one out of BIAS_SPREADS, in nats. Which one
is cross-validated among the held-in rows. So a choice that no label names keeps a finite bias near 0.

The method is chosen by out-of-fold log loss among the held-in rows alone: the simplest, in the order of
METHODS, whose loss exceeds the best one's by no more than one standard error of the paired difference.
With fewer than MIN_ROWS labelled rows it is `nothing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from .metrics import log_losses
from .split import Floats, Ints, folds

METHODS = ("nothing", "temperature", "prior", "bias")
"""From the simplest to the one with most freedom."""
MIN_ROWS = 20
TEMPERATURE_SPREAD = 1.0
BIAS_SPREADS = (0.1, 0.25, 0.5, 1.0, 2.0)
TEMPERATURES = (0.05, 20.0)
MAX_BIAS = 20.0


@dataclass(frozen=True)
class Fit:
    """One way to turn log scores into probabilities; `bias` is empty or one per choice, in nats."""

    method: str
    temperature: float
    bias: tuple[float, ...] = ()

    def log_prob(self, scores: Floats) -> Floats:
        """Log probabilities [n, choices] of raw log scores; an impossible choice stays impossible."""
        shaped = scores / self.temperature + (np.array(self.bias) if self.bias else 0.0)
        return np.asarray(log_softmax(shaped, axis=1))


@dataclass(frozen=True)
class Selection:
    """All fits of one field, on `rows` held-in rows, and the method `chosen`.

    `loss` is the mean out-of-fold log loss of each method, `excess` how far that is above the best one's
    and `error` the standard error of `excess`; all empty where there were too few rows to tell.
    """

    rows: int
    fits: Mapping[str, Fit]
    chosen: str
    bias_spread: float | None
    loss: Mapping[str, float]
    excess: Mapping[str, float]
    error: Mapping[str, float]

    @property
    def fit(self) -> Fit:
        """The chosen one."""
        return self.fits[self.chosen]


def fit_temperature(scores: Floats, expected: Ints, start: float) -> Fit:
    """The temperature of least penalised log loss; `start` is the schema's."""
    scores, expected = _usable(scores, expected)

    def cost(log_temperature: float) -> float:
        shaped = log_softmax(scores / math.exp(log_temperature), axis=1)
        loss = -shaped[np.arange(len(expected)), expected].sum()
        return float(loss + _penalty(log_temperature, start))

    bounds = tuple(math.log(limit) for limit in TEMPERATURES)
    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return Fit("temperature", math.exp(found.x))


def fit_bias(scores: Floats, expected: Ints, start: float, spread: float) -> Fit:
    """Temperature and bias of least penalised log loss; `spread` is the biases' standard deviation."""
    scores, expected = _usable(scores, expected)
    possible = np.isfinite(scores)
    level = np.where(possible, scores, 0.0)
    rows = np.arange(len(expected))

    def cost(point: Floats) -> tuple[float, Floats]:
        log_temperature, bias = float(point[0]), point[1:]
        scaled = level / math.exp(log_temperature)
        shaped = log_softmax(np.where(possible, scaled + bias, -np.inf), axis=1)
        residual = np.exp(shaped)
        residual[rows, expected] -= 1
        value = -shaped[rows, expected].sum() + _penalty(log_temperature, start) + bias @ bias / spread**2 / 2
        slope = -(residual * scaled).sum() + (log_temperature - math.log(start)) / TEMPERATURE_SPREAD**2
        return float(value), np.concatenate(([slope], residual.sum(axis=0) + bias / spread**2))

    first = np.concatenate(([math.log(start)], np.zeros(scores.shape[1])))
    limits = [tuple(math.log(limit) for limit in TEMPERATURES)] + [(-MAX_BIAS, MAX_BIAS)] * scores.shape[1]
    found = minimize(cost, first, jac=True, method="L-BFGS-B", bounds=limits)
    return Fit("bias", math.exp(found.x[0]), tuple(found.x[1:].tolist()))


def prior_bias(log_prior: Floats, temperature: float) -> Fit:
    """The bias that makes texts without content undecided, at the schema's temperature; needs no labels."""
    lift = -np.maximum(log_prior, log_prior.max() - 2 * MAX_BIAS) / temperature
    bias = np.clip(lift - lift.mean(), -MAX_BIAS, MAX_BIAS)
    return Fit("prior", temperature, tuple(bias.tolist()))


def select(
    scores: Floats, expected: Ints, group: Ints, start: float, log_prior: Floats | None, seed: int
) -> Selection:
    """Fit every method on held-in rows and choose one; `group` numbers the rows' distinct texts."""
    fits = {"nothing": Fit("nothing", start)}
    if log_prior is not None:
        fits["prior"] = prior_bias(log_prior, start)
    if len(expected) < MIN_ROWS or len(np.unique(group)) < MIN_ROWS:
        return Selection(len(expected), fits, "nothing", None, {}, {}, {})
    losses = {name: log_losses(fit.log_prob(scores), expected) for name, fit in fits.items()}
    fold = folds(group, seed)
    # The optimiser's matrices are tiny: threads would only wait for one another, 20 times as long.
    with threadpool_limits(1, user_api="blas"):
        losses["temperature"] = _out_of_fold(scores, expected, fold, start, None)
        by_spread = {spread: _out_of_fold(scores, expected, fold, start, spread) for spread in BIAS_SPREADS}
        spread = min(by_spread, key=lambda candidate: float(by_spread[candidate].mean()))
        losses["bias"] = by_spread[spread]
        fits["temperature"] = fit_temperature(scores, expected, start)
        fits["bias"] = fit_bias(scores, expected, start, spread)
    best = min(losses, key=lambda name: float(losses[name].mean()))
    above = {name: losses[name] - losses[best] for name in METHODS if name in losses}
    excess = {name: float(extra.mean()) for name, extra in above.items()}
    error = {name: standard_error(extra, group) for name, extra in above.items()}
    return Selection(
        rows=len(expected),
        fits={name: fits[name] for name in above},
        chosen=next(name for name in above if excess[name] <= error[name]),
        bias_spread=spread,
        loss={name: float(losses[name].mean()) for name in above},
        excess=excess,
        error=error,
    )


def standard_error(values: Floats, group: Ints) -> float:
    """That of the mean of row values, where rows of one text may be as alike as they like."""
    distinct, index = np.unique(group, return_inverse=True)
    sums = np.bincount(index, values - values.mean())
    return math.sqrt(float(sums @ sums) * len(distinct) / (len(distinct) - 1)) / len(values)


def _out_of_fold(scores: Floats, expected: Ints, fold: Ints, start: float, spread: float | None) -> Floats:
    """Log loss of each row under the fit on the other folds: of a bias where there is a spread for it."""
    losses = np.empty(len(expected))
    for number in np.unique(fold):
        here = fold == number
        if spread is None:
            fit = fit_temperature(scores[~here], expected[~here], start)
        else:
            fit = fit_bias(scores[~here], expected[~here], start, spread)
        losses[here] = log_losses(fit.log_prob(scores[here]), expected[here])
    return losses


def _usable(scores: Floats, expected: Ints) -> tuple[Floats, Ints]:
    """Rows whose label is possible, best score 0: no temperature or bias can mend an impossible one."""
    possible = np.isfinite(scores[np.arange(len(expected)), expected])
    kept = scores[possible]
    return kept - kept.max(axis=1, keepdims=True), expected[possible]


def _penalty(log_temperature: float, start: float) -> float:
    return ((log_temperature - math.log(start)) / TEMPERATURE_SPREAD) ** 2 / 2
