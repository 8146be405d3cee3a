"""`holdfast trail`."""

from __future__ import annotations

import click

from holdfast.engine.client import Client

from . import session
from .find import find
from .follow import entries
from .follow import follow as followed
from .options import json_option, store_option
from .shape import print_json, trail_data
from .words import line


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--follow", is_flag=True, help="Go on until the run has ended (without RUN: until Ctrl-C).")
@click.option(
    "--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only what came after this number."
)
@json_option
@store_option()
def trail(run: str | None, after: int, *, follow: bool, as_json: bool) -> None:
    """Show what happened, in order; --follow stays.

    Without RUN: to all runs. With --json one line each, whose `seq` is the number for --after.
    """
    session.run(lambda client: _trail(client, run, after, follow=follow, as_json=as_json))


async def _trail(client: Client, said: str | None, after: int, *, follow: bool, as_json: bool) -> None:
    run = (await find(client, said)).id if said else None
    rows = followed(client, run, after) if follow else entries(client, run, after)
    async for entry in rows:
        if as_json:
            print_json(trail_data(entry))
        else:
            click.echo(line(entry, with_run=run is None))
