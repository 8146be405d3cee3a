"""`holdfast ls`."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import click
import msgspec

from holdfast.engine.client import Client
from holdfast.engine.pages import gathered
from holdfast.errors import UsageError
from holdfast.lifecycle import ALIASES, Status, StepKind
from holdfast.records import ANY, DEFAULT_TENANT, Run, RunFilter, moment
from holdfast.records.reading import Unreadable, read

from . import session
from .find import find, short
from .options import ROWS, json_option, store_option
from .program import command, repeated
from .shape import print_json, run_data
from .text import ago, clean, status_word, table
from .words import waits


@click.command()
@click.option("--status", "statuses", multiple=True, metavar="STATUS", help="Only these; may be given again.")
@click.option(
    "--type",
    "type_",
    metavar="TYPE",
    help="Only this type; shop.order for all its versions, shop.% for a prefix.",
)
@click.option("--tenant", metavar="NAME", help="Only this tenant's.")
@click.option("--key", metavar="TEXT", help="Only the one that was started with this key; of each tenant.")
@click.option("--parent", metavar="RUN", help="Only children of this run.")
@click.option("--limit", type=ROWS, default=20, metavar="N", help="How many; 20 by default.")
@click.option("--after", metavar="RUN", help="Those listed after this run: the next page.")
@click.option("--deleted", is_flag=True, help="With those that are deleted.")
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

    RUN is the end of a run's id; every command takes it. With --json one line a run.
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
        of = (await find(client, parent, deleted=True)).id if parent else None
        await _ls(client, msgspec.structs.replace(where, parent=of), limit, after, as_json=as_json)

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
        status_word(run.status),
        clean(run.type),
        *tenant,
        ago(run.created_at, now),
        _news(run, now),
    ]


def _news(run: Run, now: datetime) -> str:
    """The one thing that matters about a run in this status."""
    if run.deleted_at is not None:
        return f"deleted {ago(run.deleted_at, now)}"
    if run.present != run.id:
        return f"went on: {short(run.present)}"
    match run.status:
        case Status.WAITING:
            return "for " + waits(run, now)
        case Status.PENDING if run.run_at > now:
            return f"due {ago(run.run_at, now)}" + (f": {clean(run.last_error)}" if run.last_error else "")
        case Status.FAILED:
            return (
                f"{clean(run.last_error or '')} (attempt {run.attempt - run.crashes} of {run.max_attempts})"
            )
        case Status.LEASED if run.progress_json is not None:
            return progress_words(run)
    if run.current_step_name is not None:
        return f"at step {run.current_step_seq} {clean(run.current_step_name)}"
    return f"after {clean(run.cursor)}" if run.cursor and run.status is not Status.SUCCEEDED else ""


def progress_words(run: Run) -> str:
    """`3 of 10: packing`; another shape is unreadable."""
    if run.progress_json is None:
        return ""
    said = read(run.progress_json, _Progress)
    if isinstance(said, Unreadable):
        return clean(said)
    try:
        done, total = f"{said.done:g}", "" if said.total is None else f" of {said.total:g}"
        share = f" ({said.done / said.total:.0%})" if said.total else ""
    except OverflowError:
        return clean(Unreadable("a number that is too large"))
    return clean(f"{done}{total}{share}" + (f": {said.note}" if said.note else ""))


class _Progress(msgspec.Struct):
    done: int | float
    total: int | float | None = None
    note: str | None = None


def _nothing(*, filtered: bool) -> None:
    if filtered:
        click.echo(f"no run fits; without filters `{command('ls')}` lists all", err=True)
    else:
        example = command("start shop.order.v1 '{\"order\": 7}'")
        click.echo(f"no runs yet. Start one: {example}", err=True)


def _statuses(said: tuple[str, ...]) -> tuple[Status, ...]:
    return tuple(_status(one) for one in said)


def _status(said: str) -> Status:
    word = said.lower().replace("-", "_")
    if word in ALIASES:
        return ALIASES[word]
    try:
        return Status(word)
    except ValueError:
        raise UsageError(
            f"{said!r} is no status: {', '.join(Status)} (also understood: {', '.join(ALIASES)})"
        ) from None


def _gate(said: tuple[str, ...]) -> StepKind | None:
    return (
        StepKind.APPROVAL if "waiting_approval" in (one.lower().replace("-", "_") for one in said) else None
    )


def _pattern(type_: str | None) -> str | None:
    """A bare name stands for all its versions."""
    if type_ is None or type_.endswith("%") or type_.rpartition(".v")[2].isdigit():
        return type_
    return f"{type_}.v%"
