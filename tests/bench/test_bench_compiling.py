"""Figures of the compiler and of starting: what is timed is what is named."""

import math
from time import perf_counter

import pytest
from families import family_folder
from pcdc_runtime import headfile
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.models import resolve
from tiny import write_tiny

from pcdc.bench.compiling import ROUNDS, compiler_figures, start_figures, wide_schema
from pcdc.bench.starting import FLOAT32, FROM_FILE, STAGES, stages
from pcdc.emit import compile_schema
from pcdc.prompt import load_target

MODEL = str(family_folder("smollm2"))


def test_a_wide_schema_has_the_fields_and_choices_asked_for_and_compiles_to_equal_bytes():
    target, _ = load_target(resolve(MODEL, weights=False))
    schema = wide_schema(3, 40)
    assert [len({choice.label for choice in field.choices}) for field in schema.fields] == [40] * 3
    first, second = (dumps(compile_schema(schema, target)[0]) for _ in range(2))
    assert first == second
    assert loads(first).digest == loads(second).digest


def test_every_figure_lies_between_its_extremes():
    target, _ = load_target(resolve(MODEL, weights=False))
    artifact, _ = compile_schema(wide_schema(1, 2), target)
    figures = compiler_figures(target, MODEL, [artifact], fields=2, choices=3, schemas=2)
    assert len({figure.title for figure in figures}) == len(figures) == 6
    assert "load artifact wide" in {figure.title for figure in figures}
    assert all(0 < figure.lower <= figure.ms <= figure.upper for figure in figures)
    assert {figure.rounds for figure in figures} == {ROUNDS}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A tiny model, the artifact of a small schema for it, and the folder they lie in."""
    folder = tmp_path_factory.mktemp("starting")
    model = write_tiny(folder / "tiny")
    target, _ = load_target(resolve(str(model), weights=False))
    artifact, _ = compile_schema(wide_schema(1, 3), target)
    (folder / "wide.pcdc").write_bytes(dumps(artifact))
    return folder


def test_a_start_without_time_has_one_round_of_every_stage_but_a_head_that_no_file_is_worth(started):
    figures = start_figures(
        started / "wide.pcdc", str(started / "tiny"), "A card was charged.", go_on=lambda: False
    )
    titles = [figure.title for figure in figures]
    wanted = [one for one in STAGES if one != FROM_FILE]
    assert [title for title in titles if title != FLOAT32][:-1] == [one for one in wanted if one != FLOAT32]
    assert titles[-1].startswith("pcdc run")
    assert all(figure.ms > 0 and figure.rounds == 1 for figure in figures)


def test_a_head_that_is_in_a_file_is_read_from_there(started, tmp_path, monkeypatch):
    monkeypatch.setattr(headfile, "SAVING_S", -math.inf)
    asked = (started / "wide.pcdc", str(started / "tiny"), "A card was charged.", tmp_path)
    stages(*asked)
    (written,) = tmp_path.iterdir()
    before = written.stat()
    assert list(stages(*asked))[-1] == FROM_FILE
    after = written.stat()
    # Reading a file marks it as used.
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert after.st_mtime_ns > before.st_mtime_ns


def test_the_stages_of_a_start_do_not_overlap(started, tmp_path):
    began = perf_counter()
    found = stages(started / "wide.pcdc", str(started / "tiny"), "A card was charged.", tmp_path)
    assert sum(found.values()) <= (perf_counter() - began) * 1000
