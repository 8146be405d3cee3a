"""`holdfast registry`."""

from __future__ import annotations

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import json_option, store_option
from holdfast.cli.published import warn_if_unknown
from holdfast.cli.terminal import print_json, table
from holdfast.records import RUNTIME, Registration
from holdfast.shown.text import clean
from holdfast.shown.times import ago


@click.group(cls=CommandGroup)
@store_option()
def registry() -> None:
    """Choose which runtime executes a workflow type, or disable the type.

    An entry for a name without a version (shop.order) applies to all its versions that have no entry of their
    own. A type without an entry is executed by every worker that has it.
    """


@registry.command()
@json_option
@store_option()
def ls(*, as_json: bool) -> None:
    """List the entries of the registry."""

    async def work(client: Client) -> None:
        entries, now = await client.registry(), await client.now()
        if as_json:
            for entry in entries:
                print_json(entry)
        elif not entries:
            click.echo("no entries: every worker executes all types that it has", err=True)
        else:
            rows = [
                [
                    clean(one.workflow_name),
                    clean(one.runtime),
                    "enabled" if one.is_enabled else click.style("disabled", fg="yellow"),
                    ago(one.updated_at, now),
                    clean(one.description),
                ]
                for one in entries
            ]
            click.echo("\n".join(table(["TYPE", "RUNTIME", "STATE", "CHANGED", "DESCRIPTION"], rows)))

    session.run(work)


@registry.command(name="set")
@click.argument("name", metavar="TYPE")
@click.option(
    "--runtime",
    metavar="NAME",
    help="The runtime whose workers execute it: python, go, …; python by default.",
)
@click.option("--enabled/--disabled", default=None, help="Whether runs of this type are executed.")
@click.option("--description", metavar="TEXT", help="A note for people.")
@click.option("--intent-type", metavar="TEXT", help="A category of your own; workflow by default.")
@json_option
@store_option()
def set_(
    name: str,
    runtime: str | None,
    description: str | None,
    intent_type: str | None,
    *,
    enabled: bool | None,
    as_json: bool,
) -> None:
    """Create or change an entry; options that are not given keep their values.

    Runs that are not running yet move to the new runtime. A running run ends on the worker that has it.
    """

    async def work(client: Client) -> None:
        made = await client.register(
            name, runtime=runtime, enabled=enabled, description=description, intent_type=intent_type
        )
        await _print(client, made, as_json=as_json)

    session.run(work)


@registry.command()
@click.argument("name", metavar="TYPE")
@json_option
@store_option()
def enable(name: str, *, as_json: bool) -> None:
    """Let workers execute the runs of a type again."""
    _switch(name, enabled=True, as_json=as_json)


@registry.command()
@click.argument("name", metavar="TYPE")
@json_option
@store_option()
def disable(name: str, *, as_json: bool) -> None:
    """Stop executing runs of a type; they wait and lose no attempts."""
    _switch(name, enabled=False, as_json=as_json)


def _switch(name: str, *, enabled: bool, as_json: bool) -> None:
    async def work(client: Client) -> None:
        await _print(client, await client.register(name, enabled=enabled), as_json=as_json)

    session.run(work)


@registry.command()
@click.argument("name", metavar="TYPE")
@json_option
@store_option()
def rm(name: str, *, as_json: bool) -> None:
    """Remove an entry: every worker that has the type executes it again."""

    async def work(client: Client) -> None:
        if not await client.unregister(name):
            names = ", ".join(one.workflow_name for one in await client.registry()) or "none"
            raise click.ClickException(f"{name} has no entry in the registry; entries: {names}")
        if as_json:
            print_json({"workflow_name": name, "removed": True})
        else:
            click.echo(f"{clean(name)} is executed again by every worker that has it")

    session.run(work)


async def _print(client: Client, made: Registration, *, as_json: bool) -> None:
    state = (
        f"is executed by {clean(made.runtime)} workers" if made.is_enabled else "is disabled: its runs wait"
    )
    print_json(made) if as_json else click.echo(f"{clean(made.workflow_name)} {state}")
    if made.runtime == RUNTIME:  # workers of other runtimes need not publish their types
        await warn_if_unknown(client, made.workflow_name, "the entry takes effect once there are such runs")
