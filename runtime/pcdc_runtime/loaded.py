"""A loaded model with the one thread that may touch it, shared by every engine that uses it.

MLX refuses arrays of another thread's stream: the owner thread loads, runs and converts to Python.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tokenizers import Tokenizer

from .errors import EngineClosedError
from .fast_mlx import mx
from .models import fingerprint_of, resolve
from .prefix import PrefixCache
from .tokenizer import fingerprint, load_tokenizer
from .weights import weights_digest, weights_stamp

if TYPE_CHECKING:
    from .model import LanguageModel

T = TypeVar("T")
Opener: TypeAlias = "Callable[[], tuple[LanguageModel, Tokenizer]]"

KV_LIMIT = 1024**3


class LoadedModel:
    """A language model, its tokenizer and the KV of its artifacts' prompts, on one owner thread.

    `opener` runs on that thread. `kv_limit` bounds the KV kept between requests, in bytes. `folder` is where
    its files are. Counts its users: `share` adds one, `close` takes one away, the last one ends the thread.
    """

    language: LanguageModel
    tokenizer: Tokenizer
    fingerprint: str
    prefixes: PrefixCache

    def __init__(
        self, name: str, opener: Opener, kv_limit: int = KV_LIMIT, folder: Path | None = None
    ) -> None:
        self.name = name
        self.folder = folder
        _check_process(f"model {name}")
        self._pid = os.getpid()
        self._users = 1
        self._given_up: threading.Event | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"pcdc-{name}")
        try:
            self._owner: int = self._executor.submit(self._open, opener, kv_limit).result()
        except BaseException:
            self._executor.shutdown(wait=False)
            raise

    def _open(self, opener: Opener, kv_limit: int) -> int:
        _THREAD.streams = _Streams()
        self._stamp = self._weights_stamp()
        self.language, self.tokenizer = opener()
        self.fingerprint = fingerprint(self.tokenizer) if self.folder is None else fingerprint_of(self.folder)
        self.prefixes = PrefixCache(self.language, kv_limit, self._go_on)
        return threading.get_ident()

    @cached_property
    def weights_digest(self) -> str:
        """sha256 of the weights, "" for a model that is in no folder.

        Raises ModelNotFoundError.
        """
        return "" if self.folder is None else weights_digest(self.folder)

    @property
    def loaded_digest(self) -> str:
        """`weights_digest` where the files are still those that were loaded, else "".

        Raises ModelNotFoundError.
        """
        digest = self.weights_digest
        return digest if self._stamp and self._stamp == self._weights_stamp() else ""

    def _weights_stamp(self) -> str:
        with suppress(OSError):
            return "" if self.folder is None else weights_stamp(self.folder)
        return ""

    def share(self) -> LoadedModel:
        """This model with one user more. Raises EngineClosedError after the last one closed it."""
        self.check_open()
        with _LOCK:
            self.check_open()
            self._users += 1
        return self

    def check_open(self) -> None:
        """Raises EngineClosedError after the last close, and in a forked process."""
        # The process goes first: locks that other threads held at the fork stay locked.
        if os.getpid() != self._pid:
            raise _forked(f"model {self.name}")
        if self._users == 0:
            raise self._closed()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job for the owner thread. Raises EngineClosedError after close, or in a forked process."""
        self.check_open()
        try:
            return self._executor.submit(job)
        except RuntimeError as error:
            raise self._closed() from error

    def call(self, job: Callable[[], T]) -> T:
        """The job's result; at once where the owner thread itself calls, as callbacks of futures do.

        An exception in the waiting thread, as Ctrl-C is, ends the job before its next pass.
        """
        if threading.get_ident() == self._owner and os.getpid() == self._pid:
            return job()
        given_up = threading.Event()
        future = self.submit(partial(self._awaited, job, given_up))
        try:
            return future.result()
        except BaseException:
            given_up.set()
            future.cancel()
            raise

    def _awaited(self, job: Callable[[], T], given_up: threading.Event) -> T:
        self._given_up = given_up
        try:
            return job()
        finally:
            self._given_up = None

    def _go_on(self) -> None:
        if self._given_up is not None and self._given_up.is_set():
            raise CancelledError

    def close(self) -> None:
        """End this use; the last one waits for queued jobs and frees the model. No effect after a fork."""
        if os.getpid() != self._pid:
            return
        with _LOCK:
            if self._users == 0:
                return
            self._users -= 1
            if self._users:
                return
            for key in [key for key, loaded in _LOADED.items() if loaded is self]:
                del _LOADED[key]
        self._executor.submit(self._free)
        self._executor.shutdown(wait=threading.get_ident() != self._owner)

    def _free(self) -> None:
        del self.language, self.prefixes

    def _closed(self) -> EngineClosedError:
        return EngineClosedError(f"model {self.name}", "is closed", help="load the artifact again")

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Streams:
    """Dies with its thread and ends the thread's MLX streams first.

    A stream that is still ending when the process does aborts it (mlx 0.32, about every second time). A
    forked process clears the other threads' values too; there the stream has no thread that could end it.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            mx.synchronize()
            mx.clear_streams()


class _Process:
    """Which process used MLX first: its threads and locks do not come along into a fork."""

    pid: int | None = None


def _check_process(subject: str) -> None:
    """Raises EngineClosedError in a process that was forked after MLX was used."""
    if _Process.pid is None:
        _Process.pid = os.getpid()
    if os.getpid() != _Process.pid:
        raise _forked(subject)


def _forked(subject: str) -> EngineClosedError:
    return EngineClosedError(
        subject,
        "cannot be used in a process that was forked after a model was loaded",
        "MLX does not survive a fork",
        "load after the fork and not before it, or start the process with `spawn`",
    )


_THREAD = threading.local()
_LOCK = threading.RLock()
_LOADED: dict[tuple[int, Path], LoadedModel] = {}


def open_model(name: str | os.PathLike[str], *, folders: bool = True) -> LoadedModel:
    """The model of an alias, hub id or folder, loaded once per process however often it is opened.

    `folders` as in `models.resolve`.
    Raises ModelNotFoundError, HubUnreachableError, ModelNotSupportedError, ExtraMissingError, and
    EngineClosedError in a process that was forked after MLX was used.
    """
    if _Process.pid is not None:
        _check_process("model")
    files = resolve(name, weights=True, folders=folders)
    key = (os.getpid(), files.folder.resolve())
    with _LOCK:
        if key in _LOADED:
            return _LOADED[key].share()
        opener = partial(_open_folder, files.folder, files.name)
        loaded = LoadedModel(files.name, opener, folder=files.folder)
        _LOADED[key] = loaded
        return loaded


def model_for(named: str, model: str | Path | LoadedModel | None) -> LoadedModel:
    """One use of the model that was given, or of the one that a file names; raises as `open_model`."""
    if isinstance(model, LoadedModel):
        return model.share()
    if model is None:
        return open_model(named, folders=False)
    return open_model(model)


def _open_folder(folder: Path, name: str) -> tuple[LanguageModel, Tokenizer]:
    from .model import load_model

    tokenizer = load_tokenizer(folder)
    return load_model(folder, name), tokenizer
