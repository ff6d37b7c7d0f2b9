"""What artifacts and indexes say alike of tokenizer, prompt, inputs and temperature, from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .artifact import PromptCut
from .structure import check_prompt
from .wire import as_array, as_list, as_map, as_natural, as_text, check, check_keys


def as_target(values: dict[str, Any]) -> dict[str, Any]:
    """The attributes that the members `tokenizer` and `prompt` say, checked. Raises Malformed."""
    tokenizer, prompt = as_map(values["tokenizer"]), as_map(values["prompt"])
    check_keys(tokenizer, "fingerprint", "probes")
    check_keys(
        prompt, "version", "text", "head", "pre", "post", "fence", "shared", "tail", "tail_overlap", "probes"
    )
    probes = [as_natural(n) for n in as_list(prompt["probes"])]
    check(len(probes) == 2, "has wrong probe counts")
    cut = PromptCut(
        head=as_array(prompt["head"]),
        pre=as_text(prompt["pre"]),
        post=as_text(prompt["post"]),
        fence=as_text(prompt["fence"]),
        shared=as_natural(prompt["shared"]),
        tail=as_array(prompt["tail"]),
        tail_overlap=as_natural(prompt["tail_overlap"]),
        probes=(probes[0], probes[1]),
    )
    check_prompt(cut)
    return {
        "fingerprint": as_text(tokenizer["fingerprint"]),
        "tokenizer_probes": tuple(_probe(as_list(pair)) for pair in as_list(tokenizer["probes"])),
        "prompt_version": as_text(prompt["version"]),
        "prompt_text": as_text(prompt["text"]),
        "prompt": cut,
    }


def as_inputs(value: object) -> dict[str, str]:
    """What something was made of, with its keys in order."""
    inputs = as_map(value)
    check_keys(inputs, *sorted(map(as_text, inputs)))
    return {key: as_text(held) for key, held in inputs.items()}


def as_temperature(value: object) -> float:
    """A temperature out of its one spelling. Raises ValueError where it is no JSON, else Malformed."""
    text = as_text(value)
    number: float = json.loads(text)
    check(type(number) is float and 0 < number < float("inf"), "has a temperature out of range")
    check(json.dumps(number) == text, "has a temperature that is not in canonical form")
    return number


def _probe(pair: Sequence[object]) -> tuple[str, tuple[int, ...]]:
    check(len(pair) == 2, "has a malformed tokenizer probe")
    ids = as_array(pair[1])
    check(bool((ids >= 0).all()), "has a token id out of range")
    return as_text(pair[0]), tuple(ids.tolist())
