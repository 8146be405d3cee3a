"""`holdfast registry`."""

from __future__ import annotations

import click

from holdfast.engine.client import Client
from holdfast.records import RUNTIME, Registration, moment

from . import session
from .family import Family
from .options import json_option, store_option
from .published import warn_if_unknown
from .shape import print_json
from .text import ago, clean, table


@click.group(cls=Family)
@store_option()
def registry() -> None:
    """Say which runtime executes a type, and whether at all.

    A bare name, shop.order, speaks for all its versions that have no entry of their own. A type without an
    entry is open to every worker that has it.
    """


@registry.command()
@json_option
@store_option()
def ls(*, as_json: bool) -> None:
    """List the entries."""

    async def work(client: Client) -> None:
        entries, now = await client.registry(), moment(await client.store.now())
        if as_json:
            for entry in entries:
                print_json(entry)
        elif not entries:
            click.echo("no entries: every type is open to the workers that have it", err=True)
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
@click.option("--runtime", metavar="NAME", help="Whose workers take it: python, go, …; python by default.")
@click.option("--enabled/--disabled", default=None, help="Whether it is executed at all.")
@click.option("--description", metavar="TEXT", help="What it is for.")
@click.option("--intent-type", metavar="TEXT", help="What kind of thing it is; workflow by default.")
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
    """Make an entry or change it; what is not given stays as it is.

    Runs that nobody has claimed yet move to the other runtime; what is running ends where it is.
    """

    async def work(client: Client) -> None:
        made = await client.register(
            name, runtime=runtime, enabled=enabled, description=description, intent_type=intent_type
        )
        await _tell(client, made, as_json=as_json)

    session.run(work)


@registry.command()
@click.argument("name", metavar="TYPE")
@json_option
@store_option()
def enable(name: str, *, as_json: bool) -> None:
    """Let the runs of a type go on."""
    _switch(name, enabled=True, as_json=as_json)


@registry.command()
@click.argument("name", metavar="TYPE")
@json_option
@store_option()
def disable(name: str, *, as_json: bool) -> None:
    """Claim no more runs of a type; they wait, and lose nothing."""
    _switch(name, enabled=False, as_json=as_json)


def _switch(name: str, *, enabled: bool, as_json: bool) -> None:
    async def work(client: Client) -> None:
        await _tell(client, await client.register(name, enabled=enabled), as_json=as_json)

    session.run(work)


@registry.command()
@click.argument("name", metavar="TYPE")
@json_option
@store_option()
def rm(name: str, *, as_json: bool) -> None:
    """Remove an entry: the type is open again to every worker that has it."""

    async def work(client: Client) -> None:
        if not await client.unregister(name):
            there = ", ".join(one.workflow_name for one in await client.registry()) or "none"
            raise click.ClickException(f"{name} has no entry in the registry; there are: {there}")
        if as_json:
            print_json({"workflow_name": name, "removed": True})
        else:
            click.echo(f"{clean(name)} is open again to every worker that has it")

    session.run(work)


async def _tell(client: Client, made: Registration, *, as_json: bool) -> None:
    state = f"is executed by {clean(made.runtime)}" if made.is_enabled else "is disabled: its runs wait"
    print_json(made) if as_json else click.echo(f"{clean(made.workflow_name)} {state}")
    if made.runtime == RUNTIME:  # workers of others need not publish what they have
        await warn_if_unknown(client, made.workflow_name, "the entry holds once there are such runs")
