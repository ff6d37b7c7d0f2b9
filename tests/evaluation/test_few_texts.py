"""What the terminal says of a handful of distinct texts."""

from dataclasses import replace

import numpy as np
import pytest
from labelled import measured

from pcdc.evaluation.evaluation import evaluate
from pcdc.evaluation.summary import summary

RUN = {
    "labelled_texts": 300,
    "measured_texts": 300,
    "drawn_texts": 300,
    "shown_as_examples": 0,
    "skipped": [],
    "limit": None,
    "calibration": None,
    "fitted_on_this_data": False,
}


@pytest.mark.parametrize("texts", [3, 150])
def test_the_terminal_gives_no_interval_and_no_p_value_of_a_handful_and_says_why(texts):
    run = replace(measured(300), group=np.arange(300) % texts)
    evaluation = evaluate(run, seed=0, fit=True, precision=0.9, confidence=0.95)
    shown = summary(evaluation.to_dict() | {"run": RUN}, terminal=False)
    assert ("(too few texts)" in shown) == (texts == 3)
    urgent = evaluation.fields[0].threshold
    assert f"{urgent.texts} texts and {urgent.rows - urgent.texts} copies" in shown
