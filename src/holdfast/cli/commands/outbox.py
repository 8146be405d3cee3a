"""`holdfast outbox`: messages that runs have sent."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import click

from holdfast.cli import session
from holdfast.cli.clients import Client, everyone
from holdfast.cli.find import SCAN_MAX, SHORT_MIN, SHOWN, find
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import ROWS, SEQ, json_option, store_option
from holdfast.cli.program import repeated
from holdfast.cli.terminal import coloured_status, cut, print_facts, print_json, table
from holdfast.engine.outbox.health import nobody_has, why
from holdfast.engine.pages import gathered
from holdfast.errors import Conflict, UnknownMessage, UsageError
from holdfast.records import MessageStatus, OutboxFilter, OutboxMessage
from holdfast.shown.data import message_data
from holdfast.shown.outbox import QUEUED, message_facts, next_attempt
from holdfast.shown.text import clean, counted, short
from holdfast.transfer.places import is_sent_elsewhere

PAGE = 1000
NAME_MAX = 12  # columns of a sink's name or a key: the error needs the rest of the line
_OPEN = (MessageStatus.PENDING, MessageStatus.DEAD)


@click.group(cls=CommandGroup)
@store_option()
def outbox() -> None:
    """List the messages that runs have sent, and send some again."""


@outbox.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([one.value for one in MessageStatus]),
    help="Only messages in this status; may be repeated.",
)
@click.option("--all", "every", is_flag=True, help="Also list messages that are sent.")
@click.option("--sink", metavar="NAME", help="Only messages for this sink.")
@click.option("--run", metavar="RUN", help="Only messages of this run.")
@click.option("--tenant", metavar="NAME", help="Only messages of this tenant.")
@click.option("--limit", type=ROWS, default=100, show_default=True, help="The number of messages to list.")
@click.option(
    "--after", type=SEQ, default=0, metavar="SEQ", help="Only messages after this number: the next page."
)
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
    """List messages, oldest first; without options those that are pending or dead.

    The column ID shows the end of the message's id, which `show` and `resend` accept. A pending message is
    sent at the time NEXT; `queued` means that an earlier message with the same key goes first. A dead
    letter is not sent any more: its attempts are used up, or its sink refused it.
    """

    async def work(client: Client) -> None:
        where = OutboxFilter(
            statuses=tuple(map(MessageStatus, statuses)) or (() if every else _OPEN),
            sink=sink,
            run=(await find(client, run, deleted=True)).id if run else None,
            tenant=everyone(client) if tenant is None else tenant,
        )
        messages = await gathered(partial(client.outbox, where), limit, after, lambda one: one.seq)
        if as_json:
            for one in messages:
                print_json(message_data(one))
            return
        _print(list(messages), await client.now(), more=len(messages) == limit)
        wanted = {one.sink for one in messages if one.status is MessageStatus.PENDING}
        for name in await client.unserved(sorted(wanted)):
            click.echo(clean(nobody_has(name)), err=True)

    session.run(work)


@outbox.command()
@click.argument("id", metavar="ID")
@json_option
@store_option()
def show(id: str, *, as_json: bool) -> None:
    """Show one message: its payload, its attempts, and why it is not sent."""

    async def work(client: Client) -> None:
        message, now = await _find(client, id), await client.now()
        if as_json:
            print_json(message_data(message))
        else:
            click.echo(f"{clean(message.id)}  {coloured_status(message.status)}")
            print_facts(message_facts(message, now))
            if message.status is MessageStatus.PENDING:
                for name in await client.unserved([message.sink]):
                    click.echo(f"  {clean(nobody_has(name))}")

    session.run(work)


@outbox.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--dead", is_flag=True, help="Resend all dead letters.")
@click.option("--sink", metavar="NAME", help="With --dead: only messages for this sink.")
@click.option("--tenant", metavar="NAME", help="With --dead: only messages of this tenant.")
@json_option
@store_option()
def resend(ids: tuple[str, ...], sink: str | None, tenant: str | None, *, dead: bool, as_json: bool) -> None:
    """Send messages again; a pending message is sent now.

    A message keeps its id, so that its receiver can recognize it. It goes to the end of its key's queue.
    """
    if bool(ids) == dead or ((sink or tenant) and not dead):
        raise UsageError(
            "name messages by their ids, or give --dead for all dead letters (--sink for those of one sink, "
            "--tenant for those of one tenant)"
        )

    async def work(client: Client) -> None:
        named = await _dead(client, sink, tenant) if dead else [(await _find(client, one)).id for one in ids]
        sent = 0
        for one in named:
            try:
                message = await client.resend(one)
            except Conflict:  # it has moved, and this client cannot read the errors of messages
                if not dead:
                    raise
                continue
            sent += 1
            if as_json:
                print_json(message_data(message))
        if not as_json:
            click.echo(f"{counted(sent, 'message')} will be sent")
            if sent < len(named):
                moved = counted(len(named) - sent, "message")
                click.echo(f"{moved} moved to another store: that store sends what was not sent", err=True)

    session.run(work)


async def _dead(client: Client, sink: str | None, tenant: str | None) -> list[str]:
    whose = everyone(client) if tenant is None else tenant
    where = OutboxFilter(statuses=(MessageStatus.DEAD,), sink=sink, tenant=whose)
    found: list[str] = []
    after = 0
    while page := await client.outbox(where, PAGE, after):
        # Those of runs that have moved are sent by the other store.
        found += [one.id for one in page if not is_sent_elsewhere(one)]
        after = page[-1].seq
    return found


async def _find(client: Client, text: str) -> OutboxMessage:
    """The message with this id or this end of an id: open messages are searched before sent ones."""
    found = list(await client.outbox(OutboxFilter(id=text, tenant=everyone(client)), 1))
    for statuses in (_OPEN, (MessageStatus.SENT,)) if len(text) >= SHORT_MIN else ():
        found = found or await _ending(
            client, text.lower(), OutboxFilter(statuses=statuses, tenant=everyone(client))
        )
    if not found:
        raise UnknownMessage(text)
    if len(found) > 1:
        ids = ", ".join(one.id for one in found[:SHOWN])
        raise UsageError(f"{text!r} names several messages, give more characters: {ids}")
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


def _print(messages: list[OutboxMessage], now: datetime, *, more: bool) -> None:
    if not messages:
        click.echo("no messages", err=True)
        return
    keys = any(one.key is not None for one in messages)
    head = ["ID", "SINK", *(["KEY"] if keys else []), "STATUS", "RUN", "ATTEMPTS", "NEXT", "LAST ERROR"]
    click.echo("\n".join(table(head, [_row(one, now, keys=keys) for one in messages])))
    if more:
        click.echo(f"there may be more: {clean(repeated(after=messages[-1].seq))}", err=True)


def _row(one: OutboxMessage, now: datetime, *, keys: bool) -> list[str]:
    key = "-" if one.key is None else cut(clean(one.key), NAME_MAX)
    return [
        clean(short(one.id)),
        cut(clean(one.sink), NAME_MAX),
        *([key] if keys else []),
        coloured_status(one.status),
        short(one.run),
        str(one.attempts),
        "queued" if (at := next_attempt(one, now)) == QUEUED else at,
        clean(why(one)),
    ]
