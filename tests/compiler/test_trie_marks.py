"""The marks on nodes: what each scoring rule runs, written at compile time and held at run time."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judging import compiled, target_of
from pcdc_runtime.plan import make_plans
from pcdc_runtime.rules import RULES, rule_bit

from pcdc.emit import compile_schema
from pcdc.parse import parse_mapping

FAMILIES = ["smollm2", "qwen3", "mistral", "deepseek"]
SCHEMAS = {
    "opening merges": {"f": ["-1", "0", "/etc", ".NET", "plain", "plain text", "|"]},
    "closing merges": {"f": ["GPL-3.0", "GPL-3.0+", "a)", "a b)", "Really?"]},
    "shared beginnings": {"f": ["P0_CRITICAL", "P1_HIGH", "P2_NORMAL"], "g": ["0101.21", "0101.29"]},
    "prefixes": {"f": ["BILLING", "BILLING_DISPUTE"], "g": ["1", "10", "100"]},
    "short": {"f": ["yes", "no"], "g": ["calm", "angry"]},
    "other types": {"f": [True, False], "g": [1, 2, 30, None], "h": ["open", None]},
}
CASES = [(rule, legal_mass) for rule in RULES for legal_mass in (True, False)]


@pytest.fixture(scope="module", params=FAMILIES)
def target(request):
    return target_of(request.param)


def parsed(declared):
    fields = {name: {"enum": choices, "description": "Which?"} for name, choices in declared.items()}
    return parse_mapping({"type": "object", "properties": fields})[0]


def paths_of(tokens, parents):
    """The token path of every node, from the root down."""
    paths = []
    for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
        paths.append((*paths[parent], token) if parent >= 0 else (token,))
    return paths


def run_paths(artifact, rule, legal_mass):
    (plan,) = make_plans(artifact, rule, range(len(artifact.fields)), legal_mass, 10**9)
    return sorted(paths_of(plan.token, plan.parent))


def marked_paths(artifact, rule):
    marked = artifact.nodes.reads & rule_bit(rule) != 0
    paths = paths_of(artifact.nodes.token, artifact.nodes.parent)
    return sorted(path for path, mark in zip(paths, marked.tolist(), strict=True) if mark)


def check_marks(artifact, rule, legal_mass):
    # Legal mass is summed over the events of joint where the rule is trie.
    reading = "joint" if rule == "trie" and legal_mass else rule
    assert run_paths(artifact, rule, legal_mass) == marked_paths(artifact, reading)


@pytest.mark.parametrize("declared", SCHEMAS.values(), ids=list(SCHEMAS))
@pytest.mark.parametrize(("rule", "legal_mass"), CASES)
def test_the_nodes_that_are_marked_are_the_nodes_that_are_run(declared, rule, legal_mass, target):
    check_marks(compiled(parsed(declared), target), rule, legal_mass)


@settings(max_examples=50, derandomize=True)
@given(st.lists(st.text('ab)-1. "|', min_size=1, max_size=6), min_size=2, max_size=6, unique=True))
def test_marks_hold_for_choices_that_merge_with_everything(labels):
    schema = parsed({"f": labels})
    assume(schema is not None)
    artifact, _ = compile_schema(schema, target_of("qwen3"))
    assume(artifact is not None)
    for rule, legal_mass in CASES:
        check_marks(artifact, rule, legal_mass)


@pytest.mark.parametrize("declared", SCHEMAS.values(), ids=list(SCHEMAS))
def test_identify_runs_the_fewest_nodes(declared, target):
    artifact = compiled(parsed(declared), target)
    run = {rule: run_paths(artifact, rule, legal_mass=False) for rule in RULES}
    assert len(run["identify"]) <= min(len(run["joint"]), len(run["trie"]))
    assert set(run["identify"]) <= set(run["joint"])
