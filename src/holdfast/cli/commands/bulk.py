"""`holdfast bulk`: the operations on many runs that `--where` started."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from holdfast.cli import session
from holdfast.cli.bulk import progress_line, report_lines, report_of
from holdfast.cli.clients import Client, everyone
from holdfast.cli.find import find
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import ROWS, by_option, json_option, run_argument, store_option
from holdfast.cli.program import command
from holdfast.cli.terminal import coloured_status, print_facts, print_json, table
from holdfast.engine.bulk.asked import BULK_TYPE, OPERATOR_TENANT, Bulk
from holdfast.engine.bulk.workflow import BULK
from holdfast.errors import HoldfastError, UsageError
from holdfast.lifecycle import Status
from holdfast.records import DEFAULT_TENANT, Run, RunFilter
from holdfast.shown.data import run_data
from holdfast.shown.text import by_whom, clean, short
from holdfast.shown.times import ago, stamp

PAGE = 200


@click.group(cls=CommandGroup)
@store_option()
def bulk() -> None:
    """Watch, stop and resume operations on many runs.

    `holdfast retry --where status=failed` starts one, and so do cancel, pause, resume, rewind and delete with
    --where. Any worker or `holdfast tick` executes it.
    """


@bulk.command()
@click.option(
    "--limit", type=ROWS, default=20, metavar="N", help="The number of operations to list; 20 by default."
)
@json_option
@store_option()
def ls(limit: int, *, as_json: bool) -> None:
    """List the operations, newest first."""

    async def work(client: Client) -> None:
        found = await _operations(client, limit)
        if as_json:
            for run in found:
                print_json(run_data(run))
        elif not found:
            click.echo("no bulk operations yet: `holdfast retry --where status=failed` starts one", err=True)
        else:
            now = await client.now()
            head = ["RUN", "STATUS", "VERB", "TENANT", "STARTED", "PROGRESS"]
            click.echo("\n".join(table(head, [_row(run, now) for run in found])))

    session.run(work)


async def _operations(client: Client, limit: int) -> list[Run]:
    """The present run of each operation: a large one is a chain of runs."""
    where, after, found = RunFilter(type=BULK_TYPE, tenant=everyone(client)), None, list[Run]()
    while len(found) < limit and (page := await client.list(where, PAGE, after)):
        found += [run for run in page if run.present == run.id]
        after = page[-1].id
    return found[:limit]


def _row(run: Run, now: datetime) -> list[str]:
    asked = _asked(run)
    return [
        short(run.chain),
        _status(run),
        "?" if asked is None else asked.verb,
        _tenant(run),
        ago(run.created_at, now),
        progress_line(run.progress, bar=False),
    ]


def _status(run: Run) -> str:
    """The status; "stopping" after a stop, until the page that is being applied is done."""
    stops = run.status is Status.LEASED and run.pause_asked_by is not None
    return "stopping" if stops else coloured_status(run.status)


def _tenant(run: Run) -> str:
    return "(all)" if run.tenant == OPERATOR_TENANT else clean(run.tenant)


def _asked(run: Run) -> Bulk | None:
    """The params; None when they cannot be read here, because they are sealed."""
    try:
        asked: Bulk = BULK.params.decode(run.params_json, f"params of run {run.id}")
    except HoldfastError:
        return None
    return asked


@bulk.command()
@run_argument
@json_option
@store_option()
def show(run: str, *, as_json: bool) -> None:
    """Show one operation: its filter, how far it is, and its report."""

    async def work(client: Client) -> None:
        found = await _found(client, run)
        if as_json:
            print_json(run_data(found))
            return
        click.echo(f"bulk operation {found.chain}")
        print_facts(_facts(found, await client.now()))
        if found.status is Status.SUCCEEDED:
            click.echo("\n".join(f"  {line}" for line in report_lines(report_of(found))))

    session.run(work)


def _facts(run: Run, now: datetime) -> Iterator[tuple[str, str]]:
    asked = _asked(run)
    yield "status", _status(run)
    if asked is not None:
        step = f" to {asked.step or 'the beginning'}" if asked.verb == "rewind" else ""
        yield "verb", f"{asked.verb}{clean(step)}{by_whom(asked.by)}"
        yield (
            "filter",
            ", ".join(f"{name}: {_shown(value)}" for name, value in asked.where.items()) or "all runs",
        )
        yield "rate", f"{asked.rate:,} runs a second"
    if run.tenant != DEFAULT_TENANT:
        yield "tenant", _tenant(run)
    yield "started", f"{stamp(run.created_at)} ({ago(run.created_at, now)})"
    if run.status is Status.FAILED:
        yield "error", clean(run.last_error or "")
    if words := progress_line(run.progress, bar=False):
        yield "progress", words


def _shown(value: object) -> str:
    return clean(" or ".join(map(str, value)) if isinstance(value, list) else value)


async def _found(client: Client, text: str) -> Run:
    found = await find(client, text)
    if found.type != BULK_TYPE:
        raise UsageError(f"run {text} is no bulk operation: `holdfast bulk ls` lists them")
    return await client.present(found.id)


@bulk.command()
@run_argument
@by_option
@json_option
@store_option()
def stop(run: str, by: str | None, *, as_json: bool) -> None:
    """Stop an operation; within about a second no further run is touched.

    `holdfast bulk resume` continues it, `holdfast cancel` ends it for good.
    """

    async def work(client: Client) -> None:
        found = await client.pause((await _found(client, run)).id, by=session.operator(by))
        _say(found, f"stops; `{command(f'bulk resume {short(found.chain)}')}` continues it", as_json=as_json)

    session.run(work)


@bulk.command()
@run_argument
@by_option
@json_option
@store_option()
def resume(run: str, by: str | None, *, as_json: bool) -> None:
    """Let a stopped operation continue."""

    async def work(client: Client) -> None:
        found = await client.resume((await _found(client, run)).id, by=session.operator(by))
        _say(found, "continues", as_json=as_json)

    session.run(work)


def _say(run: Run, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(run_data(run))
    else:
        click.echo(f"{short(run.chain)} {words}")
