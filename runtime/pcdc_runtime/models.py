"""Model names: the alias table, and the way from a name to a folder with the model's files.

Both halves come through here, and neither needs MLX for it. A name is an alias, a hub id (`org/name`) or a
local mlx-lm folder. What is complete in the local cache is used without asking the network.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .embedded import REQUIREMENT, embedded_folder
from .errors import HubUnreachableError, ModelNotFoundError, ModelNotSupportedError, PcdcError
from .memo import remembered
from .storage import model_cache, way_to_write, write_atomic

DEFAULT = "smollm2-135m"

ALIASES: Mapping[str, str] = {
    DEFAULT: REQUIREMENT,
    "smollm2-360m": "mlx-community/SmolLM2-360M-Instruct",
    "smollm2-1.7b": "mlx-community/SmolLM2-1.7B-Instruct",
    "qwen2.5-0.5b": "mlx-community/Qwen2.5-0.5B-Instruct-4bit",
    "qwen2.5-1.5b": "mlx-community/Qwen2.5-1.5B-Instruct-4bit",
    "qwen2.5-3b": "mlx-community/Qwen2.5-3B-Instruct-4bit",
    "qwen2.5-7b": "mlx-community/Qwen2.5-7B-Instruct-4bit",
    "qwen3-0.6b": "mlx-community/Qwen3-0.6B-4bit",
    "qwen3-1.7b": "mlx-community/Qwen3-1.7B-4bit",
    "qwen3-4b": "mlx-community/Qwen3-4B-4bit",
    "qwen3-8b": "mlx-community/Qwen3-8B-4bit",
    "llama3.1-8b": "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",
    "llama3.2-1b": "mlx-community/Llama-3.2-1B-Instruct-4bit",
    "llama3.2-3b": "mlx-community/Llama-3.2-3B-Instruct-4bit",
    "gemma2-2b": "mlx-community/gemma-2-2b-it-4bit",
    "gemma2-9b": "mlx-community/gemma-2-9b-it-4bit",
    "gemma3-1b": "mlx-community/gemma-3-1b-it-4bit",
    "gemma3-4b": "mlx-community/gemma-3-4b-it-4bit",
    "phi3.5-mini": "mlx-community/Phi-3.5-mini-instruct-4bit",
    "phi4-mini": "mlx-community/Phi-4-mini-instruct-4bit",
    "mistral-7b": "mlx-community/Mistral-7B-Instruct-v0.3-4bit",
}
"""Alias to hub id; for the embedded model, to the requirement that installs it."""

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_CONVERTIBLE = ("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "tiktoken.model")
_SMALL_FILES = ("*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
_WEIGHT_FILES = ("model*.safetensors",)
_SPECIAL_TOKENS = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "pad", "sep", "cls", "mask"))


@dataclass(frozen=True)
class ModelFiles:
    """A model as files: `name` is what an artifact records, never a path."""

    name: str
    folder: Path

    def chat_template(self) -> str:
        """The model's chat template, empty where it has none. Raises ModelNotFoundError for damaged files."""
        jinja = self.folder / "chat_template.jinja"
        if jinja.is_file():
            return _read_text(jinja)
        for name in ("tokenizer_config.json", "chat_template.json"):
            found = _read_json(self.folder / name).get("chat_template")
            if isinstance(found, list):
                found = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}.get(
                    "default"
                )
            if isinstance(found, str):
                return found
        return ""

    def window(self) -> int | None:
        """The longest prompt in tokens that the model's configuration states, None where it states none."""
        config = _read_json(self.folder / "config.json")
        inner = config.get("text_config")
        places = [config, inner] if isinstance(inner, dict) else [config]
        found = next((w for c in places if (w := c.get("max_position_embeddings")) is not None), None)
        return found if isinstance(found, int) else None

    def special_tokens(self) -> Mapping[str, str]:
        """Token texts that templates refer to, as `bos_token`; what the model does not set is absent."""
        declared = _read_json(self.folder / "special_tokens_map.json")
        declared |= _read_json(self.folder / "tokenizer_config.json")
        tokens = {}
        for key in _SPECIAL_TOKENS:
            value = declared.get(key)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                tokens[key] = text
        return tokens


