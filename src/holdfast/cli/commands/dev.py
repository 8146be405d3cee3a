"""`holdfast dev`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from holdfast.cli.follow import HIDDEN_TYPES
from holdfast.cli.logs import log_level_option, show_logs
from holdfast.cli.options import DEFAULT_STORE, no_wait_timeouts_option, store_option
from holdfast.cli.program import program_name
from holdfast.cli.reload import HINT, Supervisor, broken_code_shown, can_watch, obey, watched_folder
from holdfast.cli.signals import ended_by_signals
from holdfast.cli.trail_lines import TrailLines
from holdfast.engine.app.app import App, loop_factory
from holdfast.engine.tracebacks import user_frame
from holdfast.engine.worker.stopping import run
from holdfast.errors import StoreError, UsageError
from holdfast.records import TrailEntry
from holdfast.shown.text import clean, counted
from holdfast.shown.times import day

from .serve import PORT, served
from .worker import load_with_store

LEASE_SECONDS = 3.0


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--reload/--no-reload", default=True, help="Start again when code of the app changes (default)."
)
@click.option("--watched", type=int, hidden=True, help="The pipe of the supervisor that started this worker.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"The port of the HTTP API, on this machine only; {PORT} by default, if it is free.",
)
@click.option("--http/--no-http", default=True, help="Serve the HTTP API too (default).")
@no_wait_timeouts_option
@log_level_option
@store_option()
def dev(
    app: str,
    *,
    reload: bool,
    watched: int | None,
    port: int | None,
    http: bool,
    no_wait_timeouts: bool,
    log_level: str | None,
) -> None:
    """Run a worker and the HTTP API for development; print what happens.

    When a .py file of the app's folder or package changes, the worker gives its runs back and starts again
    with the new code. This needs watchfiles (the extra `dev`). Its leases are short: if you kill it and start
    it again, its runs continue after 3 s. On Ctrl-C and on a reload, running steps have 3 s to finish.
    """
    if watched is None and reload and (folder := _reloads(app)) is not None:
        click.get_current_context().exit(Supervisor(folder).run())
    with ended_by_signals():
        _work(app, watched, port, log_level, http=http, wait_timeouts=not no_wait_timeouts)


def _work(
    app: str, watched: int | None, port: int | None, log_level: str | None, *, http: bool, wait_timeouts: bool
) -> None:
    if watched is None:
        loaded = load_with_store(app)
    else:
        obey(watched)
        with broken_code_shown():
            loaded = load_with_store(app)
        if _address(loaded) is None and getattr(_innermost(loaded), "path", None) is None:
            click.echo("memory:// is in this process: after a reload its runs are gone", err=True)
    if (handler := show_logs(log_level, with_date=False)) is not None:  # as the lines of the trail
        handler.addFilter(_not_in_trail)
    if log_level != "debug":  # the trail below shows the same and more
        logging.getLogger("holdfast.worker").setLevel(logging.WARNING)
        logging.getLogger("holdfast.keeper").setLevel(logging.WARNING)
    run(_dev(loaded, port, http=http, wait_timeouts=wait_timeouts), loop_factory())


def _not_in_trail(record: logging.LogRecord) -> bool:
    """A filter for a log beside the trail: failures and retries of runs are told by the trail."""
    return not hasattr(record, "error_kind")


def _reloads(app: str) -> Path | None:
    """The folder to watch; None if the worker runs without reload, and then a line says why."""
    folder = watched_folder(app)
    if folder is not None and not can_watch():
        click.echo(HINT, err=True)
        return None
    return folder


async def _dev(app: App, port: int | None, *, http: bool, wait_timeouts: bool) -> None:
    await app.store.open()
    trail = asyncio.create_task(_print_trail(app))
    try:
        async with contextlib.AsyncExitStack() as stack:
            lines = await _serve(app, port, stack) if http else []
            _print_examples(app)
            click.echo("".join(f"{line}\n" for line in lines), nl=False, err=True)
            await app.work(lease=LEASE_SECONDS, grace=LEASE_SECONDS, wait_timeouts=wait_timeouts)
    finally:
        trail.cancel()
        await asyncio.wait([trail])


async def _serve(app: App, port: int | None, stack: contextlib.AsyncExitStack) -> list[str]:
    """Serve the HTTP API until the worker has stopped; return lines that say where. Without a port that was
    asked for it may be left out: the worker matters more.
    """
    notes: list[str] = []
    asked = PORT if port is None else port
    try:
        server = await stack.enter_async_context(served(app, port=asked, note=notes.append))
    except UsageError as error:
        if port is not None:
            raise
        return [f"without the HTTP API: {clean(error)}"]
    return [f"dashboard: {server.url}/ui/", f"HTTP API: {server.url}/docs lists the operations", *notes]


async def _print_trail(app: App) -> None:
    last, lines = await _last_seq(app), TrailLines(with_run=True, today=day(datetime.now(UTC)))
    with contextlib.suppress(StoreError):  # the worker closes the store when it stops
        async for entry in app.follow(None, last):
            if entry.type not in HIDDEN_TYPES:
                click.echo("\n".join(lines.lines(entry)) + await _place(app, entry), err=True)


async def _place(app: App, entry: TrailEntry) -> str:
    """The place in the code where a run has failed; its trail has only the message."""
    run = await app.get(entry.run) if entry.type == "failed" else None
    error = None if run is None else run.error
    frame = None if error is None else user_frame(error)
    return "" if frame is None else click.style(f" ({clean(frame)})", fg="red")


async def _last_seq(app: App) -> int:
    """The newest number of the trail, by bisection: a long trail is not read for it."""
    low, high = 0, 1
    while await app.trail(after=high, limit=1):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if await app.trail(after=middle, limit=1) else (low, middle)
    return low


def _print_examples(app: App) -> None:
    url = clean(_url(app))
    store_flag = "" if url == DEFAULT_STORE else f"--store {shlex.quote(url)} "
    click.echo(
        f"{counted(len(app.workflows), 'workflow')} in {url}; Ctrl-C stops. "
        "In another terminal, in this folder:",
        err=True,
    )
    for type_, workflow in list(app.workflows.items())[:5]:
        params = " JSON" if workflow.takes_params else ""
        click.echo(f"  {program_name()} {store_flag}start {clean(type_)}{params} --wait", err=True)
    click.echo(f"  {program_name()} {store_flag}ls", err=True)
    if (address := _address(app)) is not None and address.has_password:
        ways = ", or set PGPASSWORD" if address.typed.startswith("postgres") else ""
        click.echo(f"  (the password is not shown: add it to the URL{ways})", err=True)


def _address(app: App) -> Any:
    """The address of a store on a server; None for other stores."""
    return getattr(_innermost(app), "address", None)


def _innermost(app: App) -> Any:
    return getattr(app.store, "inner", app.store)  # without a codec around it


def _url(app: App) -> str:
    store, address = _innermost(app), _address(app)
    if address is not None:
        return str(address.typed)
    path = getattr(store, "path", None)
    return "memory:// (this process only)" if path is None else f"sqlite:///{path}"
