"""Lines about commands that are stopped in the middle, and about moves that are not ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from holdfast.errors import Unavailable
from holdfast.shown.text import clean, counted

AGAIN = "start the same command again, and it continues"


@contextmanager
def told_when_stopped(how: str) -> Iterator[None]:
    """Say how the work goes on when a person stops it, or when a store cannot do it now."""
    try:
        yield
    except asyncio.CancelledError:
        click.echo(f"stopped; {how}", err=True)
        raise
    except Unavailable as error:
        error.args = (f"{error}; {how}",)
        raise


def on_the_way(elsewhere: Mapping[str, int]) -> list[str]:
    """Return lines about runs that another move has stopped, by its target."""
    return [
        f"{counted(number, 'run')} on the way to {clean(to)}: end that move, or undo it"
        for to, number in elsewhere.items()
    ]
