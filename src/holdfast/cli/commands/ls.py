"""`holdfast ls`."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import click
import msgspec

from holdfast.cli import session
from holdfast.cli.find import find
from holdfast.cli.options import ROWS, json_option, store_option
from holdfast.cli.program import command, repeated
from holdfast.cli.terminal import coloured_status, print_json, table
from holdfast.engine.app.client import Client
from holdfast.engine.pages import gathered
from holdfast.errors import UsageError
from holdfast.lifecycle import ALIASES, Status, StepKind, spoken_status
from holdfast.records import ANY, DEFAULT_TENANT, Run, RunFilter, moment
from holdfast.shown.data import run_data
from holdfast.shown.runs import news
from holdfast.shown.text import clean, short
from holdfast.shown.times import ago


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
@click.option(
    "--limit", type=ROWS, default=20, metavar="N", help="The number of runs to list; 20 by default."
)
@click.option("--after", metavar="RUN", help="Only runs listed after this one: the next page.")
@click.option("--deleted", is_flag=True, help="Also list deleted runs.")
@json_option
@store_option()
def ls(
    statuses: tuple[str, ...],
    type_: str | None,
    tenant: str | None,
    key: str | None,
    parent: str | None,
    limit: int,
    after: str | None,
    *,
    deleted: bool,
    as_json: bool,
) -> None:
    """List runs, newest first.

    The column RUN shows the end of the run's id, which every command accepts. STATUS is one of: pending,
    running, waiting, paused, succeeded, failed, cancelled. With --json each run is one line, and a running
    run has the status `leased`.
    """
    where = RunFilter(
        statuses=_statuses(statuses),
        waiting_on=_gate(statuses),
        type=_pattern(type_),
        tenant=ANY if tenant is None else tenant,
        key=key,
        deleted=deleted,
        values=False,
    )

    async def work(client: Client) -> None:
        parent_id = (await find(client, parent, deleted=True)).id if parent else None
        await _ls(client, msgspec.structs.replace(where, parent=parent_id), limit, after, as_json=as_json)

    session.run(work)


async def _ls(client: Client, where: RunFilter, limit: int, after: str | None, *, as_json: bool) -> None:
    last = (await find(client, after, deleted=where.deleted)).id if after else None
    fetch = partial(client.list, where)
    runs = await gathered(fetch, limit + 1, last, lambda run: run.id)
    shown, more = runs[:limit], len(runs) > limit
    if as_json:
        for run in shown:
            print_json(run_data(run))
        return
    if not shown:
        _nothing(filtered=where != RunFilter(tenant=ANY, values=False) or last is not None)
        return
    now = moment(await client.store.now())
    tenants = any(run.tenant != DEFAULT_TENANT for run in shown)
    head = ["RUN", "STATUS", "TYPE", *(["TENANT"] if tenants else []), "STARTED", "NEWS"]
    rows = [_row(run, now, tenants=tenants) for run in shown]
    click.echo("\n".join(table(head, rows)))
    if more:
        click.echo(click.style(f"more: {clean(repeated(after=shown[-1].id))}", dim=True), err=True)


def _row(run: Run, now: datetime, *, tenants: bool) -> list[str]:
    tenant = [clean(run.tenant)] if tenants else []
    return [
        short(run.id),
        coloured_status(run.status),
        clean(run.type),
        *tenant,
        ago(run.created_at, now),
        news(run, now),
    ]


def _nothing(*, filtered: bool) -> None:
    if filtered:
        click.echo(f"no run matches; without filters `{command('ls')}` lists all", err=True)
    else:
        example = command("start shop.order.v1 '{\"order\": 7}'")
        click.echo(f"no runs yet. Start one: {example}", err=True)


def _statuses(texts: tuple[str, ...]) -> tuple[Status, ...]:
    return tuple(_status(one) for one in texts)


def _status(text: str) -> Status:
    word = text.lower().replace("-", "_")
    if word in ALIASES:
        return ALIASES[word]
    try:
        return Status(word)
    except ValueError:
        others = ", ".join([Status.LEASED, *(word for word in ALIASES if word != "running")])
        raise UsageError(
            f"{text!r} is not a status: use {', '.join(map(spoken_status, Status))} (or one of: {others})"
        ) from None


def _gate(texts: tuple[str, ...]) -> StepKind | None:
    return (
        StepKind.APPROVAL if "waiting_approval" in (one.lower().replace("-", "_") for one in texts) else None
    )


def _pattern(type_: str | None) -> str | None:
    """Return the pattern for a name; without a version it matches all versions."""
    if type_ is None or type_.endswith("%") or type_.rpartition(".v")[2].isdigit():
        return type_
    return f"{type_}.v%"
