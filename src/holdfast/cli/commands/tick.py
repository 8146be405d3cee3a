"""`holdfast tick`: the chores of a keeper, without a worker."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from uuid import UUID

import click
import msgspec

from holdfast.cli import session
from holdfast.cli.logs import log_format_option, log_level_option, show_logs
from holdfast.cli.options import json_option, no_wait_timeouts_option, store_option
from holdfast.cli.terminal import print_json
from holdfast.engine.app.client import StoreClient
from holdfast.engine.bulk.asked import BULK_TYPE
from holdfast.engine.bulk.workflow import BUILT_IN
from holdfast.engine.outbox.relay import Relay
from holdfast.engine.run_log import failed_by_keeper
from holdfast.engine.worker.keeper import Keeper
from holdfast.engine.worker.worker import Worker
from holdfast.lifecycle import Status
from holdfast.records import ANY, SECOND, RunFilter
from holdfast.shown.text import counted

BULK_SECONDS, BULK_LOOK_SECONDS = 30.0, 0.1  # of one tick for bulk operations; between looks
BULK_SLOTS = 5  # bulk operations at once
BULK_REST_SECONDS = 1.5  # between two runs of the slowest operation, which is then due again
BULK_MAX = 200  # bulk operations of one tick that are counted
BULK_OPEN = RunFilter(
    type=BULK_TYPE, statuses=(Status.PENDING, Status.WAITING, Status.LEASED), tenant=ANY, values=False
)
GRACE_SECONDS = 10.0  # for messages that are being sent when it stops


@click.command()
@click.option("--loop", is_flag=True, help="Repeat until it is stopped.")
@no_wait_timeouts_option
@log_level_option
@log_format_option
@json_option
@store_option()
def tick(
    *, loop: bool, no_wait_timeouts: bool, log_level: str | None, log_format: str | None, as_json: bool
) -> None:
    """Do the chores that wake and recover runs, once or with --loop.

    The chores: fire timers, deliver events, take runs back from dead workers, time out runs, fire schedules,
    post messages to webhooks, and execute bulk operations. Every worker does all of this too; use `tick` when
    no worker runs.
    It does not purge: see `holdfast purge`.
    """
    show_logs(log_level, log_format, usual="info" if loop else "warning")
    if loop:
        session.run_on_store(lambda client: _loop(client, wait_timeouts=not no_wait_timeouts))
    else:
        session.run_on_store(
            lambda client: _once(client, wait_timeouts=not no_wait_timeouts, as_json=as_json)
        )


async def _once(client: StoreClient, *, wait_timeouts: bool, as_json: bool) -> None:
    ticked = await Keeper(client.store, wait_timeouts=wait_timeouts).tick()
    await _log_failed(client, ticked.failed)
    relay = _relay(client)
    await relay.drain()
    bulk = await _bulk(client)
    if as_json:
        print_json(msgspec.to_builtins(ticked) | {"sent": relay.sent, "unsent": relay.failed, "bulk": bulk})
        return
    if relay.sent or relay.failed:
        click.echo(f"{counted(relay.sent, 'message')} sent, {relay.failed:,} failed")
    elif not ticked.total and not bulk:
        click.echo("nothing was due")
    if bulk:
        click.echo(f"{counted(bulk, 'bulk operation')} executed")
    if ticked.total:
        click.echo(
            f"{counted(ticked.expired, 'lease')} expired, {counted(ticked.lapsed, 'wait')} came due, "
            f"{counted(ticked.delivered, 'run')} woken by events, "
            f"{counted(ticked.timed_out, 'run')} timed out, "
            f"{counted(ticked.fired, 'run')} started by schedules"
        )


async def _log_failed(client: StoreClient, runs: Sequence[UUID]) -> None:
    async for _ in failed_by_keeper(client.store, runs):
        pass


async def _bulk(client: StoreClient) -> int:
    """Execute due bulk operations, for a bounded time: one that is not done by then goes on later. Return
    the number of those that ended meanwhile.
    """
    types = tuple(BUILT_IN)
    if not await _is_due(client, types):
        return 0
    due = await client.list(BULK_OPEN, BULK_MAX)
    async with _executor(client) as worker:
        until = time.monotonic() + BULK_SECONDS
        while time.monotonic() < until:
            if not worker.busy and not await _is_due(client, types, BULK_REST_SECONDS):
                break
            await asyncio.sleep(BULK_LOOK_SECONDS)
    now = [await client.present(run.id) for run in due]
    return sum(run.finished_at is not None for run in now)


async def _is_due(client: StoreClient, types: tuple[str, ...], within_seconds: float = 0.0) -> bool:
    at = (await client.store.due(types)).claim_at
    return at is not None and at <= await client.store.now() + int(within_seconds * SECOND)


def _executor(client: StoreClient) -> Worker:
    """A worker for the workflows of the engine itself."""
    return Worker(client.store, client.world, {}, name="tick", slots=BULK_SLOTS, keeper=False, relay=False)


def _relay(client: StoreClient) -> Relay:
    return Relay(client.store, client.world, f"tick:{client.world.place()}")


async def _loop(client: StoreClient, *, wait_timeouts: bool) -> None:
    reading: set[asyncio.Task[None]] = set()

    def failed(runs: Sequence[UUID]) -> None:
        task = asyncio.ensure_future(_log_failed(client, runs))
        reading.add(task)
        task.add_done_callback(reading.discard)

    keeper, relay = Keeper(client.store, failed=failed, wait_timeouts=wait_timeouts), _relay(client)
    relay.begin()

    def hint() -> None:
        keeper.wake_up.ring()
        relay.wake_up.ring()

    task = asyncio.ensure_future(keeper.run())
    unlisten = client.store.listen(hint)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    click.echo("doing the chores until Ctrl-C", err=True)
    try:
        async with _executor(client):
            await asyncio.wait([task])
    finally:
        unlisten()
        await relay.end(GRACE_SECONDS)
