"""`holdfast emit`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.engine.client import Client

from . import session
from .find import find
from .options import TakesJson, json_option, plain_option, store_option
from .shape import print_json
from .values import typed_json


@click.command(cls=TakesJson)
@click.argument("topic")
@click.argument("payload", metavar="[JSON]", required=False)
@click.option("--id", "event_id", metavar="TEXT", help="Its own id: the same id again has no further effect.")
@click.option("--run", metavar="RUN", help="For this run only.")
@click.option("--tenant", metavar="NAME", default="default", help="Whose runs may get it.")
@plain_option
@json_option
@store_option()
def emit(
    topic: str,
    payload: str | None,
    event_id: str | None,
    run: str | None,
    tenant: str,
    *,
    plain: bool,
    as_json: bool,
) -> None:
    """Send an event to the runs that wait for it.

    Runs that were started before and come to wait for it later get it too.
    """
    value = typed_json(payload, "the event's payload")
    session.run(
        lambda client: _emit(client, topic, value, event_id, run, tenant, plain=plain, as_json=as_json)
    )


async def _emit(
    client: Client,
    topic: str,
    value: Any,
    event_id: str | None,
    said: str | None,
    tenant: str,
    *,
    plain: bool,
    as_json: bool,
) -> None:
    await session.refuse_plain(client, plain=plain)
    run = (await find(client, said)).id if said else None
    emitted = await client.emit(topic, value, id=event_id, run=run, tenant=tenant)
    if as_json:
        print_json({"topic": topic, "woken": emitted.woken, "duplicate": emitted.duplicate})
        return
    woken = emitted.woken or 0
    count = {0: "woke no run; it is kept for those already started", 1: "woke 1 run"}
    woke = count.get(woken, f"woke {woken:,} runs")
    click.echo(f"this id was emitted before and {woke}; nothing was added" if emitted.duplicate else woke)
