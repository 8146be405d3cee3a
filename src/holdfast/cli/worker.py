"""`holdfast worker` and `holdfast dev`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
from collections.abc import Iterator
from typing import Any

import click

from holdfast.arguments import check_patterns
from holdfast.engine.app import App, loop_factory
from holdfast.engine.definitions import matches
from holdfast.engine.stopping import SIGNALS, ending_process, run
from holdfast.engine.worker import SLOTS
from holdfast.errors import StoreError, UsageError
from holdfast.stores import make_store, shown

from .flags import spoken_of
from .follow import UNTOLD, follow
from .load import load_app
from .logs import show_logs
from .options import (
    DEFAULT_STORE,
    STORE,
    STORE_TYPED,
    STORES,
    duration_option,
    no_wait_timeouts_option,
    store_option,
    stores_option,
)
from .program import spoken
from .text import clean
from .words import line

DEV_LEASE_SECONDS = 3.0


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option("--slots", type=click.IntRange(1), metavar="N", help="Runs executed at once; 100 by default.")
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="TYPE",
    help="Only these types: billing.% or a whole name; may be given again.",
)
@click.option(
    "--tenant", "tenants", multiple=True, metavar="NAME", help="Only these tenants' runs; may be given again."
)
@duration_option("--lease", "How long a silent worker keeps its runs; 30 s by default.")
@duration_option("--grace", "What running steps get when told to stop; 10 s by default.")
@click.option("--name", metavar="NAME", help="The readable part of the worker's id.")
@no_wait_timeouts_option
@stores_option
def worker(
    app: str, patterns: tuple[str, ...], tenants: tuple[str, ...], *, no_wait_timeouts: bool, **options: Any
) -> None:
    """Execute runs until told to stop.

    MODULE:APP is where your App is, as in orders:app. SIGTERM or Ctrl-C stops gracefully, a second
    one at once. With several stores it is a worker at each, with slots of its own.
    """
    with _ended_by_signals():
        _work(app, patterns, tenants, {**options, "wait_timeouts": not no_wait_timeouts})


def _work(app: str, patterns: tuple[str, ...], tenants: tuple[str, ...], options: dict[str, Any]) -> None:
    loaded = _loaded(app)
    given = {key: value for key, value in options.items() if value is not None}
    if tenants:
        given["tenants"] = tenants
    if patterns:
        given["patterns"] = _checked(patterns, loaded)
    show_logs()
    stores = click.get_current_context().meta.get(STORES, ())
    if len(stores) > 1:
        given["stores"] = stores
        _greet_all(stores, given.get("slots", SLOTS))
    with spoken_of(), ending_process():
        loaded.run(**given)


def _greet_all(stores: tuple[str, ...], slots: int) -> None:
    click.echo(f"a worker at each of {len(stores)} stores, {slots} slots each:", err=True)
    for url in stores:
        click.echo(f"  {clean(shown(url))}", err=True)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Before it works and when it has stopped, nothing is held: a signal then just ends the process."""

    def end(*_: object) -> None:
        os._exit(0)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        yield
    except BaseException:
        for number, handler in before.items():
            signal.signal(number, handler)
        raise
    for number in SIGNALS:
        signal.signal(number, end)


@click.command()
@click.argument("app", metavar="MODULE:APP")
@no_wait_timeouts_option
@store_option()
def dev(app: str, *, no_wait_timeouts: bool) -> None:
    """Worker and keeper for your own machine, telling what happens.

    Leases are short, so that a run goes on 3 s after you have killed this; told to stop, running steps
    get 3 s too.
    """
    loaded = _loaded(app)
    show_logs()
    # Its end is told by the trail, which tells more.
    logging.getLogger("holdfast.worker").setLevel(logging.WARNING)
    logging.getLogger("holdfast.keeper").setLevel(logging.WARNING)
    run(_dev(loaded, wait_timeouts=not no_wait_timeouts), loop_factory())


async def _dev(app: App, *, wait_timeouts: bool) -> None:
    await app.store.open()
    _greet(app)
    teller = asyncio.create_task(_tell(app))
    try:
        await app.work(lease=DEV_LEASE_SECONDS, grace=DEV_LEASE_SECONDS, wait_timeouts=wait_timeouts)
    finally:
        teller.cancel()
        await asyncio.wait([teller])


async def _tell(app: App) -> None:
    last = await _last_seq(app)
    with contextlib.suppress(StoreError):  # the worker closes the store when it is told to stop
        async for entry in follow(app, None, last):
            if entry.type not in UNTOLD:
                click.echo(line(entry, with_run=True), err=True)


async def _last_seq(app: App) -> int:
    """The newest number of the trail, by halving: a long trail is not read for it."""
    low, high = 0, 1
    while await app.trail(after=high, limit=1):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if await app.trail(after=middle, limit=1) else (low, middle)
    return low


def _greet(app: App) -> None:
    url, count = clean(_url(app)), len(app.workflows)
    elsewhere = "" if url == DEFAULT_STORE else f"--store {shlex.quote(url)} "
    click.echo(
        f"{count} workflow{'s' * (count != 1)} in {url}; Ctrl-C stops. In another terminal, in this folder:",
        err=True,
    )
    for type_, workflow in list(app.workflows.items())[:5]:
        params = " JSON" if workflow.takes_params else ""
        click.echo(f"  {spoken()} {elsewhere}start {clean(type_)}{params} --wait", err=True)
    click.echo(f"  {spoken()} {elsewhere}ls", err=True)
    if (address := _address(app)) is not None and address.has_password:
        click.echo("  (the password is not shown: put it into the URL, or set PGPASSWORD)", err=True)


def _address(app: App) -> Any:
    """Of a server."""
    return getattr(_innermost(app), "address", None)


def _innermost(app: App) -> Any:
    return getattr(app.store, "inner", app.store)  # behind a codec


def _url(app: App) -> str:
    store, address = _innermost(app), _address(app)
    if address is not None:
        return str(address.typed)
    path = getattr(store, "path", None)
    return "memory:// (this process only)" if path is None else f"sqlite:///{path}"


def _loaded(said: str) -> App:
    """The App on its store: --store wins over what its code says, and that over HOLDFAST_STORE."""
    meta = click.get_current_context().meta
    if STORE in meta:
        os.environ["HOLDFAST_STORE"] = meta[STORE]
    app = load_app(said)
    if meta.get(STORE_TYPED):
        app.store = make_store(meta[STORE])
    if not app.workflows:
        raise UsageError(f'{said} has no workflows: decorate a function with @app.workflow("shop.order.v1")')
    return app


def _checked(patterns: tuple[str, ...], app: App) -> tuple[str, ...]:
    checked = check_patterns(patterns)
    if not any(matches(type_, checked) for type_ in app.workflows):
        raise UsageError(
            f"no workflow of this app fits {' or '.join(checked)}: it has {', '.join(app.workflows)}"
        )
    return checked
