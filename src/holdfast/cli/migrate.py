"""`holdfast migrate`."""

from __future__ import annotations

import click

from holdfast.engine.client import Client
from holdfast.stores import shown

from . import session
from .options import json_option, store_option
from .shape import print_json
from .text import clean


@click.command()
@json_option
@store_option()
def migrate(*, as_json: bool) -> None:
    """Create the store or bring it up to date.

    Workers, `dev` and `start` do this by themselves; here it can be done ahead. Other commands refuse
    what is no store yet, or an older one.
    """
    url = shown(session.store_url())

    async def opened(_client: Client) -> None:
        if as_json:
            print_json({"store": url, "current": True})
        else:
            click.echo(f"{clean(url)} is up to date")

    session.run(opened, create=True)
