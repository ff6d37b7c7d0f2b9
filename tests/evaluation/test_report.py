"""The HTML report: whole, self-contained, harmless with hostile names, the same for the same figures."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from pcdc.evaluation.evaluation import FieldTable, Measured, evaluate
from pcdc.evaluation.page import interval, number, p_value, share
from pcdc.evaluation.report import html

HOSTILE = (
    "<script>alert(1)</script>",
    'x" onload="alert(1)',
    "</svg><img src=x onerror=alert(1)>",
    "$x_$ \u202e&amp;",
)
VOID = {"meta", "br", "img", "link", "input", "hr"}
RULES = ("joint", "identify", "trie")
TEXTS = 160


def field(name, labels, seed, *, kind="enum", written=True):
    rng = np.random.default_rng(seed)
    expected = rng.integers(0, min(len(labels), 30), TEXTS)
    scores = rng.standard_normal((TEXTS, len(labels)))
    scores[np.arange(TEXTS), expected] += 2.5
    return FieldTable(
        name=name,
        type=kind,
        labels=tuple(labels),
        temperature=1.0,
        row=np.arange(TEXTS),
        expected=expected,
        log_scores={rule: 2 * scores - n for n, rule in enumerate(RULES)},
        legal_mass={rule: rng.beta(2, 3, TEXTS) for rule in RULES},
        prior={rule: rng.standard_normal(len(labels)) for rule in RULES},
        written=np.where(rng.random(TEXTS) < 0.1, -1, expected) if written else None,
        tokens=tuple(rng.integers(1, 9, len(labels)).tolist()),
    )


def report(tables, *, fit=True, schema="support", texts=TEXTS):
    """A report of TEXTS rows, with copies where they have fewer distinct `texts`."""
    rng = np.random.default_rng(1)
    measured = Measured(
        schema=schema,
        model="smollm2-135m",
        artifact="ab" * 32,
        scoring="joint",
        data="cd" * 32,
        weights="ef" * 32,
        texts=TEXTS,
        group=np.arange(TEXTS) % texts,
        tables=tuple(tables),
        prefill_ms=rng.gamma(9, 40, TEXTS),
        tree_ms=rng.gamma(9, 9, TEXTS),
        context_tokens=rng.integers(20, 800, TEXTS),
        written_ms=rng.gamma(9, 90, TEXTS),
    )
    # As it is read from the file of the same run.
    return json.loads(
        json.dumps(evaluate(measured, seed=0, fit=fit, precision=0.8, confidence=0.95).to_dict())
    )


def extras(names, hostile=""):
    """What the command adds: where the data came from, robustness and examples."""
    flips = {"mean": 0.06, "any": 0.13, "accuracy": 0.71, "lowest": None, "highest": None}
    tried = {
        "rows": 80,
        "without": 0.6,
        "with_examples": 0.66,
        "difference": 0.06,
        "interval": None,
        "p_value": 0.0001,
        "majority": 0.5,
        "majority_p": 0.2,
    }
    return {
        "run": {
            "artifact_file": f"build/{hostile}.pcdc",
            "data_file": f"data/{hostile}.jsonl",
            "labelled_texts": 190,
            "drawn_texts": 170,
            "measured_texts": TEXTS,
            "shown_as_examples": 1,
            "skipped": [{"line": 7, "fact": f"is too long {hostile}", "limit": "the window"}],
            "limit": 170,
        },
        "permutation": {
            "orders": 3,
            "texts": 100,
            "of_texts": TEXTS,
            "overall": flips,
            "fields": dict.fromkeys(names, flips),
        },
        "examples": {
            "examples": [{"context": f"A text.\n{hostile}", "answers": {names[0]: hostile}}],
            "head_tokens": [431, 760],
            "texts": 80,
            "overall": tried,
            "fields": dict.fromkeys(names, tried),
            "verdict": "helps",
            "from": f"{hostile}.jsonl",
            "from_texts": 90,
            "shared_texts": 0,
        },
    }


class Page(HTMLParser):
    """Reads a page; fails where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.alts, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


