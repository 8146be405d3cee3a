"""Items that are sent by SQL: what a move does not have changes nothing, whoever writes it down."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move
from holdfast.stores.postgres.calls import item_json
from holdfast.testing.contract.hand import done, error, nap, sleep, task
from tests.stores.postgres.sessions import Session

# All that some move has. A library cannot say it of another move; SQL can.
ALL = {
    "result": '"what?"', "error": error("other"), "last_error": "what?", "kind": "other", "refund": True,
    "delay_seconds": 7.0, "in_place": True, "plan": [],
}  # fmt: skip
MOVES = [
    (Move.CHECKPOINT, (done("a"),), {}),
    (Move.PARK, (sleep(),), {}),
    (Move.COMPLETE, (), {}),
    (Move.FAIL, (), {}),
    (Move.RETRY, (), {}),
    (Move.RELEASE, (), {}),
    (Move.ADVANCE, (), {"plan": (task("A"), task("B"))}),
    (Move.ADVANCE, (), {"plan": (nap("N", 0.0),)}),
]


@pytest.fixture
def other(hand):
    session = Session(hand.clock.now)
    yield session
    session.close()


def seen(hand, claim):
    run = hand.get(claim.id)
    told = [(one.type, one.data) for one in hand.trail(claim.id)[2:]]  # after created and leased
    fields = (
        run.status,
        run.result_json,
        run.error_json,
        run.last_error,
        run.attempt,
        run.run_at,
        run.lease_until,
    )
    return fields, hand.shape(claim.id), told


@pytest.mark.spec("MOVE-2", "MOVE-6")
@pytest.mark.parametrize(("move", "steps", "fields"), MOVES)
def test_what_a_move_does_not_have_is_not_looked_at(hand, other, move, steps, fields):
    """The same end, the same trail: with the fields of all other moves beside its own, and without."""
    claims = [hand.held(), hand.held()]
    own, more = (item_json(hand.item(claim, move, *steps, **fields)) for claim in claims)
    for item in (own, {**ALL, **more}):
        (verdict,) = other.call("commit", [item], None, None, None, False)["verdicts"]
        assert verdict["answer"] == "applied"
    assert seen(hand, claims[0]) == seen(hand, claims[1])
