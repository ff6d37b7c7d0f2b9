"""The digest of a model's weights: what changes it, and how rarely they are read."""

import os

import pytest
from pcdc_runtime import weights
from pcdc_runtime.errors import ModelNotFoundError
from pcdc_runtime.loaded import open_model
from pcdc_runtime.weights import weights_digest
from tiny import write_tiny


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture
def counted(monkeypatch):
    made = []
    digest = weights._digest
    monkeypatch.setattr(weights, "_digest", lambda files: made.append(files) or digest(files))
    return made


def test_each_weight_file_and_the_configuration_count_by_name_and_content(folder):
    digests = [weights_digest(folder)]
    (folder / "README.md").write_text("Nothing.")
    assert weights_digest(folder) == digests[0]
    for change in (
        lambda: (folder / "config.json").write_text('{"a": 1}'),
        lambda: (folder / "model-2.safetensors").write_bytes(b"other"),
        lambda: (folder / "model-2.safetensors").rename(folder / "model-3.safetensors"),
        lambda: (folder / "model-3.safetensors").unlink(),
    ):
        change()
        digests.append(weights_digest(folder))
    assert len(set(digests)) == 5


def test_equal_files_in_another_place_have_the_same_digest(folder, tmp_path):
    before = weights_digest(folder)
    assert weights_digest(folder.rename(tmp_path / "moved")) == before


def test_weights_are_read_once_until_their_stamps_change(folder, counted):
    assert weights_digest(folder) == weights_digest(folder)
    assert len(counted) == 1
    file = folder / "model-1.safetensors"
    times = file.stat()
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    weights_digest(folder)
    assert len(counted) == 2


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"[" * 100_000, b"\xff"])
def test_a_damaged_memo_costs_a_reading_and_nothing_else(folder, cache, counted, content):
    before = weights_digest(folder)
    (cache / "weights.json").write_bytes(content)
    assert weights_digest(folder) == before
    assert len(counted) == 2


def test_without_a_cache_folder_the_digest_is_made_each_time(folder, tmp_path, monkeypatch, counted):
    before = weights_digest(folder)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PCDC_CACHE", str(tmp_path / "file"))
    assert weights_digest(folder) == before
    assert len(counted) == 2


def test_a_folder_that_lacks_its_files_is_no_model(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match="cannot be read"):
        weights_digest(folder)


def test_a_model_that_is_opened_from_a_folder_has_the_digest_of_its_files(tmp_path):
    folder = write_tiny(tmp_path / "tiny")
    with open_model(folder) as model:
        assert model.weights_digest == weights_digest(folder)
