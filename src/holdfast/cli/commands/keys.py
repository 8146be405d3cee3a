"""`holdfast keys` and `holdfast audit`: API keys, and who did what with them."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import click

from holdfast.cli import session
from holdfast.cli.clients import Client, everyone, is_api
from holdfast.cli.groups import CommandGroup
from holdfast.cli.options import ROWS, SEQ, by_option, duration_option, json_option, store_option
from holdfast.cli.program import repeated
from holdfast.cli.terminal import print_json, table
from holdfast.engine.app.client import StoreClient
from holdfast.engine.app.keys import OVERLAP, NewKey
from holdfast.engine.pages import gathered
from holdfast.errors import UsageError
from holdfast.records import OWN, Scope
from holdfast.shown.data import key_data
from holdfast.shown.keys import audit_row, key_rights, key_row
from holdfast.shown.text import clean
from holdfast.shown.times import span

RATE = click.FloatRange(0.001, 10_000)
OPEN_RUNS = click.IntRange(1, 10_000)


@click.group(cls=CommandGroup)
@store_option()
def keys() -> None:
    """Create, list, rotate and revoke the API keys of the HTTP API.

    A key belongs to one tenant. Its secret is printed once, and the store keeps only a hash of it.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([one.value for one in Scope]),
    help="What the key may do; may be repeated.",
)
@click.option("--tenant", metavar="NAME", help="The tenant of the key; `default` by default.")
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="TYPE",
    help="With scope work: claim only this type, or shop.% for a prefix; may be repeated.",
)
@duration_option("--expires", "The key ends after this time: 12h, 90d.")
@click.option(
    "--rate", type=RATE, metavar="X", help="At most so many requests a second, in each server process."
)
@click.option(
    "--open-runs-max", type=OPEN_RUNS, metavar="N", help="At most so many open runs that the key has started."
)
@by_option
@json_option
@store_option()
def create(
    name: str,
    scopes: tuple[str, ...],
    tenant: str | None,
    patterns: tuple[str, ...],
    expires: float | None,
    rate: float | None,
    open_runs_max: int | None,
    by: str | None,
    *,
    as_json: bool,
) -> None:
    """Create an API key, and print its secret this one time.

    Give the secret to the program that calls the HTTP API: it sends `Authorization: Bearer SECRET`. As soon
    as a store has a key, every request to its servers needs one.
    """

    async def work(client: Client) -> None:
        if is_api(client) and Scope.OPERATOR in scopes:
            raise UsageError(
                "an operator key needs the store itself: give its URL with --store, not the API's"
            )
        made = await client.create_key(
            name,
            scopes=scopes,
            tenant=OWN if tenant is None else tenant,
            patterns=patterns,
            expires_at=None if expires is None else _later(await client.now(), expires),
            rate=rate,
            open_runs_max=open_runs_max,
            by=session.operator(by),
        )
        if not as_json:
            key, rights = made.key, key_rights(made.key)
            click.echo(
                f"API key {clean(key.name)} ({key.id}) of tenant {clean(key.tenant)} is created: {rights}"
            )
        _print_secret(made, as_json=as_json)

    session.run(work, create=True)  # a server may need a key before there is anything else


def _later(now: datetime, seconds: float) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)


def _print_secret(made: NewKey, *, as_json: bool) -> None:
    """Print the secret on standard output only: what is logged goes to standard error."""
    if as_json:
        print_json({"key": key_data(made.key), "secret": made.secret})
    else:
        click.echo(f"secret (shown only now, keep it safe): {made.secret}")


@keys.command()
@click.option("--tenant", metavar="NAME", help="Only keys of this tenant.")
@click.option("--limit", type=ROWS, default=100, show_default=True, help="The number of keys to list.")
@click.option("--after", metavar="ID", help="Only keys after this id: the next page.")
@json_option
@store_option()
def ls(tenant: str | None, limit: int, after: str | None, *, as_json: bool) -> None:
    """List the API keys by id, also those that are revoked or have expired."""

    async def work(client: Client) -> None:
        fetch = partial(client.keys, everyone(client) if tenant is None else tenant)
        found = await gathered(fetch, limit, after, lambda one: one.id)
        if as_json:
            for one in found:
                print_json(key_data(one))
        elif not found:
            click.echo("no API keys; `holdfast keys create --help` explains how to create one", err=True)
        else:
            now = await client.now()
            head = ["ID", "NAME", "TENANT", "STATE", "LAST USED", "SCOPES"]
            click.echo("\n".join(table(head, [key_row(one, now) for one in found])))
            _hint_more(found[-1].id, full=len(found) == limit)

    session.run(work)


