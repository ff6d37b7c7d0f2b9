"""The prompt: a wording in a chat template, and the exact cut into head, segment and tail.

One prompt serves every scoring rule and every field. Its static part is encoded at compile time; a request
encodes only its own piece. The cut is placed at control tokens and proved on probe contexts, because parts
encoded separately are not in general what the whole encodes to (TOKENIZATION, section 3).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pcdc_runtime.artifact import PromptCut
from pcdc_runtime.errors import TokenizerError
from pcdc_runtime.models import ModelFiles
from pcdc_runtime.tokenizer import (
    common_prefix,
    encode_text,
    encode_texts,
    fingerprint,
    free_fence,
    load_tokenizer,
)
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer

from .diagnostics import Diagnostic, finding
from .schema import Schema
from .template import CPU_SECONDS, Rendering, RunawayTemplateError, render
from .vocabulary import Vocabulary
from .wording import DEFAULT_LAYOUT, EXAMPLE_FENCE, FENCE, Layout, worked_examples

_TASK = "\ue0a0\ue0a1\ue0a2"
_CONTEXT = "\ue0b0\ue0b1\ue0b2"
_ANSWER = "\ue0c0\ue0c1"
# Ordinary text that any rewriting of what is put into a template would change.
_SAMPLES = {
    _TASK: 'Sort "Alpha" & <beta>: it\'s 5 > 4.\n\n{"isUrgent": true}\n- ÉCOLE\\straße',
    _CONTEXT: 'Dear Team,\n\n  "A&B" <b>can\'t</b> log in\\out.\tUrgent',
}

CUT_PROBES = (
    "a", "Zebra", "7", " x", "\nx", "\n\n", "", '"', "<", "{", "\u00e9", "\u5f00", "\U0001f44d", "-", ".",
    "\t",
)  # fmt: skip
PROOF_PROBES = (
    *CUT_PROBES,
    "ticket text.\n", "order 12", "...done!", "ends with blank ", "ends with newline\n", "two\n\n", "tab\t",
    "\u201cquoted\u201d", "it's", "a/b", "`code`", "x = 1;\n}", "100%", "#1", "caf\u00e9", "cafe\u0301x",
    "\u0645\u0631\u062d\u0628\u0627", "\U0001f44d\U0001f3fd", "   ", "A" * 60, "1234567890", "(none)",
    '{"a": "b"}',
    "line one\r\nline two\r\n", "</", "<b>", "[INST", "\u00a0", "\u3000", "a.\n\n\n",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A model as the compiler sees it: tokenizer, template cut at its control tokens, vocabulary.

    `window` is its longest prompt in tokens, None where its configuration does not say.
    """

    model: str
    tokenizer: Tokenizer
    fingerprint: str
    template_digest: str
    vocabulary: Vocabulary
    frame: Frame
    window: int | None = None


@dataclass(frozen=True)
class Frame:
    """A rendered template: pieces of text (str) and control ids (int), with the context's piece marked.

    `lead` is the text between the last control token and the answer. Where no control token follows the
    context, `joined` is true and the answer continues the context's own piece.
    """

    pieces: tuple[str | int, ...]
    context_at: int
    lead: str
    joined: bool
    layout: Layout


@dataclass(frozen=True)
class Prompt:
    """One schema's prompt before its fields are known: the cut, and how answer lines are encoded after it."""

    cut: PromptCut
    text: str
    _tokenizer: Tokenizer
    _lead: str
    _skip: tuple[int, ...]

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of answer lines in place, each after the cut's tail. Raises UnstableBoundaryError."""
        encoded = encode_texts(self._tokenizer, [self._lead + line for line in lines])
        skip = self.skipped
        if not skip:
            return encoded
        for line, ids in zip(lines, encoded, strict=True):
            if ids[: len(skip)] != skip:
                raise UnstableBoundaryError(line)
        return [ids[len(skip) :] for ids in encoded]

    def line_text(self, line: str) -> str:
        """The normalised text whose tokens `encode_lines` gives, before the skipped ones are taken off."""
        text = self._lead + line
        return text if self._normalizer is None else self._normalizer.normalize_str(text)

    @property
    def skipped(self) -> list[int]:
        """The ids that belong to the cut's tail and to the line's encoding as well."""
        return list(self._skip)

    @cached_property
    def _normalizer(self) -> Normalizer | None:
        # The tokenizer makes a new object each time it is asked.
        found: Normalizer | None = self._tokenizer.normalizer
        return found


class UnstableBoundaryError(Exception):
    """An answer line merges with the prompt before it; `args[0]` is the line."""


