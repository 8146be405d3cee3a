"""`holdfast schedule`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from shlex import quote
from typing import Any, TypeVar

import click

from holdfast.cron import local
from holdfast.engine.client import Client
from holdfast.engine.scheduling import upcoming
from holdfast.errors import UnknownSchedule, UsageError
from holdfast.records import (
    ANY,
    COST_UNIT,
    DEFAULT_TENANT,
    PRIORITY,
    CatchUp,
    Instant,
    Overlap,
    Schedule,
    moment,
)

from . import session
from .family import Family
from .options import (
    TakesJson,
    by_option,
    duration_option,
    json_option,
    limit_key_option,
    plain_option,
    store_option,
)
from .program import command
from .published import warn_if_unknown
from .schedule_shape import schedule_data
from .shape import print_json, raw_text
from .text import ago, clean, cut, span, stamp, table
from .values import typed_json, typed_label

F = TypeVar("F", bound=Callable[..., Any])

TIMES = 5
NEXT_MAX = 60  # characters of what keeps it from firing, in a list
VALUE_MAX = 400  # characters of params; --json prints all


def name_argument(command: F) -> F:
    return click.argument("name")(command)


def tenant_option(command: F) -> F:
    return click.option("--tenant", metavar="NAME", default="default", help="Whose schedule it is.")(command)


@click.group(cls=Family)
@store_option()
def schedule() -> None:
    """Start runs by the clock: by cron in a time zone, or at an interval.

    Any worker or `holdfast tick` fires what is due; each time starts one run.
    """


@schedule.command(cls=TakesJson)
@name_argument
@click.argument("workflow")
@click.argument("params", metavar="[JSON]", required=False)
@click.option("--cron", metavar="EXPRESSION", help="Minute hour day month weekday: '0 3 * * *'.")
@click.option("--zone", metavar="ZONE", help="Whose clock cron goes by: Europe/Berlin; UTC by default.")
@duration_option("--every", "Instead of cron: 30s, 15m, 1d, counted from now on.")
@duration_option("--jitter", "Each run begins later by a part of this.")
@click.option(
    "--overlap",
    metavar="HOW",
    default=Overlap.SKIP.value,
    help="A time that comes while a run of it is open: skip (by default), allow, or queue.",
)
@click.option(
    "--catch-up",
    metavar="HOW",
    default=CatchUp.ONE.value,
    help="Times that nobody was there for: none, one (the latest, by default), or all.",
)
@click.option("--priority", type=int, metavar="N", default=PRIORITY, help="Of its runs, 0 to 999.")
@click.option("--max-attempts", type=int, metavar="N", help="Executions that may fail before a run does.")
@duration_option("--timeout", "A run fails when it has not ended after so long.")
@click.option("--budget", type=float, metavar="COST", help="A run pauses when its steps have cost so much.")
@duration_option("--ttl", "How long a run is kept after its end.")
@limit_key_option
@click.option(
    "--label",
    "labels",
    type=typed_label,
    multiple=True,
    metavar="KEY=VALUE",
    help="A tag; may be given again.",
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
    """Make a schedule, or change the one of that name.

    WORKFLOW is a type such as shop.report.v1; without .vN the newest published version is taken. JSON is what
    each run is given. The same again changes nothing. Limit key, budget, ttl, timeout and attempts that are
    not given stay as they are.
    """
    if options["cron"] is None and options["every"] is None:
        raise click.UsageError("say when: --cron '0 3 * * *', or --every 15m")
    value = typed_json(params, "the value for the workflow")
    options = {key: one for key, one in options.items() if one is not None}
    options["labels"] = dict(labels) or None

    async def work(client: Client) -> None:
        await session.refuse_plain(client, plain=plain)
        stays = await _options_of(client, name, options["tenant"])
        made = await client.schedule(name, workflow, value, **{**stays, **options})
        await _tell(client, made, as_json=as_json)
        await warn_if_unknown(client, made.type, "its runs wait until one that has it appears")

    session.run(work, create=True)


async def _options_of(client: Client, name: str, tenant: str) -> dict[str, Any]:
    """What an app may have said of its runs, and who changes its rhythm here does not know of."""
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
@click.option("--tenant", metavar="NAME", help="Only this tenant's.")
@json_option
@store_option()
def ls(tenant: str | None, *, as_json: bool) -> None:
    """List schedules. With --json one line a schedule."""

    async def work(client: Client) -> None:
        found = await client.schedules(ANY if tenant is None else tenant)
        now = await client.store.now()
        if as_json:
            for one in found:
                print_json(schedule_data(one, *_times_of(one, now)))
        elif not found:
            click.echo("no schedules yet; `holdfast schedule add --help` says how to make one", err=True)
        else:
            tenants = any(one.tenant != DEFAULT_TENANT for one in found)
            head = ["NAME", *(["TENANT"] if tenants else []), "WHEN", "NEXT", "LAST", "STARTS"]
            rows = [_row(one, now, tenants=tenants) for one in found]
            click.echo("\n".join(table(head, rows)))

    session.run(work)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def show(name: str, tenant: str, *, as_json: bool) -> None:
    """Show one schedule, and the next times at which it fires."""

    async def work(client: Client) -> None:
        found = await client.schedules(tenant, name)
        if not found:
            raise UnknownSchedule(name)
        await _tell(client, found[0], as_json=as_json)

    session.run(work)


@schedule.command()
@name_argument
@tenant_option
@by_option
@json_option
@store_option()
def pause(name: str, tenant: str, by: str | None, *, as_json: bool) -> None:
    """Let a schedule miss its times until it is resumed."""
    _change(lambda client: client.pause_schedule(name, tenant, session.operator(by)), as_json=as_json)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def resume(name: str, tenant: str, *, as_json: bool) -> None:
    """Let a paused schedule go on, with its next time from now on."""
    _change(lambda client: client.resume_schedule(name, tenant), as_json=as_json)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def fire(name: str, tenant: str, *, as_json: bool) -> None:
    """Start a run of a schedule at once, outside its rhythm. Prints the run's id."""

    async def work(client: Client) -> None:
        run = await client.fire_schedule(name, tenant)
        print_json({"name": name, "tenant": tenant, "run": run.id}) if as_json else click.echo(str(run.id))

    session.run(work)


