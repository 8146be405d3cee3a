"""The page of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from holdfast.cli.main import cli
from tools.docs import text


def _blocks(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield f"## `{ctx.command_path}`"
    yield f"```\n{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n```"
    if command.help:
        yield inspect.cleandoc(command.help).replace("\b\n", "")
    records = [param.get_help_record(ctx) for param in command.get_params(ctx) if "--help" not in param.opts]
    # Arguments have no words of their own; the text of the command explains them.
    rows = [[f"`{record[0]}`", record[1]] for record in records if record and record[1]]
    if rows:
        yield text.table(["option", "meaning"], rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None and not child.hidden:
                yield from _blocks(child, click.Context(child, info_name=name, parent=ctx))


def page() -> str:
    ctx = click.Context(cli, info_name="holdfast")
    return text.page("Command line", "`holdfast.cli`", *_blocks(cli, ctx))
