"""Figures of the compiler: what is timed is what is named."""

from families import family_folder
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.models import resolve

from pcdc.bench.compiling import compiler_figures, wide_schema
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
    figures = compiler_figures(target, MODEL, fields=2, choices=3, schemas=2)
    assert len({figure.title for figure in figures}) == len(figures) == 5
    assert all(0 < figure.least <= figure.ms <= figure.most for figure in figures)
