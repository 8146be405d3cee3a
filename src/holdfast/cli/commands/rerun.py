"""`holdfast rerun`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.follow import say, wait_for_end
from holdfast.cli.options import TakesJson, json_option, plain_option, run_argument, store_option
from holdfast.cli.results import print_result, raise_unless_succeeded
from holdfast.cli.terminal import print_json
from holdfast.cli.values import typed_json
from holdfast.records.units import SAME
from holdfast.shown.data import result_fields
from holdfast.shown.shapes import RerunData, RerunResultData
from holdfast.shown.text import clean, short


@click.command(cls=TakesJson)
@run_argument
@click.option(
    "--params", metavar="JSON", help="Other params than those of the run; `-` reads them from stdin."
)
@click.option(
    "--key", metavar="TEXT", help="Start only one run for this key: later calls return the same run."
)
@click.option("--wait", is_flag=True, help="Wait until the new run has ended, and print its result.")
@plain_option
@json_option
@store_option()
def rerun(run: str, params: str | None, key: str | None, *, wait: bool, plain: bool, as_json: bool) -> None:
    """Start a new run that repeats another one, ended or open.

    It has the same type, params, priority, labels, limit key, timeout, ttl, budget and tenant. The command
    prints the id of the new run, whose `origin` is the first one.
    """
    value = SAME if params is None else typed_json(params, "--params")

    async def work(client: Client) -> None:
        await session.refuse_plain(client, plain=plain)
        first = await find(client, run)
        handle = await client.rerun(first.id, value, key=key)
        started = RerunData(id=handle.id, type=first.type, created=handle.created, origin=first.id)
        if not wait:
            print_json(started) if as_json else click.echo(str(handle.id))
            return
        say(f"run {handle.id} ({clean(first.type)}) repeats run {short(first.id)}")
        ended = await wait_for_end(client, handle.id, None, show_trail=True)
        if as_json:
            fields = result_fields(ended) | {"id": handle.id, "created": handle.created}
            print_json(RerunResultData(**fields, origin=first.id))
        else:
            print_result(ended)
        raise_unless_succeeded(ended)

    session.run(work)
