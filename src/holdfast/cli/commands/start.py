"""`holdfast start`."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.follow import say, wait_for_end
from holdfast.cli.options import (
    TakesJson,
    duration_option,
    json_option,
    limit_key_option,
    plain_option,
    store_option,
)
from holdfast.cli.published import is_served, not_published, warn
from holdfast.cli.results import print_result, raise_unless_succeeded
from holdfast.cli.terminal import print_json
from holdfast.cli.values import typed_json, typed_label, typed_moment
from holdfast.engine.app.handle import Handle
from holdfast.engine.definitions import newest
from holdfast.errors import UnknownWorkflow
from holdfast.shown.data import result_fields
from holdfast.shown.shapes import StartedData, StartedResultData
from holdfast.shown.text import clean, short


@click.command(cls=TakesJson)
@click.argument("name")
@click.argument("params", metavar="[JSON]", required=False)
@click.option("--wait", is_flag=True, help="Wait until the run has ended, and print its result.")
@click.option(
    "--key", metavar="TEXT", help="Start only one run for this key: later calls return the same run."
)
@click.option(
    "--priority",
    type=int,
    metavar="N",
    default=100,
    help="0 to 999, a lower number starts first; 100 by default.",
)
@duration_option("--delay", "Start it after this time: 90 (seconds), 10m, 2h.")
@click.option("--run-at", type=typed_moment, metavar="TIME", help="Start it at this time: 2030-12-24T18:00.")
@click.option("--tenant", metavar="NAME", help="The tenant that the run belongs to; `default` by default.")
@click.option(
    "--max-attempts",
    type=int,
    metavar="N",
    help="The run fails after so many failed executions without progress.",
)
@duration_option("--timeout", "The run fails if it has not ended after this time.")
@click.option("--budget", type=float, metavar="COST", help="The run pauses when its steps have cost so much.")
@duration_option(
    "--ttl", "Time for which the run is kept after its end; 30 days unless its app sets another."
)
@limit_key_option
@click.option(
    "--label",
    "labels",
    type=typed_label,
    multiple=True,
    metavar="KEY=VALUE",
    help="A label; may be repeated.",
)
@click.option("--strict", is_flag=True, help="Refuse a type that no worker has published yet.")
@plain_option
@json_option
@store_option()
def start(
    name: str,
    params: str | None,
    *,
    wait: bool,
    as_json: bool,
    strict: bool,
    plain: bool,
    labels: tuple[tuple[str, str], ...],
    **options: Any,
) -> None:
    """Start a run; with --wait also wait for its result.

    NAME is a workflow type such as shop.order.v1; without .vN it means the newest published version. JSON is
    the value for the workflow; `-` reads it from stdin. The command prints the run's id.
    """
    value = typed_json(params, "the value for the workflow")
    options["labels"] = dict(labels) or None
    if options["tenant"] is None:
        del options["tenant"]

    async def work(client: Client) -> None:
        await session.refuse_plain(client, plain=plain)
        await _start(client, name, value, options, wait=wait, as_json=as_json, strict=strict)

    session.run(work, create=True)


async def _start(
    client: Client,
    name: str,
    value: Any,
    options: dict[str, Any],
    *,
    wait: bool,
    as_json: bool,
    strict: bool,
) -> None:
    published = [one.type for one in await client.definitions(schemas=False)]
    type_ = newest(name, published)
    is_known = type_ in published or await is_served(client, type_)
    doubt = "" if is_known else not_published(type_, published)
    if doubt and strict:
        raise UnknownWorkflow(f"{doubt}; start its worker first, or leave out --strict")
    handle = await client.start(type_, value, **options)
    if doubt:
        warn(doubt, "the run waits until a worker has it")
    started = StartedData(id=handle.id, type=type_, created=handle.created)
    if not wait:
        print_json(started) if as_json else click.echo(str(handle.id))
        _hint(handle, type_)
        return
    say(
        f"run {handle.id} ({clean(type_)})"
        + ("" if handle.created else ": a run with this key exists, nothing was started")
    )
    run = await wait_for_end(client, handle.id, None, show_trail=True)
    if as_json:
        print_json(StartedResultData(**result_fields(run) | {"id": handle.id}, created=handle.created))
    else:
        print_result(run)
    raise_unless_succeeded(run)


def _hint(handle: Handle[Any], type_: str) -> None:
    if not handle.created:
        say("a run with this key exists: nothing was started")
    elif sys.stderr.isatty():
        say(
            click.style(
                f"started {clean(type_)}; `holdfast show {short(handle.id)}` shows its progress", dim=True
            )
        )
