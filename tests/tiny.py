"""A whole model folder that runs in milliseconds: seeded weights under a real, trimmed tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from families import family_folder
from seeded import write_folder


def write_tiny(folder: Path, **weights: Any) -> Path:
    """Write the folder; `weights` as `write_folder` takes them. Gives the folder back."""
    tokenizer = family_folder("smollm2")
    size = json.loads((tokenizer / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    write_folder(folder, "llama", vocab_size=size, max_position_embeddings=4096, **weights)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    return folder
