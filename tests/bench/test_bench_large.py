"""`make bench-large` on small local catalogs and a tiny model: all its pieces, and that figures are true."""

import importlib
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from pcdc_runtime import open_selector
from pcdc_runtime.indexed.codec import open_index
from tiny import write_tiny

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FRUITS = ("apple", "apple pie", "apricot", "banana", "cherry", "fig", "grape", "lemon", "lime", "St. Mary's.")
TOWNS = {f"T{n}": name for n, name in enumerate(["Bern", "Basel", "Biel", "Chur", "Genf", "Bern"])}
TEXTS = 3


class Bench:
    """One whole run: what came of it, and the modules it ran."""

    def __init__(self, folder, patch):
        patch.syspath_prepend(str(BENCHMARKS))
        patch.setenv("PCDC_CACHE", str(folder / "cache"))
        names = ("large", "large_catalogs", "large_laws", "large_methods", "large_index", "large_steps")
        self.driver, self.catalogs, self.laws, self.methods, *_ = map(importlib.import_module, names)
        made = {"fruits": self.fruits, "gone": self.gone, "towns": self.towns}
        for module in (self.driver, self.catalogs):
            patch.setattr(module, "CATALOGS", made)
        patch.setattr(self.driver, "ENUMERATED", {"fruits": 2})
        self.model, self.out = write_tiny(folder / "tiny"), folder / "out"
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            self.code = self.main()
        self.printed, self.told = out.getvalue(), err.getvalue()
        self.report = json.loads((self.out / "large.json").read_text(encoding="utf-8"))

    def main(self, *names):
        options = ["--queries", TEXTS, "--minutes", "0.1", "--model", self.model, "--out", self.out]
        return self.driver.main([*map(str, options), *names])

    def fruits(self):
        return self.listed({fruit: fruit for fruit in FRUITS}, "fruit")

    def towns(self):
        return self.listed(TOWNS, "town")

    def gone(self):
        raise self.catalogs.Unreachable("fruit-basket==1 cannot be fetched")

    def listed(self, names, field):
        queries = [self.catalogs.Query(f"About {label}", code) for code, label in names.items()]
        definition = {"x-pcdc": {"index": True}, field: {"type": "string", "description": f"Which {field}?"}}
        return self.catalogs.Listed(tuple(names.items()), definition, tuple(queries))

    def selector(self, name):
        return open_selector(self.out / f"{name}.tiny.pcdx", self.model)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield Bench(tmp_path_factory.mktemp("large"), patch)
    for name in [name for name in sys.modules if name == "large" or name.startswith("large_")]:
        del sys.modules[name]


