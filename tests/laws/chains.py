"""Chains in random histories: now and then a run goes on as another."""

from __future__ import annotations

from holdfast.lifecycle import Move
from holdfast.records import NewRun


def follower(life, pick, claim, move):
    """Return the start of the next run of the chain for an item, or nothing."""
    driver = life.pair.drivers[0]
    shown = driver.get(claim.id)
    if move is not Move.COMPLETE or shown is None or len(life.runs) >= 9 or not pick(True, True, False):
        return {}
    new = NewRun(
        id=driver.id(), type=claim.type, tenant=claim.tenant, follows=claim.id, budget=shown.budget_units,
        ttl_seconds=shown.ttl_seconds, parent=shown.parent, parent_step=shown.parent_step,
    )  # fmt: skip
    return {"starts": (new,)}


def followers(items):
    """Return the ids of the next runs that these items start."""
    return [new.id for item in items for new in getattr(item.move, "starts", ()) if new.follows is not None]
