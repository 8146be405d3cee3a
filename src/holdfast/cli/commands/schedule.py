"""`holdfast schedule`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from holdfast.arguments import is_type
from holdfast.cli import session
from holdfast.cli.clients import Client, everyone, tenant_name
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import (
    TakesJson,
    by_option,
    duration_option,
    json_option,
    limit_key_option,
    plain_option,
    store_option,
)
from holdfast.cli.program import command
from holdfast.cli.published import warn_if_unknown
from holdfast.cli.terminal import cut, print_facts, print_json, table
from holdfast.cli.values import typed_json, typed_label
from holdfast.errors import UnknownSchedule
from holdfast.records import (
    COST_UNIT,
    DEFAULT_TENANT,
    OWN,
    PRIORITY,
    CatchUp,
    Instant,
    Overlap,
    OwnTenant,
    Schedule,
    instant,
    moment,
)
from holdfast.shell import command_of
from holdfast.shown.data import schedule_data
from holdfast.shown.schedules import local_time, next_times, rhythm, schedule_facts
from holdfast.shown.text import clean
from holdfast.shown.times import ago, stamp

F = TypeVar("F", bound=Callable[..., Any])

TROUBLE_MAX = 60  # columns of an error in a list


def name_argument(command: F) -> F:
    return click.argument("name")(command)


def tenant_option(command: F) -> F:
    return click.option(
        "--tenant", metavar="NAME", help="The tenant that the schedule belongs to; `default` by default."
    )(command)


@click.group(cls=CommandGroup)
@store_option()
def schedule() -> None:
    """Start runs at given times: by cron in a time zone, or at an interval.

    Any worker or `holdfast tick` fires the schedules that are due; each time starts one run.
    """


@schedule.command(cls=TakesJson)
@name_argument
@click.argument("workflow")
@click.argument("params", metavar="[JSON]", required=False)
@click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month, weekday: '0 3 * * *'.")
@click.option(
    "--zone", metavar="ZONE", help="The time zone of --cron, such as Europe/Berlin; UTC by default."
)
@duration_option("--every", "Instead of --cron: an interval such as 30s, 15m, 1d, counted from now.")
@duration_option("--jitter", "Delay each run by a random time up to this.")
@click.option(
    "--overlap",
    metavar="HOW",
    default=Overlap.SKIP.value,
    help="What to do at a time while an earlier run is open: skip (default), allow, or queue.",
)
@click.option(
    "--catch-up",
    metavar="HOW",
    default=CatchUp.ONE.value,
    help="What to start for times missed while no worker ran: none, one (the latest, default), or all.",
)
@click.option(
    "--priority", type=int, metavar="N", default=PRIORITY, help="The priority of its runs, 0 to 999."
)
@click.option(
    "--max-attempts",
    type=int,
    metavar="N",
    help="A run fails after so many failed executions without progress.",
)
@duration_option("--timeout", "A run fails if it has not ended after this time.")
@click.option("--budget", type=float, metavar="COST", help="A run pauses when its steps have cost so much.")
@duration_option("--ttl", "Time for which a run is kept after its end.")
@limit_key_option
@click.option(
    "--label",
    "labels",
    type=typed_label,
    multiple=True,
    metavar="KEY=VALUE",
    help="A label; may be repeated.",
)
@tenant_option
@plain_option
@json_option
@store_option()
def add(
    name: str,
    workflow: str,
    params: str | None,
    *,
    labels: tuple[tuple[str, str], ...],
    plain: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a schedule, or change the one with this name.

    WORKFLOW is a type such as shop.report.v1; without .vN each time starts the version that is the newest
    published one at that time. JSON is the value for each run. Repeating the command changes nothing. If the
    schedule exists, --limit-key, --budget, --ttl, --timeout and --max-attempts keep their values when not
    given.
    """
    if options["cron"] is None and options["every"] is None:
        raise click.UsageError("give --cron '0 3 * * *' or --every 15m")
    value = typed_json(params, "the value for the workflow")
    options = {key: one for key, one in options.items() if one is not None}
    options["labels"] = dict(labels) or None

    async def work(client: Client) -> None:
        await session.refuse_plain(client, plain=plain)
        kept = await _kept_options(client, name, options.get("tenant", OWN))
        made = await client.schedule(name, workflow, value, **{**kept, **options})
        await _print(client, made, as_json=as_json)
        waits = "its runs wait" if is_type(made.type) else "it does not fire"
        await warn_if_unknown(client, made.type, f"{waits} until a worker has it")

    session.run(work, create=True)


async def _kept_options(client: Client, name: str, tenant: str | OwnTenant) -> dict[str, Any]:
    """Options of an existing schedule, perhaps set by its app, that a change here must not reset."""
    for one in await client.schedules(tenant, name):
        return {
            "limit_key": one.limit_key,
            "budget": None if one.budget_units is None else one.budget_units / COST_UNIT,
            "ttl": one.ttl_seconds,
            "timeout": one.timeout_seconds,
            "max_attempts": one.max_attempts,
        }
    return {}


