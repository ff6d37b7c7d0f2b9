"""A tiny model folder, an artifact for it and labelled texts, for tests that measure."""

from __future__ import annotations

import json

import pytest
from pcdc_runtime.codec import dumps
from tiny import write_tiny

import pcdc

DEFINITION = {
    "department": {
        "type": "enum",
        "description": "Which department handles this?",
        "choices": ["BILLING", "BILLING_DISPUTE", "TECH", None],
    },
    "urgent": {"type": "boolean", "description": "Is it urgent?"},
    "unasked": {"type": "enum", "description": "What nobody labelled?", "choices": ["x", "y"]},
}
LABELS = ("BILLING", "BILLING_DISPUTE", "TECH", None)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A seeded two-layer model with a real tokenizer, as an mlx-lm folder."""
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def artifact(tiny):
    """The definition above, compiled for the tiny model."""
    return pcdc.compile(DEFINITION, str(tiny), name="support")


@pytest.fixture(scope="session")
def built(artifact, tmp_path_factory):
    """The artifact as a file."""
    path = tmp_path_factory.mktemp("built") / "support.tiny.pcdc"
    path.write_bytes(dumps(artifact))
    return path


@pytest.fixture(scope="session")
def labelled():
    """Writes JSON lines with so many labelled texts, numbered from `first` on."""

    def write(path, count, first=0):
        lines = [
            {
                "context": f"Ticket {n}: {'the printer ' * (n % 5)}is on fire",
                "expected": {"department": LABELS[n % 4]} | ({"urgent": n % 3 == 0} if n % 2 else {}),
            }
            for n in range(first, first + count)
        ]
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        return path

    return write