def resolve(name: str | os.PathLike[str], *, weights: bool, folders: bool = True) -> ModelFiles:
    """The files of a model: tokenizer, template and configuration, and its weights where they are wanted.

    An existing folder goes before a hub id of the same spelling; `folders=False` is for names that come out
    of an artifact, which must not choose a path on this machine. Raises ModelNotFoundError,
    HubUnreachableError, ModelNotSupportedError.
    """
    name = _spelled(name)
    if name == DEFAULT:
        return ModelFiles(name, embedded_folder(name, weights=weights))
    if name in ALIASES:
        return ModelFiles(name, _with_tokenizer(name, _from_hub(name, ALIASES[name], weights)))
    if folders and (local := _local_folder(name)) is not None:
        if lacking := _lacking(local, weights):
            raise ModelNotFoundError(
                shown(name), f"lacks {', '.join(lacking)}", help="give a folder as `mlx_lm.convert` writes it"
            )
        recorded = _recordable(local)
        return ModelFiles(recorded, _with_tokenizer(recorded, local))
    if _HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
        return ModelFiles(name, _with_tokenizer(name, _from_hub(name, name, weights)))
    if not folders:
        raise ModelNotFoundError(
            shown(name),
            "is the name of a local folder, and an artifact does not say where that is",
            help="name the folder: `--model FOLDER`, in Python `load(path, model=FOLDER)`",
        )
    raise _not_found(name, "is no alias, no hub id and no folder")


def _spelled(name: object) -> str:
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str):
        raise ModelNotFoundError(
            "model",
            f"is {type(text).__name__}, not a name",
            help="give an alias, a hub id (org/name) or a local mlx-lm folder, as text",
        )
    return text


def fingerprint_of(folder: Path) -> str:
    """The fingerprint of a folder's tokenizer, which is loaded only where its file was never seen before."""
    # The canonical form that is hashed is written by the library, so its version is part of the key.
    key = f"{tokenizer_digest(folder)}/{metadata.version('tokenizers')}"

    def of_tokenizer() -> str:
        from .tokenizer import fingerprint, load_tokenizer

        return fingerprint(load_tokenizer(folder))

    return remembered("fingerprints.json", key, of_tokenizer)


def tokenizer_digest(folder: Path) -> str:
    """sha256 of a folder's tokenizer.json, as hexadecimal text. Raises ModelNotFoundError."""
    return hashlib.sha256(_read_bytes(folder / "tokenizer.json")).hexdigest()


def shown(name: str) -> str:
    """A name as it may be printed: control characters escaped, length bounded."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _local_folder(name: str) -> Path | None:
    path = Path(name)
    try:
        path = path.expanduser()
        if path.is_file():
            raise ModelNotFoundError(
                shown(name), "is a file", help="give the mlx-lm folder that holds the model"
            )
        return path if name and path.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _recordable(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.") or "model"


def _lacking(folder: Path, weights: bool) -> list[str]:
    """Names of the files that a model folder should have and has not."""
    lacking = []
    if not (folder / "config.json").is_file():
        lacking.append("config.json")
    if not any((folder / name).is_file() for name in ("tokenizer.json", *_CONVERTIBLE)):
        lacking.append("tokenizer.json")
    if weights:
        shards = _read_json(folder / "model.safetensors.index.json").get("weight_map")
        if isinstance(shards, dict) and shards:
            expected = sorted({Path(str(shard)).name for shard in shards.values()})
            lacking += [shard for shard in expected if not (folder / shard).is_file()]
        elif not any(folder.glob(_WEIGHT_FILES[0])):
            lacking.append("model.safetensors")
    return lacking


def _from_hub(name: str, repo: str, weights: bool) -> Path:
    """The snapshot folder of a repository: the cached one where it is complete, else downloaded now."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    # Files of sub-folders belong to other formats (onnx, original checkpoints).
    wanted: dict[str, Any] = {
        "allow_patterns": [*_SMALL_FILES, *(_WEIGHT_FILES if weights else ())],
        "ignore_patterns": ["*/*"],
    }
    with suppress(LocalEntryNotFoundError):
        folder = Path(snapshot_download(repo, local_files_only=True, **wanted))
        if not _lacking(folder, weights):
            return folder
    try:
        folder = Path(snapshot_download(repo, **wanted))
    except Exception as error:
        raise _hub_error(name, repo, error) from error
    if lacking := _lacking(folder, weights):
        raise ModelNotFoundError(
            shown(name), f"lacks {', '.join(lacking)} on the model hub", help="use a model in mlx-lm's format"
        )
    return folder


