"""Chains in the lives of runs: now and then one goes on as another."""

from __future__ import annotations

from holdfast.lifecycle import Move
from holdfast.records import NewRun


def follower(life, pick, claim, move):
    """What a held run goes on as, if it does: as an item brings it."""
    hand = life.pair.hands[0]
    shown = hand.get(claim.id)
    if move is not Move.COMPLETE or shown is None or len(life.runs) >= 9 or not pick(True, True, False):
        return {}
    new = NewRun(
        id=hand.id(), type=claim.type, tenant=claim.tenant, follows=claim.id, budget=shown.budget_units,
        ttl_seconds=shown.ttl_seconds, parent=shown.parent, parent_step=shown.parent_step,
    )  # fmt: skip
    return {"starts": (new,)}


def followers(items):
    """The runs that these items go on as."""
    return [new.id for item in items for new in getattr(item.move, "starts", ()) if new.follows is not None]
