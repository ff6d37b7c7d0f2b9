"""Models whose heads are kept, however fast they were computed, and what ran through them."""

import pytest
from fakes import WIDTH
from pcdc_runtime import headfile
from pcdc_runtime.mlx_model import MlxSequence
from seeded import write_folder
from tiny import write_tiny


@pytest.fixture(autouse=True)
def worth_keeping(monkeypatch):
    """Every head is, however fast it was computed."""
    monkeypatch.setattr(headfile, "SAVING_S", -1e9)


@pytest.fixture
def run_tokens(monkeypatch):
    """The tokens that went through a model, call by call."""
    ran = []
    append = MlxSequence.append

    def counted(self, tokens, parents=None):
        ran.append(len(tokens))
        return append(self, tokens, parents)

    monkeypatch.setattr(MlxSequence, "append", counted)
    return ran


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("llama"), "llama", vocab_size=WIDTH)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")
