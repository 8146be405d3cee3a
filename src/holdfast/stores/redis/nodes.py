"""The node that has the namespace: the server of the URL, or a node of the cluster that this server is in.

A new connection is greeted: the store learns which server answers. If it is another process than before, or
has been a replica meanwhile, writes may have been lost, and a new epoch begins (scripts/epoch.lua). In a
cluster, a node that does not have the namespace answers with the address of the node that does.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 - the driver's
    ResponseError,
)
from redis.exceptions import TimeoutError as TooLate

from holdfast.errors import SchemaMismatch, StoreError
from holdfast.escaping import safe_logger

from .address import Address
from .errors import redirect
from .link import Command, Driver, Link, Node, packed
from .names import Names
from .scripts import script
from .settings import fields, refuse, server_of

HOPS = 16  # nodes that are asked before one has the namespace
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.002, 0.25  # before another try, doubled each time
SCHEMA = 1  # version of keys and fields
EPOCH_MAX = 2**10  # the random part of a new epoch
REVERTING = (9, 1)  # Valkey: see _rewrite_log
_UNREACHABLE = (ConnectionError, TooLate, OSError)

log = safe_logger("holdfast.redis")


class Nodes:
    """The servers that a store may have to ask, and the one that has its namespace."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._names = Names(address.prefix)
        self.absent = self._names("absent")
        self._driver = Driver(address.url)
        self.is_met = False  # a server has answered; before, the next two are not known
        self.is_cluster = False
        self.flagged = True  # the server knows flags of scripts
        self.node: Node | None = None  # the node that has the namespace; None: the server of the URL
        self._known: list[Node] = []  # all nodes of the cluster

    def keys(self, *keys: str) -> tuple[Any, ...]:
        """Return the keys of a script, with their count.

        In a cluster, a key that never exists is among them. While keys move to another node, no node has all,
        and a node refuses such a script. Otherwise a script could find in its middle that a key has gone, and
        what it has written stays.
        """
        return (len(keys) + 1, *keys, self.absent) if self.is_cluster else (len(keys), *keys)

    async def connected(self, node: Node | None = None) -> Link:
        """Return a connection to a node; without one, to the first node that can be reached."""
        if node is not None:
            return await self._driver.connected(node)
        *places, last = self._places()
        for place in places:
            try:
                return await self._driver.connected(place)
            except AuthenticationError:
                raise
            except _UNREACHABLE:
                continue
        return await self._driver.connected(last)

    def near(self, link: Link, node: Node) -> Node:
        """Return a node that another one has named. Without a host it is on the same host."""
        host, port = node
        if link.node is None:
            raise StoreError(
                f"{self.address.shown}: it is a node of a cluster, and the namespace is on another node, "
                f"{host}:{port}: write redis://host:port instead of unix://"
            )
        return (host or link.node[0], port)

    def _places(self) -> list[Node | None]:
        return list(dict.fromkeys((self.node, None, *self._known)))

    async def opened(self, seconds: float) -> Link:
        """Return a connection to the node that has the namespace: ask one node after the other."""
        places, tried = self._places(), set[Node | None]()
        for _ in range(HOPS):
            place = places.pop(0)
            tried.add(place)
            try:
                link = await self._driver.connected(place)
            except AuthenticationError:
                raise
            except _UNREACHABLE:
                if not places:
                    raise
                continue
            try:
                elsewhere = await self._greet(link, seconds)
            except BaseException:
                link.close()
                raise
            if elsewhere is None:
                self.node = place
                return link
            link.close()
            if elsewhere in tried:
                host, port = elsewhere
                raise ConnectionError(
                    f"node {host}:{port} of the cluster has the namespace, and cannot be reached"
                )
            places.insert(0, elsewhere)
        raise ConnectionError(f"no node of the cluster has the namespace, after {HOPS} tries")

    async def _greet(self, link: Link, seconds: float) -> Node | None:
        """Begin an epoch if the server is new, and refuse it if it may lose runs: it may have other settings
        than the one before. Return the node that has the namespace, if it is another."""
        parts = await _answers(link, [("INFO", "server"), ("INFO", "replication")], seconds)
        found = {name: value for part in parts for name, value in fields(part).items()}
        self.flagged = int(found.get("redis_version", "7").partition(".")[0]) >= 7
        self.is_cluster = "cluster" in {found.get("redis_mode"), found.get("server_mode")}
        self.is_met = True
        if self.is_cluster:
            await self._learn(link, seconds)
        text, step = script("epoch", flagged=self.flagged).text, 1 + secrets.randbelow(EPOCH_MAX)
        keys = (self._names.numbers, self._names.trail, self.absent)
        try:
            answer = await _answer(link, ("EVAL", text, 3, *keys, _identity(found), step, SCHEMA), seconds)
        except ResponseError as error:
            why = redirect(error)
            if why is None or why.word != "MOVED" or why.node is None:
                raise
            return self.near(link, why.node)
        schema, is_new, lacking = answer
        if schema is not None and int(schema) != SCHEMA:
            raise SchemaMismatch(
                f"{self.address.shown}: namespace {self.address.prefix} has version {schema} of the keys, "
                f"and this library knows {SCHEMA}: use the library that wrote it, or another prefix"
            )
        if lacking:
            raise StoreError(
                f"{self.address.shown}: the user of the store may not call {', '.join(lacking)}: allow it, "
                "or a script would fail in its middle"
            )
        # Each new connection looks: settings may be changed while the server runs.
        server = await server_of(lambda commands: _answers(link, commands, seconds))
        refuse(server, self.address.shown, self.address.durability)
        if is_new and not _reverts_transactions(found):
            await _rewrite_log(link, seconds)
        if self.address.aof:
            await self._refuse_empty_promise(link, seconds)
        return None

    async def _learn(self, link: Link, seconds: float) -> None:
        """Learn the nodes of the cluster: any of them knows who has the namespace when its node is gone. A
        socket leads to one node only."""
        if link.node is None:
            return
        try:
            ranges = await _answer(link, ("CLUSTER", "SLOTS"), seconds)
        except ResponseError:  # not allowed: then the URL alone leads to the cluster
            return
        nodes = [
            self.near(link, (node[0] or "", node[1]))
            for _, _, *nodes in ranges
            for node in nodes
            if node[0] != "?"
        ]
        self._known = list(dict.fromkeys(nodes))

    async def _refuse_empty_promise(self, link: Link, seconds: float) -> None:
        """Refuse aof=1 where WAITAOF is not known, or where its answer says nothing."""
        try:
            await _answer(link, ("WAITAOF", 1, 0, 1), seconds)
        except ResponseError as error:
            raise StoreError(
                f"{self.address.shown}: aof=1 in the store URL needs WAITAOF (Redis 7.2, Valkey) and "
                f"appendonly yes: {error}"
            ) from error
        try:
            said = await _answer(link, ("CONFIG", "GET", "appendfsync"), seconds)
        except ResponseError:
            said = ["appendfsync", "unknown"]
        if said[1:] != ["always"]:
            raise StoreError(
                f"{self.address.shown}: aof=1 in the store URL promises nothing with appendfsync {said[1]}: "
                "the server may answer WAITAOF before the write is on the disk: set appendfsync always, or "
                "leave aof=1 out"
            )


