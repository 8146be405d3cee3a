"""Items that SQL sends: fields that a move does not have change nothing."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move
from holdfast.stores.postgres.verbs.calls import item_json
from holdfast.testing.contract.driver import done, error, nap, sleep, task
from tests.stores.postgres.session import Session

# The fields of all moves. The library cannot give them to another move; SQL can.
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
def other(driver):
    session = Session(driver.clock.now)
    yield session
    session.close()


def seen(driver, claim):
    run = driver.get(claim.id)
    told = [(one.type, one.data) for one in driver.trail(claim.id)[2:]]  # after created and leased
    fields = (
        run.status,
        run.result_json,
        run.error_json,
        run.last_error,
        run.attempt,
        run.run_at,
        run.lease_until,
    )
    return fields, driver.shape(claim.id), told


@pytest.mark.spec("MOVE-2", "MOVE-6")
@pytest.mark.parametrize(("move", "steps", "fields"), MOVES)
def test_what_a_move_does_not_have_is_not_looked_at(driver, other, move, steps, fields):
    """The same end and the same trail, with the fields of all other moves and without."""
    claims = [driver.held(), driver.held()]
    own, more = (item_json(driver.item(claim, move, *steps, **fields)) for claim in claims)
    for item in (own, {**ALL, **more}):
        (verdict,) = other.call("commit", [item], None, None, None, False)["verdicts"]
        assert verdict["answer"] == "applied"
    assert seen(driver, claims[0]) == seen(driver, claims[1])
