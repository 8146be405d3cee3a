"""`holdfast explain`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.find import find
from holdfast.cli.options import json_option, run_argument, store_option
from holdfast.cli.program import pastable
from holdfast.cli.terminal import print_json
from holdfast.engine.app.client import Client
from holdfast.shown.data import explanation_data
from holdfast.shown.text import clean

TEXT_MAX = 10_000


@click.command()
@run_argument
@json_option
@store_option()
def explain(run: str, *, as_json: bool) -> None:
    """Say why a run is not moving.

    The text names what the run waits for, and the command that helps.
    """
    session.run(lambda client: _explain(client, run, as_json=as_json))


async def _explain(client: Client, run_text: str, *, as_json: bool) -> None:
    run = await find(client, run_text, deleted=True)
    if run.deleted_at is None:
        run = await client.present(run.id)
    explanation = await client.explain(run.id)
    if as_json:
        print_json(explanation_data(run, explanation))
    else:
        click.echo(pastable(clean(explanation.text, TEXT_MAX)))
