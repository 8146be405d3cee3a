"""`holdfast ls`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.cli import run_filters, session
from holdfast.cli.clients import Client, everyone
from holdfast.cli.find import find
from holdfast.cli.options import ROWS, json_option, store_option
from holdfast.cli.program import command, repeated
from holdfast.cli.questions import counter
from holdfast.cli.run_filters import TIMES
from holdfast.cli.terminal import coloured_status, print_json, table
from holdfast.engine.pages import gathered
from holdfast.records import DEFAULT_TENANT, ChildCounts, Run, RunFilter
from holdfast.shown.data import listed_run_data
from holdfast.shown.runs import children_words, news
from holdfast.shown.text import clean, short
from holdfast.shown.times import ago

TYPES_FROM = 100  # newest runs whose types a hint is made from
LOOKED_AT_MAX = 100_000  # runs that one --contains looks at, about
CALLS_MAX = 1_000  # for filters that match few runs: a call looks at some thousands to find these
COUNTED, PARENTS = 1_000, 100  # children of a run that are counted; runs in one question


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Only runs in this status, e.g. running or failed; may be repeated.",
)
@click.option(
    "--type",
    "type_",
    metavar="TYPE",
    help="Only runs of this type: shop.order for all its versions, shop.% for a prefix.",
)
@click.option("--tenant", metavar="NAME", help="Only runs of this tenant.")
@click.option("--key", metavar="TEXT", help="Only the run that was started with this key, in each tenant.")
@click.option("--parent", metavar="RUN", help="Only children of this run.")
@click.option("--roots", is_flag=True, help="Only runs without a parent.")
@click.option(
    "--label",
    "label",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Only runs with this label; without VALUE, with any value. May be repeated: all must hold.",
)
@click.option(
    "--error",
    metavar="TEXT",
    help="Only failed runs with this fingerprint, which `show` prints; a prefix when it ends in %.",
)
@click.option(
    "--contains",
    "text",
    metavar="TEXT",
    help="Only runs that hold this text in params, result, labels, key or error message. Case counts. Reads "
    "many runs.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only runs started then or later: 2h or 3d (ago), 2026-01-31, or a time with its zone.",
)
@click.option("--until", metavar="TIME", help="Only runs started before then.")
@click.option(
    "--by",
    type=click.Choice([*TIMES]),
    default="started",
    help="What --since and --until mean: the start (by default), the end, or the last change of a run.",
)
@click.option(
    "--limit", type=ROWS, default=20, metavar="N", help="The number of runs to list; 20 by default."
)
@click.option("--after", metavar="RUN", help="Only runs listed after this one: the next page.")
@click.option("--deleted", is_flag=True, help="Include deleted runs.")
@json_option
@store_option()
def ls(limit: int, after: str | None, text: str | None, *, as_json: bool, **_filters: Any) -> None:
    """List runs, newest first.

    The column RUN shows the end of the run's id, which every command accepts. STATUS is one of: pending,
    running, waiting, paused, succeeded, failed, cancelled. With --json each run is one line, and a running
    run has the status `leased`.
    NEWS of a run with children counts them, up to 1,000.

    --contains looks at 100,000 runs that match the other filters, and then says how to go on. The text is
    literal: nothing is a wildcard.
    """
    options = click.get_current_context().params

    async def work(client: Client) -> None:
        where = await filter_of(client, options)
        if text is None:
            await _ls(client, where, limit, after, as_json=as_json)
        else:
            await _search(client, text, where, (limit, after), as_json=as_json)

    session.run(work)


async def filter_of(client: Client, options: Mapping[str, Any]) -> RunFilter:
    """The filter that these options ask for; `--where` of other commands has the same ones."""
    parent, tenant = options["parent"], options["tenant"]
    now = await client.now()
    times = run_filters.times(options["since"], options["until"], options["by"], now)
    return RunFilter(
        statuses=run_filters.statuses(options["statuses"]),
        waiting_on=run_filters.gate(options["statuses"]),
        type=run_filters.pattern(options["type_"]),
        tenant=everyone(client) if tenant is None else tenant,
        key=options["key"],
        parent=(await find(client, parent, deleted=True)).id if parent else None,
        roots=options["roots"],
        labels=run_filters.labels(options["label"]),
        error=options["error"],
        deleted=options["deleted"],
        values=False,
        **times,
    )


async def _ls(client: Client, where: RunFilter, limit: int, after: str | None, *, as_json: bool) -> None:
    last = (await find(client, after, deleted=where.deleted)).id if after else None
    fetch = partial(client.list, where)
    runs = await gathered(fetch, limit + 1, last, lambda run: run.id)
    shown, more = runs[:limit], len(runs) > limit
    await _print(client, shown, as_json=as_json)
    if as_json:
        return
    if not shown:
        filtered = where != RunFilter(tenant=everyone(client), values=False) or last is not None
        _nothing(await _hint(client, where), filtered=filtered)
    elif more:
        _go_on("more", shown[-1].id)


async def _search(
    client: Client, text: str, where: RunFilter, page: tuple[int, str | None], *, as_json: bool
) -> None:
    """List the runs that hold a text. `page`: the most runs, and the id after which to begin."""
    limit, after = page
    await session.refuse_hidden(client)
    found, looked_at, go_on = await _found(client, text, where, limit, await _cursor(client, after, where))
    await _print(client, found, as_json=as_json)
    if go_on is not None:
        count = f"{looked_at:,} run{'' if looked_at == 1 else 's'} looked at"
        _go_on(f"{count}, more" if found else f"{count}, none of them holds the text; more", go_on)
    elif not found and not as_json:
        quotes = "; text is found inside of one JSON string, not over its quotes" if '"' in text else ""
        _nothing(quotes or await _hint(client, where), filtered=True)


async def _cursor(client: Client, after: str | None, where: RunFilter) -> UUID | None:
    """The id after which to begin. A search may have ended at any run, also at one that is deleted now."""
    try:
        return None if after is None else UUID(after)
    except ValueError:
        return (await find(client, after or "", deleted=where.deleted)).id


async def _found(
    client: Client, text: str, where: RunFilter, limit: int, after: UUID | None
) -> tuple[list[Run], int, UUID | None]:
    """Search, call by call, until there are `limit` runs, or many were looked at. Return the runs, how many
    were looked at, and the id after which to go on.
    """
    runs, looked_at = list[Run](), 0
    with counter("looked at") as show:
        for _ in range(CALLS_MAX):
            found = await client.search(text, where, limit - len(runs), after)
            runs += found.runs
            looked_at, after = looked_at + found.looked_at, found.after
            if after is None or len(runs) == limit or looked_at >= LOOKED_AT_MAX:
                break
            show(looked_at)
    return runs, looked_at, after


async def _print(client: Client, runs: list[Run], *, as_json: bool) -> None:
    """Print runs, with their children: each as a line of JSON, or as a table."""
    counts = await _children(client, runs)
    if as_json:
        for run in runs:
            print_json(listed_run_data(run, counts.get(run.id)))
    elif runs:
        now = await client.now()
        tenants = any(run.tenant != DEFAULT_TENANT for run in runs)
        head = ["RUN", "STATUS", "TYPE", *(["TENANT"] if tenants else []), "STARTED", "NEWS"]
        rows = [_row(run, now, counts.get(run.id), tenants=tenants) for run in runs]
        click.echo("\n".join(table(head, rows)))


def _go_on(said: str, after: UUID) -> None:
    click.echo(click.style(f"{said}: {clean(repeated(after=after))}", dim=True), err=True)


async def _children(client: Client, runs: list[Run]) -> dict[UUID, ChildCounts]:
    """The children of these runs, counted up to a bound."""
    parts = [runs[n : n + PARENTS] for n in range(0, len(runs), PARENTS)]
    counted = [await client.children([run.id for run in part], most=COUNTED) for part in parts]
    return {one.run: one for part in counted for one in part}


def _row(run: Run, now: datetime, counts: ChildCounts | None, *, tenants: bool) -> list[str]:
    tenant = [clean(run.tenant)] if tenants else []
    said = [text for text in (news(run, now), children_words(counts)) if text]
    return [
        short(run.id),
        coloured_status(run.status),
        clean(run.type),
        *tenant,
        ago(run.created_at, now),
        "; ".join(said),
    ]


async def _hint(client: Client, where: RunFilter) -> str:
    """The likely mistake in a filter that matches nothing; empty when none is seen."""
    if isinstance(where.error, str) and not where.error.endswith("%"):
        return "; --error is a whole fingerprint: a prefix needs a % at its end"
    asked = (where.type or "").removesuffix(".v%")
    if not asked or asked.endswith("%"):
        return ""
    newest = await client.list(RunFilter(tenant=where.tenant, values=False), TYPES_FROM)
    types = {run.type for run in newest}
    names = sorted(types | {type_.rpartition(".v")[0] for type_ in types})
    if asked in names:
        return ""
    if any(name.startswith(asked) for name in names):
        return f"; a prefix needs a % at its end: --type {clean(asked)}%"
    near = get_close_matches(asked, names, 1)
    return f"; did you mean --type {clean(near[0])}?" if near else ""


def _nothing(hint: str, *, filtered: bool) -> None:
    if filtered:
        said = hint or f"; without filters `{command('ls')}` lists all"
        click.echo(f"no run matches{said}", err=True)
    else:
        example = command("start shop.order.v1 '{\"order\": 7}'")
        click.echo(f"no runs yet. Start one: {example}", err=True)
