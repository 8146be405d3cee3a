"""All steps of a run, read in pages, so that no statement and no answer exceeds a limit in bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.records import Step

TRIES = 3  # attempts to read all pages under one fence; the last attempt accepts a change of the fence
FIRST = -1  # before the first seq


class StepsPage(msgspec.Struct, gc=False, frozen=True):
    """Some steps by seq, whether there are more, and the fence of the run at that moment."""

    fence: int
    steps: list[Step]
    more: bool


async def all_steps(page: Callable[[int], Awaitable[StepsPage]]) -> list[Step]:
    """Return the steps of all pages. `page` reads the steps after a seq.

    A step that is settled meanwhile gets a later seq: the newer row counts. A run that is rewound meanwhile
    has another fence: then all pages are read again.
    """
    tries = TRIES
    while True:
        tries -= 1
        found, fence, after = dict[str, Step](), None, FIRST
        while True:
            one = await page(after)
            if fence is not None and one.fence != fence and tries:
                break
            fence = one.fence
            found.update((step.key, step) for step in one.steps)
            if not one.more:
                return sorted(found.values(), key=lambda step: step.seq)
            after = max(step.seq for step in found.values())
