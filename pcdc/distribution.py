"""One environment holds one of the two distributions, `pcdc` or `pcdc-runtime`, and never both."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata


def double_installation(path: Sequence[str] | None = None) -> str | None:
    """Say what to uninstall where both distributions are installed, else None.

    `path` lists the folders searched, `sys.path` unless given. Both distributions own the files of
    `pcdc_runtime`, and no installer prevents that: the later one overwrites them, removing either
    deletes them.
    """
    folders = list(sys.path if path is None else path)
    full, lean = _version("pcdc", folders), _version("pcdc-runtime", folders)
    if full is None or lean is None:
        return None
    return (
        f"pcdc {full} and pcdc-runtime {lean} are both installed and own the same files: "
        "run `pip uninstall pcdc-runtime`, then `pip install --force-reinstall --no-deps pcdc`"
    )


def _version(name: str, folders: list[str]) -> str | None:
    return next((found.version for found in metadata.distributions(name=name, path=folders)), None)
