"""`holdfast serve`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli import session
from holdfast.cli.flags import flags_in_errors
from holdfast.cli.logs import log_format_option, log_level_option, show_logs
from holdfast.cli.options import store_option
from holdfast.cli.signals import ended_by_signals
from holdfast.engine.app.app import App, loop_factory
from holdfast.engine.app.client import StoreClient
from holdfast.engine.worker.stopping import run
from holdfast.engine.worker.worker import Worker
from holdfast.errors import UsageError
from holdfast.http import extra_installed
from holdfast.records import ANY

from .worker import load_with_store

if TYPE_CHECKING:
    from holdfast.http.serving import Server

F = TypeVar("F", bound=Callable[..., Any])
HOST, PORT = "127.0.0.1", 8080
COLOURS = ("grey", "blue", "green", "yellow", "orange", "red", "purple")
BULK_SLOTS = 5  # bulk operations at once
NO_KEY = (
    "the store has no API key: everyone on this machine can use the API; "
    "`holdfast keys create NAME --scope SCOPE` makes the first key, and then every request needs one"
)


def environment_options(command: F) -> F:
    """The name and the colour of the environment, for the pages."""
    named = click.option(
        "--environment",
        envvar="HOLDFAST_ENV_NAME",
        default="",
        metavar="NAME",
        help="Shown above each page of the dashboard, such as production; also HOLDFAST_ENV_NAME.",
    )
    coloured = click.option(
        "--colour",
        envvar="HOLDFAST_ENV_COLOUR",
        default="grey",
        type=click.Choice(COLOURS),
        help="The colour of that name; also HOLDFAST_ENV_COLOUR.",
    )
    return named(coloured(command))


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--host", default=HOST, metavar="ADDRESS", help=f"The address to listen on; {HOST} by default.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    metavar="N",
    help=f"The port; {PORT} by default, 0 for a free one.",
)
@click.option(
    "--worker", "with_worker", is_flag=True, help="Also execute runs of MODULE:APP in this process."
)
@click.option(
    "--slots",
    type=click.IntRange(1),
    metavar="N",
    help="With --worker: execute at most so many runs at once.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust X-Forwarded-For and -Proto of this proxy (an address or network); may be repeated.",
)
@click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM).")
@environment_options
@log_level_option
@log_format_option
@store_option()
def serve(
    app: str | None, *, with_worker: bool, log_level: str | None, log_format: str | None, **options: Any
) -> None:
    """Serve the HTTP API and the dashboard until it is stopped.

    Requests need an API key: `holdfast keys create` makes one. While the store has no key at all, the server
    listens only on this machine (loopback) and lets everyone in. The dashboard is at /ui/, and /docs lists
    the operations.

    It executes no runs of your code, except with --worker. Workers in any language can execute runs through
    it (the worker protocol); then it also does the chores of `holdfast tick --loop`. Without MODULE:APP it
    serves any store; the params of starts are then not checked against your code.
    """
    if with_worker and app is None:
        raise click.UsageError(
            "--worker executes runs of an app: name it, as in `holdfast serve shop:app --worker`"
        )
    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        raise click.UsageError("give --tls-cert and --tls-key together")
    show_logs(log_level, log_format)
    with ended_by_signals():
        _work(app, options, with_worker=with_worker)


def _work(app: str | None, options: dict[str, Any], *, with_worker: bool) -> None:
    loaded: StoreClient = session.client(create=True) if app is None else load_with_store(app)
    slots = options.pop("slots")
    keeps = with_worker and isinstance(loaded, App)
    worker = _worker(loaded, slots) if keeps and isinstance(loaded, App) else _bulk_worker(loaded)
    with flags_in_errors():
        run(_serve(loaded, worker, options, keeps=keeps), loop_factory())


def _worker(app: App, slots: int | None) -> Worker:
    from holdfast.telemetry import measure

    measure(app)  # /metrics shows what the worker of this process does
    return app.worker() if slots is None else app.worker(slots=slots)


def _bulk_worker(client: StoreClient) -> Worker:
    """A worker for the workflows of the engine itself."""
    return Worker(client.store, client.world, {}, name="serve", slots=BULK_SLOTS, keeper=False, relay=False)


async def _serve(client: StoreClient, worker: Worker, options: dict[str, Any], *, keeps: bool) -> None:
    await client.store.open()
    try:
        async with served(client, ring=_keeper_of(worker) if keeps else None, **options) as server:
            stopped = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _stop, stopped, worker)
            async with worker:
                url = server.url
                places = f"{url}/ui/ is the dashboard, {url}/docs lists the operations"
                click.echo(f"serving {url}; {places}; Ctrl-C stops", err=True)
                await stopped.wait()
                click.echo("stopping; press Ctrl-C again to stop now", err=True)
                await server.stop()  # before the worker, whose running steps have their grace period
    finally:
        await client.store.close()


def _keeper_of(worker: Worker) -> Callable[[], None]:
    """Return the function that wakes the keeper of a worker in this process: it keeps the leases of workers
    over HTTP too.
    """

    def ring() -> None:
        if (keeper := getattr(worker, "keeper", None)) is not None:  # none before the worker has begun
            keeper.wake_up.ring()

    return ring


def _stop(stopped: asyncio.Event, worker: Worker) -> None:
    """Note a signal: the first one asks for a graceful stop, the second one ends the grace period."""
    if stopped.is_set():
        worker.hurry()
    worker.drain()
    stopped.set()


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextlib.asynccontextmanager
async def served(
    client: StoreClient,
    *,
    host: str = HOST,
    port: int = PORT,
    proxies: tuple[str, ...] = (),
    tls_cert: str | None = None,
    tls_key: str | None = None,
    note: Callable[[str], None] | None = None,
    ring: Callable[[], None] | None = None,
    environment: str = "",
    colour: str = "grey",
) -> AsyncIterator[Server]:
    """Serve the API while the block runs; yield the server. note: called with a line about missing keys.
    ring, environment, colour: as in `asgi`.
    """
    with extra_installed():
        from holdfast.http.connections import connections_max, raise_file_limit, streams_within
        from holdfast.http.server import asgi
        from holdfast.http.serving import Server, is_loopback
    has_keys = bool(await client.store.keys(ANY, 1))
    if not has_keys and not is_loopback(host):
        raise UsageError(
            f"the store has no API key yet, so the server listens on loopback only, not on {host}: "
            "create a key first with `holdfast keys create NAME --scope …`"
        )
    if not has_keys:
        (note or _say)(NO_KEY)
    raise_file_limit()
    connections = connections_max()
    streams = streams_within(connections)
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    server = Server(
        asgi(
            client,
            open=not has_keys,
            check_host=not has_keys,
            until_keys=True,
            streams=streams,
            ring=ring,
            environment=environment,
            colour=colour,
        ),
        host,
        port,
        proxies=proxies,
        tls=tls,
        connections=connections,
    )
    await server.begin()
    try:
        yield server
    finally:
        await server.stop()
