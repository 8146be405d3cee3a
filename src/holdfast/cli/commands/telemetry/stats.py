"""`holdfast stats`: an overview of a store that costs the same however many runs there are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import click

from holdfast.cli import session
from holdfast.cli.clients import Client, everyone, is_api
from holdfast.cli.options import json_option, store_option
from holdfast.cli.terminal import print_facts, print_json, table
from holdfast.contract import RATES_MAX
from holdfast.contract.extras import HasDurability
from holdfast.engine.app.client import StoreClient
from holdfast.engine.app.tenants import bound_client
from holdfast.lifecycle import Status
from holdfast.records import ANY, Rate, RunFilter, Scope, instant, moment
from holdfast.sealing import Sealed
from holdfast.shown.counts import (
    BacklogData,
    CountsData,
    ScaleData,
    backlog_data,
    counts_data,
    scale_data,
)
from holdfast.shown.stats import (
    HEAD,
    due_words,
    happened,
    hour_words,
    outbox_words,
    runs_words,
    slots_words,
    type_rows,
)
from holdfast.shown.text import counted
from holdfast.transfer.places import goes_to, is_away

TYPES_SHOWN = 30
NEWEST = 100  # cancelled runs that are looked at: those that have moved to another store count as such
PAGES_MAX = 60  # answers of `rates` that are read: one for each minute of the hour, if there are many types


class Overview(NamedTuple):
    """All numbers of the command. workers, slots, outbox and durability are of the whole store: None for one
    tenant.
    """

    counts: CountsData
    scale: ScaleData
    hour: Mapping[str, Mapping[str, int]]
    workers: int | None
    slots: int | None
    outbox: tuple[BacklogData, ...] | None
    moved: str = ""  # how many cancelled runs have moved to another store
    durability: str | None = None  # None: a store without a choice, over HTTP, or of one tenant


@click.command()
@click.option("--tenant", metavar="NAME", help="Only runs of this tenant.")
@click.option(
    "--types",
    type=click.IntRange(0),
    default=TYPES_SHOWN,
    show_default=True,
    metavar="N",
    help="List at most so many types; --json has all.",
)
@json_option
@store_option()
def stats(tenant: str | None, types: int, *, as_json: bool) -> None:
    """Show how many runs there are, what is due, and the last hour.

    `due` are runs that a worker could execute now. An API key of a tenant sees that tenant's runs; workers
    and outbox are shown to operators.
    """

    async def work(client: Client) -> None:
        seen = await _overview(client, tenant)
        if as_json:
            print_json(_document(seen))
        else:
            _print(seen, types)

    session.run(work)


async def _overview(client: Client, tenant: str | None) -> Overview:
    whole = tenant is None and client.tenant is ANY
    of: Client = client
    if tenant is not None:
        of = bound_client(client, tenant) if isinstance(client, StoreClient) else client.of(tenant)
    counts, scale = counts_data(await of.counts()), scale_data(await of.scale())
    hour = happened(await _last_hour(of, counts))
    moved = await _moved(of, counts)
    if not whole:
        return Overview(counts, scale, hour, None, None, None, moved)
    workers, backlog = await client.workers(), await client.backlog()
    outbox = backlog_data(backlog, instant(counts.now))
    slots, durability = sum(one.slots for one in workers), await _durability(client)
    return Overview(counts, scale, hour, len(workers), slots, outbox, moved, durability)


async def _moved(client: Client, counts: CountsData) -> str:
    """Return in words how many of the newest cancelled runs are at another store, or on their way: nobody has
    cancelled them."""
    if not counts.by_status.get(Status.CANCELLED):
        return ""
    if is_api(client) and Scope.RUNS_READ not in (await client.whoami()).scopes:
        return ""  # the counts need less
    where = RunFilter(statuses=(Status.CANCELLED,), tenant=everyone(client), values=False)
    newest = await client.list(where, NEWEST)
    moved = sum(is_away(run) and goes_to(run) is not None for run in newest)
    return f"{moved:,} of the newest {counted(len(newest), 'cancelled run')}, to another store" * bool(moved)


async def _durability(client: Client) -> str | None:
    if not isinstance(client, StoreClient):
        return None
    store = client.store.inner if isinstance(client.store, Sealed) else client.store
    return await store.durability() if isinstance(store, HasDurability) else None


async def _last_hour(client: Client, counts: CountsData) -> list[Rate]:
    """Read the numbers of the last hour. A page begins with the last minute of the page before."""
    found: list[Rate] = []
    since = counts.now - timedelta(hours=1)
    for _ in range(PAGES_MAX):
        page = await client.rates(since)
        if len(page) < RATES_MAX or moment(page[-1].minute) <= since:
            return [*found, *page]
        since = moment(page[-1].minute)
        found += [one for one in page if one.minute < page[-1].minute]
    return found


def _document(seen: Overview) -> dict[str, Any]:
    return {
        "counts": seen.counts,
        "scale": seen.scale,
        "workers": seen.workers,
        "slots": seen.slots,
        "outbox": seen.outbox,
        "last_hour": seen.hour,
        **({} if seen.durability is None else {"durability": seen.durability}),
    }


def _print(seen: Overview, types: int) -> None:
    facts = [("runs", runs_words(seen.counts)), ("due", due_words(seen.scale))]
    if seen.moved:
        facts.insert(1, ("moved", seen.moved))
    if seen.workers is not None and seen.outbox is not None:
        facts.append(("slots", slots_words(seen.scale.leased, seen.workers, seen.slots or 0)))
        facts.append(("outbox", outbox_words(seen.outbox)))
    facts.append(("last hour", hour_words(seen.hour)))
    if seen.durability is not None:
        facts.append(("durability", seen.durability))
    print_facts(facts)
    rows = type_rows(seen.counts, seen.scale, seen.hour)
    if not rows or not types:
        return
    shown = [HEAD, *rows[:types]]
    filled = [n for n in range(len(HEAD)) if any(row[n] for row in shown[1:])]
    lines = table([HEAD[n] for n in filled], [[row[n] for n in filled] for row in shown[1:]])
    click.echo("\n".join(["", *lines]))
    if len(rows) > types:
        click.echo(f"and {counted(len(rows) - types, 'more type')}: give --types {len(rows)}, or --json")
