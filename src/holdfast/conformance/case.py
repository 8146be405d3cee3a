"""A case: a small play with the worker, and the list of all cases in the order in which they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .stage import Stage

Play = Callable[[Stage], Awaitable[None]]


class Case(NamedTuple):
    """One case. title: what a right worker does. expected: codes of problems that the case provokes.

    alone: the case starts the worker process itself, and no other case uses that process.
    """

    name: str
    title: str
    play: Play
    expected: frozenset[str]
    alone: bool


CASES: dict[str, Case] = {}


def case(name: str, *expected: str, alone: bool = False) -> Callable[[Play], Play]:
    """Make a function a case; the first line of its docstring is the title."""

    def listed(play: Play) -> Play:
        title = (play.__doc__ or "").strip().splitlines()[0].rstrip(".")
        CASES[name] = Case(name, title, play, frozenset(expected), alone)
        return play

    return listed
