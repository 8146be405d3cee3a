"""`holdfast ls`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.cli import run_filters, session
from holdfast.cli.find import find
from holdfast.cli.options import ROWS, json_option, store_option
from holdfast.cli.program import command, repeated
from holdfast.cli.run_filters import TIMES
from holdfast.cli.terminal import coloured_status, print_json, table
from holdfast.engine.app.client import Client
from holdfast.engine.pages import gathered
from holdfast.records import ANY, DEFAULT_TENANT, ChildCounts, Run, RunFilter, moment
from holdfast.shown.data import child_counts_data, run_data
from holdfast.shown.runs import children_words, news
from holdfast.shown.text import clean, short
from holdfast.shown.times import ago

TYPES_FROM = 100  # newest runs whose types a hint is made from
COUNTED, PARENTS = 1_000, 100  # children of a run that are counted; runs in one question


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Only runs in this status, e.g. running or failed; may be repeated.",
)
@click.option(
    "--type",
    "type_",
    metavar="TYPE",
    help="Only runs of this type: shop.order for all its versions, shop.% for a prefix.",
)
@click.option("--tenant", metavar="NAME", help="Only runs of this tenant.")
@click.option("--key", metavar="TEXT", help="Only the run that was started with this key, in each tenant.")
@click.option("--parent", metavar="RUN", help="Only children of this run.")
@click.option("--roots", is_flag=True, help="Only runs without a parent.")
@click.option(
    "--label",
    "label",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Only runs with this label; without VALUE, with any value. May be repeated: all must hold.",
)
@click.option(
    "--error",
    metavar="TEXT",
    help="Only failed runs with this fingerprint, which `show` prints; a prefix when it ends in %.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only runs started then or later: 2h or 3d (ago), 2026-01-31, or a time with its zone.",
)
@click.option("--until", metavar="TIME", help="Only runs started before then.")
@click.option(
    "--by",
    type=click.Choice([*TIMES]),
    default="started",
    help="What --since and --until mean: the start (by default), the end, or the last change of a run.",
)
@click.option(
    "--limit", type=ROWS, default=20, metavar="N", help="The number of runs to list; 20 by default."
)
@click.option("--after", metavar="RUN", help="Only runs listed after this one: the next page.")
@click.option("--deleted", is_flag=True, help="Also list deleted runs.")
@json_option
@store_option()
def ls(limit: int, after: str | None, *, as_json: bool, **_filters: Any) -> None:
    """List runs, newest first.

    The column RUN shows the end of the run's id, which every command accepts. STATUS is one of: pending,
    running, waiting, paused, succeeded, failed, cancelled. With --json each run is one line, and a running
    run has the status `leased`.
    NEWS of a run with children counts them, up to 1,000.
    """
    options = click.get_current_context().params

    async def work(client: Client) -> None:
        await _ls(client, await filter_of(client, options), limit, after, as_json=as_json)

    session.run(work)


async def filter_of(client: Client, options: Mapping[str, Any]) -> RunFilter:
    """The filter that these options ask for; `--where` of other commands has the same ones."""
    parent, tenant = options["parent"], options["tenant"]
    now = moment(await client.store.now())
    times = run_filters.times(options["since"], options["until"], options["by"], now)
    return RunFilter(
        statuses=run_filters.statuses(options["statuses"]),
        waiting_on=run_filters.gate(options["statuses"]),
        type=run_filters.pattern(options["type_"]),
        tenant=ANY if tenant is None else tenant,
        key=options["key"],
        parent=(await find(client, parent, deleted=True)).id if parent else None,
        roots=options["roots"],
        labels=run_filters.labels(options["label"]),
        error=options["error"],
        deleted=options["deleted"],
        values=False,
        **times,
    )


async def _ls(client: Client, where: RunFilter, limit: int, after: str | None, *, as_json: bool) -> None:
    last = (await find(client, after, deleted=where.deleted)).id if after else None
    fetch = partial(client.list, where)
    runs = await gathered(fetch, limit + 1, last, lambda run: run.id)
    shown, more = runs[:limit], len(runs) > limit
    counts = await _children(client, shown)
    if as_json:
        for run in shown:
            print_json({**run_data(run), "child_counts": child_counts_data(counts.get(run.id))})
        return
    if not shown:
        filtered = where != RunFilter(tenant=ANY, values=False) or last is not None
        _nothing(await _hint(client, where), filtered=filtered)
        return
    now = moment(await client.store.now())
    tenants = any(run.tenant != DEFAULT_TENANT for run in shown)
    head = ["RUN", "STATUS", "TYPE", *(["TENANT"] if tenants else []), "STARTED", "NEWS"]
    rows = [_row(run, now, counts.get(run.id), tenants=tenants) for run in shown]
    click.echo("\n".join(table(head, rows)))
    if more:
        click.echo(click.style(f"more: {clean(repeated(after=shown[-1].id))}", dim=True), err=True)


async def _children(client: Client, runs: list[Run]) -> dict[UUID, ChildCounts]:
    """The children of these runs, counted up to a bound."""
    parts = [runs[n : n + PARENTS] for n in range(0, len(runs), PARENTS)]
    counted = [await client.children([run.id for run in part], most=COUNTED) for part in parts]
    return {one.run: one for part in counted for one in part}


def _row(run: Run, now: datetime, counts: ChildCounts | None, *, tenants: bool) -> list[str]:
    tenant = [clean(run.tenant)] if tenants else []
    said = [text for text in (news(run, now), children_words(counts)) if text]
    return [
        short(run.id),
        coloured_status(run.status),
        clean(run.type),
        *tenant,
        ago(run.created_at, now),
        "; ".join(said),
    ]


async def _hint(client: Client, where: RunFilter) -> str:
    """The likely mistake in a filter that matches nothing; empty when none is seen."""
    if isinstance(where.error, str) and not where.error.endswith("%"):
        return "; --error is a whole fingerprint: a prefix needs a % at its end"
    asked = (where.type or "").removesuffix(".v%")
    if not asked or asked.endswith("%"):
        return ""
    newest = await client.list(RunFilter(tenant=where.tenant, values=False), TYPES_FROM)
    types = {run.type for run in newest}
    names = sorted(types | {type_.rpartition(".v")[0] for type_ in types})
    if asked in names:
        return ""
    if any(name.startswith(asked) for name in names):
        return f"; a prefix needs a % at its end: --type {clean(asked)}%"
    near = get_close_matches(asked, names, 1)
    return f"; did you mean --type {clean(near[0])}?" if near else ""


def _nothing(hint: str, *, filtered: bool) -> None:
    if filtered:
        said = hint or f"; without filters `{command('ls')}` lists all"
        click.echo(f"no run matches{said}", err=True)
    else:
        example = command("start shop.order.v1 '{\"order\": 7}'")
        click.echo(f"no runs yet. Start one: {example}", err=True)
