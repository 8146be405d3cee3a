"""`holdfast definitions`."""

from __future__ import annotations

import click

from holdfast.bounds import SCHEMA_BYTES
from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.options import json_option, store_option
from holdfast.cli.published import not_published
from holdfast.cli.terminal import print_json, table
from holdfast.engine.definitions import newest
from holdfast.errors import UnknownWorkflow
from holdfast.records import Definition
from holdfast.shown.data import definition_data
from holdfast.shown.text import clean
from holdfast.shown.times import span


@click.command()
@click.argument("name", metavar="[TYPE]", required=False)
@json_option
@store_option()
def definitions(name: str | None, *, as_json: bool) -> None:
    """List the published workflows, or show one with its schemas.

    TYPE is such as shop.order.v1; without .vN it means the newest published version. The JSON Schemas
    describe the value that the workflow takes and its result, as the annotations in its code say.
    """

    async def work(client: Client) -> None:
        found = await client.definitions()
        if name is not None:
            found = [_one(name, list(found))]
        if as_json:
            for one in found:
                print_json(definition_data(one))
        elif name is not None:
            _print(found[0])
        elif not found:
            click.echo("no worker has published a workflow in this store yet", err=True)
        else:
            head = ["TYPE", "KIND", "ATTEMPTS", "TIMEOUT", "DESCRIPTION"]
            click.echo("\n".join(table(head, [_row(one) for one in found])))

    session.run(work)


def _one(name: str, found: list[Definition]) -> Definition:
    published = [one.type for one in found]
    type_ = newest(name, published)
    if type_ not in published:
        raise UnknownWorkflow(not_published(type_, published))
    return next(one for one in found if one.type == type_)


def _row(one: Definition) -> list[str]:
    attempts = "-" if one.max_attempts is None else str(one.max_attempts)
    timeout = "-" if one.timeout_seconds is None else span(one.timeout_seconds)
    return [clean(one.type), clean(one.kind), attempts, timeout, clean(one.description)]


def _print(one: Definition) -> None:
    click.echo(f"{click.style(clean(one.type), bold=True)}  {clean(one.description)}".rstrip())
    for what, schema in (("params", one.params_schema), ("result", one.result_schema)):
        text = "not known" if schema is None else clean(schema, SCHEMA_BYTES)
        click.echo(f"  {what}  {text}")
