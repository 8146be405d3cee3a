"""`holdfast trail`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.follow import entries
from holdfast.cli.options import ROWS, SEQ, json_option, store_option
from holdfast.cli.program import repeated
from holdfast.cli.terminal import print_json
from holdfast.cli.trail_lines import TrailLines
from holdfast.shown.data import trail_data
from holdfast.shown.text import clean

SHOWN_MAX = 1_000  # entries for people


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--follow", is_flag=True, help="Continue until the run has ended; without RUN until Ctrl-C.")
@click.option("--after", type=SEQ, default=0, metavar="SEQ", help="Only entries after this number.")
@click.option(
    "--limit",
    type=ROWS,
    metavar="N",
    help=f"The number of entries to show; {SHOWN_MAX:,} by default, with --json all.",
)
@json_option
@store_option()
def trail(run: str | None, after: int, limit: int | None, *, follow: bool, as_json: bool) -> None:
    """Show what happened to a run, in order; --follow waits for more.

    Without RUN it shows all runs. Times are local; a heading gives the date. With --json each entry is one
    line with its time in UTC; `seq` is its number for --after.
    """
    most = limit or (None if follow or as_json else SHOWN_MAX)
    session.run(lambda client: _trail(client, run, after, most, follow=follow, as_json=as_json))


async def _trail(
    client: Client, run_text: str | None, after: int, most: int | None, *, follow: bool, as_json: bool
) -> None:
    run = (await find(client, run_text)).id if run_text else None
    rows = client.follow(run, after) if follow else entries(client, run, after)
    lines, last, count = TrailLines(with_run=run is None), after, 0
    async for entry in rows:
        if count == most:
            click.echo(click.style(f"more: {clean(repeated(after=last))}", dim=True), err=True)
            return
        if as_json:
            print_json(trail_data(entry))
        else:
            click.echo("\n".join(lines.lines(entry)))
        last, count = entry.seq, count + 1
