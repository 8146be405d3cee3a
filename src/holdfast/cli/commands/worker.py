"""`holdfast worker`."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

import click

from holdfast.arguments import check_patterns
from holdfast.cli.flags import flags_in_errors
from holdfast.cli.load import load_app
from holdfast.cli.logs import log_format_option, log_level_option, show_logs
from holdfast.cli.options import (
    STORE,
    STORE_TYPED,
    STORES,
    duration_option,
    no_wait_timeouts_option,
    stores_option,
)
from holdfast.cli.signals import ended_by_signals
from holdfast.engine.app.app import App, store_of
from holdfast.engine.definitions import matches
from holdfast.engine.worker.stopping import ending_process
from holdfast.engine.worker.worker import SLOTS
from holdfast.errors import UsageError
from holdfast.shown.text import clean
from holdfast.stores import shown

PORTS_MAX = 1000  # ports in one range
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def _ports(_context: click.Context, _option: click.Parameter, value: str | None) -> range | None:
    """Return the ports of `9464` or `9464-9473`."""
    if value is None:
        return None
    found = _RANGE.fullmatch(value)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if not 0 <= last - first < PORTS_MAX or last > 65535:
        raise click.BadParameter("give a port, 9464, or a range of at most 1000 ports, 9464-9473")
    return range(first, last + 1)


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--slots",
    type=click.IntRange(1),
    metavar="N",
    help="Execute at most so many runs at once; 100 by default.",
)
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="TYPE",
    help="Only workflows of this type: billing.% or a whole name; may be repeated.",
)
@click.option(
    "--tenant", "tenants", multiple=True, metavar="NAME", help="Only runs of this tenant; may be repeated."
)
@duration_option(
    "--lease", "When this worker dies, others take over its runs after this time; 30 s by default."
)
@duration_option("--grace", "On Ctrl-C, running steps have this time to finish; 10 s by default.")
@click.option(
    "--runtime",
    metavar="NAME",
    help="Execute only types that the registry gives to this runtime, or to none; python by default.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    metavar="N",
    help="Claim at most so many runs in one transaction; as many as there are slots by default.",
)
@duration_option(
    "--poll",
    "Look for runs at least this often; 33 s by default where the store tells of new runs, else 1 s.",
)
@click.option("--name", metavar="NAME", help="The first part of the worker's id.")
@no_wait_timeouts_option
@click.option(
    "--metrics-port",
    metavar="PORT[-PORT]",
    callback=_ports,
    help="Serve metrics for Prometheus at this port, or at the first free port of a range.",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    help="Serve metrics at this address, 127.0.0.1 by default. Whoever reaches it may read them.",
)
@click.option(
    "--metrics-store",
    is_flag=True,
    help="Serve the metrics of the whole store, too. One process should: `holdfast serve` does.",
)
@log_level_option
@log_format_option
@stores_option
def worker(
    app: str,
    patterns: tuple[str, ...],
    tenants: tuple[str, ...],
    *,
    no_wait_timeouts: bool,
    **options: Any,
) -> None:
    """Execute runs until it is stopped.

    MODULE:APP names your App, such as orders:app. SIGTERM or Ctrl-C lets running steps finish (see --grace);
    a second one stops at once. With several --store options there is one worker at each store.

    With --store https://HOST the worker reaches a server, and not the database. The API key in HOLDFAST_KEY
    needs the scope work.
    """
    with ended_by_signals():
        _work(app, patterns, tenants, {**options, "wait_timeouts": not no_wait_timeouts})


def _work(app: str, patterns: tuple[str, ...], tenants: tuple[str, ...], options: dict[str, Any]) -> None:
    loaded = load_with_store(app, served=True)
    level, format_ = options.pop("log_level"), options.pop("log_format")
    metrics = _metrics(loaded, **{name: options.pop(f"metrics_{name}") for name in ("port", "host", "store")})
    given = {key: value for key, value in options.items() if value is not None}
    if tenants:
        given["tenants"] = tenants
    if patterns:
        given["patterns"] = _checked(patterns, loaded)
    show_logs(level, format_)
    stores = click.get_current_context().meta.get(STORES, ())
    if len(stores) > 1:
        given["stores"] = stores
        _print_stores(stores, given.get("slots", SLOTS))
    with flags_in_errors(), ending_process(), metrics:
        loaded.run(**given)


def _metrics(
    app: App, *, port: range | None, host: str | None, store: bool
) -> contextlib.AbstractContextManager[Any]:
    """Return what serves the metrics while the worker works."""
    if port is None:
        if host is not None or store:
            raise UsageError("--metrics-host and --metrics-store need --metrics-port")
        return contextlib.nullcontext()
    if store and len(click.get_current_context().meta.get(STORES, ())) > 1:
        raise UsageError("--metrics-store reports one store, and there are several --store options")
    from holdfast.telemetry.serving import HOST, MetricsServer

    return MetricsServer(app, port, host=host or HOST, store=store)


def _print_stores(stores: tuple[str, ...], slots: int) -> None:
    click.echo(f"one worker at each of {len(stores)} stores, with {slots} slots each:", err=True)
    for url in stores:
        click.echo(f"  {clean(shown(url))}", err=True)


def load_with_store(name: str, *, served: bool = False) -> App:
    """The App with its store: --store wins over the code of the app, and the code over HOLDFAST_STORE.
    served: the store may be a server of the HTTP API.
    """
    meta = click.get_current_context().meta
    if STORE in meta:
        os.environ["HOLDFAST_STORE"] = meta[STORE]
    app = load_app(name)
    if meta.get(STORE_TYPED):
        app.store = store_of(meta[STORE], app.world)
    if app.store.traits.served and not served:
        raise UsageError(
            f"the store of {name} is a server of the HTTP API, and this needs the store itself: give the URL "
            f"of the store, or execute runs through the server with `holdfast worker {name}`"
        )
    if not app.workflows:
        raise UsageError(f'{name} has no workflows: decorate a function with @app.workflow("shop.order.v1")')
    return app


def _checked(patterns: tuple[str, ...], app: App) -> tuple[str, ...]:
    checked = check_patterns(patterns)
    if not any(matches(type_, checked) for type_ in app.workflows):
        raise UsageError(
            f"no workflow of this app matches {' or '.join(checked)}: it has {', '.join(app.workflows)}"
        )
    return checked
