"""Which heads have a file: those worth it, and of them those used last."""

import os

from fakes import make_artifact, spelled
from head_files import (
    ARTIFACT,
    CONTEXT,
    HEAD,
    answered,
    ids_from,
    kept,
    opened,
    restored,
)
from pcdc_runtime import headfile
from pcdc_runtime.engine import Engine
from pcdc_runtime.headfile import HeadFiles


def test_heads_used_longest_ago_make_room_and_files_of_others_stay(folder, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"x" * 10_000)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 10_000)
    (tmp_path / f"{'0' * 32}-{'0' * 32}.safetensors").mkdir()
    others = set(tmp_path.iterdir())
    with opened(folder) as model:
        heads = HeadFiles(tmp_path)
        written = []
        for first in (0, 20, 40):
            kept(model, heads, ids_from(first))
            (path,) = set(tmp_path.iterdir()) - others - set(written)
            os.utime(path, ns=(0, len(written)))
            written.append(path)
        assert restored(model, heads, ids_from(0))
        heads.limit = 3 * written[0].stat().st_size
        kept(model, heads, ids_from(60))
        assert [path.exists() for path in written] == [True, False, True]
        heads.limit = written[0].stat().st_size
        kept(model, heads, ids_from(80))
        assert len(set(tmp_path.iterdir()) - others) == 1
        assert restored(model, heads, ids_from(80))
        heads.limit -= 1
        kept(model, heads, ids_from(100))
        assert not restored(model, heads, ids_from(100))
        assert restored(model, heads, ids_from(80))
    assert others < set(tmp_path.iterdir())


def test_a_head_that_is_computed_fast_is_not_kept(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(headfile, "SAVING_S", 1e9)
    answered(folder, HeadFiles(tmp_path / "heads"))
    assert not (tmp_path / "heads").exists()


def test_a_head_that_made_room_for_others_is_read_again(folder, tmp_path):
    other = make_artifact({"level": spelled("low", "high")})
    room = 80_000
    for heads, cached in ((HeadFiles(tmp_path), len(HEAD)), (None, 0)):
        with (
            opened(folder, kv_limit=room) as model,
            Engine(ARTIFACT, model.share(), heads=heads) as first,
            Engine(other, model.share(), heads=heads) as second,
        ):
            assert model.prefixes.bytes_held < room < 2 * model.prefixes.bytes_held
            assert [engine.run(CONTEXT).head_cached for engine in (first, second)] == [cached] * 2


def test_requests_write_nothing(folder, tmp_path):
    with Engine(ARTIFACT, opened(folder), heads=HeadFiles(tmp_path / "heads"), prefill=False) as engine:
        engine.run(CONTEXT)
    assert not (tmp_path / "heads").exists()
