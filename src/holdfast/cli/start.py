"""`holdfast start`."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.engine.client import Client
from holdfast.engine.definitions import newest
from holdfast.engine.handle import Handle
from holdfast.errors import UnknownWorkflow

from . import session
from .ending import print_ending, raise_unless_succeeded
from .find import short
from .follow import say, to_its_end
from .options import TakesJson, duration_option, json_option, limit_key_option, plain_option, store_option
from .published import unpublished, warn
from .shape import ending_data, print_json
from .text import clean
from .values import typed_json, typed_label, typed_moment


@click.command(cls=TakesJson)
@click.argument("name")
@click.argument("params", metavar="[JSON]", required=False)
@click.option("--wait", is_flag=True, help="Follow the run to its end and print its result.")
@click.option("--key", metavar="TEXT", help="Start it once: the same key again names the run that is there.")
@click.option(
    "--priority", type=int, metavar="N", default=100, help="0 to 999, lower goes first; 100 by default."
)
@duration_option("--delay", "Not before so long from now: 90, 10m, 2h.")
@click.option("--run-at", type=typed_moment, metavar="TIME", help="Not before this time: 2030-12-24T18:00.")
@click.option("--tenant", metavar="NAME", default="default", help="Whose run it is.")
@click.option("--max-attempts", type=int, metavar="N", help="Executions that may fail before the run does.")
@duration_option("--timeout", "The run fails when it has not ended after so long.")
@click.option("--budget", type=float, metavar="COST", help="The run pauses when its steps have cost so much.")
@duration_option("--ttl", "How long the run is kept after its end; 30 days, unless its app says otherwise.")
@limit_key_option
@click.option(
    "--label",
    "labels",
    type=typed_label,
    multiple=True,
    metavar="KEY=VALUE",
    help="A tag; may be given again.",
)
@click.option("--strict", is_flag=True, help="Refuse a name.vN that no worker has published yet.")
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
    """Start a run, and with --wait follow it to its end.

    NAME is a workflow type such as shop.order.v1; without .vN the newest published version is
    taken. JSON is what the workflow is given; `-` reads it from stdin. Prints the run's id.
    """  # fmt: skip
    value = typed_json(params, "the value for the workflow")
    options["labels"] = dict(labels) or None

    async def begin(client: Client) -> None:
        await session.refuse_plain(client, plain=plain)
        await _start(client, name, value, options, wait=wait, as_json=as_json, strict=strict)

    session.run(begin, create=True)


async def _start(
    client: Client, name: str, value: Any, options: dict[str, Any], *, wait: bool, as_json: bool, strict: bool
) -> None:
    published = [one.type for one in await client.store.definitions()]
    type_ = newest(name, published)
    doubt = "" if type_ in published else unpublished(type_, published)
    if doubt and strict:
        raise UnknownWorkflow(f"{doubt}; start its worker first, or leave out --strict")
    handle = await client.start(type_, value, **options)
    if doubt:
        warn(doubt, "the run waits until one that has it appears")
    told = {"id": handle.id, "type": type_, "created": handle.created}
    if not wait:
        print_json(told) if as_json else click.echo(str(handle.id))
        _hint(handle, type_)
        return
    say(
        f"run {handle.id} ({clean(type_)})"
        + ("" if handle.created else ": the key was used before, this is the run it names")
    )
    run = await to_its_end(client, handle.id, None, told=True)
    if as_json:
        print_json({**told, "status": run.status, **ending_data(run)})
    else:
        print_ending(run)
    raise_unless_succeeded(run)


def _hint(handle: Handle[Any], type_: str) -> None:
    if not handle.created:
        say("the key was used before: this is the run it names, nothing was started")
    elif sys.stderr.isatty():
        say(
            click.style(
                f"started {clean(type_)}; `holdfast show {short(handle.id)}` shows how it goes", dim=True
            )
        )
