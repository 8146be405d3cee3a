"""The result of one keeper round, from the numbers of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from holdfast.records import Chore, Ticked


def ticked(done: Mapping[Chore, int], failed: Iterable[UUID], *, more: bool) -> Ticked:
    """The answer of `tick`."""
    return Ticked(
        expired=done[Chore.EXPIRE],
        timed_out=done[Chore.TIME_OUT],
        lapsed=done[Chore.LAPSE],
        delivered=done[Chore.DELIVER],
        failed=tuple(sorted(set(failed))),
        more=more,
    )