def _identity(server: Mapping[str, str]) -> str:
    """Return the id of a server: that of its process, and that of its replication history. The second one
    changes when the server has been a replica meanwhile, and may have dropped writes."""
    return f"{server.get('run_id', '')}:{server.get('master_replid', '')}"


def _reverts_transactions(server: Mapping[str, str]) -> bool:
    """Return True for servers that remove the whole of a transaction whose end is not in the log."""
    version = server.get("valkey_version", "0").split(".")
    return tuple(int(part) for part in version[:2] if part.isdecimal()) >= REVERTING


async def _rewrite_log(link: Link, seconds: float) -> None:
    """Ask a server that has just started to write its append-only file anew, if it has one.

    The file may end inside a transaction, after a power cut. The server does not carry such a transaction
    out, but most versions leave its complete commands in the file: the next start would carry these out,
    together with the next transaction. A new file does not have them.
    """
    try:
        found = fields(await _answer(link, ("INFO", "persistence"), seconds))
        if found.get("aof_enabled") == "1" and found.get("aof_last_rewrite_time_sec", "-1") == "-1":
            await _answer(link, ("BGREWRITEAOF",), seconds)
    except ResponseError as error:  # not allowed, or under way
        log.info("the server does not rewrite its append-only file: %s", error)


async def _answers(link: Link, commands: Sequence[Command], seconds: float) -> list[Any]:
    answers = await link.send(packed(commands), len(commands), seconds)
    for answer in answers:
        if isinstance(answer, ResponseError):
            raise answer
    return answers


async def _answer(link: Link, command: Command, seconds: float) -> Any:
    return (await _answers(link, [command], seconds))[0]
