"""Places that are measured with fakes."""

import math

import pytest
from fakes import TableModel, loaded, seeded
from timed import ARTIFACT, CONTEXTS, Clock, Fake

from pcdc.bench.figures import figures
from pcdc.bench.methods import Entry
from pcdc.bench.rounds import Tally, measure
from pcdc.bench.scenarios import Place, Scenario


@pytest.fixture
def bench():
    """Measures fakes given by key with their times, steps and settings; gives the figures and a log."""
    with loaded(TableModel(seeded(1))) as model:

        def run(
            times,
            budget=1000.0,
            *,
            steps=None,
            making=None,
            make=None,
            own_scores=(),
            several_fields=(),
            artifact=ARTIFACT,
            pace=None,
            point=None,
            whole=math.inf,
            **settings,
        ):
            clock, log = Clock(), []
            kinds = {key: (make or {}).get(key) for key in times}

            def maker_of(key):
                def made(artifact, loaded_model):
                    if isinstance(kinds[key], Exception):
                        raise kinds[key]
                    return (kinds[key] or Fake)(key, clock, times[key], log, *settings.get(key, ()))

                return made

            methods = [
                Entry(
                    key,
                    f"the way {key}",
                    maker_of(key),
                    lambda *_, key=key: (steps or {}).get(key, 1.0),
                    lambda _, key=key: (making or {}).get(key, 0.0),
                    key in own_scores,
                    key in several_fields,
                )
                for key in times
            ]
            place = Place("made", "Made up", 1.0, lambda: Scenario(artifact, CONTEXTS), point=point)
            tally = Tally(place, budget, whole)
            try:
                measure(tally, model, methods, lambda what: None, clock, pace)
            except KeyboardInterrupt:
                log.append(("interrupted", ""))
            return figures(tally, methods), log

        yield run
