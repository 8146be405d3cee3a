"""Types that nobody has published: a warning, with what may have been meant."""

from __future__ import annotations

import difflib

import click

from holdfast.engine.client import Client
from holdfast.engine.definitions import bare

from .follow import say
from .text import clean


def unpublished(name: str, published: list[str]) -> str:
    """That it is not there, and what is there that looks like it."""
    near = difflib.get_close_matches(
        name, [*published, *dict.fromkeys(map(bare, published))], n=3, cutoff=0.6
    )
    same = [one for one in near if (bare(one) == one) == (bare(name) == name)] or near
    hint = f" (did you mean {' or '.join(same)}?)" if same else ""
    return f"no worker has published {name} in this store{hint}"


def warn(doubt: str, meanwhile: str) -> None:
    """What is odd, and what comes of it."""
    say(click.style("warning: ", fg="yellow") + clean(f"{doubt}; {meanwhile}"))


async def warn_if_unknown(client: Client, name: str, meanwhile: str) -> None:
    """Of a type, a bare name or a prefix with % that nothing published fits."""
    published = [one.type for one in await client.store.definitions()]
    if name.endswith("%"):
        known = any(one.startswith(name[:-1]) for one in published)
    else:
        known = name in published or name in map(bare, published)
    if not known:
        warn(unpublished(name, published), meanwhile)
