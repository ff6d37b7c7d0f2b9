"""The cache folder: where it is, who has none, and what killed writers leave in it."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest
from families import family_folder
from pcdc_runtime import models, storage
from pcdc_runtime.errors import ModelNotFoundError

from pcdc import doctor
from pcdc.build import build

FOLDER = family_folder("smollm2")
LEFTOVERS = (
    ".fingerprints.json.0123456789abcdef.tmp",
    "models/{}/.tokenizer.json.0123456789abcdef.tmp",
    "models/{}/.model.safetensors.0123456789abcdef.safetensors",
)


@pytest.fixture
def homeless(monkeypatch):
    """A user of a container: a number without an entry in the list of users, and no environment."""

    def nobody(_):
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "PCDC_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_builds_with_a_local_tokenizer(tmp_path):
    (tmp_path / "s.json").write_text('{"urgent": {"type": "boolean", "description": "Is it urgent?"}}')
    report = build([tmp_path / "s.json"], [str(FOLDER)], tmp_path / "out")
    assert [t.outcome for t in report.targets] == ["built"]
    assert report.diagnostics == ()


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_is_told_what_a_conversion_needs():
    with pytest.raises(OSError, match="no home folder"):
        storage.cache_dir()
    with pytest.raises(ModelNotFoundError, match="this user has no home folder") as caught:
        models.resolve(models.DEFAULT, weights=False)
    assert "PCDC_CACHE" in caught.value.help


@pytest.mark.usefixtures("homeless")
def test_doctor_names_a_missing_cache_folder():
    (check,) = (c for c in doctor.examine(None) if c.name == "model cache")
    assert (check.ok, check.value) == (False, "none: this user has no home folder; set PCDC_CACHE")


@pytest.mark.usefixtures("homeless")
def test_a_chosen_cache_needs_no_home(monkeypatch, tmp_path):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    assert storage.cache_dir() == tmp_path
    monkeypatch.setenv("PCDC_CACHE", "~/here")
    with pytest.raises(OSError, match="no home folder"):
        storage.cache_dir()


def test_what_killed_writers_left_in_the_cache_goes_with_the_next_use(monkeypatch, tmp_path):
    """Field report 34."""
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path))
    folder = models.resolve(models.DEFAULT, weights=False).folder
    models.fingerprint_of(FOLDER)
    whole = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    left = [tmp_path / name.format(folder.name) for name in LEFTOVERS]
    for path in left:
        path.write_bytes(b"half")
    models.resolve(models.DEFAULT, weights=False)
    models.fingerprint_of(FOLDER)
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == whole


def test_a_file_whose_folder_may_not_be_listed_is_written_all_the_same(monkeypatch, tmp_path):
    opened = storage.os.open

    def refuse_folders(path, *more):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *more)

    monkeypatch.setattr(storage.os, "open", refuse_folders)
    storage.write_atomic(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
