"""One tokenizer object for both halves: loading, fingerprint, encoding of text that is only text.

Compile and run use `tokenizers.Tokenizer.from_file` on the same file, never a wrapper that may encode
differently, and never add special tokens: chat templates write those themselves.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from .artifact import Artifact, Ints, PromptCut
from .errors import (
    ContextNotTextError,
    ContextTooLongError,
    FingerprintMismatchError,
    ModelNotFoundError,
    TokenizerError,
)
from .rules import MAX_CONTEXT_BYTES

if TYPE_CHECKING:
    from .indexed.index import Index

FINGERPRINTED = ("normalizer", "pre_tokenizer", "model", "added_tokens", "decoder")
PROBE_TEXTS = (
    '{"department": "BILLING"',
    '{"delta": "-1", ',
    "P0_CRITICAL 0101.21 8471.30",
    "caf\u00e9 cafe\u0301 \u5f00\u5fc3 \U0001f44d\U0001f3fd",
    "  two  blanks\n\n\ttab\r\n",
    "it's 12345 <|im_start|>",
)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder. Raises ModelNotFoundError where there is none or it is damaged."""
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelNotFoundError(
            str(path), f"is not a readable tokenizer ({error})", help="download the model again"
        ) from error


def fingerprint(tokenizer: Tokenizer) -> str:
    """sha256 over the parts of a tokenizer that decide ids, as hexadecimal text.

    Truncation, padding and post-processor are left out: calls and re-saves change those.
    """
    whole = json.loads(tokenizer.to_str())
    parts = {key: whole.get(key) for key in FINGERPRINTED}
    canonical = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of `text` as ordinary text: spellings of control tokens in it stay plain characters.

    Raises ContextNotTextError for lone surrogates, TokenizerError for text that has no tokens.
    """
    _check_text("text", text)
    try:
        return list(_plain(tokenizer).encode(text, add_special_tokens=False).ids)
    except Exception as error:
        # The library raises nothing narrower.
        raise _no_tokens(error) from error


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """What `encode_text` gives for each text; the library spreads many over the processors."""
    for text in texts:
        _check_text("text", text)
    try:
        batch = _plain(tokenizer).encode_batch_fast(list(texts), add_special_tokens=False)
    except Exception as error:
        # The library raises nothing narrower.
        raise _no_tokens(error) from error
    return [found.ids for found in batch]


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    """The same parts without the added tokens, so that no text is one. Costs next to nothing to make."""
    plain = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        plain.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        plain.pre_tokenizer = tokenizer.pre_tokenizer
    return plain


def _no_tokens(error: Exception) -> TokenizerError:
    return TokenizerError(
        "tokenizer",
        f"cannot encode a text ({error})",
        "every character must have tokens",
        "use a model whose tokenizer has byte fallback",
    )


def _check_text(subject: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ContextNotTextError(
            subject,
            f"has a lone surrogate U+{ord(text[error.start]):04X} at character {error.start}",
            "text must be valid Unicode",
            "decode the input with errors='replace' before passing it on",
        ) from None


def check_size(context: str) -> None:
    """Refuse a context that no tokenizer should be given. Raises ContextTooLongError."""
    size = len(context)
    # Up to four bytes a character: most texts need not be encoded to know.
    if MAX_CONTEXT_BYTES // 4 < size <= MAX_CONTEXT_BYTES:
        size = len(context.encode("utf-8", "surrogatepass"))
    if size > MAX_CONTEXT_BYTES:
        raise ContextTooLongError(
            "context",
            f"is more than {MAX_CONTEXT_BYTES // 1024**2} MiB of text",
            f"a context has at most {MAX_CONTEXT_BYTES // 1024**2} MiB, whatever the model's window",
            "give the part that answers the questions",
        )


def probe_encodings(tokenizer: Tokenizer) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """A few texts with their ids, stored in an artifact and compared when it is loaded."""
    return tuple((text, tuple(encode_text(tokenizer, text))) for text in PROBE_TEXTS)


def check_tokenizer(artifact: Artifact | Index, tokenizer: Tokenizer, print_: str, model: str) -> None:
    """Refuse a tokenizer the artifact or index was not compiled for; `print_` is its fingerprint.

    Raises FingerprintMismatchError.
    """
    differing = [t for t, ids in artifact.tokenizer_probes if tuple(encode_text(tokenizer, t)) != ids]
    if print_ != artifact.fingerprint or differing:
        raise FingerprintMismatchError(
            artifact.name,
            f"was compiled for tokenizer {artifact.fingerprint[:12]}, {model} has {print_[:12]}"
            + (f" ({len(differing)} probe encodings differ)" if differing else ""),
            "ids of another tokenizer mean other text",
            f"recompile with `pcdc build --model {model}`",
        )


def fence_for(tokenizer: Tokenizer, cut: PromptCut, context: str) -> tuple[str, str]:
    """`pre` and `post` with a fence tag that the context does not contain, as written or as normalized.

    Text can never close its own fence, and no character of it is changed.
    """
    tag = free_fence(tokenizer, cut.fence, context)
    return cut.pre.replace(cut.fence, tag), cut.post.replace(cut.fence, tag)


def free_fence(tokenizer: Tokenizer, fence: str, text: str) -> str:
    """The fence's tag unless the text spells it, then the first numbered one that it does not."""
    folded = "\n".join(_spellings(tokenizer, text))
    fences = _spellings(tokenizer, fence)
    if not any(spelling in folded for spelling in fences):
        return fence
    # One scan whatever the context: a search per number would be quadratic in a context that spells many.
    spelled = re.findall(f"(?=(?:{'|'.join(map(re.escape, fences))})-([0-9]{{1,9}}))", folded)
    taken = {digits[:size] for digits in spelled for size in range(1, len(digits) + 1)}
    return f"{fence}-{next(n for n in count(2) if str(n) not in taken)}"


def _spellings(tokenizer: Tokenizer, text: str) -> list[str]:
    """A text without its case: as written, and as the model gets to see it."""
    spellings = [text.casefold()]
    if tokenizer.normalizer is not None:
        spellings.append(tokenizer.normalizer.normalize_str(text).casefold())
    return spellings


def encode_piece(tokenizer: Tokenizer, cut: PromptCut, context: str) -> list[int]:
    """Ids of `pre + context + post`, the one stretch of the prompt that a request changes.

    Raises ContextNotTextError with the place in the context, ContextTooLongError.
    """
    check_size(context)
    _check_text("context", context)
    pre, post = fence_for(tokenizer, cut, context)
    return encode_text(tokenizer, pre + context + post)


def assemble_prompt(tokenizer: Tokenizer, cut: PromptCut, context: str) -> Ints:
    """The whole prompt for one context, int32 [P]; its last id is node 0 of the forest.

    Where the piece does not begin with the head's last `shared` ids (never seen with the usual fence), the
    prompt is put together from the piece itself, so that it always equals a one-shot encoding.
    """
    piece = np.array(encode_piece(tokenizer, cut, context), dtype=np.int32)
    static = cut.head[: len(cut.head) - cut.shared]
    return np.concatenate([static, piece, cut.tail[cut.tail_overlap :]])


def common_prefix(a: Sequence[int] | Ints, b: Sequence[int] | Ints) -> int:
    """How many leading ids two sequences share."""
    size = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:size]) != np.asarray(b[:size]))
    return int(differs[0]) if len(differs) else size
