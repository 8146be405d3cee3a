"""All steps of a run, read in pages: no statement and no answer holds more than a bound in bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.records import Step

TRIES = 3  # to read all pages under one fence; after that, what is read is what there is
FIRST = -1  # before the first seq


class StepsPage(msgspec.Struct, gc=False, frozen=True):
    """Some steps by seq, whether there are more, and the run's fence at that moment."""

    fence: int
    steps: list[Step]
    more: bool


async def all_steps(page: Callable[[int], Awaitable[StepsPage]]) -> list[Step]:
    """The steps of every page. `page` reads those after a seq.

    A step that is settled meanwhile has moved behind: the newer row counts. A run that was rewound meanwhile
    has another fence: its pages are read anew.
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
