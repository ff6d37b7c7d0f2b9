"""Chat templates rendered in a process of their own, because a template is a program that may never end.

All renderings of one template share a process. It gets a bounded share of time and memory, and JSON is all
that goes in and out. `python -m pcdc.template` is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU_SECONDS = 10
MEMORY_BYTES = 4 * 1024**3
MAX_CHARS = 2_000_000

_WALL_SECONDS = 120
_PINNED_DATE = "26 Jul 2024"
_PIN_CLOCK = "{%- macro strftime_now(format) -%}" + _PINNED_DATE + "{%- endmacro -%}"

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Rendering:
    """What a template gives for one conversation: its text, or what went wrong."""

    text: str = ""
    fault: str = ""


class RunawayTemplateError(Exception):
    """A template uses up its time or its memory."""


def render(
    template: str, special_tokens: Mapping[str, str], conversations: Sequence[Messages]
) -> list[Rendering]:
    """Render every conversation, each with a generation prompt. Raises RunawayTemplateError."""
    request = {
        "template": template,
        "special_tokens": dict(special_tokens),
        "conversations": conversations,
        "cpu_seconds": CPU_SECONDS,
    }
    # What this process can import, that one can; -P keeps a foreign working folder out of it.
    folders = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_WALL_SECONDS,
            env=os.environ | {"PYTHONPATH": folders},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunawayTemplateError from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise RunawayTemplateError
    if done.returncode != 0:
        fault = f"it ends its process with status {done.returncode}"
        return [Rendering(fault=fault)] * len(conversations)
    return [Rendering(**found) for found in json.loads(done.stdout.splitlines()[-1])]


def _main() -> None:
    request = json.load(sys.stdin)
    # transformers advises to install PyTorch on every import; only its templates are wanted here.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers.utils import chat_template_utils

    _limit(request["cpu_seconds"])
    # Its annotation says text, it gives texts and index lists.
    call: Any = chat_template_utils.render_jinja_template
    found = []
    for messages in request["conversations"]:
        try:
            texts, _ = call(
                conversations=[messages],
                chat_template=_PIN_CLOCK + request["template"],
                add_generation_prompt=True,
                enable_thinking=False,
                **request["special_tokens"],
            )
            if len(texts[0]) > MAX_CHARS:
                raise ValueError(f"it writes {len(texts[0])} characters, at most {MAX_CHARS}")
            found.append({"text": texts[0]})
        except Exception as error:
            # A template is a program of the model's author: it may raise anything, often on purpose.
            found.append({"fault": str(error)[:200] or type(error).__name__})
    print(json.dumps(found), flush=True)


def _limit(cpu_seconds: int) -> None:
    """Bound what is left of this process's life."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    limits = {
        resource.RLIMIT_CPU: spent + cpu_seconds,
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, wanted in limits.items():
        _, hard = resource.getrlimit(kind)
        try:
            resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
        except (OSError, ValueError):
            # macOS refuses a bound on addresses below what it has mapped; the time bound holds there.
            continue


if __name__ == "__main__":
    _main()
