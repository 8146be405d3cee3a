"""`holdfast purge`: remove expired runs for good."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli import session
from holdfast.cli.options import duration_option, json_option, store_option
from holdfast.cli.questions import confirm, counter, yes_option
from holdfast.cli.terminal import print_json
from holdfast.contract import DELETED_SECONDS, TTL_SECONDS
from holdfast.engine.app.client import StoreClient
from holdfast.machine.durations import micros
from holdfast.records import ANY, Instant, Purged, Run, RunFilter, instant
from holdfast.shown.text import counted
from holdfast.shown.times import span

PAGE = 1000


@click.command()
@duration_option("--older-than", "Remove finished runs without a ttl that ended so long ago; 30d by default.")
@duration_option("--deleted-after", "Remove runs that were deleted so long ago; 7d by default.")
@click.option("--dry-run", is_flag=True, help="Only count the runs that would be removed.")
@yes_option
@json_option
@store_option()
def purge(
    older_than: float | None, deleted_after: float | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Remove expired data for good: finished runs, deleted runs, old events.

    A run is removed with its steps, its trail and its key. Open runs stay, unless they are deleted.
    """
    ttl = TTL_SECONDS if older_than is None else older_than
    deleted = DELETED_SECONDS if deleted_after is None else deleted_after
    if dry_run:
        session.run_on_store(lambda client: _count(client, ttl, deleted, as_json=as_json))
    else:
        session.run_on_store(lambda client: _purge(client, ttl, deleted, yes=yes, as_json=as_json))


async def _purge(client: StoreClient, ttl: float, deleted: float, *, yes: bool, as_json: bool) -> None:
    if not yes:
        confirm(
            f"this removes for good: finished runs older than {span(ttl)}, runs past their own ttl, "
            f"and runs deleted more than {span(deleted)} ago"
        )
    with counter("removed") as update:
        purged = await client.purge(ttl, deleted, lambda so_far: update(so_far.runs))
    if as_json:
        print_json(msgspec.to_builtins(purged))
    else:
        click.echo(_removed(purged))


def _removed(purged: Purged) -> str:
    if not purged.total:
        return "nothing has expired"
    also = [
        *([counted(purged.events, "old event")] if purged.events else []),
        *([counted(purged.workers, "ended worker")] if purged.workers else []),
        *([counted(purged.claims, "old claim") + " of rate limits"] if purged.claims else []),
        *([counted(purged.audit, "old row") + " of the audit log"] if purged.audit else []),
        *([counted(purged.api_keys, "ended API key")] if purged.api_keys else []),
        *([counted(purged.sessions, "ended session")] if purged.sessions else []),
    ]
    return f"{counted(purged.runs, 'run')} removed" + (f", also {' and '.join(also)}" if also else "")


async def _count(client: StoreClient, ttl: float, deleted: float, *, as_json: bool) -> None:
    now = await client.store.now()
    count, seen, after = 0, 0, None
    with counter("read") as update:
        while page := await client.list(RunFilter(tenant=ANY, deleted=True, values=False), PAGE, after):
            ends = [expires_at(run, ttl, deleted) for run in page]
            count += sum(at is not None and at <= now for at in ends)
            seen, after = seen + len(page), page[-1].id
            update(seen)
    if as_json:
        print_json({"runs": count})
    else:
        click.echo(f"{count:,} of {counted(seen, 'run')} would be removed")


def expires_at(run: Run, ttl: float, deleted: float) -> Instant | None:
    """The first instant at which a purge may remove the run: by its deletion or by its end."""
    ends = [instant(run.deleted_at) + micros(deleted)] if run.deleted_at is not None else []
    if run.expires_at is not None:
        ends.append(instant(run.expires_at))
    elif run.finished_at is not None:
        ends.append(instant(run.finished_at) + micros(ttl))
    return min(ends, default=None)
