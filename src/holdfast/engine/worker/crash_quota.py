"""The quota of crashed runs: a run that kills its worker must not take others with it.

bench/crash_model.py compares rules for this quota.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.records import MAX_CRASHES

ALONE = MAX_CRASHES - 1  # crashes after which the next one is the last
SHARE = 4  # one slot in four is for crashed runs that have just begun
YOUNG = 1 / 30  # "just begun": at most this part of a lease time ago


def crashed_quota(slots: int, held: Sequence[tuple[int, float, bool]]) -> tuple[int, ...]:
    """Return how many more crashed runs a worker may take now, by number of crashes, for `Ask.crashed`.

    A worker takes only one run that one more crash would fail, until that run has executed for a lease time:
    so a run that kills its worker makes no other run fail. Crashed runs begin a few at a time: a run that
    kills its worker at once takes only those few with it. `held`: for each crashed run that the
    worker holds, its number of crashes, the number of lease times that it has executed, and whether its
    crashes were forgiven because it survived one lease time.
    """
    begin = max(1, slots // SHARE) - sum(age < YOUNG for _, age, _ in held)
    alone = 1 - sum(crashes >= ALONE and not forgiven for crashes, _, forgiven in held)
    return (*[max(0, begin)] * (ALONE - 1), max(0, min(begin, alone)))
