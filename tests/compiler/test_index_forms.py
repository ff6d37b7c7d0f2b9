"""The law of rows: an index has exactly the forms that the rules of answer lines give for each label."""

import functools
import json

import pytest
from families import FAMILIES, family_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import target_of
from pcdc_runtime.models import resolve
from pcdc_runtime.storage import write_atomic
from tokenizers import Tokenizer

from pcdc.indexing.closing import proved_of
from pcdc.indexing.definition import Entries, IndexDefinition
from pcdc.indexing.forms import tokenize_entries
from pcdc.parse import parse_mapping
from pcdc.prompt import load_target
from pcdc.tokenization import tokenize_schema
from pcdc.vocabulary import Vocabulary

TOKENIZERS = [*((name, False) for name in FAMILIES), *((n, True) for n in ("qwen3", "mistral", "deepseek"))]
NASTY = [
    "a", "b", "BILLING", "BILLING_DISPUTE", "-1", "10", "100", "/etc", ".NET", "(none)", "#1",
    "$100", "P0", "P1", "GPL-3.0", "GPL-3.0+", "C#", "C++", "A.", "Really?", "|", "||", "a|b",
    "say \"hi\"", "\"x\"", "\"", "\\", "\\\\", "C:\\new", "a\\\"", "{}", "}", "%s", "{{x}}", "开心",
    "好。", "”", "é", "café", "ł", "mógł", "Łódź", "👍", "👍🏽", "سلام", "0101.21", "0101.29", "yes",
    " yes", "yes ", "a  b", "a b", "true", "null", "…", "'", "it's", "<5", "_x", ",", ")", "x)",
    "x).", "Other (not listed)", "ends.\u3000", "\u00a0", "x\u00a0", "\u0301", "e\u0301", "١٢", "½",
    "x½", "ﬁ", "＂", "\u200d", "a\u200d", "\t", "line\nbreak",
    "ab\u3000\u3000", "x\u00a0\u00a0\u00a0", "a" * 200, "word " * 30 + "end.",
]  # fmt: skip
characters = st.one_of(
    st.sampled_from("ab1 .\"\\,)|}-'é’ł開\u0301\u00a0"),
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Co", "Cn")),
)
labels_of_all_kinds = st.lists(st.text(characters, min_size=1, max_size=8), min_size=1, max_size=12)
slow = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])


def schema_of(labels):
    choices = [*labels, next(other for other in ("zz", "yy") if other not in labels)]
    field = {"type": "enum", "choices": choices, "description": "Which?"}
    return parse_mapping({"is": field}, name="x")[0]


def by_rules(target, labels):
    """A prompt, and each label's forms as the compiler of schemas has them, or the codes it is refused with.

    Labels that are no choices are left out.
    """
    labels = [label for label in dict.fromkeys(labels) if schema_of([label]) is not None]
    return tokenize_schema(schema_of(["a"]), target)[0].prompt, ruled(target, labels)


def ruled(target, labels):
    """What each label becomes: all at once where that goes, else the halves by themselves."""
    whole = schema_of(labels)
    tokenized, problems = (None, []) if whole is None else tokenize_schema(whole, target)
    if tokenized is not None:
        return dict(zip(labels, choice_forms(tokenized, target), strict=False))
    if len(labels) == 1:
        return {labels[0]: {problem.code for problem in problems}}
    half = len(labels) // 2
    return ruled(target, labels[:half]) | ruled(target, labels[half:])


def choice_forms(tokenized, target):
    ends = target.vocabulary.end_set
    return [
        {(form.path, tuple(ends(form.remainder).tolist())) for form in forms}
        for forms in tokenized.fields[0].forms
    ]


def indexed(target, prompt, labels, **more):
    entries = Entries(labels, labels, lambda number: None)
    definition = IndexDefinition("x", "is", "Which?", "", (), 1.0, entries)
    return tokenize_entries(definition, prompt, target, **more)


def forms_by_entry(tokenized):
    found = {}
    for row, entry in enumerate(tokenized.rows.entry.tolist()):
        path = tokenized.opening + tuple(tokenized.rows.row(row).tolist())
        end = tuple(tokenized.rows.ends[tokenized.rows.end[row]].tolist())
        found.setdefault(entry, set()).add((path, end))
    return found