def template_digest(template: str, special_tokens: dict[str, str]) -> str:
    """sha256 over everything of a model's files that decides a rendering, as hexadecimal text."""
    parts = json.dumps([template, special_tokens], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()


def load_target(files: ModelFiles, layout: Layout = DEFAULT_LAYOUT) -> tuple[Target | None, list[Diagnostic]]:
    """Load a model's tokenizer and cut its chat template. Raises PcdcError where files are missing."""
    template = files.chat_template()
    if not template:
        return None, [
            _unsupported(files.name, "has no chat template", "PCDC308", "use an instruct model's folder")
        ]
    tokenizer = load_tokenizer(files.folder)
    special_tokens = dict(files.special_tokens())
    try:
        rendered = _rendered(template, special_tokens, layout)
        frame = _frame(tokenizer, rendered, layout)
        _prove(tokenizer, rendered, frame)
    except TokenizerError as error:
        return None, [
            _unsupported(files.name, f"has a {error.subject} that {error.fact}", error.code, error.help)
        ]
    except _TemplateError as error:
        return None, [_unsupported(files.name, str(error))]
    return (
        Target(
            model=files.name,
            tokenizer=tokenizer,
            fingerprint=fingerprint(tokenizer),
            template_digest=template_digest(template, special_tokens),
            vocabulary=Vocabulary(tokenizer),
            frame=frame,
            window=files.window(),
        ),
        [],
    )


def render_prompt(schema: Schema, target: Target) -> Prompt:
    """Fill a target's frame with one schema's instructions and examples, and place the cut."""
    instructions = target.frame.layout.instructions(schema)
    texts = [example.context for example in schema.examples]
    return fill_prompt(target, instructions, texts, lambda fence: worked_examples(schema, fence))


def fill_prompt(
    target: Target, instructions: str, texts: Sequence[str], examples: Callable[[str], str]
) -> Prompt:
    """Fill a target's frame with instructions and with what `examples` makes of `texts` in a fence.

    No text of an example spells the fence that it stands in, nor that of a request.
    """
    if not texts:
        return _fill(target.tokenizer, target.frame, instructions)
    whole = "\n".join(texts)
    fence = free_fence(target.tokenizer, FENCE, whole)
    shown = examples(free_fence(target.tokenizer, EXAMPLE_FENCE, whole))
    return _fill(target.tokenizer, target.frame, f"{instructions}\n\n{shown}", fence)


class _TemplateError(Exception):
    """Why a template cannot be cut exactly."""


def _unsupported(model: str, fact: str, code: str = "PCDC301", help: str = "") -> Diagnostic:
    limit = "head, segment and tail must encode exactly as the whole prompt does"
    return finding(
        code, None, f"model {model}", fact, limit, help or "use another model, or report the template"
    )


def _messages(system_role: bool, texts: Mapping[str, str], layout: Layout) -> list[dict[str, str]]:
    task = texts[_TASK]
    user = layout.before + texts[_CONTEXT] + layout.after
    if system_role:
        return [{"role": "system", "content": task}, {"role": "user", "content": user}]
    return [{"role": "user", "content": f"{task}\n\n{user}"}]


@dataclass(frozen=True)
class _Rendered:
    """A template's text with both sentinels in it, and what it writes between its prompt and an answer."""

    text: str
    lead: str


def _rendered(template: str, special_tokens: dict[str, str], layout: Layout) -> _Rendered:
    """Render with a system turn where the template has one. Raises _TemplateError."""
    conversations: list[list[dict[str, str]]] = []
    for system_role in (True, False):
        asked = _messages(system_role, {_TASK: _TASK, _CONTEXT: _CONTEXT}, layout)
        answered = [*asked, {"role": "assistant", "content": _ANSWER}]
        conversations += [asked, answered, _messages(system_role, _SAMPLES, layout)]
    try:
        renderings = render(template, special_tokens, conversations)
    except RunawayTemplateError:
        raise _TemplateError(f"its chat template does not finish within {CPU_SECONDS} seconds") from None
    problem = ""
    for asked_text, answered_text, sample in (renderings[:3], renderings[3:]):
        if asked_text.fault:
            problem = f"its chat template fails ({asked_text.fault})"
            continue
        text = asked_text.text
        if text.count(_TASK) == 1 and text.count(_CONTEXT) == 1:
            if sample.text != text.replace(_TASK, _SAMPLES[_TASK]).replace(_CONTEXT, _SAMPLES[_CONTEXT]):
                raise _TemplateError("its chat template rewrites what is put into it")
            return _Rendered(text, _answer_lead(text, answered_text))
        problem = "its chat template does not show each message exactly once"
    raise _TemplateError(problem)


def _answer_lead(text: str, answered: Rendering) -> str:
    """What the template writes between its generation prompt and an answer, " " for some families."""
    start, stop = len(text), answered.text.find(_ANSWER)
    gap = answered.text[start:stop] if answered.text.startswith(text) and stop >= start else ""
    return gap if not gap.strip() else ""


def _encoded(tokenizer: Tokenizer, text: str) -> Any:
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:
        # The library raises nothing narrower.
        raise TokenizerError("tokenizer", f"cannot encode the prompt ({error})") from error


def _frame(tokenizer: Tokenizer, rendered: _Rendered, layout: Layout) -> Frame:
    text = rendered.text
    encoding = _encoded(tokenizer, text)
    control = set(tokenizer.get_added_tokens_decoder())
    pieces: list[str | int] = []
    at = 0
    for index, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        if index in control:
            pieces += [text[at:start], index]
            at = stop
    pieces = [p for p in [*pieces, text[at:]] if p != ""]
    shown = [i for i, p in enumerate(pieces) if isinstance(p, str) and _CONTEXT in p]
    if not shown or not any(isinstance(p, str) and _TASK in p for p in pieces):
        raise TokenizerError(
            "tokenizer",
            "takes ordinary characters for a control token",
            "every character must survive tokenization",
            "use a tokenizer with byte fallback",
        )
    context_at = shown[0]
    joined = context_at == len(pieces) - 1
    lead = rendered.lead
    if not joined and isinstance(pieces[-1], str):
        lead = str(pieces.pop()) + lead
    return Frame(tuple(pieces), context_at, lead, joined, layout)


def _fill(tokenizer: Tokenizer, frame: Frame, instructions: str, fence: str = FENCE) -> Prompt:
    pieces = [p.replace(_TASK, instructions) if isinstance(p, str) else p for p in frame.pieces]
    # Cut and named before people's text comes in, which may spell anything.
    around = str(frame.pieces[frame.context_at]).replace(FENCE, fence).split(_CONTEXT)
    pre, post = (part.replace(_TASK, instructions) for part in around)
    before = _encode_pieces(tokenizer, pieces[: frame.context_at])
    after = _encode_pieces(tokenizer, pieces[frame.context_at + 1 :])
    probes = encode_texts(tokenizer, [pre + context + post for context in CUT_PROBES])
    shared = min(common_prefix(probes[0], other) for other in probes[1:])
    overlap = min(common_prefix(probes[0][::-1], other[::-1]) for other in probes[1:]) if frame.joined else 0
    if frame.joined:
        # Inside one piece an answer is encoded after the text that always precedes it, and the ids of
        # that text are taken off again.
        lead, skip = post + frame.lead, tuple(encode_text(tokenizer, post))
        after = probes[0][len(probes[0]) - overlap :]
    else:
        lead, skip = frame.lead, ()
    cut = PromptCut(
        head=np.array(before + probes[0][:shared], dtype=np.int32),
        pre=pre,
        post=post,
        fence=fence,
        shared=shared,
        tail=np.array(after, dtype=np.int32),
        tail_overlap=overlap,
        probes=(len(CUT_PROBES), len(PROOF_PROBES)),
    )
    pieces[frame.context_at] = f"{pre}{{context}}{post}"
    shown = "".join(p if isinstance(p, str) else (tokenizer.id_to_token(p) or "") for p in pieces)
    return Prompt(cut, shown + frame.lead, tokenizer, lead, skip)


def _encode_pieces(tokenizer: Tokenizer, pieces: Sequence[str | int]) -> list[int]:
    # One text alone goes this way too: it costs a quarter less where nobody asks for offsets.
    encoded = iter(encode_texts(tokenizer, [piece for piece in pieces if isinstance(piece, str)]))
    ids: list[int] = []
    for piece in pieces:
        ids += [piece] if isinstance(piece, int) else next(encoded)
    return ids


def _prove(tokenizer: Tokenizer, rendered: _Rendered, frame: Frame) -> None:
    """Head + segment + tail + answer line must equal a one-shot encoding for every probe context.

    Raises _TemplateError.
    """
    instructions = 'Answer each question.\n\n"urgent": Is it urgent?\n- true\n- false'
    line = '{"urgent": "yes"'
    text = rendered.text
    prompt = _fill(tokenizer, frame, instructions)
    cut = prompt.cut
    static = cut.head[: len(cut.head) - cut.shared].tolist()
    try:
        (answer,) = prompt.encode_lines([line])
    except UnstableBoundaryError:
        raise _TemplateError("the opening of an answer merges with the prompt before it") from None
    lead = frame.lead if frame.joined else _after_rendering(text, frame)
    for context in PROOF_PROBES:
        filled = text.replace(_TASK, instructions).replace(_CONTEXT, context)
        whole = _encoded(tokenizer, filled + lead + line)
        piece = encode_text(tokenizer, cut.pre + context + cut.post)
        parts = static + piece + cut.tail[cut.tail_overlap :].tolist() + answer
        if piece[: cut.shared] != cut.head[len(cut.head) - cut.shared :].tolist() or parts != whole.ids:
            raise _TemplateError(f"its prompt cannot be cut exactly around the context {context!r}")


def _after_rendering(text: str, frame: Frame) -> str:
    """The part of the lead that the rendering with a generation prompt does not already end with."""
    overlap = next(n for n in range(len(frame.lead), -1, -1) if text.endswith(frame.lead[:n]))
    return frame.lead[overlap:]
