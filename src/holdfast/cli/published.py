"""Warnings about workflow types that no worker has published."""

from __future__ import annotations

import difflib

import click

from holdfast.cli.clients import Client
from holdfast.engine.definitions import bare
from holdfast.errors import NotAllowed
from holdfast.shown.text import clean

from .follow import say


def not_published(name: str, published: list[str]) -> str:
    """A message that names the type, and published types with a similar name."""
    near = difflib.get_close_matches(
        name, [*published, *dict.fromkeys(map(bare, published))], n=3, cutoff=0.6
    )
    same = [one for one in near if (bare(one) == one) == (bare(name) == name)] or near
    hint = f" (did you mean {' or '.join(same)}?)" if same else ""
    return f"no worker has published {name} in this store{hint}"


async def is_served(client: Client, type_: str) -> bool:
    """Return True when a live worker executes the type. Workers in other languages publish nothing."""
    try:
        return any(type_ in one.types for one in await client.workers())
    except NotAllowed:
        return False


def warn(doubt: str, meanwhile: str) -> None:
    """Print a warning, and what happens meanwhile."""
    say(click.style("warning: ", fg="yellow") + clean(f"{doubt}; {meanwhile}"))


async def warn_if_unknown(client: Client, name: str, meanwhile: str) -> None:
    """Warn if no published type matches a type, a name without version, or a prefix with %."""
    published = [one.type for one in await client.definitions(schemas=False)]
    if name.endswith("%"):
        known = any(one.startswith(name[:-1]) for one in published)
    else:
        known = name in published or name in map(bare, published)
    if not known:
        warn(not_published(name, published), meanwhile)
