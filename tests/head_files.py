"""A small artifact, and what tests do with the files of its head."""

import numpy as np
from fakes import byte_tokenizer, make_artifact, spelled
from judging import compiled, target_of
from pcdc_runtime.engine import Engine
from pcdc_runtime.loaded import LoadedModel
from pcdc_runtime.model import load_model

from pcdc.parse import parse_mapping

ARTIFACT = make_artifact({"level": spelled("low", "lower", "high"), "team": spelled("ops", "sales")})
HEAD = ARTIFACT.prompt.head
CONTEXT = "No invoice."


def opened(folder, **more):
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return LoadedModel(
        "seeded", lambda: (load_model(folder, float32=False), byte_tokenizer()), folder=folder, **more
    )


def log_scores(result):
    return [answer.log_scores for answer in result.answers]


def answered(folder, heads):
    with Engine(ARTIFACT, opened(folder), heads=heads) as engine:
        return engine.run(CONTEXT)


def notes(result):
    return [warning for warning in result.warnings if warning.startswith("head_cache")]


def only(folder):
    (path,) = folder.iterdir()
    return path


def kept(model, heads, ids):
    """Compute and keep the head `ids`."""

    def job():
        with model.prefixes.lease("any", len(ids)) as prefix:
            prefix.advance(ids)
            heads.keep(model, prefix, ids, 1.0)

    model.call(job)


def restored(model, heads, ids):
    """Whether the head came from its file."""

    def job():
        with model.prefixes.lease("another", len(ids)) as prefix:
            prefix.advance(ids[:0])
            heads.restore(model, prefix, ids)
            return prefix.missing(ids) == 0

    return model.call(job)


def ids_from(first):
    return np.arange(first, first + 20, dtype=np.int32)


def ticket(*teams):
    definition = {"team": {"type": "enum", "choices": [*teams], "description": "Which team handles it?"}}
    schema, problems = parse_mapping(definition, name="ticket")
    assert schema is not None, problems
    return compiled(schema, target_of("smollm2"))
