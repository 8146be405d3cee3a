"""The items of `ctx.map`: their step keys, and how they end together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from uuid import UUID

from holdfast.clipped import clipped
from holdfast.errors import UsageError

Key = Callable[[Any], object]


def item_names(base: str, key: Key | None) -> Callable[[Iterable[Any]], list[tuple[str, Any]]]:
    """Return the step key of each item: its place in brackets, or the name that `key` returns for it.

    UsageError when `key` is no function, names an item by anything but text, a whole number or a UUID, or
    gives two items one name.
    """
    if key is not None and not callable(key):
        raise UsageError(
            f"map {base!r}: key={clipped(key)}: give a function that names an item, as in key=str"
        )

    def named(items: Iterable[Any]) -> list[tuple[str, Any]]:
        if key is None:
            return [(f"{base}[{n}]", item) for n, item in enumerate(items)]
        listed = [(f"{base}[{_said(base, key(item))}]", item) for item in items]
        seen: set[str] = set()
        for name, _ in listed:
            if name in seen:
                raise UsageError(f"map {base!r}: two items have the key {clipped(name)}: give each its own")
            seen.add(name)
        return listed

    return named


async def all_items(calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run the calls in tasks and return their results, in order. The first failure is raised after the other
    tasks were cancelled and have ended: the caller cannot cancel them, and the run would fail for leaving
    them open."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except (Exception, asyncio.CancelledError):
        for task in tasks:
            if not task.cancelling():  # otherwise its clean-up would be cancelled too
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _said(base: str, name: object) -> object:
    if isinstance(name, bool) or not isinstance(name, str | int | UUID):
        raise UsageError(
            f"map {base!r}: its key= returned {clipped(name)}: return text, a whole number or a UUID"
        )
    return name
