"""Redis and Valkey servers: private ones in a temporary folder, or the one of HOLDFAST_TEST_REDIS_URL."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from servers.private import Private, ServerError, free_port
from servers.redis_programs import NAMED_BY, Program, find

# Every write is in the log before it is answered: data survives the death of the process. The disk is memory.
SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
TRIES = 5  # ports that are tried: another process may take one first
TAKEN = ("address already in use", "could not create server", "failed listening")


class Redis:
    """A private server. It listens on a unix socket in its folder.

    listens: settings for ports of the loopback, such as `port` or `tls-port`; the kernel chooses each port.
    """

    def __init__(
        self, private: Private, program: Program, settings: Mapping[str, str], listens: Sequence[str] = ()
    ) -> None:
        self._private, self._settings = private, SETTINGS | dict(settings)
        self._program = program.runnable_by(private.account, private.folder)
        self._listens, self.ports = listens, dict[str, int]()
        self.program = program
        self.folder = private.folder
        self.version = program.version
        self.pid = 0

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def port(self) -> int:
        return self.ports["port"]

    def url(self, prefix: str = "holdfast") -> str:
        """Return the URL for Holdfast's store."""
        return f"unix://{self.socket}?prefix={prefix}&durability=memory"

    def client(self) -> redis.Redis:
        """Return a connection that does not use the store."""
        password = self._settings.get("requirepass")
        return redis.Redis(unix_socket_path=str(self.socket), password=password, decode_responses=True)

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings for the next start."""
        self._settings |= settings

    def start(self) -> None:
        """Start on the existing data, at the same ports as before."""
        for tries in range(1, TRIES + 1):
            ports = self.ports or self._chosen()
            words = [str(self._program.path), *self._options(ports)]
            self.pid = self._private.start(words, self._program.env())
            try:
                self._private.wait_until(self._identify, not_yet=redis.ConnectionError)
            except ServerError:
                if self.ports or tries == TRIES or not any(word in self.log().lower() for word in TAKEN):
                    raise
            else:
                self.ports = ports
                return

    def _chosen(self) -> dict[str, int]:
        return {name: free_port() for name in self._listens}

    def _options(self, ports: Mapping[str, int]) -> list[str]:
        where = {"port": 0, "bind": "127.0.0.1", "unixsocket": self.socket, "dir": self.folder, **ports}
        options = {name: str(value) for name, value in where.items()} | self._settings
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _identify(self) -> None:
        """Check that the server that answers is ours."""
        with self.client() as client:
            try:
                info: Any = client.info("server")
            except redis.exceptions.BusyLoadingError as error:
                raise redis.ConnectionError("it is loading its data") from error
        if info["process_id"] != self.pid:
            raise ServerError(f"another server answers at {self.socket}: process {info['process_id']}")

    def pause(self) -> None:
        """Let the server stand still: its connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        self._private.end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop as an administrator does."""
        self._private.end(signal.SIGTERM)

    def log(self) -> str:
        return self._private.log()


class NamedRedis:
    """A server that somebody else runs. Only keys with prefixes of our own are used."""

    def __init__(self, url: str) -> None:
        self._url, self._unique = url, secrets.token_hex(6)
        try:
            with self.client() as client:
                info: Any = client.info("server")
        except redis.ConnectionError as error:
            raise ServerError(f"{NAMED_BY} names a server that does not answer: {error}") from error
        self.version = str(info.get("valkey_version") or info["redis_version"])

    def url(self, prefix: str = "holdfast") -> str:
        mark = "&" if "?" in self._url else "?"
        return f"{self._url}{mark}prefix=test-{self._unique}-{prefix}&durability=memory"

    def client(self) -> redis.Redis:
        client: redis.Redis = redis.Redis.from_url(self._url, decode_responses=True)
        return client


@contextmanager
def running_redis(
    settings: Mapping[str, str] | None = None,
    *,
    durable: bool = False,
    listens: Sequence[str] = (),
    program: Program | None = None,
) -> Iterator[Redis]:
    """Run a private server. durable: its data is on a disk."""
    program = program or find()
    with Private("redis", durable=durable) as private:
        server = Redis(private, program, settings or {}, listens)
        server.start()
        yield server


@contextmanager
def redis_for_tests() -> Iterator[Redis | NamedRedis]:
    """Run the server for tests: the one of HOLDFAST_TEST_REDIS_URL, else a private one."""
    if named := os.environ.get(NAMED_BY):
        yield NamedRedis(named)
    else:
        with running_redis() as own:
            yield own


def forget(client: redis.Redis, url: str) -> None:
    """Remove all keys of the namespace of a store URL."""
    prefix = url.partition("prefix=")[2].partition("&")[0]
    keys = list(client.scan_iter(match=f"[{{]{prefix}[}}]:*", count=1000))
    for at in range(0, len(keys), 1000):
        client.unlink(*keys[at : at + 1000])
