"""From a command to a store and back: open, do one thing, let go.

Only a command that begins something (`create`) makes a store where there is none, or brings its schema up to
date: the others leave a file that is missing, foreign or older as it is, and say so.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from holdfast.contract import Store
from holdfast.engine.client import Client
from holdfast.errors import UsageError
from holdfast.records import ANY, RunFilter
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.sealing.encrypt import ENVIRONMENT
from holdfast.sealing.envelope import hidden_by
from holdfast.stores import make_store, shown
from holdfast.world import RealWorld

from .flags import spoken_of
from .options import DEFAULT_STORE, STORE

T = TypeVar("T")


def store_url() -> str:
    """What --store, HOLDFAST_STORE or the default says, in this order."""
    url: str = click.get_current_context().meta.get(STORE, DEFAULT_STORE)
    return url


def run(work: Callable[[Client], Awaitable[T]], *, create: bool = False) -> T:
    """Do `work` with a client on the chosen store."""
    url = store_url()
    if url.startswith("memory:"):
        raise UsageError(
            f"{shown(url)} lives and ends with one process, so nothing could be found in it: "
            f"use {DEFAULT_STORE}"
        )
    store = _sealed(make_store(url, create=create))
    with spoken_of():
        return asyncio.run(_with_client(Client(store, RealWorld()), work))


def _sealed(store: Store) -> Store:
    """With keys in the environment: behind a codec, as an app that encrypts has it."""
    if not os.environ.get(ENVIRONMENT):
        return store
    # Plain values are shown too: whether they may be there, the app knows and this command does not.
    # Nor does it know whether the app can unpack: it opens what is compressed, and compresses nothing.
    return Sealed(store, [Compress(min_bytes=sys.maxsize), Encrypt.from_env(accept_plain=True)])


async def refuse_plain(client: Client, *, plain: bool) -> None:
    """Before a value is written without keys: into an encrypted store, where no app would take it."""
    if plain or isinstance(client.store, Sealed):
        return
    newest = await client.list(RunFilter(tenant=ANY), 1)
    if newest and (by := hidden_by(newest[0].params_json)):
        raise UsageError(
            f"values of this store are encrypted ({by}): set {ENVIRONMENT}, or --plain if its app takes such"
        )


async def _with_client(client: Client, work: Callable[[Client], Awaitable[T]]) -> T:
    try:
        await client.store.open()
        return await work(client)
    finally:
        await client.store.close()


def operator(by: str | None) -> str:
    """Who types this."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "command line"