def _hub_error(name: str, repo: str, error: Exception) -> PcdcError:
    """One clear error for whatever the hub library or the network below it raised."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelNotFoundError(
            shown(name),
            f"is gated: the owner of {repo} asks to accept terms first",
            help="accept them on the model's page, then log in with `hf auth login` or set HF_TOKEN",
        )
    if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError):
        return _not_found(name, f"is not on the model hub ({repo}), or is private")
    cause = error.__cause__ or error
    reason = next(iter(str(cause).splitlines()), "")
    return HubUnreachableError(
        shown(name),
        "is not complete in the local cache and the model hub could not be asked"
        f" ({type(cause).__name__}{': ' if reason else ''}{shown(reason)})",
        help="connect once to download it, or set HF_ENDPOINT to a mirror, or give a local mlx-lm folder,"
        f" or use the embedded model `{DEFAULT}`",
    )


def _not_found(name: str, fact: str) -> ModelNotFoundError:
    begun = [alias for alias in ALIASES if name and alias.startswith(name.lower())]
    by_spelling = {alias: alias for alias in ALIASES} | {
        repo.lower(): alias for alias, repo in ALIASES.items()
    }
    close = difflib.get_close_matches(name.lower(), by_spelling, n=3, cutoff=0.6)
    near = begun or list(dict.fromkeys(by_spelling[spelling] for spelling in close))
    ways = f"aliases: {', '.join(ALIASES)}; or give a hub id (org/name) or a local mlx-lm folder"
    return ModelNotFoundError(
        shown(name) or "''", fact, help=f"did you mean {' or '.join(near)}?" if near else ways
    )


def _with_tokenizer(name: str, folder: Path) -> Path:
    """The folder itself, or one in the cache that adds a tokenizer.json converted once by transformers."""
    if (folder / "tokenizer.json").is_file():
        return folder
    seen = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape"))
    for file in sorted(folder.iterdir()):
        if file.name in (
            *_CONVERTIBLE,
            "tokenizer_config.json",
            "special_tokens_map.json",
            "added_tokens.json",
        ):
            seen.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    target = model_cache(name, f"{_recordable(Path(name))}-{seen.hexdigest()[:16]}")
    try:
        if not (target / "tokenizer.json").is_file():
            write_atomic(target / "tokenizer.json", _converted_tokenizer(name, folder).encode())
        for file in folder.iterdir():
            with suppress(FileExistsError):
                (target / file.name).symlink_to(file.resolve())
    except OSError as error:
        raise ModelNotFoundError(
            name,
            f"cannot be converted into {target} ({error.strerror or error})",
            help=way_to_write(error, "set PCDC_CACHE to another folder"),
        ) from error
    return target


def _converted_tokenizer(name: str, folder: Path) -> str:
    from transformers import AutoTokenizer

    try:
        converted: str = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True
        ).backend_tokenizer.to_str()
    except Exception as error:
        raise ModelNotSupportedError(
            name,
            f"has no tokenizer.json, and its tokenizer cannot be converted ({shown(str(error))})",
            help="use a folder of this model that has a tokenizer.json",
        ) from error
    return converted


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelNotFoundError(
            str(path), f"cannot be read ({error.strerror})", help="download the model again"
        ) from error


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ModelNotFoundError(str(path), "is not UTF-8 text", help="download the model again") from error


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where the file does not exist."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(_read_text(path))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ModelNotFoundError(str(path), "is not a JSON object", help="download the model again")
    return content