@keys.command()
@click.argument("id", metavar="ID")
@duration_option(
    "--overlap", f"How long the old secret stays valid; {span(OVERLAP.total_seconds())} by default."
)
@by_option
@json_option
@store_option()
def rotate(id: str, overlap: float | None, by: str | None, *, as_json: bool) -> None:
    """Give an API key a new secret, and print it this one time.

    Both secrets are valid during the overlap: change the callers meanwhile. With --overlap 0 the old secret
    ends at once.
    """

    async def work(client: Client) -> None:
        lasts = OVERLAP if overlap is None else timedelta(seconds=overlap)
        made = await client.rotate_key(id, overlap=lasts, by=session.operator(by))
        if not as_json:
            old = f"valid for {span(lasts.total_seconds())}" if lasts else "not valid any more"
            click.echo(
                f"API key {clean(made.key.name)} ({made.key.id}) has a new secret; the old one is {old}"
            )
        _print_secret(made, as_json=as_json)

    session.run(work)


@keys.command(name="rotate-signing-key")
@json_option
@store_option()
def rotate_signing_key(*, as_json: bool) -> None:
    """Give the store a new signing key of the HTTP API. It is not an API key, and is never shown.

    It signs cursors of pages, the tokens of workers over HTTP, and links to gates. The one before it stays
    valid until the next rotation. Servers learn of it within a few seconds.
    """

    async def work(client: StoreClient) -> None:
        made_at = await client.rotate_signing_key()
        if as_json:
            print_json({"created_at": made_at})
        else:
            click.echo("the store has a new signing key; the one before it is valid until the next rotation")

    session.run_on_store(work)


@keys.command()
@click.argument("id", metavar="ID")
@by_option
@json_option
@store_option()
def revoke(id: str, by: str | None, *, as_json: bool) -> None:
    """End an API key for good; servers refuse it within a few seconds."""

    async def work(client: Client) -> None:
        key = await client.revoke_key(id, by=session.operator(by))
        if as_json:
            print_json(key_data(key))
        else:
            click.echo(f"API key {clean(key.name)} ({key.id}) is revoked")

    session.run(work)


@click.command()
@click.option("--tenant", metavar="NAME", help="Only acts in this tenant.")
@click.option("--action", "actions", multiple=True, metavar="NAME", help="Only this action; may be repeated.")
@click.option("--key", "key_ids", multiple=True, metavar="ID", help="Only acts with this API key.")
@click.option("--limit", type=ROWS, default=100, show_default=True, help="The number of rows to list.")
@click.option("--after", type=SEQ, metavar="SEQ", help="Only rows before this number: the next page.")
@json_option
@store_option()
def audit(
    tenant: str | None,
    actions: tuple[str, ...],
    key_ids: tuple[str, ...],
    limit: int,
    after: int | None,
    *,
    as_json: bool,
) -> None:
    """Show who did what with API keys, newest first.

    Changes of keys are listed, and acts and refusals of the HTTP API. Starts are not: the trail of a run
    names the key that started it. Rows are kept for 90 days.
    """

    async def work(client: Client) -> None:
        whose = everyone(client) if tenant is None else tenant
        fetch = partial(client.audit, whose, actions=actions, keys=key_ids)
        found = await gathered(fetch, limit, after, lambda one: one.seq)
        if as_json:
            for one in found:
                print_json(one)
        elif not found:
            click.echo("the audit log is empty", err=True)
        else:
            head = ["TIME", "TENANT", "WHO", "ACTION", "OUTCOME", "TARGET"]
            click.echo("\n".join(table(head, [audit_row(one) for one in found])))
            _hint_more(found[-1].seq, full=len(found) == limit)

    session.run(work)


def _hint_more(last: str | int, *, full: bool) -> None:
    if full:
        click.echo(f"there may be more: {clean(repeated(after=last))}", err=True)
