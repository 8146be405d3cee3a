"""`holdfast emit`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.options import TakesJson, json_option, plain_option, store_option
from holdfast.cli.terminal import print_json
from holdfast.cli.values import typed_json
from holdfast.records import OWN, Emitted
from holdfast.shown.text import counted


@click.command(cls=TakesJson)
@click.argument("topic")
@click.argument("payload", metavar="[JSON]", required=False)
@click.option(
    "--id", "event_id", metavar="TEXT", help="An id of the event: the same id has an effect only once."
)
@click.option("--run", metavar="RUN", help="Send it to this run only.")
@click.option("--tenant", metavar="NAME", help="Send it to runs of this tenant; `default` by default.")
@plain_option
@json_option
@store_option()
def emit(
    topic: str,
    payload: str | None,
    event_id: str | None,
    run: str | None,
    tenant: str | None,
    *,
    plain: bool,
    as_json: bool,
) -> None:
    """Send an event to the runs that wait for it.

    Runs that are already started and wait for it later get it too.
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
    run_text: str | None,
    tenant: str | None,
    *,
    plain: bool,
    as_json: bool,
) -> None:
    await session.refuse_plain(client, plain=plain)
    run = (await find(client, run_text)).id if run_text else None
    emitted = await client.emit(topic, value, id=event_id, run=run, tenant=OWN if tenant is None else tenant)
    if as_json:
        print_json({"topic": topic, "woken": emitted.woken, "duplicate": emitted.duplicate})
    else:
        click.echo(_sentence(emitted))


def _sentence(emitted: Emitted) -> str:
    if emitted.duplicate:
        woken = counted(emitted.woken or 0, "run")
        return f"an event with this id was emitted before and woke {woken}; nothing changed"
    if not emitted.woken:
        return "woke no run; runs that are already started get the event when they wait for it"
    return f"woke {counted(emitted.woken, 'run')}"
