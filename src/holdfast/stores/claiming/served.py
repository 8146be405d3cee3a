"""Due runs that no present worker can execute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.records import DueRuns, Presence

from .rules import Rules


def can_run(worker: Presence, kind: str, tenant: str, rules: Rules) -> bool:
    """Return True when the worker may claim runs of this type and tenant."""
    served = kind in worker.types and (worker.tenants is None or tenant in worker.tenants)
    return served and rules.open_to(kind, worker.runtime)


def unclaimable(due: Iterable[DueRuns], workers: Sequence[Presence], rules: Rules) -> dict[str, int]:
    """Return how many due runs of each type no worker can claim."""
    found: dict[str, int] = {}
    for one in due:
        if one.due and not any(can_run(worker, one.type, one.tenant, rules) for worker in workers):
            found[one.type] = found.get(one.type, 0) + one.due
    return dict(sorted(found.items()))
