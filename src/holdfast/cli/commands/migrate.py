"""`holdfast migrate`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.options import json_option, store_option
from holdfast.cli.terminal import print_json
from holdfast.engine.app.client import StoreClient
from holdfast.shown.text import clean
from holdfast.stores import shown


@click.command()
@json_option
@store_option()
def migrate(*, as_json: bool) -> None:
    """Create the store, or update its schema to this version.

    `worker`, `dev`, `start` and `schedule add` do this too; with `migrate` you can do it in advance. All
    other commands refuse a store that is missing or older.
    """
    url = shown(session.store_url())

    async def opened(_client: StoreClient) -> None:
        if as_json:
            print_json({"store": url, "current": True})
        else:
            click.echo(f"{clean(url)} is up to date")

    session.run_on_store(opened, create=True)
