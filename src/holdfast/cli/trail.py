"""`holdfast trail`."""

from __future__ import annotations

import click

from holdfast.engine.client import Client

from . import session
from .find import find
from .follow import entries
from .follow import follow as followed
from .options import ROWS, SEQ, json_option, store_option
from .program import repeated
from .shape import print_json, trail_data
from .text import clean
from .words import line

SHOWN_MAX = 1_000  # rows for people


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--follow", is_flag=True, help="Go on until the run has ended (without RUN: until Ctrl-C).")
@click.option("--after", type=SEQ, default=0, metavar="SEQ", help="Only what came after this number.")
@click.option("--limit", type=ROWS, metavar="N", help=f"How many; {SHOWN_MAX:,} by default, with --json all.")
@json_option
@store_option()
def trail(run: str | None, after: int, limit: int | None, *, follow: bool, as_json: bool) -> None:
    """Show what happened, in order; --follow stays.

    Without RUN: to all runs. With --json one line each, whose `seq` is the number for --after.
    """
    most = limit or (None if follow or as_json else SHOWN_MAX)
    session.run(lambda client: _trail(client, run, after, most, follow=follow, as_json=as_json))


async def _trail(
    client: Client, said: str | None, after: int, most: int | None, *, follow: bool, as_json: bool
) -> None:
    run = (await find(client, said)).id if said else None
    rows = followed(client, run, after) if follow else entries(client, run, after)
    last, count = after, 0
    async for entry in rows:
        if count == most:
            click.echo(click.style(f"more: {clean(repeated(after=last))}", dim=True), err=True)
            return
        if as_json:
            print_json(trail_data(entry))
        else:
            click.echo(line(entry, with_run=run is None))
        last, count = entry.seq, count + 1
