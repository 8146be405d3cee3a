"""`holdfast explain`."""

from __future__ import annotations

import click

from holdfast.engine.client import Client

from . import session
from .find import find
from .options import json_option, run_argument, store_option
from .program import pastable
from .shape import print_json
from .text import clean

TEXT_MAX = 10_000


@click.command()
@run_argument
@json_option
@store_option()
def explain(run: str, *, as_json: bool) -> None:
    """Say why a run is not moving."""
    session.run(lambda client: _explain(client, run, as_json=as_json))


async def _explain(client: Client, said: str, *, as_json: bool) -> None:
    run = await find(client, said, deleted=True)
    if run.deleted_at is None:
        run = await client.present(run.id)
    told = await client.explain(run.id)
    if as_json:
        print_json(
            {"id": run.id, "status": run.status, "reason": told.reason, "text": told.text, "data": told.data}
        )
    else:
        click.echo(pastable(clean(told.text, TEXT_MAX)))
