"""The models of a build: what of each decides whether a target is stale, and what compiles one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from pcdc_runtime import models
from pcdc_runtime.errors import PcdcError

from .diagnostics import Diagnostic, from_error
from .prompt import Target, load_target, template_digest

TARGETS_KEPT = 8


class Lane:
    """One model of a build: its digests at once, its tokenizer and template when something is compiled."""

    def __init__(self, files: models.ModelFiles) -> None:
        self.files = files

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Fingerprint of the tokenizer, digest of the template; loads neither."""
        template = template_digest(self.files.chat_template(), dict(self.files.special_tokens()))
        return models.fingerprint_of(self.files.folder), template

    @property
    def target(self) -> tuple[Target | None, list[Diagnostic]]:
        return _target(self.files, *self.digests)


def find_lanes(model_names: Sequence[str]) -> tuple[list[Lane], list[Diagnostic]]:
    """A lane for each model, in their order, and what keeps others from being found."""
    lanes, findings = list[Lane](), list[Diagnostic]()
    for name in dict.fromkeys(model_names):
        try:
            lanes.append(Lane(models.resolve(name, weights=False)))
        except PcdcError as error:
            findings.append(from_error(error))
    return lanes, findings


# Cutting and proving a template takes longer than compiling a schema; the digests say that it is the same.
@lru_cache(maxsize=TARGETS_KEPT)
def _target(files: models.ModelFiles, *digests: str) -> tuple[Target | None, list[Diagnostic]]:
    return load_target(files)
