"""`--where`: the filters of `holdfast ls`, for commands that act on many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.engine.app.client import Client
from holdfast.records import ANY, DEFAULT_TENANT, RunFilter

from .commands.ls import filter_of, ls

# options of `ls` that are no filters
_OTHERS = {"json", "store", "help", "limit", "after", "deleted"}
_EXAMPLE = "--where status=failed --where type=shop.%"


def filters() -> dict[str, click.Option]:
    """The options of `ls` that choose runs, by name."""
    named = {one.opts[0].removeprefix("--"): one for one in ls.params if isinstance(one, click.Option)}
    return {name: one for name, one in named.items() if name not in _OTHERS}


def typed_filter(texts: Sequence[str]) -> dict[str, Any]:
    """Parse `status=failed` as `ls` parses `--status failed`; a filter without a value is its name alone."""
    context, known, words = click.get_current_context(), filters(), list[str]()
    for text in texts:
        name, equals, value = text.strip().partition("=")
        name = name.strip().replace("_", "-")
        option = known.get(name)
        if option is None:
            raise click.UsageError(
                f"--where {text[:60]!r}: there is no filter {name[:40]!r}; use {', '.join(known)}, "
                f"as in {_EXAMPLE}"
            )
        if option.is_flag == bool(equals):
            right = name if option.is_flag else f"{name}={option.metavar or 'VALUE'}"
            raise click.UsageError(f"--where {text[:60]!r}: write --where {right}")
        words.append(f"--{name}={value}" if equals else f"--{name}")
    try:
        with ls.make_context(context.info_name, words, parent=context.parent) as made:
            return made.params
    except click.UsageError as error:
        raise click.UsageError(f"--where: {error.format_message()}", context) from None


async def asked_filter(client: Client, typed: dict[str, Any], *, all_tenants: bool) -> RunFilter:
    """Return the filter. Without a tenant it is about the tenant `default`, unlike that of `ls`."""
    where = await filter_of(client, typed)
    if where.tenant is not ANY:
        if all_tenants:
            raise click.UsageError("give --where tenant=NAME or --all-tenants, not both")
        return where
    return msgspec.structs.replace(where, tenant=ANY if all_tenants else DEFAULT_TENANT)
