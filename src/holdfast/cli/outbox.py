"""`holdfast outbox`: messages that runs have sent, and what became of them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import click

from holdfast.engine.client import Client
from holdfast.engine.pages import gathered
from holdfast.engine.postal import nobody_has, unserved, why
from holdfast.errors import UnknownMessage, UsageError
from holdfast.records import ANY, MessageStatus, OutboxFilter, OutboxMessage, moment

from . import session
from .family import Family
from .find import SCAN_MAX, SHORT_MIN, SHOWN, find, short
from .options import ROWS, SEQ, json_option, store_option
from .program import repeated
from .shape import print_json, raw_text, raw_value
from .text import COLOURS, ago, clean, cut, stamp, table

PAGE = 1000
NAME_MAX = 12  # columns of a sink's name, or a key: the error needs the room
BEHIND = "after another of its key"
_OPEN = (MessageStatus.PENDING, MessageStatus.DEAD)
_COLOURS = {**COLOURS, "sent": "green", "dead": "red"}


@click.group(cls=Family)
@store_option()
def outbox() -> None:
    """Look at the messages that runs have sent; send some again."""


@outbox.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([one.value for one in MessageStatus]),
    help="Only these.",
)
@click.option("--all", "every", is_flag=True, help="Sent ones too.")
@click.option("--sink", metavar="NAME", help="Only to this sink.")
@click.option("--run", metavar="RUN", help="Only of this run.")
@click.option("--tenant", metavar="NAME", help="Only of this tenant.")
@click.option("--limit", type=ROWS, default=100, show_default=True, help="At most so many.")
@click.option("--after", type=SEQ, default=0, metavar="SEQ", help="The last SEQ of the page before.")
@json_option
@store_option()
def ls(
    statuses: tuple[str, ...],
    sink: str | None,
    run: str | None,
    tenant: str | None,
    limit: int,
    after: int,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """List messages, oldest first: those that wait and the dead ones, unless you say otherwise.

    ID is the end of a message's id; `show` and `resend` take it. NEXT is when it is tried again; `behind`:
    after another message of its key.
    """

    async def work(client: Client) -> None:
        where = OutboxFilter(
            statuses=tuple(map(MessageStatus, statuses)) or (() if every else _OPEN),
            sink=sink,
            run=(await find(client, run, deleted=True)).id if run else None,
            tenant=ANY if tenant is None else tenant,
        )
        messages = await gathered(partial(client.outbox, where), limit, after, lambda one: one.seq)
        if as_json:
            for one in messages:
                print_json(data(one))
            return
        _print(list(messages), moment(await client.store.now()), more=len(messages) == limit)
        wanted = {one.sink for one in messages if one.status is MessageStatus.PENDING}
        for nobodys in await unserved(client.store):
            if nobodys.sink in wanted:
                click.echo(clean(nobody_has(nobodys.sink)), err=True)

    session.run(work)


@outbox.command()
@click.argument("id", metavar="ID")
@json_option
@store_option()
def show(id: str, *, as_json: bool) -> None:
    """Show one message: payload, tries, and why it is not sent."""

    async def work(client: Client) -> None:
        message, now = await _find(client, id), moment(await client.store.now())
        if as_json:
            print_json(data(message))
        else:
            click.echo("\n".join(_lines(message, now)))
            if message.status is MessageStatus.PENDING:
                for one in await unserved(client.store):
                    if one.sink == message.sink:
                        click.echo(f"  {clean(nobody_has(one.sink))}")

    session.run(work)


@outbox.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--dead", is_flag=True, help="All dead letters.")
@click.option("--sink", metavar="NAME", help="With --dead: only to this sink.")
@json_option
@store_option()
def resend(ids: tuple[str, ...], sink: str | None, *, dead: bool, as_json: bool) -> None:
    """Send messages again that are dead or sent; one that backs off is tried now.

    Each keeps its id, by which a receiver knows it, and goes to the end of its key's line.
    """
    if bool(ids) == dead or (sink and not dead):
        raise UsageError(
            "say which messages: their ids, or --dead for all dead letters (--sink for one sink's)"
        )

    async def work(client: Client) -> None:
        named = await _dead(client, sink) if dead else [(await _find(client, one)).id for one in ids]
        for one in named:
            message = await client.resend(one)
            if as_json:
                print_json(data(message))
        if not as_json:
            click.echo(f"{len(named):,} message{'s' * (len(named) != 1)} to be sent")

    session.run(work)


async def _dead(client: Client, sink: str | None) -> list[str]:
    where = OutboxFilter(statuses=(MessageStatus.DEAD,), sink=sink, tenant=ANY)
    found: list[str] = []
    after = 0
    while page := await client.outbox(where, PAGE, after):
        found += [one.id for one in page]
        after = page[-1].seq
    return found


async def _find(client: Client, said: str) -> OutboxMessage:
    """The message of that id, or the one that ends so: of what waits or is dead, else of what was sent."""
    found = list(await client.outbox(OutboxFilter(id=said, tenant=ANY), 1))
    for statuses in (_OPEN, (MessageStatus.SENT,)) if len(said) >= SHORT_MIN else ():
        found = found or await _ending(client, said.lower(), OutboxFilter(statuses=statuses, tenant=ANY))
    if not found:
        raise UnknownMessage(said)
    if len(found) > 1:
        ids = ", ".join(one.id for one in found[:SHOWN])
        raise UsageError(f"{said!r} is not unique, give more characters: {ids}")
    return found[0]


async def _ending(client: Client, end: str, where: OutboxFilter) -> list[OutboxMessage]:
    found: list[OutboxMessage] = []
    after = 0
    left = SCAN_MAX
    while left > 0 and (page := await client.outbox(where, min(PAGE, left), after)):
        found += [one for one in page if one.id.endswith(end)]
        left -= len(page)
        after = page[-1].seq
    return found


def data(message: OutboxMessage) -> dict[str, Any]:
    """A message as JSON for machines."""
    plain = {name: getattr(message, name) for name in _SHOWN}
    raw = {name: getattr(message, f"{name}_json") for name in ("payload", "error")}
    return plain | {name: raw_value(text) for name, text in raw.items()}


_SHOWN = (
    "seq", "id", "status", "sink", "key", "tenant", "run", "step", "attempts", "held_by", "next_at",
    "created_at", "tried_at", "sent_at",
)  # fmt: skip


def _print(messages: list[OutboxMessage], now: datetime, *, more: bool) -> None:
    if not messages:
        click.echo("no messages", err=True)
        return
    keys = any(one.key is not None for one in messages)
    head = ["ID", "SINK", *(["KEY"] if keys else []), "STATUS", "RUN", "TRIES", "NEXT", "LAST ERROR"]
    click.echo("\n".join(table(head, [_row(one, now, keys=keys) for one in messages])))
    if more:
        click.echo(f"there may be more: {clean(repeated(after=messages[-1].seq))}", err=True)


def _row(one: OutboxMessage, now: datetime, *, keys: bool) -> list[str]:
    key = "-" if one.key is None else cut(clean(one.key), NAME_MAX)
    return [
        clean(short(one.id)),
        cut(clean(one.sink), NAME_MAX),
        *([key] if keys else []),
        click.style(str(one.status), fg=_COLOURS.get(str(one.status))),
        short(one.run),
        str(one.attempts),
        "behind" if (said := _next(one, now)) == BEHIND else said,
        clean(why(one)),
    ]


def _next(one: OutboxMessage, now: datetime) -> str:
    if one.status is not MessageStatus.PENDING:
        return "-"
    if one.next_at is None:
        return BEHIND
    return "on its way" if one.held_by is not None else ago(max(one.next_at, now), now)


def _lines(one: OutboxMessage, now: datetime) -> list[str]:
    told = {
        "to": clean(one.sink) + ("" if one.key is None else f", key {clean(one.key)}"),
        "from": f"run {one.run}" + ("" if one.step is None else f", step {clean(one.step)}"),
        "tenant": clean(one.tenant),
        "created": f"{stamp(one.created_at)} ({ago(one.created_at, now)})",
        "tries": str(one.attempts),
        "next": _next(one, now),
        "sent": stamp(one.sent_at),
        "last error": clean(why(one)) or "-",
        "payload": clean(raw_text(one.payload_json)),
    }
    width = max(map(len, told))
    status = click.style(str(one.status), fg=_COLOURS.get(str(one.status)))
    return [f"{clean(one.id)}  {status}", *(f"  {name:<{width}}  {said}" for name, said in told.items())]
