"""A model hub on this machine: what `HF_ENDPOINT` needs to point at so that a download can be tested.

It serves the repositories below one folder (`org/name/files`) with the few routes that huggingface_hub's
`snapshot_download` asks: model info, file tree, file head, file body. `requests` records what was asked.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """Serves `root`; a repository that is in `gated` answers as one whose terms were not accepted."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.gated: set[str] = set()
        self.requests: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def files_sent(self) -> set[str]:
        """Names of the files whose bodies were asked for."""
        gets = [line.removeprefix("GET ") for line in self.requests if line.startswith("GET ")]
        return {path.rpartition("/")[2] for path in gets if "/resolve/" in path}


@contextmanager
def serving(root: Path) -> Iterator[Hub]:
    """A running hub over `root`, stopped at the end."""
    hub = Hub(root)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


def commit_of(repo: str) -> str:
    """The one commit that a repository has here."""
    return hashlib.sha1(repo.encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output clean; `Hub.requests` has it all."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append(f"{self.command} {path}")
        parts = path.split("/")
        owner_and_name = parts[2:4] if parts[:2] == ["api", "models"] else parts[:2]
        repo = "/".join(owner_and_name)
        folder = self.server.root / repo
        if ".." in parts or len(owner_and_name) != 2 or not folder.is_dir():
            self._fail(401, "RepoNotFound", body)
        elif repo in self.server.gated:
            self._fail(403, "GatedRepo", body)
        elif parts[:2] == ["api", "models"]:
            kind = parts[4] if len(parts) > 4 else "revision"
            content = _tree(folder) if kind == "tree" else _info(repo, folder)
            self._send(json.dumps(content).encode(), {"Content-Type": "application/json"}, body)
        elif parts[2:3] == ["resolve"] and (file := folder.joinpath(*parts[4:])).is_file():
            data = file.read_bytes()
            self._send(data, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": commit_of(repo)}, body)
        else:
            self._fail(404, "EntryNotFound", body)

    def _send(self, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(200)
        for key, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _fail(self, status: int, code: str, body: bool) -> None:
        data = json.dumps({"error": code}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _info(repo: str, folder: Path) -> dict[str, object]:
    names = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
    return {
        "id": repo,
        "sha": commit_of(repo),
        "siblings": [{"rfilename": name} for name in names],
        "tags": [],
    }


def _tree(folder: Path) -> list[dict[str, object]]:
    return [
        {
            "type": "file",
            "path": str(file.relative_to(folder)),
            "size": file.stat().st_size,
            "oid": _oid(file.read_bytes()),
        }
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]
