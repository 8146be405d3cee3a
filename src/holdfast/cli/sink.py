"""`holdfast sink`: the webhooks that messages are posted to."""

from __future__ import annotations

import os
import sys

import click

from holdfast.engine.client import Client
from holdfast.errors import UsageError
from holdfast.records import moment

from . import session
from .family import Family
from .options import json_option, store_option
from .shape import print_json
from .text import ago, clean, stamp, table


@click.group(cls=Family)
@store_option()
def sink() -> None:
    """Say where messages are posted to.

    A webhook is signed as Standard Webhooks says. Functions of an app (@app.sink) are sinks too: its workers
    have them, and they are not listed here.
    """


@sink.command()
@click.argument("name")
@click.argument("url")
@click.option("--secret-from-env", metavar="VARIABLE", help="The secret is in this variable.")
@click.option("--secret-stdin", is_flag=True, help="The secret comes on standard input.")
@click.option(
    "--allow-private", is_flag=True, help="Also addresses of your own network, and http:// without TLS."
)
@json_option
@store_option()
def add(
    name: str,
    url: str,
    secret_from_env: str | None,
    *,
    secret_stdin: bool,
    allow_private: bool,
    as_json: bool,
) -> None:
    """Post the messages to NAME to this URL, or change that of an existing one.

    Without a secret one is made, and shown this once: give it to the receiver. Another secret than before
    signs beside the old one.
    """
    secret = _secret(secret_from_env, stdin=secret_stdin)

    async def work(client: Client) -> None:
        made = await client.webhook(name, url, secret, allow_private=allow_private)
        if as_json:
            print_json({"name": name, "secret": made})
            return
        click.echo(f"messages to {clean(name)} are posted there")
        if made is not None:
            click.echo(f"its secret, shown only now: {made}")

    session.run(work)


def _secret(variable: str | None, *, stdin: bool) -> str | None:
    if variable is not None and stdin:
        raise UsageError("the secret is in a variable, or comes on standard input, not both")
    if stdin:
        return sys.stdin.read().strip()
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise UsageError(f"the variable {variable} is not set: put the webhook's secret there")
    return os.environ[variable].strip()


@sink.command()
@json_option
@store_option()
def ls(*, as_json: bool) -> None:
    """List the webhooks; of their secrets only the end is shown, of a URL only the beginning."""

    async def work(client: Client) -> None:
        known = await client.webhooks()
        if as_json:
            for one in known:
                print_json(one)
        elif not known:
            click.echo("no webhooks", err=True)
        else:
            now = moment(await client.store.now())
            rows = [
                [
                    clean(one.name),
                    clean(", ".join(one.secrets)) or "-",
                    "yes" if one.allow_private else "no",
                    f"{stamp(one.updated_at)} ({ago(one.updated_at, now)})",
                    clean(one.url),
                ]
                for one in known
            ]
            click.echo("\n".join(table(["NAME", "SECRETS", "PRIVATE", "CHANGED", "URL"], rows)))

    session.run(work)


@sink.command()
@click.argument("name")
@json_option
@store_option()
def rm(name: str, *, as_json: bool) -> None:
    """Remove a webhook; messages to it wait until there is a sink of that name again."""

    async def work(client: Client) -> None:
        if not await client.remove_webhook(name):
            raise click.ClickException(
                f"there is no webhook {name!r}: `holdfast sink ls` lists what there is"
            )
        if as_json:
            print_json({"name": name, "removed": True})
        else:
            click.echo(f"{clean(name)} is no webhook any more")

    session.run(work)
