"""`holdfast result`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.follow import wait_for_end
from holdfast.cli.options import duration_option, json_option, run_argument, store_option
from holdfast.cli.results import print_result, raise_unless_succeeded
from holdfast.cli.terminal import print_json
from holdfast.shown.data import result_data


@click.command()
@run_argument
@duration_option("--timeout", "Stop waiting after this time, the run continues; 0 does not wait.")
@json_option
@store_option()
def result(run: str, timeout: float | None, *, as_json: bool) -> None:
    """Wait until a run has ended, and print its result.

    The exit code is 1 if the run failed or was cancelled.
    """
    session.run(lambda client: _result(client, run, timeout, as_json=as_json))


async def _result(client: Client, run_text: str, timeout: float | None, *, as_json: bool) -> None:
    found = await find(client, run_text)
    run = await wait_for_end(client, found.id, timeout, show_trail=False)
    if as_json:
        print_json(result_data(run))
    else:
        print_result(run)
    raise_unless_succeeded(run)