@pytest.fixture(scope="module")
def hostile():
    tables = [
        field(HOSTILE[0], [*HOSTILE, "a" * 300], 1),
        field(HOSTILE[1], ["true", "false"], 2, kind="boolean"),
        field(HOSTILE[2], [f"{HOSTILE[0]} {n}" for n in range(255)], 3),
    ]
    whole = report(tables, schema=HOSTILE[2])
    return html(whole | extras([table.name for table in tables], HOSTILE[0]))


def test_hostile_names_are_text_and_nothing_else(hostile):
    page = Page(hostile)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "iframe", "object", "link", "form"})
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    for name in HOSTILE[:3]:
        assert name in page.text
    assert "<U+202E>&amp;" in page.text
    assert "\u202e" not in hostile


def test_the_page_refers_to_nothing_outside_itself(hostile):
    page = Page(hostile)
    assert re.findall(r"https?:|url\((?!#)|@import|xmlns", hostile) == []
    for _, attributes in page.tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert "xlink:href" not in attributes
    assert "default-src 'none'" in hostile


def test_every_reference_within_the_page_leads_to_one_place(hostile):
    page = Page(hostile)
    assert len(page.ids) == len(set(page.ids))
    targets = [attributes["href"][1:] for _, attributes in page.tags if "href" in attributes]
    targets += re.findall(r"url\(#([^)]+)\)", hostile)
    assert set(targets) <= set(page.ids)


def test_every_chart_says_in_words_what_it_shows(hostile):
    charts = [attributes for tag, attributes in Page(hostile).tags if tag == "svg"]
    assert len(charts) == 9
    for chart in charts:
        assert chart["role"] == "img"
        assert re.search(r"\d", chart["aria-label"])


def test_equal_reports_give_equal_bytes():
    tables = [field("team", ["A", "B", "C"], 1)]
    assert html(report(tables)) == html(report(tables))


def test_few_choices_have_a_matrix_and_many_a_list_of_confusions():
    few, many = (html(report([field("f", [f"v{n}" for n in range(size)], 1)])) for size in (20, 255))
    assert 'class="matrix"' in few
    assert 'class="matrix"' not in many
    assert "most frequent confusions" in many


def test_a_matrix_holds_every_judged_text_once():
    whole = report([field("f", ["a", "b", "c"], 1)])
    counts = whole["fields"][0]["methods"]["joint+chosen"]["confusion"]
    cells = re.findall(r'background:rgb[^"]*">(\d*)</td>', html(whole))
    assert sum(int(cell or 0) for cell in cells) == sum(map(sum, counts)) == whole["fields"][0]["held_out"]


def test_the_first_sentence_states_the_figure_of_the_method_in_use():
    whole = report([field("f", ["a", "b", "c"], 1), field("g", ["a", "b"], 2)])
    page = Page(html(whole))
    figures = whole["overall"]["joint+chosen"]
    assert f"{100 * figures['accuracy']:.1f} % of {figures['rows']} answers were right" in page.text


def test_without_fit_nothing_is_said_to_be_calibrated():
    page = Page(html(report([field("f", ["a", "b"], 1, written=False)], fit=False)))
    assert "Nothing was fitted" in page.text
    assert "calibrated" not in page.text


def test_a_field_without_labels_is_named_and_has_no_figures():
    whole = report([field("full", ["a", "b"], 1), field("empty", ["a", "b"], 2)], fit=False)
    whole["fields"][1] |= {"methods": {}, "held_out": 0}
    page = Page(html(whole))
    assert "empty" in page.text
    assert "No labelled text was left to judge this field on." in page.text


def test_a_handful_of_texts_is_told_as_that_on_the_page():
    names = ["f", "g"]
    whole = report([field(name, ["a", "b", "c"], 1) for name in names], texts=7)
    page = Page(html(whole | extras(names))).text
    assert "answers were right (95 % interval – (too few texts))" in page
    assert "fewer than 20 distinct texts" in page
    assert page.count("too few texts") > 10


def test_what_was_not_measured_is_a_dash_and_small_numbers_are_readable():
    assert (number(None), share(None), interval(None, share)) == ("–", "–", "–")
    assert number(-0.5, 1) == "\u22120.5"
    assert share(0.1234) == "12.3 %"
    assert share(0.01, signed=True) == "+1.0 %"
    assert interval([0.1, 0.2], share) == "10.0 to 20.0 %"
    assert (p_value(0.0001), p_value(0.04), p_value(None)) == ("<.001", "0.040", "–")