@schedule.command()
@click.option("--tenant", metavar="NAME", help="Only schedules of this tenant.")
@json_option
@store_option()
def ls(tenant: str | None, *, as_json: bool) -> None:
    """List schedules. With --json each schedule is one line."""

    async def work(client: Client) -> None:
        found = await client.schedules(everyone(client) if tenant is None else tenant)
        now, published = instant(await client.now()), await _published(client, found)
        if as_json:
            for one in found:
                print_json(schedule_data(one, *next_times(one, now, published)))
        elif not found:
            click.echo("no schedules yet; `holdfast schedule add --help` explains how to add one", err=True)
        else:
            tenants = any(one.tenant != DEFAULT_TENANT for one in found)
            head = ["NAME", *(["TENANT"] if tenants else []), "WHEN", "NEXT", "LAST", "STARTS"]
            rows = [_row(one, now, published, tenants=tenants) for one in found]
            click.echo("\n".join(table(head, rows)))

    session.run(work)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def show(name: str, tenant: str | None, *, as_json: bool) -> None:
    """Show one schedule and its next times."""

    async def work(client: Client) -> None:
        found = await client.schedules(_whose(tenant), name)
        if not found:
            raise UnknownSchedule(name)
        await _print(client, found[0], as_json=as_json)

    session.run(work)


@schedule.command()
@name_argument
@tenant_option
@by_option
@json_option
@store_option()
def pause(name: str, tenant: str | None, by: str | None, *, as_json: bool) -> None:
    """Stop a schedule from firing until it is resumed."""
    _change(lambda client: client.pause_schedule(name, _whose(tenant), session.operator(by)), as_json=as_json)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def resume(name: str, tenant: str | None, *, as_json: bool) -> None:
    """Let a paused schedule fire again, at its next time from now on."""
    _change(lambda client: client.resume_schedule(name, _whose(tenant)), as_json=as_json)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def fire(name: str, tenant: str | None, *, as_json: bool) -> None:
    """Start one run of a schedule now, and print the run's id. Its next times stay the same."""

    async def work(client: Client) -> None:
        run = await client.fire_schedule(name, _whose(tenant))
        if as_json:
            print_json({"name": name, "tenant": await tenant_name(client, tenant), "run": run.id})
        else:
            click.echo(str(run.id))

    session.run(work)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def rm(name: str, tenant: str | None, *, as_json: bool) -> None:
    """Remove a schedule. Its runs continue."""

    async def work(client: Client) -> None:
        if not await client.unschedule(name, _whose(tenant)):
            raise UnknownSchedule(name)
        if as_json:
            print_json({"name": name, "tenant": await tenant_name(client, tenant), "removed": True})
        else:
            click.echo(f"schedule {clean(name)} is removed")

    session.run(work)


def _whose(tenant: str | None) -> str | OwnTenant:
    return OWN if tenant is None else tenant


async def _published(client: Client, schedules: Sequence[Schedule]) -> Sequence[str]:
    """The published types, if one of these schedules has a name without version; else nothing is read."""
    if all(is_type(one.type) for one in schedules):
        return ()
    return [one.type for one in await client.definitions(schemas=False)]


def _change(verb: Callable[[Client], Awaitable[Schedule]], *, as_json: bool) -> None:
    async def work(client: Client) -> None:
        await _print(client, await verb(client), as_json=as_json)

    session.run(work)


async def _print(client: Client, one: Schedule, *, as_json: bool) -> None:
    now = instant(await client.now())
    times, trouble = next_times(one, now, await _published(client, [one]))
    if as_json:
        print_json(schedule_data(one, times, trouble))
        return
    click.echo(f"{click.style(clean(one.name), bold=True)}  {clean(one.type)}")
    print_facts(schedule_facts(one, moment(now)))
    click.echo("")
    lines = (
        _times(one, times, moment(now)) if trouble is None else [f"  it cannot fire here: {clean(trouble)}"]
    )
    click.echo("\n".join(lines))


def _times(one: Schedule, times: list[Instant], now: datetime) -> list[str]:
    """The next times, in the schedule's time zone and in UTC."""
    if one.paused:
        resume = command(command_of("schedule resume", clean(one.name)).removeprefix("holdfast "))
        return [f"  it does not fire by itself while it is paused: `{resume}`"]
    if not times:
        return ["  it never fires again"]
    if one.zone == "UTC":
        rows = [[stamp(moment(at)), ago(moment(at), now)] for at in times]
        return table(["NEXT TIMES", ""], rows, "  ")
    rows = [[local_time(at, one.zone), stamp(moment(at)), ago(moment(at), now)] for at in times]
    return table([f"NEXT TIMES, {clean(one.zone)}", "UTC", ""], rows, "  ")


def _row(one: Schedule, at: Instant, published: Sequence[str], *, tenants: bool) -> list[str]:
    now, trouble = moment(at), next_times(one, at, published)[1]
    return [
        clean(one.name),
        *([clean(one.tenant)] if tenants else []),
        rhythm(one),
        _next(one, now, trouble),
        ago(one.last_at, now),
        clean(one.type),
    ]


def _next(one: Schedule, now: datetime, trouble: str | None) -> str:
    if one.paused:
        return click.style("paused", fg="magenta")
    return (
        ago(one.next_at, now) if trouble is None else click.style(cut(clean(trouble), TROUBLE_MAX), fg="red")
    )
