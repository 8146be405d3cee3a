"""What a long chain costs on SQLite: no more than a short one."""

from __future__ import annotations

import pytest

from holdfast.records import NewEvent
from holdfast.stores.sqlite import SqliteStore, view
from holdfast.testing.contract.chaining import go_on, wait
from holdfast.testing.contract.hand import Clock, Hand, listen


@pytest.fixture
def hand():
    clock = Clock()
    hand = Hand(SqliteStore(":memory:", clock=clock, inline=True), clock)
    yield hand
    hand.close()


def counted(hand, call):
    """How many instructions SQLite's machine executes for a call, and its answer."""
    count = []
    connection = hand.store._reader.connection
    connection.set_progress_handler(lambda: bool(count.append(1)), 1)
    try:
        answer = call()
    finally:
        connection.set_progress_handler(None)
    return len(count), answer


@pytest.mark.slow
@pytest.mark.spec("FLOW-24")
def test_events_verbs_and_claims_of_a_long_chain_cost_what_those_of_a_short_one_do(hand):
    """400 events in 40 runs after 40 in 4: the same instructions for the next event, pause and claim."""
    claim, costs = hand.held(), []
    first = claim.id
    for length in (40, 400):
        for n in range(length):
            hand.emit(id=f"{length} {n}")
        for _ in range(0, length, 10):
            for k in range(10):
                wait(hand, claim, f"w{k}")
            claim = hand.take(go_on(hand, claim))
        hand.park(claim, listen(), known=0)
        event = NewEvent(topic="parcel", id=f"last of {length}")
        emitted, _ = counted(hand, lambda event=event: hand.run(hand.store.emit(event)))
        paused, _ = counted(hand, lambda: hand.pause(first))
        resumed, _ = counted(hand, lambda: hand.resume(first))
        taken, claim = counted(hand, hand.take)
        costs.append([emitted, paused, resumed, taken])
        claim = hand.take(go_on(hand, claim))
    short, long = costs
    assert all(0 < after < before * 1.5 for before, after in zip(short, long, strict=True)), costs


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize(
    ("name", "by"), [("links", "chain=? AND deleted_at=?"), ("deleted_links", "chain=? AND deleted_at>?")]
)
def test_to_delete_or_restore_a_chain_walks_over_no_run_that_is_done(hand, name, by):
    """A slice finds its own runs by the index, in its order."""
    plan = hand.store._reader.all("explain query plan " + view.SQL[name], ("chain", 500))
    found = [row[3] for row in plan]
    assert found[0] == f"SEARCH workflow_run USING INDEX idx_workflow_run_chain ({by})"
    assert not any("TEMP B-TREE" in line for line in found)