@schedule.command()
@name_argument
@tenant_option
@json_option
@store_option()
def rm(name: str, tenant: str, *, as_json: bool) -> None:
    """Remove a schedule. Its runs go on."""

    async def work(client: Client) -> None:
        if not await client.unschedule(name, tenant):
            raise UnknownSchedule(name)
        if as_json:
            print_json({"name": name, "tenant": tenant, "removed": True})
        else:
            click.echo(f"{clean(name)} is removed")

    session.run(work)


def _change(verb: Callable[[Client], Awaitable[Schedule]], *, as_json: bool) -> None:
    async def work(client: Client) -> None:
        await _tell(client, await verb(client), as_json=as_json)

    session.run(work)


async def _tell(client: Client, one: Schedule, *, as_json: bool) -> None:
    now = await client.store.now()
    times, trouble = _times_of(one, now)
    if as_json:
        print_json(schedule_data(one, times, trouble))
        return
    click.echo(f"{click.style(clean(one.name), bold=True)}  {clean(one.type)}")
    facts = list(_facts(one, moment(now)))
    width = max(len(what) for what, _ in facts)
    for what, text in facts:
        click.echo(f"  {what:<{width}}  {text}")
    click.echo("")
    told = (
        _times(one, times, moment(now))
        if trouble is None
        else [f"  it cannot be fired here: {clean(trouble)}"]
    )
    click.echo("\n".join(told))


def _times_of(one: Schedule, now: Instant) -> tuple[list[Instant], str | None]:
    """When it fires next; or why that cannot be said here."""
    try:
        return upcoming(one, now, TIMES), None
    except UsageError as error:
        return [], str(error)


def _facts(one: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    yield "when", _when(one)
    if one.paused:
        yield "paused", f"by {clean(one.paused_by)}" if one.paused_by else "yes"
    if one.tenant != DEFAULT_TENANT:
        yield "tenant", clean(one.tenant)
    yield "params", clean(raw_text(one.params_json), VALUE_MAX)
    yield "overlap", one.overlap + (f", {len(one.waiting)} in line" if one.waiting else "")
    yield "catch-up", one.catch_up.value
    if one.limit_key is not None:
        yield "limit key", clean(one.limit_key)
    if one.budget_units is not None:
        yield "budget", f"{one.budget_units / COST_UNIT:g}"
    if one.ttl_seconds is not None:
        yield "kept", f"{span(one.ttl_seconds)} after a run's end"
    skipped = f", {one.skipped} skipped" if one.skipped else ""
    yield "fired", f"{one.fired} time{'s' * (one.fired != 1)}{skipped}"
    if one.last_at is not None:
        yield "last", f"{stamp(one.last_at)} ({ago(one.last_at, now)}), run {one.last_run}"
    if one.last_missed_at is not None:
        yield "missed", f"{stamp(one.last_missed_at)} ({ago(one.last_missed_at, now)})"


def _when(one: Schedule) -> str:
    jitter = f", up to {span(one.jitter.total_seconds())} later" if one.jitter_us else ""
    if one.every is not None:
        return f"every {span(one.every.total_seconds())}{jitter}"
    return f"{clean(one.cron)} {clean(one.zone)}{jitter}"


def _times(one: Schedule, times: list[Instant], now: datetime) -> list[str]:
    """On the clock that it goes by, and in UTC."""
    if one.paused:
        resume = command(f"schedule resume {quote(clean(one.name))}")
        return [f"  it fires no more until `{resume}`, save by hand"]
    if not times:
        return ["  it never fires again"]
    if one.zone == "UTC":
        rows = [[stamp(moment(at)), ago(moment(at), now)] for at in times]
        return table(["NEXT TIMES", ""], rows, "  ")
    rows = [[_on_clock(at, one.zone), stamp(moment(at)), ago(moment(at), now)] for at in times]
    return table([f"NEXT TIMES, {clean(one.zone)}", "UTC", ""], rows, "  ")


def _on_clock(at: Instant, zone: str) -> str:
    return local(at, zone).strftime("%a %Y-%m-%d %H:%M:%S %z")


def _row(one: Schedule, at: Instant, *, tenants: bool) -> list[str]:
    now, trouble = moment(at), _times_of(one, at)[1]
    return [
        clean(one.name),
        *([clean(one.tenant)] if tenants else []),
        _when(one),
        _next(one, now, trouble),
        ago(one.last_at, now),
        clean(one.type),
    ]


def _next(one: Schedule, now: datetime, trouble: str | None) -> str:
    if one.paused:
        return click.style("paused", fg="magenta")
    return ago(one.next_at, now) if trouble is None else click.style(cut(clean(trouble), NEXT_MAX), fg="red")
