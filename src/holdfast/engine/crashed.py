"""How many runs that have crashed a worker takes: one that kills its worker must not take others with it.

bench/crash_model.py compares rules for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.records import MAX_CRASHES

ALONE = MAX_CRASHES - 1  # crashes after which the next one is the last
SHARE = 4  # one slot in so many is for crashed runs that have just begun:
YOUNG = 1 / 30  # of a lease time ago at most


def crashed_quota(slots: int, held: Sequence[tuple[int, float, bool]]) -> tuple[int, ...]:
    """How many more runs that crashed so often a worker may take now, for `Ask.crashed`.

    A run that one more crash would fail is alone among its kind until it has executed for a lease time, so
    that a run that kills its worker takes no neighbour to its end. All crashed runs begin a part at a time:
    one that kills its worker at once does so before the last ones have begun. `held`: how often each crashed
    run crashed that the worker holds, for how many lease times it has executed, and whether it was forgiven
    for having survived one.
    """
    begin = max(1, slots // SHARE) - sum(age < YOUNG for _, age, _ in held)
    alone = 1 - sum(crashes >= ALONE and not forgiven for crashes, _, forgiven in held)
    return (*[max(0, begin)] * (ALONE - 1), max(0, min(begin, alone)))