def test_a_definition_that_is_no_index_ends_with_what_is_wrong(bench, tmp_path):
    (tmp_path / "empty.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"empty\.json is not built: "):
        bench.driver.build(tmp_path / "empty.json", str(bench.model), tmp_path / "empty.pcdx")


def test_a_catalog_that_cannot_be_had_is_named_and_all_others_are_measured(bench):
    assert bench.code == 1
    assert bench.told == "not measured: gone: fruit-basket==1 cannot be fetched\n"
    assert "== gone: not measured, fruit-basket==1 cannot be fetched" in bench.printed
    assert list(bench.report) == ["machine", "fruits", "towns"]


def test_with_every_catalog_there_the_run_succeeds(bench, capsys, monkeypatch):
    built = sys.modules["large_index"].Built(**bench.report["towns"]["built"])
    monkeypatch.setattr(bench.driver, "build", lambda *_: built)
    assert bench.main("towns", "--queries", "1") == 0
    assert capsys.readouterr().err == ""


def test_a_catalog_that_is_not_known_ends_the_run_at_once(bench, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main("fruit")
    assert ended.value.code == 2
    assert "there are fruits, gone, towns" in capsys.readouterr().err


def test_every_table_is_printed_with_its_columns(bench):
    lines = [line.split("  ") for line in bench.printed.splitlines()]
    heads = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    built, steps, methods, laws = (
        sys.modules[module].__dict__[name]
        for module, name in [
            ("large_index", "BUILT"),
            ("large_steps", "STEP"),
            ("large_methods", "METHOD"),
            ("large_laws", "LAWS"),
        ]
    )
    assert [heads.count(table) for table in (built, steps, methods, laws)] == [2, 2, 2, 1]
    assert sum(head[:1] == ["kept as"] for head in heads) == 2
    for name in ("fruits", "towns"):
        found = bench.report[name]
        assert list(found["index"]) == built
        assert all(list(row) == steps for row in found["steps"])
        assert all(list(row) == methods for row in found["methods"])
    assert all(list(row) == laws for row in bench.report["fruits"]["laws"]["rows"])
    assert "laws" not in bench.report["towns"]


def test_the_memory_of_a_build_is_not_that_of_what_started_it(bench, tmp_path):
    held = np.ones(2**28, dtype=np.uint8)
    definition = bench.catalogs.write_catalog("fruits", tmp_path)[0]
    built = bench.driver.build(definition, str(bench.model), tmp_path / "fruits.pcdx")
    assert 0 < built.peak - bench.report["fruits"]["built"]["peak"] + held.nbytes / 2 < held.nbytes


@pytest.mark.parametrize(("name", "labels", "entries"), [("fruits", 10, 10), ("towns", 6, 5)])
def test_what_is_said_of_an_index_is_what_its_file_has(bench, name, labels, entries):
    built, index = bench.report[name]["built"], open_index(bench.out / f"{name}.tiny.pcdx")
    assert (built["labels"], built["entries"]) == (labels, entries) == (len(index.labels), index.rows.entries)
    assert (built["rows"], built["tokens"]) == (len(index.rows), len(index.rows.token))
    assert built["size"] == (bench.out / f"{name}.tiny.pcdx").stat().st_size
    assert bench.report[name]["index"]["labels"] == str(labels)
    assert all(built[figure] > 0 for figure in ("read", "compiled", "written", "again", "opened_ms", "peak"))
    assert built["checked_ms"] >= built["opened_ms"]


def test_the_json_trie_and_marisa_are_there_and_agree_with_the_index(bench):
    for name in ("fruits", "towns"):
        masks = bench.report[name]["masks"]
        assert [one["key"] for one in masks] == ["index", "json", "marisa"]
        assert [(one["missing"], one["agrees"]) for one in masks] == [("", True)] * 3


def test_the_default_method_stands_first_and_every_method_got_every_text(bench):
    titles = [method.title for method in bench.methods.methods()]
    assert bench.methods.methods()[0].asked(7) == {}
    for name in ("fruits", "towns"):
        rows = bench.report[name]["methods"]
        assert [row["method"] for row in rows] == titles
        assert titles[0] == "exact"
        assert {row["texts"] for row in rows} == {str(TEXTS)}
        assert (rows[0]["as exact"], rows[0]["certified"]) == ("1.000", "1.000")
        assert bench.report[name]["target"]["texts"] == TEXTS


def test_every_top_m_has_a_step_and_all_children_the_last(bench):
    steps = [row["one step"] for row in bench.report["fruits"]["steps"]]
    assert steps == [*(f"M = {top}" for top in bench.methods.TOPS), "all children"]


def test_each_method_finds_the_cache_as_a_new_text_does(bench):
    with bench.selector("fruits") as selector:
        queries = bench.fruits().queries[:TEXTS]
        tallies = bench.methods.ask(selector, queries, 60)
        head = len(selector.index.prompt.head)
        for number in range(TEXTS):
            found = [tally.found[number] for tally in tallies]
            assert {one.head_cached for one in found} == {head}
            assert len({one.positions - one.nodes for one in found}) == 1
            assert found[0].positions - found[0].nodes >= found[0].context_tokens
        warm = selector.select(queries[-1].context)
        assert warm.head_cached > head


def test_drawn_methods_get_another_seed_for_each_text(bench):
    drawn = [method for method in bench.methods.methods() if method.drawn]
    assert [method.title for method in drawn][:2] == ["trie, drawn", "disc, K = 1"]
    for method in drawn:
        assert [method.asked(number)["seed"] for number in (0, 5)] == [0, 5]


def test_exact_agrees_with_the_enumeration_of_every_form(bench):
    found = bench.report["fruits"]["laws"]
    assert len(open_index(bench.out / "fruits.tiny.pcdx").rows.parted) > 0
    assert (found["texts"], len(found["agreement"])) == (2, 2)
    for one in found["agreement"]:
        assert (one["answers"], one["certified"]) == (10, True)
        assert max(one["misplaced"], one["outside"], one["share_outside"]) < 1e-3
        assert abs(one["kl"]) < 1e-6
    titles = ["exact, all answers", "trie, drawn", "trie, beam 2", *(f"disc, K = {k}" for k in range(1, 5))]
    assert [row["law"] for row in found["rows"]] == titles


@pytest.mark.parametrize("answers", [4, 10])
def test_an_answer_that_is_not_the_enumeration_s_is_told(bench, monkeypatch, answers):
    monkeypatch.setattr(bench.laws, "CHECKED", answers)
    with bench.selector("fruits") as selector:
        law, _ = bench.laws.enumerated(selector, "About figs")
        right = bench.laws.agreement(selector, "About figs", law)
        assert (right.answers, right.certified) == (answers, True)
        assert max(right.misplaced, right.outside, right.share_outside) < 1e-3
        assert (right.kl is None) == (answers < 10)
        best = int(np.argmax(law.log_true))
        chance = np.where(law.entry == best, law.log_chance - 9, law.log_chance)
        wrong = bench.laws.agreement(selector, "About figs", replace(law, log_chance=chance))
        assert wrong.misplaced > 0.01
        assert wrong.outside == pytest.approx(9, abs=1e-3)
        assert wrong.share_outside > 1e-3
