"""`holdfast migrate` and `holdfast redis`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import json_option, store_option
from holdfast.cli.terminal import print_json
from holdfast.engine.app.client import StoreClient
from holdfast.errors import UsageError
from holdfast.shown.text import clean
from holdfast.stores import shown


@click.command()
@json_option
@store_option()
def migrate(*, as_json: bool) -> None:
    """Create the store, or update its schema to this version.

    `worker`, `dev`, `serve`, `start`, `schedule add`, `keys create`, `import` and `move --to` do this too;
    with `migrate` you can do it in advance. All other commands refuse a store that is missing or older.
    """
    url = shown(session.store_url())

    async def opened(_client: StoreClient) -> None:
        if as_json:
            print_json({"store": url, "current": True})
        else:
            click.echo(f"{clean(url)} is up to date")

    session.run_on_store(opened, create=True)


@click.group(cls=CommandGroup)
def redis() -> None:
    """Print the script by which other languages start runs in Redis."""


@redis.command()
def producer() -> None:
    """Print the script that starts a run.

    Any client of Redis can call it: EVAL SCRIPT 1 {PREFIX}:numbers TYPE PARAMS [KEY] [TENANT] [PRIORITY]
    [DELAY_MS]. PREFIX is the prefix of the store, holdfast by default. It answers with the id of the run, and
    with 1 if this call has started it, 0 if the key was known.
    """
    try:
        from holdfast.stores.redis.producing import producer as text
    except ModuleNotFoundError as error:
        if error.name not in {"redis", "hiredis"}:
            raise
        raise UsageError(
            "for a store in Redis or Valkey the driver is missing: "
            "pip install '.[redis]' in a clone of Holdfast"
        ) from None
    click.echo(text(), nl=False)
