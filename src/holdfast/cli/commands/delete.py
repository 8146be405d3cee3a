"""`holdfast delete` and `holdfast restore`: hide a run, and show it again."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.bulk import is_bulk, operate_on_many, run_or_where
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.options import by_option, json_option, run_argument, store_option
from holdfast.cli.program import command
from holdfast.cli.questions import confirm, yes_option
from holdfast.cli.terminal import coloured_status, print_json
from holdfast.contract import DELETED_SECONDS, TTL_SECONDS
from holdfast.lifecycle import FINAL, Status, spoken_status
from holdfast.records import Run, instant, moment
from holdfast.shown.data import run_data
from holdfast.shown.text import clean, short
from holdfast.shown.times import stamp

from .purge import expires_at


@click.command()
@run_or_where
@by_option
@yes_option
@json_option
@store_option()
def delete(
    run: str | None,
    *,
    texts: tuple[str, ...],
    by: str | None,
    yes: bool,
    as_json: bool,
    rate: int | None,
    no_wait: bool,
    all_tenants: bool,
) -> None:
    """Hide a run; `restore` shows it again until it is purged.

    An open run stops while it is deleted, so you are asked first. The run's key stays in use. With --where
    instead of RUN, all runs that match.
    """
    if is_bulk(run, texts, rate=rate, no_wait=no_wait, all_tenants=all_tenants):
        operate_on_many(
            "delete",
            texts,
            lambda client, where, more: client.bulk.delete(where, **more),
            by=by,
            rate=rate,
            yes=yes,
            no_wait=no_wait,
            all_tenants=all_tenants,
            as_json=as_json,
        )
    else:
        session.run(lambda client: _delete(client, run or "", session.operator(by), yes=yes, as_json=as_json))


async def _delete(client: Client, run_text: str, by: str, *, yes: bool, as_json: bool) -> None:
    run = await find(client, run_text)
    present = await client.present(run.id)
    if present.status not in FINAL and not yes:
        confirm(_danger(run, present))
    deleted = await client.delete(run.id, by=by)
    if as_json:
        print_json(run_data(deleted))
        return
    until, now = expires_at(deleted, TTL_SECONDS, DELETED_SECONDS), instant(await client.now())
    click.echo(
        f"{short(run.id)} ({clean(run.type)}) is deleted; it was {coloured_status(deleted.status)}. "
        f"`{command(f'restore {short(run.id)}')}` shows it again, until "
        + (stamp(moment(until)) if until is not None and until > now else "the next purge: it has expired")
    )


def _danger(run: Run, present: Run) -> str:
    chain = "" if present.id == run.id else f", with its whole chain up to {short(present.id)}"
    worker = (
        f"; worker {clean(present.leased_by)} stops it at once" if present.status is Status.LEASED else ""
    )
    return (
        f"{short(run.id)} ({clean(run.type)}) is {spoken_status(present.status)}: "
        f"if it is deleted{chain}, it is not executed any more{worker}"
    )


@click.command()
@run_argument
@by_option
@json_option
@store_option()
def restore(run: str, by: str | None, *, as_json: bool) -> None:
    """Show a deleted run again; an open one continues.

    `holdfast ls --deleted` also lists the deleted runs.
    """

    async def work(client: Client) -> None:
        found = await find(client, run, deleted=True)
        restored = await client.restore(found.id, by=session.operator(by))
        if as_json:
            print_json(run_data(restored))
        else:
            word = "restored" if found.deleted_at is not None else "not deleted"
            click.echo(
                f"{short(found.id)} ({clean(found.type)}) is {word}: {coloured_status(restored.status)}"
            )

    session.run(work)
