"""`holdfast limit`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import duration, duration_option, json_option, store_option
from holdfast.cli.published import warn_if_unknown
from holdfast.cli.terminal import print_json, table
from holdfast.cli.values import typed_moment
from holdfast.records import Limit
from holdfast.shown.limits import limit_sentence, rate_words
from holdfast.shown.text import clean
from holdfast.shown.times import ago

F = TypeVar("F", bound=Callable[..., Any])

_COUNT = re.compile("0*[1-9][0-9]{0,8}")


def scope_options(command: F) -> F:
    """The options that say to which runs the limit applies: exactly one of the three."""
    for option in (
        click.option(
            "--key",
            metavar="KEY",
            help="Limit the runs with this limit key; api.% for each key with this prefix.",
        ),
        click.option("--tenant", metavar="NAME", help="Limit the runs of this tenant; % for each tenant."),
        click.option(
            "--type",
            metavar="TYPE",
            help="Limit the runs of this type; shop.% for each type with this prefix.",
        ),
    ):
        command = option(command)
    return command


def rate(text: str) -> tuple[int, float]:
    """A rate such as `100/1m`: count and seconds."""
    count, slash, period = text.partition("/")
    if not slash or not _COUNT.fullmatch(count.strip()) or not (length := duration(period)):
        raise click.BadParameter(
            f"{text[:40]!r} is not a rate: write a count and a time, such as 100/1m or 5/1s"
        )
    return int(count), length


@click.group(cls=CommandGroup)
@store_option()
def limit() -> None:
    """Limit how many runs execute at once, and how many start in a given time.

    A run that a limit holds back waits and loses no attempts; `holdfast explain` names the limit.
    """


@limit.command()
@json_option
@store_option()
def ls(*, as_json: bool) -> None:
    """List the limits and the paused keys."""

    async def work(client: Client) -> None:
        limits, now = await client.limits(), await client.now()
        if as_json:
            for one in limits:
                print_json(one)
        elif not limits:
            click.echo("no limits yet; `holdfast limit set --help` explains how to set one", err=True)
        else:
            head = ["SCOPE", "NAME", "AT ONCE", "RATE", "WEIGHT", "PAUSED"]
            click.echo("\n".join(table(head, [_row(one, now) for one in limits])))

    session.run(work)


@limit.command(name="set")
@scope_options
@click.option(
    "--concurrency", type=click.IntRange(0), metavar="N", help="Execute at most so many runs at once."
)
@click.option(
    "--rate",
    type=rate,
    metavar="N/DURATION",
    help="Start at most so many executions in any such time: 100/1m.",
)
@click.option(
    "--weight", type=float, metavar="X", help="The share of a tenant when workers are busy; 1 by default."
)
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
    """Set a limit; it replaces a limit of the same name.

    A name that ends in % applies to every name with that prefix, to each one separately.
    """
    if concurrency is None and rate is None and weight is None:
        raise click.UsageError(
            "give --concurrency N, --rate 100/1m or --weight X; `holdfast limit rm` removes a limit"
        )
    if weight is not None and scope["tenant"] is None:
        raise click.UsageError("--weight is the share of a tenant: give it with --tenant NAME")

    async def work(client: Client) -> None:
        made = await client.limit(**scope, concurrency=concurrency, rate=rate, weight=weight)
        _print(made, await client.now(), as_json=as_json)
        if scope["type"] is not None:
            await warn_if_unknown(client, scope["type"], "the limit takes effect once there are such runs")

    session.run(work)


@limit.command()
@scope_options
@json_option
@store_option()
def rm(*, as_json: bool, **scope: str | None) -> None:
    """Remove a limit; a pause of the same key ends too."""

    async def work(client: Client) -> None:
        if not await client.unlimit(**scope):
            named = " ".join(f"{name} {value}" for name, value in scope.items() if value is not None)
            raise click.ClickException(f"{named} has no limit; `holdfast limit ls` lists all")
        name, value = next((name, value) for name, value in scope.items() if value is not None)
        if as_json:
            print_json({"scope": name, "name": value, "removed": True})
        else:
            click.echo(f"{name} {clean(value)} is not limited any more")

    session.run(work)


@limit.command()
@click.argument("key")
@duration_option("--for", "Pause it for this time: 30s, 5m, 1h.")
@click.option("--until", type=typed_moment, metavar="INSTANT", help="Pause it until this time, in ISO 8601.")
@json_option
@store_option()
def pause(key: str, until: datetime | None, *, as_json: bool, **length: float | None) -> None:
    """Start no executions of runs with this limit key for a while.

    Use it when a service answers "429, come back later". Running runs continue. If the key is already paused,
    the later end counts.
    """
    seconds = length["for"]
    if (until is None) == (seconds is None):
        raise click.UsageError("give --for 5m, or --until 2027-01-31T08:00:00Z")

    async def work(client: Client) -> None:
        made = await client.pause_key(key, until if until is not None else seconds or 0.0)
        _print(made, await client.now(), as_json=as_json)

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
            click.echo(
                f"key {clean(key)} is not paused any more" if paused else f"key {clean(key)} was not paused"
            )

    session.run(work)


def _row(one: Limit, now: datetime) -> list[str]:
    return [
        clean(one.scope),
        clean(one.name),
        "-" if one.concurrency is None else str(one.concurrency),
        rate_words(one),
        "-" if one.weight is None else f"{one.weight:g}",
        "-" if one.paused_until is None else f"ends {ago(one.paused_until, now)}",
    ]


def _print(one: Limit, now: datetime, *, as_json: bool) -> None:
    print_json(one) if as_json else click.echo(limit_sentence(one, now))
