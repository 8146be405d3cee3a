"""`holdfast sink`: webhooks that messages are posted to."""

from __future__ import annotations

import os
import sys

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import json_option, store_option
from holdfast.cli.terminal import print_json, table
from holdfast.errors import UsageError
from holdfast.shown.text import clean
from holdfast.shown.times import ago, stamp


@click.group(cls=CommandGroup)
@store_option()
def sink() -> None:
    """Manage the webhooks that messages are posted to.

    Each request is signed by the Standard Webhooks rules. Functions of an app (@app.sink) are sinks too, but
    they are not listed here.
    """


@sink.command()
@click.argument("name")
@click.argument("url")
@click.option("--secret-from-env", metavar="VARIABLE", help="Read the secret from this environment variable.")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from standard input.")
@click.option(
    "--allow-private", is_flag=True, help="Also allow private network addresses, and http:// without TLS."
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
    """Post messages for the sink NAME to a URL; an existing sink gets the new URL.

    Without a secret, a new sink gets a generated one, shown this one time: give it to the receiver. An
    existing sink keeps its secret. To replace it, give another one: both sign until you give a third.
    """
    secret = _secret(secret_from_env, stdin=secret_stdin)

    async def work(client: Client) -> None:
        made = await client.webhook(name, url, secret, allow_private=allow_private)
        if as_json:
            print_json({"name": name, "secret": made})
            return
        click.echo(f"sink {clean(name)} is saved: its messages are posted to the URL")
        if made is not None:
            click.echo(f"secret (shown only now): {made}")

    session.run(work)


def _secret(variable: str | None, *, stdin: bool) -> str | None:
    if variable is not None and stdin:
        raise UsageError("give --secret-from-env or --secret-stdin, not both")
    if stdin:
        return sys.stdin.read().strip()
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise UsageError(f"the environment variable {variable} is not set: set it to the webhook's secret")
    return os.environ[variable].strip()


@sink.command()
@json_option
@store_option()
def ls(*, as_json: bool) -> None:
    """List the webhooks, with the end of each secret and the beginning of each URL."""

    async def work(client: Client) -> None:
        known = await client.webhooks()
        if as_json:
            for one in known:
                print_json(one)
        elif not known:
            click.echo("no webhooks yet; `holdfast sink add --help` explains how to add one", err=True)
        else:
            now = await client.now()
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
    """Remove a webhook; messages for it wait until a sink of that name exists again."""

    async def work(client: Client) -> None:
        if not await client.remove_webhook(name):
            raise click.ClickException(f"there is no webhook {name!r}: `holdfast sink ls` lists all")
        if as_json:
            print_json({"name": name, "removed": True})
        else:
            click.echo(f"webhook {clean(name)} is removed")

    session.run(work)
