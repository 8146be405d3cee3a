"""`--where`: the filters of `holdfast ls`, for commands that act on many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.cli.clients import Client, tenant_name
from holdfast.records import ANY, RunFilter

from .commands.ls import filter_of, ls

# options of `ls` that are no filters
_OTHERS = {"json", "store", "help", "limit", "after", "deleted", "contains"}
_EXAMPLE = "--where status=failed --where type=shop.%"


def filters() -> dict[str, click.Option]:
    """The options of `ls` that choose runs, by name."""
    named = {one.opts[0].removeprefix("--"): one for one in ls.params if isinstance(one, click.Option)}
    return {name: one for name, one in named.items() if name not in _OTHERS}


def typed_filter(texts: Sequence[str]) -> dict[str, Any]:
    """Parse `status=failed` as `ls` parses `--status failed`; a filter without a value is its name alone."""
    context, known, given = click.get_current_context(), filters(), dict[str, list[str]]()
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = name.strip().replace("_", "-"), value.strip()
        option = known.get(name)
        if name == "contains":
            raise click.UsageError(
                f"--where {text[:60]!r}: runs that an operation acts on are not chosen by a text in their "
                f"values; `ls --contains` finds them, and a label or a time chooses them"
            )
        if option is None:
            raise click.UsageError(
                f"--where {text[:60]!r}: there is no filter {name[:40]!r}; use {', '.join(known)}, "
                f"as in {_EXAMPLE}"
            )
        if option.is_flag == bool(equals):
            right = name if option.is_flag else f"{name}={option.metavar or 'VALUE'}"
            raise click.UsageError(f"--where {text[:60]!r}: write --where {right}")
        if equals and not value:
            raise click.UsageError(f"--where {text[:60]!r}: the value is empty, which would match every run")
        if name in given and not option.multiple:
            raise click.UsageError(f"--where {text[:60]!r}: there is another {name}; give it only once")
        given.setdefault(name, []).append(f"--{name}={value}" if equals else f"--{name}")
    if "by" in given and not {"since", "until"} & {*given}:
        raise click.UsageError(
            "--where by: it says what since and until mean; give one of them, as in since=2h"
        )
    words = [word for each in given.values() for word in each]
    try:
        with ls.make_context(context.info_name, words, parent=context.parent) as made:
            return made.params
    except click.UsageError as error:
        raise click.UsageError(f"--where: {error.format_message()}", context) from None


async def asked_filter(client: Client, typed: dict[str, Any], *, all_tenants: bool) -> RunFilter:
    """Return the filter. Without a tenant it is about the tenant `default`, unlike that of `ls`."""
    named: str | None = typed["tenant"]
    if named is not None and all_tenants:
        raise click.UsageError("give --where tenant=NAME or --all-tenants, not both")
    where = await filter_of(client, typed)
    tenant = ANY if all_tenants else await tenant_name(client, named)
    return msgspec.structs.replace(where, tenant=tenant)
