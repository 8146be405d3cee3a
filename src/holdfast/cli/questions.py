"""Questions to the person at the terminal, and a counter while they wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from holdfast.errors import Conflict


def yes_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(danger: str) -> None:
    """Go on only if the person agrees; without a terminal refuse, and name --yes."""
    if not _at_a_terminal():
        raise Conflict(f"{danger}; add --yes to confirm")
    if not click.confirm(f"{danger}. Continue?", err=True):
        raise Conflict("nothing was changed")


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def counter(word: str) -> Iterator[Callable[[int], None]]:
    """One line on a terminal that counts up and is removed at the end; silent elsewhere."""
    on_terminal = sys.stderr.isatty()

    def update(count: int) -> None:
        if on_terminal:
            click.echo(f"\r{count:,} runs {word}", err=True, nl=False)

    try:
        yield update
    finally:
        if on_terminal:
            click.echo("\r\033[K", err=True, nl=False)
