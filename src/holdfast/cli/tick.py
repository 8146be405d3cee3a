"""`holdfast tick`: a keeper without a worker."""

from __future__ import annotations

import asyncio
import signal

import click
import msgspec

from holdfast.engine.client import Client
from holdfast.engine.keeper import Keeper
from holdfast.engine.relay import Relay

from . import session
from .logs import show_logs
from .options import json_option, no_wait_timeouts_option, store_option
from .shape import print_json

GRACE_SECONDS = 10.0  # for messages on their way when it is told to stop


@click.command()
@click.option("--loop", is_flag=True, help="Round after round, until told to stop.")
@no_wait_timeouts_option
@json_option
@store_option()
def tick(*, loop: bool, no_wait_timeouts: bool, as_json: bool) -> None:
    """Do the chores that wake and recover runs, once or for ever.

    It also posts the messages that wait for webhooks. Every worker does all of it too; this is for when
    none is running.
    """
    if loop:
        show_logs()
        session.run(lambda client: _loop(client, wait_timeouts=not no_wait_timeouts))
    else:
        session.run(lambda client: _once(client, wait_timeouts=not no_wait_timeouts, as_json=as_json))


async def _once(client: Client, *, wait_timeouts: bool, as_json: bool) -> None:
    ticked = await Keeper(client.store, wait_timeouts=wait_timeouts).tick()
    relay = _relay(client)
    await relay.drain()
    if as_json:
        print_json(msgspec.to_builtins(ticked) | {"sent": relay.sent, "unsent": relay.failed})
        return
    if relay.sent or relay.failed:
        click.echo(f"{relay.sent} messages sent, {relay.failed} not taken")
    elif not ticked.total:
        click.echo("nothing was due")
    if ticked.total:
        click.echo(
            f"{ticked.expired} leases expired, {ticked.lapsed} waits came due, "
            f"{ticked.delivered} runs woken by events, {ticked.timed_out} runs timed out, "
            f"{ticked.fired} started by schedules"
        )


def _relay(client: Client) -> Relay:
    return Relay(client.store, client.world, f"tick:{client.world.place()}")


async def _loop(client: Client, *, wait_timeouts: bool) -> None:
    keeper, relay = Keeper(client.store, wait_timeouts=wait_timeouts), _relay(client)
    relay.begin()

    def hint() -> None:
        keeper.bell.ring()
        relay.bell.ring()

    task = asyncio.ensure_future(keeper.run())
    unlisten = client.store.listen(hint)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    click.echo("doing chores as they come due; Ctrl-C stops", err=True)
    try:
        await asyncio.wait([task])
    finally:
        unlisten()
        await relay.end(GRACE_SECONDS)
