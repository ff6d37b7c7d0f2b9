"""A PostgreSQL server of the tests' own: Debian's programs, a new data folder, a socket in it and no port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

PASSWORD = "s3cret/with@signs"
USER = "owner"


@dataclass(frozen=True)
class Server:
    """A running server; `url` names the database with the password in `${PCDC_TEST_PASSWORD}`."""

    folder: Path
    programs: Path

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{USER}:${{PCDC_TEST_PASSWORD}}@/postgres?host={self.folder}"

    def execute(self, *statements: str) -> None:
        """Run statements on a connection of their own and commit."""
        import psycopg

        with psycopg.connect(
            host=str(self.folder), user=USER, password=PASSWORD, dbname="postgres"
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def start(self) -> None:
        self._control("start", "-o", f"-k {quote(str(self.folder))} -c listen_addresses='' -c fsync=off")

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def _control(self, *arguments: str) -> None:
        as_user(
            self.programs / "pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-w", *arguments
        )


def programs() -> Path:
    """The folder of the newest installed server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if not found:
        raise AssertionError("these tests need a PostgreSQL server: apt-get install postgresql")
    return found[-1].parent


def as_user(*command: object) -> None:
    """Run a program; the server refuses to run as root, so there it runs as the package's own user."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    # Not captured through a pipe: the server keeps it open after `pg_ctl` is done.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [*prefix, *map(str, command)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd="/",
            check=False,
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode()


@contextmanager
def server() -> Iterator[Server]:
    """Start a server; it and its data are gone afterwards. The folder's path is short, as sockets ask for."""
    folder = Path(tempfile.mkdtemp(prefix="pcdc-pg-"))
    running = Server(folder, programs())
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        if os.geteuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "postgres")
        options = ("--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync", "-U", USER)
        as_user(running.programs / "initdb", "-D", folder / "data", *options, f"--pwfile={secret}")
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