def check(target, labels):
    prompt, expected = by_rules(target, labels)
    refused = {label: codes for label, codes in expected.items() if isinstance(next(iter(codes)), str)}
    good = [label for label in expected if label not in refused]
    if good:
        tokenized, problems = indexed(target, prompt, good)
        assert tokenized is not None, problems
        found = forms_by_entry(tokenized)
        for label, entry in zip(good, tokenized.entry.tolist(), strict=True):
            assert found[entry] == expected[label], label
    if refused:
        tokenized, problems = indexed(target, prompt, list(refused))
        assert tokenized is None
        for codes, problem in zip(refused.values(), problems, strict=True):
            assert problem.code in codes, problem
    return len(good)


@pytest.mark.parametrize(("family", "full"), TOKENIZERS)
def test_rows_are_the_forms_of_answer_lines_whatever_a_label_holds(family, full):
    assert check(target_of(family, full), NASTY) > 60


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.committed])
@slow
@given(labels=labels_of_all_kinds)
def test_rows_are_the_forms_of_answer_lines_for_labels_of_any_characters(family, labels):
    check(target_of(family), labels)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.committed])
@pytest.mark.parametrize(
    "labels", [["a", "b"], ["BILLING", "BILLING_1"], ["a", "|"], ["-1", "-2"], ["+", "1"]]
)
def test_the_opening_is_that_of_a_schema_of_one_field(family, labels):
    target = target_of(family)
    field = {"type": "enum", "choices": labels, "description": "Which?"}
    schema, _ = tokenize_schema(parse_mapping({"is": field}, name="x")[0], target)
    tokenized, _ = indexed(target, schema.prompt, labels)
    assert tokenized.opening == schema.opening


def test_no_label_changes_the_forms_of_another_one():
    target = target_of("smollm2")
    prompt, _ = by_rules(target, ["a"])
    every, problems = indexed(target, prompt, NASTY)
    assert every is not None, problems
    together = forms_by_entry(every)
    for label, entry in list(zip(NASTY, every.entry.tolist(), strict=True))[::5]:
        alone, _ = indexed(target, prompt, [label])
        (forms,) = forms_by_entry(alone).values()
        assert forms == together[entry], label


def changed_target(tmp_path, family, change):
    """A family's target with another tokenizer.json."""
    folder = family_folder(family)
    whole = json.loads((folder / "tokenizer.json").read_text())
    change(whole)
    for path in folder.iterdir():
        if path.is_file():
            write_atomic(tmp_path / path.name, path.read_bytes())
    write_atomic(tmp_path / "tokenizer.json", json.dumps(whole).encode())
    target, problems = load_target(resolve(str(tmp_path), weights=False))
    assert target is not None, problems
    return target


def cut_by(pattern, whole):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}


UNPROVED = {
    "looks ahead to the quote": functools.partial(cut_by, r'\p{L}+(?="\})|\p{L}|[^\p{L}]+'),
    "holds a quote and what follows": functools.partial(cut_by, r'\p{L}+"\}|\p{L}{1,2}|[^\p{L}]'),
    "an unknown normalizer": lambda whole: whole.update(normalizer={"type": "NFKC"}),
    "strips what stands last": lambda whole: whole.update(
        normalizer={"type": "Replace", "pattern": {"Regex": "y$"}, "content": "x"}
    ),
}


@pytest.mark.parametrize("name", UNPROVED)
def test_a_tokenizer_of_which_nothing_is_proved_has_all_its_lines_encoded(name, tmp_path):
    target = changed_target(tmp_path, "smollm2", UNPROVED[name])
    assert not proved_of(target.tokenizer, target.vocabulary).once.any()
    assert check(target, ["a", "any", "by", "x.", "a b", "C#", 'y"', "ﬁ", "ﬁve"]) >= 7


@pytest.mark.parametrize(("family", "full"), TOKENIZERS)
def test_of_real_tokenizers_a_label_that_ends_in_a_letter_or_digit_is_encoded_once(family, full):
    target = target_of(family, full)
    once = proved_of(target.tokenizer, target.vocabulary).once.reshape(256, 256)
    ends = [ord(c) for c in "abcxyzABCXYZ0189"]
    assert once[ord("e"), ends].all()
    assert not once[ord("e"), list(b'\\" .')].any()


def test_a_model_that_takes_whole_pieces_is_proved_only_where_pieces_end():
    whole = json.loads((family_folder("smollm2") / "tokenizer.json").read_text())
    whole["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    once = proved_of(tokenizer, Vocabulary(tokenizer)).once.reshape(256, 256)
    assert once[ord("e"), ord("a")]
    assert not once[:, 0x80:].any()
    whole["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = False
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    assert not proved_of(tokenizer, Vocabulary(tokenizer)).once.any()
