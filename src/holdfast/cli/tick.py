"""`holdfast tick`: a keeper without a worker."""

from __future__ import annotations

import asyncio
import signal

import click
import msgspec

from holdfast.engine.client import Client
from holdfast.engine.keeper import Keeper

from . import session
from .logs import show_logs
from .options import json_option, store_option
from .shape import print_json


@click.command()
@click.option("--loop", is_flag=True, help="Round after round, until told to stop.")
@json_option
@store_option()
def tick(*, loop: bool, as_json: bool) -> None:
    """Do the chores that wake and recover runs, once or for ever.

    Every worker does them too; this is for when none is running.
    """
    if loop:
        show_logs()
        session.run(_loop)
    else:
        session.run(lambda client: _once(client, as_json=as_json))


async def _once(client: Client, *, as_json: bool) -> None:
    ticked = await client.store.tick()
    if as_json:
        print_json(msgspec.to_builtins(ticked))
    elif not ticked.total:
        click.echo("nothing was due")
    else:
        click.echo(
            f"{ticked.expired} leases expired, {ticked.lapsed} waits came due, "
            f"{ticked.delivered} runs woken by events, {ticked.timed_out} runs timed out"
        )


async def _loop(client: Client) -> None:
    keeper = Keeper(client.store)
    task = asyncio.ensure_future(keeper.run())
    unlisten = client.store.listen(keeper.bell.ring)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    click.echo("doing chores as they come due; Ctrl-C stops", err=True)
    try:
        await asyncio.wait([task])
    finally:
        unlisten()
