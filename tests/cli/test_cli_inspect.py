"""`pcdc inspect`, `models` and `doctor`: an artifact and a machine, shown."""

from __future__ import annotations

import json
import shutil

import pytest
from families import family_folder
from pcdc_runtime.codec import read
from pcdc_runtime.tokenizer import load_tokenizer
from tiny import write_tiny

from pcdc import describe
from pcdc.doctor import examine
from pcdc.show import artifact_picture
from pcdc.vocabulary import Vocabulary


def test_the_json_shows_every_choice_with_its_tokens_and_forms(pcdc, artifact, tiny):
    view = json.loads(pcdc("inspect", artifact, "--model", tiny, "--json").stdout)
    compiled = read(artifact)
    assert view["digest"] == compiled.digest
    assert view["inputs"] == dict(compiled.inputs)
    for shown, field in zip(view["fields"], compiled.fields, strict=True):
        assert [c["choice"] for c in shown["candidates"]] == [c.label for c in field.candidates]
        assert [[t["id"] for t in c["tokens"]] for c in shown["candidates"]] == [
            list(c.ids) for c in field.candidates
        ]
        assert [c["is_single_token"] for c in shown["candidates"]] == [
            c.is_single_token for c in field.candidates
        ]
    spelled = {c["choice"]: "".join(t["text"] for t in c["tokens"]) for c in view["fields"][0]["candidates"]}
    assert spelled["BILLING_DISPUTE"] == "BILLING_DISPUTE"
    assert sum(f["nodes"] for f in view["fields"]) == view["nodes"] - 1


def test_every_choice_ends_somewhere_in_the_trie_and_rows_make_one_tree(pcdc, artifact, tiny):
    for field in json.loads(pcdc("inspect", artifact, "--model", tiny, "--json").stdout)["fields"]:
        ends = {end for row in field["trie"] for end in row["ends"]}
        assert ends == {c["choice"] for c in field["candidates"]}
        assert [row["parent"] for row in field["trie"]].count(-1) == 1
        assert all(row["parent"] < place for place, row in enumerate(field["trie"]))


def test_collisions_are_named(pcdc, artifact, tiny):
    found = json.loads(pcdc("inspect", artifact, "--model", tiny, "--json").stdout)["fields"][0]["collisions"]
    assert ["BILLING", "BILLING_DISPUTE"] in found["prefixes"]
    assert any({"BILLING", "BILLING_DISPUTE"} <= set(group) for group in found["first_token"])
    assert found["merges"] == ["a b)"]


def test_choices_that_merge_with_either_quote_are_named(pcdc, tmp_path):
    path = tmp_path / "merges.json"
    choices = ["-1", "0", "/etc", "|", "plain", "a)", "plain text"]
    path.write_text(json.dumps({"delta": {"type": "enum", "choices": choices, "description": "Which?"}}))
    pcdc("build", path, "--model", family_folder("qwen3"), "--out", tmp_path)
    compiled = read(tmp_path / "merges.qwen3.pcdc")
    spelled = Vocabulary(load_tokenizer(family_folder("qwen3"))).bytes_of
    (field,) = describe.describe(compiled, spelled).fields
    assert field.collisions.merges == ("-1", "/etc", "|", "a)")
    assert field.collisions.prefixes == (("plain", "plain text"),)
    assert {end.remainder for end in field.ends} == {'"', ' "|"', ')"'}


def test_the_picture_shows_tokens_branches_end_sets_and_reads(pcdc, artifact, tiny):
    text = pcdc("inspect", artifact, "--model", tiny).stdout
    assert "token prefix: 'BILLING' of 'BILLING_DISPUTE'" in text
    assert "└── " in text
    assert "=> 'BILLING_DISPUTE'" in text
    assert "tokens that begin with '\"'" in text
    assert "read by joint" in text


def test_without_the_tokenizer_ids_are_shown_and_a_note_goes_to_stderr(pcdc, artifact, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = pcdc("inspect", artifact, "--json")
    view = json.loads(done.stdout)
    assert done.exit_code == 0
    assert "ids only" in done.stderr
    assert view["fields"][0]["collisions"]["merges"] is None
    assert view["fields"][0]["candidates"][0]["tokens"][0]["text"] is None
    assert pcdc("inspect", artifact).exit_code == 0


def test_another_tokenizer_of_the_same_name_is_not_used_to_spell(pcdc, artifact, monkeypatch, tmp_path):
    shutil.copytree(family_folder("qwen3"), tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    assert "ids only" in pcdc("inspect", artifact, "--json").stderr


def test_the_prompt_can_be_read(pcdc, artifact):
    text = pcdc("inspect", artifact, "--prompt").stdout
    assert "Which department handles this?" in text
    assert "{context}" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_trie_with_a_branch_for_every_choice_is_drawn_to_its_end(terminal):
    rows = tuple(describe.TrieRow(n, n - 1, (describe.Token(n, "x"),), (f"choice {n}",)) for n in range(255))
    nothing = describe.Collisions((), (), ())
    field = describe.FieldView("f", "enum", "", (), (), 255, {"joint": 1}, (), nothing, rows)
    view = describe.ArtifactView("n", "m", "d", "joint", 1.0, "", 1, 1, 1, 1, {}, (field,), "")
    assert "choice 254" in artifact_picture(view, terminal=terminal)
    assert len(view.to_dict()["fields"][0]["trie"]) == 255


def test_models_lists_every_alias_and_whether_it_is_here(pcdc):
    from pcdc_runtime.models import ALIASES

    rows = json.loads(pcdc("models", "--json").stdout)
    assert {row["alias"]: row["source"] for row in rows} == dict(ALIASES)
    assert {row["alias"] for row in rows if row["cached"]} >= {"smollm2-135m"}
    assert pcdc("models").stdout.splitlines()[1].startswith("smollm2-135m")


def test_doctor_reports_versions_device_blas_and_cache(pcdc, monkeypatch, tmp_path):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    checks = {row["check"]: row["value"] for row in json.loads(pcdc("doctor", "--json").stdout)}
    assert {"python", "platform", "pcdc", "mlx", "device", "BLAS", "distributions"} <= set(checks)
    assert checks["model cache"] == str(tmp_path / "cache")


def test_doctor_measures_the_drift_of_a_model_from_float32(tiny):
    drift = next(c for c in examine(str(tiny)) if c.name == "drift")
    assert drift.ok
    assert drift.value.startswith("0 nats between the weights as stored (float32)")


def test_doctor_sees_the_drift_of_quantized_weights(tmp_path):
    folder = write_tiny(tmp_path / "small", dtype="float16", bits=4)
    drift = next(c for c in examine(str(folder)) if c.name == "drift")
    nats, unit, *_ = drift.value.split()
    assert unit == "nats"
    assert 0 < float(nats) < 1


def test_doctor_names_a_model_that_is_not_there(pcdc):
    done = pcdc("doctor", "--model", "smollm2-135x")
    assert (done.exit_code, "is no alias" in done.stdout) == (1, True)


def test_an_artifact_never_chooses_a_folder_of_this_machine(pcdc, artifact, tiny, monkeypatch):
    monkeypatch.chdir(tiny.parent)
    assert read(artifact).model == tiny.name
    refused = pcdc("run", artifact, "--text", "x")
    assert (refused.exit_code, "PCDC401" in refused.stderr) == (2, True)
    assert "--model FOLDER" in refused.stderr
    assert "ids only" in pcdc("inspect", artifact).stderr
    assert pcdc("run", artifact, "--text", "x", "--model", tiny).exit_code == 0
