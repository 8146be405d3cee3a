"""`holdfast result`."""

from __future__ import annotations

import click

from holdfast.engine.client import Client

from . import session
from .ending import print_ending, raise_unless_succeeded
from .find import find
from .follow import to_its_end
from .options import duration_option, json_option, run_argument, store_option
from .shape import ending_data, print_json


@click.command()
@run_argument
@duration_option("--timeout", "Give up waiting after so long (the run goes on); 0 does not wait.")
@json_option
@store_option()
def result(run: str, timeout: float | None, *, as_json: bool) -> None:
    """Wait for a run's end and print what it returned."""
    session.run(lambda client: _result(client, run, timeout, as_json=as_json))


async def _result(client: Client, said: str, timeout: float | None, *, as_json: bool) -> None:
    found = await find(client, said)
    run = await to_its_end(client, found.id, timeout, told=False)
    if as_json:
        print_json({"id": run.id, "type": run.type, "status": run.status, **ending_data(run)})
    else:
        print_ending(run)
    raise_unless_succeeded(run)
