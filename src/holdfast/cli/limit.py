"""`holdfast limit`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from holdfast.engine.client import Client
from holdfast.records import Limit, moment

from . import session
from .family import Family
from .options import duration, duration_option, json_option, store_option
from .published import warn_if_unknown
from .shape import print_json
from .text import ago, clean, span, table
from .values import typed_moment

F = TypeVar("F", bound=Callable[..., Any])

_COUNT = re.compile("0*[1-9][0-9]{0,8}")


def scope_options(command: F) -> F:
    """Of what: one of three."""
    for option in (
        click.option(
            "--key", metavar="KEY", help="Runs started with this limit_key; api.% for each such key."
        ),
        click.option("--tenant", metavar="NAME", help="Runs of this tenant; % for each tenant."),
        click.option("--type", metavar="TYPE", help="Runs of this type; shop.% for each such type."),
    ):
        command = option(command)
    return command


def rate(text: str) -> tuple[int, float]:
    """`100/1m`: so many claims in so long."""
    count, slash, period = text.partition("/")
    if not slash or not _COUNT.fullmatch(count.strip()) or not (length := duration(period)):
        raise click.BadParameter(
            f"{text[:40]!r} is no rate: write how many in how long, as in 100/1m or 5/1s"
        )
    return int(count), length


@click.group(cls=Family)
@store_option()
def limit() -> None:
    """Limit how much runs at once, how often, and for whom.

    What is held back waits and loses nothing; `holdfast explain` says of a run by which limit.
    """


@limit.command()
@json_option
@store_option()
def ls(*, as_json: bool) -> None:
    """List the limits, and the keys that are paused."""

    async def work(client: Client) -> None:
        limits, now = await client.limits(), moment(await client.store.now())
        if as_json:
            for one in limits:
                print_json(one)
        elif not limits:
            click.echo("no limits", err=True)
        else:
            head = ["SCOPE", "NAME", "AT ONCE", "RATE", "WEIGHT", "PAUSED"]
            click.echo("\n".join(table(head, [_row(one, now) for one in limits])))

    session.run(work)


@limit.command(name="set")
@scope_options
@click.option("--concurrency", type=click.IntRange(0), metavar="N", help="So many at once, at most.")
@click.option("--rate", type=rate, metavar="N/DURATION", help="So many claims in any such time: 100/1m.")
@click.option("--weight", type=float, metavar="X", help="A tenant's share, 1 for those without one.")
@json_option
@store_option()
def set_(
    concurrency: int | None,
    rate: tuple[int, float] | None,
    weight: float | None,
    *,
    as_json: bool,
    **scope: str | None,
) -> None:
    """Set a limit; one of the same name is replaced.

    A name that ends in % speaks for each name with that prefix, for each on its own.
    """
    if concurrency is None and rate is None and weight is None:
        raise click.UsageError(
            "say how much: --concurrency N, --rate 100/1m or --weight X; `holdfast limit rm` removes a limit"
        )
    if weight is not None and scope["tenant"] is None:
        raise click.UsageError("--weight is a tenant's share: give it with --tenant NAME")

    async def work(client: Client) -> None:
        made = await client.limit(**scope, concurrency=concurrency, rate=rate, weight=weight)
        _tell(made, moment(await client.store.now()), as_json=as_json)
        if scope["type"] is not None:
            await warn_if_unknown(client, scope["type"], "the limit holds once there are such runs")

    session.run(work)


@limit.command()
@scope_options
@json_option
@store_option()
def rm(*, as_json: bool, **scope: str | None) -> None:
    """Remove a limit, and a pause of its name."""

    async def work(client: Client) -> None:
        if not await client.unlimit(**scope):
            said = " ".join(f"{name} {value}" for name, value in scope.items() if value is not None)
            raise click.ClickException(f"{said} has no limit; `holdfast limit ls` lists what there is")
        name, value = next((name, value) for name, value in scope.items() if value is not None)
        if as_json:
            print_json({"scope": name, "name": value, "removed": True})
        else:
            click.echo(f"{name} {clean(value)} is not limited any more")

    session.run(work)


@limit.command()
@click.argument("key")
@duration_option("--for", "For so long from now: 30s, 5m, 1h.")
@click.option("--until", type=typed_moment, metavar="INSTANT", help="Until then, in ISO 8601.")
@json_option
@store_option()
def pause(key: str, until: datetime | None, *, as_json: bool, **length: float | None) -> None:
    """Claim no runs of a key for a while: "429, come back later".

    What is running goes on. Of two pauses the later one counts.
    """
    seconds = length["for"]
    if (until is None) == (seconds is None):
        raise click.UsageError("say how long: --for 5m, or --until 2027-01-31T08:00:00Z")

    async def work(client: Client) -> None:
        made = await client.pause_key(key, until if until is not None else seconds or 0.0)
        _tell(made, moment(await client.store.now()), as_json=as_json)

    session.run(work)


@limit.command()
@click.argument("key")
@json_option
@store_option()
def resume(key: str, *, as_json: bool) -> None:
    """End the pause of a key."""

    async def work(client: Client) -> None:
        paused = await client.resume_key(key)
        if as_json:
            print_json({"scope": "key", "name": key, "was_paused": paused})
        else:
            click.echo(f"key {clean(key)} goes on" if paused else f"key {clean(key)} was not paused")

    session.run(work)


def _row(one: Limit, now: datetime) -> list[str]:
    return [
        clean(one.scope),
        clean(one.name),
        "-" if one.concurrency is None else str(one.concurrency),
        "-" if one.rate is None else _rate(one),
        "-" if one.weight is None else f"{one.weight:g}",
        "-" if one.paused_until is None else f"ends {ago(one.paused_until, now)}",
    ]


def _rate(one: Limit) -> str:
    return f"{one.rate} in {span(one.period_seconds or 0)}"


def _tell(one: Limit, now: datetime, *, as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    words = [
        *([f"{one.concurrency} at once"] if one.concurrency is not None else []),
        *([_rate(one)] if one.rate is not None else []),
        *([f"weight {one.weight:g}"] if one.weight is not None else []),
        *([f"paused, ends {ago(one.paused_until, now)}"] if one.paused_until is not None else []),
    ]
    click.echo(f"{clean(one.scope)} {clean(one.name)}: {', '.join(words) or 'no limit'}")
