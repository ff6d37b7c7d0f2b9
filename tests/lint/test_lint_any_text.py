"""Rules about text hold for any text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pcdc.diagnostics import RULES, render_text
from pcdc.lint import SCHEMA_RULES
from pcdc.lint.formats import github
from pcdc.schema import Choice, Field, Schema

PARTS = st.sampled_from(
    ["CAT_185_Aircraft", "P0", "ßß 12 Straße", "7 days", "if so, ", "İ1_İstanbul", "", "`a`"]
)
TEXT = st.lists(st.one_of(PARTS, st.text(max_size=8)), max_size=4).map("".join)


@st.composite
def schemas(draw):
    """Schemas as the parser would give them, but of any text."""
    fields = []
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(TEXT, min_size=2, max_size=5, unique=True))
        fields.append(Field(draw(TEXT), "enum", draw(TEXT), tuple(Choice(t, t, draw(TEXT)) for t in labels)))
    return Schema("any", tuple(fields), "")


@settings(max_examples=200)
@given(schemas())
def test_every_rule_gives_findings_of_its_own_code_that_can_be_printed(schema):
    for rule in SCHEMA_RULES:
        found = list(rule.check(schema))
        assert {d.code for d in found} <= {rule.code}
        assert len(found) <= len(schema.fields)
        assert len(render_text(found).splitlines()) == 2 * len(found)
        assert len(github(found).splitlines()) == len(found)
        assert RULES[rule.code].severity == "warning"
