"""One command's use of a store: open it, do one thing, close it.

Only with `create` a missing store is created or an older schema updated. All other commands leave a file that
is missing, foreign or older as it is, and raise an error.
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
from holdfast.engine.app.client import Client
from holdfast.engine.definitions import RESERVED
from holdfast.errors import UsageError
from holdfast.records import ANY, RunFilter
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.sealing.encrypt import ENVIRONMENT
from holdfast.sealing.envelope import hidden_by
from holdfast.stores import make_store, shown
from holdfast.world import RealWorld

from .flags import flags_in_errors
from .options import DEFAULT_STORE, STORE

T = TypeVar("T")

PLAIN_HINT = ", or give --plain if the app accepts unencrypted values"
ENGINE_PAGES, ENGINE_PAGE = 50, 20  # runs of the engine that are passed over, to find one of the app


def store_url() -> str:
    """The URL from --store, else from HOLDFAST_STORE, else the default."""
    url: str = click.get_current_context().meta.get(STORE, DEFAULT_STORE)
    return url


def run(work: Callable[[Client], Awaitable[T]], *, create: bool = False) -> T:
    """Do `work` with a client on the chosen store."""
    url = store_url()
    if url.startswith("memory:"):
        raise UsageError(
            f"{shown(url)} exists only inside one process, so another command cannot find anything in it: "
            f"use {DEFAULT_STORE}"
        )
    store = _sealed(make_store(url, create=create))
    with flags_in_errors():
        return asyncio.run(_with_client(Client(store, RealWorld()), work))


def _sealed(store: Store) -> Store:
    """Wrap the store in a codec when the environment has keys, as an app that encrypts does."""
    if not os.environ.get(ENVIRONMENT):
        return store
    # Values that are not encrypted are shown too: only the app knows whether they are allowed.
    # Compressed values are read, but nothing is compressed: the app may not be able to read that.
    return Sealed(store, [Compress(min_bytes=sys.maxsize), Encrypt.from_env(accept_plain=True)])


async def refuse_plain(client: Client, *, plain: bool, hint: str = PLAIN_HINT) -> None:
    """Refuse to write a value without keys into an encrypted store, where apps would refuse it."""
    if plain or isinstance(client.store, Sealed):
        return
    if by := await _hidden_by(client):
        raise UsageError(f"the values in this store are encrypted ({by}): set {ENVIRONMENT}{hint}")


async def _hidden_by(client: Client) -> str:
    """How the newest run is encrypted. An unencrypted run of the engine itself says nothing: it may have
    been started without keys.
    """
    after = None
    for n in range(ENGINE_PAGES):
        size = ENGINE_PAGE if n else 1  # as a rule the first one tells it
        page = await client.list(RunFilter(tenant=ANY), size, after)
        for run in page:
            if (by := hidden_by(run.params_json)) or not run.type.startswith(RESERVED):
                return by
        if len(page) < size:
            break
        after = page[-1].id
    return ""


async def _with_client(client: Client, work: Callable[[Client], Awaitable[T]]) -> T:
    try:
        await client.store.open()
        return await work(client)
    finally:
        await client.store.close()


def operator(by: str | None) -> str:
    """The name of the person at the keyboard, for the trail."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "command line"
