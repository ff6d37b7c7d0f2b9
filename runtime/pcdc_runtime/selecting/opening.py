"""Opens index files as selectors."""

from __future__ import annotations

from pathlib import Path

from pcdc_runtime.errors import IndexFileError, mlx_missing
from pcdc_runtime.indexed.codec import open_index

try:
    from pcdc_runtime.headfile import head_files
    from pcdc_runtime.loaded import LoadedModel, model_for

    from .selector import Selector
    from .source import IndexFile
except ImportError as error:
    if not (error.name or "").startswith("mlx"):
        raise
    raise mlx_missing(error) from error


def open_selector(
    path: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    reload: bool = False,
    head_cache: bool | None = None,
) -> Selector:
    """A selector for an index file, on the model it names or on another with the same tokenizer.

    `model` is an alias, a hub id, a folder, or a loaded model to share; a model already loaded by this
    process is shared in any case. With `reload` the selector follows the file: a new one answers the
    requests that start after, once it is checked; a missing, damaged or mismatching one leaves the old in
    use and is reported once, in the log and in a selection's `warnings`. `head_cache` as in `load`.

    The file is checked while the model is loaded. Raises ArtifactError (IndexFileError,
    FingerprintMismatchError, LogitsWidthError), ModelNotFoundError, HubUnreachableError,
    ModelNotSupportedError, ContextTooLongError.
    """
    try:
        path = Path(path)
    except TypeError:
        fact, help = f"is {type(path).__name__}, not a path", "name a file that `pcdc index` wrote"
        raise IndexFileError("index", fact, help=help) from None
    file = IndexFile.at(path)
    index = open_index(path)
    loaded = model_for(index.model, model)
    return Selector(index, loaded, file=file if reload else None, heads=head_files(head_cache))
