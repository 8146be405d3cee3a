"""Questions to the person at the terminal, and a counter while they wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

from holdfast.errors import Conflict
from holdfast.shown.times import span


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


def at_a_terminal() -> bool:
    """Return True when a person sees what is written to stderr."""
    return sys.stderr.isatty()


@contextmanager
def counter(word: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """One line on a terminal that counts up and is removed at the end; silent elsewhere. `total`: the number
    that is expected; then it also says how long it will take."""
    on_terminal, began = at_a_terminal(), monotonic()

    def update(count: int) -> None:
        if on_terminal:
            click.echo(
                f"\r{counted_so_far(word, count, total, monotonic() - began)}\033[K", err=True, nl=False
            )

    try:
        yield update
    finally:
        if on_terminal:
            click.echo("\r\033[K", err=True, nl=False)


def counted_so_far(word: str, count: int, total: int | None, seconds: float) -> str:
    """Return the line of a counter. Rate and time left are those of the whole time so far."""
    of = "" if total is None else f" of {max(total, count):,}"
    line = f"{count:,}{of} runs {word}"
    if seconds < 1 or not count:
        return line
    line += f", {count / seconds:,.0f} a second"
    if total is None or total <= count:
        return line
    return f"{line}, {span(seconds * (total - count) / count)} left"
