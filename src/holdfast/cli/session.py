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
from holdfast.engine.app.client import StoreClient
from holdfast.engine.definitions import RESERVED
from holdfast.errors import UsageError
from holdfast.records import ANY, RunFilter
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.sealing.encrypt import ENVIRONMENT
from holdfast.sealing.envelope import hidden_by
from holdfast.stores import make_store, shown
from holdfast.world import RealWorld

from .clients import Client
from .flags import flags_in_errors
from .options import DEFAULT_STORE, STORE

T = TypeVar("T")

KEY = "HOLDFAST_KEY"  # the variable with the API key; an option would show in lists of processes
NO_KEYS = "none"  # instead of the name of a variable: this store is not encrypted
PLAIN_HINT = ", or give --plain if the app accepts unencrypted values"
ENGINE_PAGES, ENGINE_PAGE = 50, 20  # runs of the engine that are passed over, to find one of the app


def store_url() -> str:
    """The URL from --store, else from HOLDFAST_STORE, else the default."""
    url: str = click.get_current_context().meta.get(STORE, DEFAULT_STORE)
    return url


def is_api() -> bool:
    """Return True if the chosen store is the URL of the HTTP API."""
    return store_url().lower().startswith(("http://", "https://"))


def run(work: Callable[[Client], Awaitable[T]], *, create: bool = False) -> T:
    """Do `work` with a client of the chosen store, or of the HTTP API."""
    if is_api():
        return _run_on_api(work)
    return run_on_store(work, create=create)


def run_on_store(work: Callable[[StoreClient], Awaitable[T]], *, create: bool = False) -> T:
    """Do `work` with the store itself."""
    made = client(create=create)
    with flags_in_errors():
        return asyncio.run(_with_client(made, work))


def _run_on_api(work: Callable[[Client], Awaitable[T]]) -> T:
    from holdfast.client.client import Client as ApiClient

    made = ApiClient(store_url(), key=os.environ.get(KEY) or None)

    async def asked() -> T:
        async with made as api:
            who = await api.open()
            return await work(api.of(ANY) if who.is_operator else api)

    with flags_in_errors():
        return asyncio.run(asked())


def client(*, create: bool = False) -> StoreClient:
    """Return a client on the chosen store, which is not open yet."""
    return client_of(store_url(), create=create)


def client_of(url: str, *, create: bool = False, keys: str = ENVIRONMENT) -> StoreClient:
    """Return a client on the store of this URL, which is not open yet. `keys`: the variable with its keys."""
    if url.startswith("memory:"):
        raise UsageError(
            f"{shown(url)} exists only inside one process, so another command cannot find anything in it: "
            f"use {DEFAULT_STORE}"
        )
    return StoreClient(_sealed(make_store(url, create=create), keys), RealWorld())


def _sealed(store: Store, keys: str) -> Store:
    """Wrap the store in a codec when the environment has keys, as an app that encrypts does. `keys`: the
    variable that has them. One that somebody has named must be set, unless it is NO_KEYS."""
    if keys == NO_KEYS or (keys == ENVIRONMENT and not os.environ.get(ENVIRONMENT)):
        return store
    # Values that are not encrypted are shown too: only the app knows whether they are allowed.
    # Compressed values are read, but nothing is compressed: the app may not be able to read that.
    return Sealed(store, [Compress(min_bytes=sys.maxsize), Encrypt.from_env(keys, accept_plain=True)])


async def refuse_plain(client: Client, *, plain: bool, hint: str = PLAIN_HINT) -> None:
    """Refuse to write a value without keys into an encrypted store, where apps would refuse it."""
    if plain or not isinstance(client, StoreClient) or isinstance(client.store, Sealed):
        return
    if by := await _hidden_by(client):
        raise UsageError(f"the values in this store are encrypted ({by}): set {ENVIRONMENT}{hint}")


async def refuse_hidden(client: Client) -> None:
    """Refuse to look for a text in a store whose values are encrypted: without keys it would find nothing,
    and say so. With keys the store itself refuses.
    """
    if not isinstance(client, StoreClient) or isinstance(client.store, Sealed):
        return
    if by := await _hidden_by(client):
        raise UsageError(
            f"the values in this store are encrypted ({by}), so no text can be looked for in them: filter by "
            "label, key, error or time"
        )


async def _hidden_by(client: StoreClient) -> str:
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


def run_on_two(
    source: str,
    target: str,
    work: Callable[[StoreClient, StoreClient], Awaitable[T]],
    *,
    create: bool,
    touch: bool = True,
    keys: tuple[str, str] = (ENVIRONMENT, ENVIRONMENT),
) -> T:
    """Do `work` with two stores. create: the target may be created, or its schema updated. touch=False:
    `work` opens the target, if it needs it. `keys`: the variables with the keys of the two."""
    one, other = client_of(source, keys=keys[0]), client_of(target, create=create, keys=keys[1])

    async def both(client: StoreClient) -> T:
        if not touch:
            try:
                return await work(client, other)
            finally:
                await other.store.close()
        return await _with_client(other, lambda there: work(client, there))

    with flags_in_errors():
        return asyncio.run(_with_client(one, both))


async def _with_client(client: StoreClient, work: Callable[[StoreClient], Awaitable[T]]) -> T:
    try:
        await client.store.open()
        return await work(client)
    finally:
        await client.store.close()


def operator(by: str | None) -> str:
    """The name of the person at the keyboard, for the trail. The HTTP API names the API key there."""
    if is_api():
        if by:
            raise UsageError("--by: through the HTTP API the trail names the API key; leave --by out")
        return ""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "command line"
