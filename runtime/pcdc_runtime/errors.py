"""The one exception tree: everything the runtime refuses, with a code, a fact and a way out.

The command line turns each into the same one-line form as a compiler diagnostic, so a code means
one thing wherever it is printed. Codes 4xx concern models, 6xx artifacts, 7xx requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

# What a fact begins with that is about a part of its subject, such as a choice of a field.
_OF_A_PART = re.compile(r"[^a-z(]|(?:an?|the|null|true|false)\b")


def sentence(subject: str, fact: str, limit: str = "") -> str:
    """What is said of a mistake in one line: `field "x" has 1 choice; at least 2`."""
    joint = ": " if _OF_A_PART.match(fact) else " "
    return f"{subject}{joint}{fact}" + (f"; {limit}" if limit else "")


class PcdcError(Exception):
    """Something the caller can mend, stated as subject, fact, limit and help.

    `subject` names the thing (a file, a field, a model), `fact` says what is wrong with it,
    `limit` what was expected, `help` what to do about it.
    """

    code: ClassVar[str] = "PCDC700"
    title: ClassVar[str] = "request refused"
    in_content: ClassVar[bool] = False
    """Whether the fault lies in what a text says, not in the call, a file, an artifact or a model."""

    def __init__(self, subject: str, fact: str, limit: str = "", help: str = "") -> None:
        self.subject = subject
        self.fact = fact
        self.limit = limit
        self.help = help
        super().__init__(subject, fact, limit, help)

    def __str__(self) -> str:
        line = f"error[{self.code}]: {sentence(self.subject, self.fact, self.limit)}"
        return f"{line}\n  help: {self.help}" if self.help else line


class ModelNotFoundError(PcdcError):
    """The model name is no alias, no folder, and nothing the hub knows."""

    code = "PCDC401"
    title = "model not found"


class HubUnreachableError(PcdcError):
    """The model hub did not answer and the files are not in the local cache."""

    code = "PCDC402"
    title = "model hub unreachable"


class ModelNotSupportedError(PcdcError):
    """The architecture keeps state that a tree pass cannot share, or a file cannot be read exactly."""

    code = "PCDC403"
    title = "model not supported"


class TokenizerError(PcdcError):
    """A tokenizer does not encode some text, or not exactly."""

    code = "PCDC302"
    title = "tokenizer not supported"


class ExtraMissingError(PcdcError):
    """An optional dependency that this call needs is not installed."""

    code = "PCDC404"
    title = "optional dependency missing"


class ArtifactError(PcdcError):
    """The bytes are not an artifact this version can trust."""

    code = "PCDC601"
    title = "artifact damaged or not readable"


class FingerprintMismatchError(ArtifactError):
    """The artifact was compiled for another tokenizer than the model has."""

    code = "PCDC602"
    title = "artifact compiled for another tokenizer"


class LogitsWidthError(ArtifactError):
    """The artifact uses a token id that the model's logits do not reach."""

    code = "PCDC603"
    title = "artifact uses a token the model does not have"


class IndexFileError(ArtifactError):
    """The bytes are not an index this version can trust."""

    code = "PCDC617"
    title = "index damaged or not readable"


class IndexSizeError(PcdcError):
    """A catalog has more tokens or more bytes of text than an index can count."""

    code = "PCDC618"
    title = "catalog too large for one index"
    in_content = True


class CalibrationError(PcdcError):
    """The bytes are not a calibration this version can trust."""

    code = "PCDC604"
    title = "calibration damaged or not readable"


class ContextTooLongError(PcdcError):
    """The context is larger than any may be, or prompt and deepest path exceed the model's window."""

    code = "PCDC701"
    title = "context longer than the model's window"
    in_content = True


class ContextNotTextError(PcdcError):
    """The context holds code points that no tokenizer can encode (lone surrogates)."""

    code = "PCDC702"
    title = "context is not encodable text"
    in_content = True


class TemperatureError(PcdcError, ValueError):
    """A temperature must be a finite number above zero."""

    code = "PCDC703"
    title = "temperature out of range"


class ScoreError(PcdcError):
    """The model returned NaN, +inf, or gave every choice of a field probability zero."""

    code = "PCDC704"
    title = "model returned no usable scores"


class UnknownFieldError(PcdcError, KeyError):
    """A field was asked for that the artifact does not have."""

    code = "PCDC705"
    title = "unknown field"

    __str__ = PcdcError.__str__


class UnknownScoringError(PcdcError, ValueError):
    """A scoring rule was asked for that does not exist."""

    code = "PCDC706"
    title = "unknown scoring rule"


class EngineClosedError(PcdcError):
    """The engine was closed, or the process forked after the model was loaded."""

    code = "PCDC707"
    title = "engine closed or used after fork"


class ThresholdError(PcdcError, ValueError):
    """A threshold must be a number from 0 to 1."""

    code = "PCDC708"
    title = "threshold out of range"


class PruningError(PcdcError, ValueError):
    """A pruning bound must lie between 0 and 1, and goes with some scoring rules only."""

    code = "PCDC709"
    title = "pruning not possible"


class UnknownMethodError(PcdcError, ValueError):
    """A selection was asked for by a method that does not exist."""

    code = "PCDC714"
    title = "unknown method of selection"


class SelectionError(PcdcError, ValueError):
    """A number that a selection was asked with is none, or out of its range."""

    code = "PCDC715"
    title = "selection out of range"


class SelectionMismatchError(PcdcError, ValueError):
    """Arguments of a selection do not go together."""

    code = "PCDC716"
    title = "selection's arguments do not go together"


class NoAnswerError(PcdcError, IndexError):
    """A selection ended before any label was closed, so that it has no best one."""

    code = "PCDC717"
    title = "selection has no answer"


def mlx_missing(error: ImportError) -> ExtraMissingError:
    """What to say where MLX cannot be imported."""
    return ExtraMissingError(
        "mlx",
        f"cannot be imported ({error})",
        "running a model needs MLX, on macOS or Linux",
        "install `pcdc` (or `pcdc-runtime`) again on this machine, it brings `mlx` and `mlx-lm`",
    )


def did_you_mean(given: Iterable[str], known: Iterable[str]) -> str:
    """The help that names the known names nearest to those given, "" where none is near."""
    by_spelling = {name.casefold(): name for name in known}
    close = [get_close_matches(name.strip().casefold(), by_spelling, n=1) for name in given]
    near = dict.fromkeys(by_spelling[spelling] for found in close for spelling in found)
    return f"did you mean {' and '.join(map(repr, near))}?" if near else ""
