"""`holdfast delete`, `restore` and `purge`: what is hidden, what is shown again, what goes for good."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec

from holdfast.contract import DELETED_SECONDS, TTL_SECONDS
from holdfast.engine.client import Client
from holdfast.errors import Conflict
from holdfast.lifecycle import FINAL, Status
from holdfast.machine.durations import micros
from holdfast.records import ANY, Instant, Purged, Run, RunFilter, instant, moment

from . import session
from .find import find, short
from .options import by_option, duration_option, json_option, run_argument, store_option
from .program import command
from .shape import print_json, run_data
from .text import clean as text_of
from .text import span, stamp, status_word

PAGE = 1000


def yes_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


@click.command()
@run_argument
@by_option
@yes_option
@json_option
@store_option()
def delete(run: str, by: str | None, *, yes: bool, as_json: bool) -> None:
    """Hide a run; `restore` shows it again until it is purged.

    An open run is not executed any more while it is deleted; you are asked first. Its key stays taken.
    """
    session.run(lambda client: _delete(client, run, session.operator(by), yes=yes, as_json=as_json))


async def _delete(client: Client, said: str, by: str, *, yes: bool, as_json: bool) -> None:
    run = await find(client, said)
    present = await client.present(run.id)
    if present.status not in FINAL and not yes:
        chain = "" if present.id == run.id else f", with its whole chain up to {short(present.id)}"
        _ask(
            f"{short(run.id)} ({text_of(run.type)}) is {present.status}: "
            f"deleted{chain}, it is executed no more{_at_it(present)}"
        )
    deleted = await client.delete(run.id, by=by)
    if as_json:
        print_json(run_data(deleted))
        return
    until, now = _expires_at(deleted, TTL_SECONDS, DELETED_SECONDS), await client.store.now()
    click.echo(
        f"{short(run.id)} ({text_of(run.type)}) is deleted, and was {status_word(deleted.status)}; "
        f"`{command(f'restore {short(run.id)}')}` shows it again, until "
        + (stamp(moment(until)) if until is not None and until > now else "the next purge: it has expired")
    )


def _at_it(run: Run) -> str:
    return f", and worker {text_of(run.leased_by)} stops at once" if run.status is Status.LEASED else ""


@click.command()
@run_argument
@by_option
@json_option
@store_option()
def restore(run: str, by: str | None, *, as_json: bool) -> None:
    """Show a deleted run again; an open one goes on.

    `holdfast ls --deleted` lists those there are.
    """

    async def work(client: Client) -> None:
        found = await find(client, run, deleted=True)
        restored = await client.restore(found.id, by=session.operator(by))
        if as_json:
            print_json(run_data(restored))
        else:
            again = "shown again" if found.deleted_at is not None else "not deleted"
            click.echo(
                f"{short(found.id)} ({text_of(found.type)}) is {again}: {status_word(restored.status)}"
            )

    session.run(work)


@click.command()
@duration_option("--older-than", "Finished runs that ended so long ago and have no ttl; 30d by default.")
@duration_option("--deleted-after", "Runs that were deleted so long ago; 7d by default.")
@click.option("--dry-run", is_flag=True, help="Only count the runs that would go.")
@yes_option
@json_option
@store_option()
def purge(
    older_than: float | None, deleted_after: float | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Remove for good what has expired: finished runs, deleted runs, old events.

    With a run go its steps, its trail and its key. Open runs stay, but for deleted ones.
    """
    ttl = TTL_SECONDS if older_than is None else older_than
    deleted = DELETED_SECONDS if deleted_after is None else deleted_after
    if dry_run:
        session.run(lambda client: _count(client, ttl, deleted, as_json=as_json))
    else:
        session.run(lambda client: _purge(client, ttl, deleted, yes=yes, as_json=as_json))


async def _purge(client: Client, ttl: float, deleted: float, *, yes: bool, as_json: bool) -> None:
    if not yes:
        _ask(
            f"this removes for good finished runs older than {span(ttl)}, those past their own ttl, "
            f"and runs deleted more than {span(deleted)} ago"
        )
    with _progress("removed") as told:
        done = await client.purge(ttl, deleted, lambda sum_: told(sum_.runs))
    if as_json:
        print_json(msgspec.to_builtins(done))
    else:
        click.echo(_removed(done))


def _removed(done: Purged) -> str:
    if not done.total:
        return "nothing has expired"
    gone = ((done.events, "events"), (done.workers, "workers"), (done.claims, "claims of a rate"))
    also = [f"{count:,} {what}" for count, what in gone if count]
    return f"{done.runs:,} runs removed" + (f", also {' and '.join(also)} long gone" if also else "")


async def _count(client: Client, ttl: float, deleted: float, *, as_json: bool) -> None:
    now = await client.store.now()
    count, seen, after = 0, 0, None
    with _progress("looked at") as told:
        while page := await client.list(RunFilter(tenant=ANY, deleted=True, values=False), PAGE, after):
            ends = [_expires_at(run, ttl, deleted) for run in page]
            count += sum(at is not None and at <= now for at in ends)
            seen, after = seen + len(page), page[-1].id
            told(seen)
    if as_json:
        print_json({"runs": count})
    else:
        click.echo(f"{count:,} of {seen:,} runs would be removed")


def _expires_at(run: Run, ttl: float, deleted: float) -> Instant | None:
    """When a purge on these terms may remove it: deleted or finished, whichever comes first."""
    ends = [instant(run.deleted_at) + micros(deleted)] if run.deleted_at is not None else []
    if run.expires_at is not None:
        ends.append(instant(run.expires_at))
    elif run.finished_at is not None:
        ends.append(instant(run.finished_at) + micros(ttl))
    return min(ends, default=None)


def _ask(danger: str) -> None:
    """Go on only if a person says so, here or by --yes."""
    if not _at_a_terminal():
        raise Conflict(f"{danger}; say --yes if that is meant")
    if not click.confirm(f"{danger}. Go on?", err=True):
        raise Conflict("nothing was changed")


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def _progress(word: str) -> Iterator[Callable[[int], None]]:
    """One line on a terminal that counts up, and is gone at the end; silent elsewhere."""
    shown = sys.stderr.isatty()

    def told(count: int) -> None:
        if shown:
            click.echo(f"\r{count:,} runs {word}", err=True, nl=False)

    try:
        yield told
    finally:
        if shown:
            click.echo("\r\033[K", err=True, nl=False)
