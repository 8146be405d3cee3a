"""`unchanged_since`: a person's move that takes only runs that have not changed since an instant."""

from __future__ import annotations

import pytest

from holdfast.errors import ChangedSince, IllegalMove, UnknownRun, UsageError
from holdfast.lifecycle import Status

from .chains import go_on
from .driver import done, listen

ENDS = {
    "cancel": Status.CANCELLED,
    "pause": Status.PAUSED,
    "resume": Status.PENDING,
    "rewind": Status.PENDING,
    "retry_run": Status.PENDING,
    "delete": Status.PENDING,
}


def ready_for(driver, verb, **fields):
    """Return a run that the verb can move."""
    match verb:
        case "retry_run":
            claim = driver.held(**fields)
            driver.fail(claim)
            return claim.id
        case "resume":
            run = driver.start(**fields)
            driver.pause(run)
            return run
        case _:
            return driver.start(**fields)


def move(driver, verb, run, **fields):
    step = (None,) if verb == "rewind" else ()
    return getattr(driver, verb)(run, *step, **fields)


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize("verb", ENDS)
def test_a_run_that_changed_before_the_instant_is_moved(driver, verb):
    """One microsecond is enough."""
    run = ready_for(driver, verb)
    since = driver.clock.now + 1
    driver.clock.turn(5)
    assert move(driver, verb, run, unchanged_since=since, by="ann").status is ENDS[verb]


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize("later", [0, 7])
@pytest.mark.parametrize("verb", ENDS)
def test_a_run_that_changed_at_the_instant_or_later_is_left_alone(driver, verb, later):
    """The refusal is typed, and nothing is written."""
    since = driver.clock.now
    driver.clock.turn(later)
    run = ready_for(driver, verb)
    driver.clock.turn(5)
    before = driver.snapshot(run)
    with pytest.raises(ChangedSince, match=f"run {run} has changed meanwhile") as refused:
        move(driver, verb, run, unchanged_since=since)
    assert refused.value.run_id == run
    assert driver.snapshot(run) == before


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize("verb", ENDS)
def test_the_same_move_with_the_same_instant_is_made_once(driver, verb):
    """Also at the very instant: the clock need not move between the instant, the move and its repeat."""
    run = ready_for(driver, verb)
    driver.clock.turn(1)
    since = driver.clock.now
    move(driver, verb, run, unchanged_since=since)
    told = driver.trail()
    with pytest.raises(ChangedSince):
        move(driver, verb, run, unchanged_since=since)
    assert driver.trail() == told


@pytest.mark.spec("READ-3")
def test_a_run_that_failed_again_after_its_retry_is_not_retried_twice(driver):
    """The claim, the failure and the retry all count as changes."""
    claim = driver.held()
    driver.fail(claim)
    driver.clock.turn(1)
    since = driver.clock.now
    driver.retry_run(claim.id, unchanged_since=since)
    driver.fail(driver.take(claim.id))
    with pytest.raises(ChangedSince):
        driver.retry_run(claim.id, unchanged_since=since)
    assert driver.told(claim.id).count("retried") == 1


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize("verb", ["cancel", "pause", "rewind", "delete"])
def test_a_busy_run_can_be_stopped(driver, verb):
    """Steps, heartbeats, logs and waits that its holder records are no change of the run."""
    claim = driver.held()
    driver.clock.turn(1)
    since = driver.clock.now
    driver.checkpoint(claim, done("a"), started_at=since)
    driver.clock.turn(1)
    driver.checkpoint(claim, done("b"), listen("w"), known=1)
    driver.renew(claim)
    moved = move(driver, verb, claim.id, unchanged_since=since)
    assert moved.fence > claim.fence or moved.pause_asked_by is not None


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize("verb", ["cancel", "pause", "rewind", "delete"])
def test_a_run_that_was_claimed_since_is_left_alone(driver, verb):
    """Also when its claim is long ago by now."""
    run = driver.start()
    driver.clock.turn(1)
    since = driver.clock.now
    claim = driver.take(run)
    driver.clock.turn(20)
    driver.checkpoint(claim)
    with pytest.raises(ChangedSince):
        move(driver, verb, run, unchanged_since=since)


@pytest.mark.spec("READ-3", "PAUSE-3")
def test_a_pause_that_was_withdrawn_is_not_requested_again(driver):
    """The withdrawal is in the trail, so it counts as a change of the leased run."""
    claim = driver.held()
    driver.clock.turn(1)
    since = driver.clock.now
    driver.pause(claim.id, unchanged_since=since)
    assert driver.pause(claim.id, unchanged_since=since).pause_asked_by is not None
    driver.resume(claim.id, unchanged_since=since, by="bob")
    assert driver.last(claim.id, "resumed") == {"by": "bob", "status": "leased"}
    for verb in ("pause", "resume"):
        with pytest.raises(ChangedSince):
            move(driver, verb, claim.id, unchanged_since=since)
    assert driver.get(claim.id).pause_asked_by is None
    driver.assert_replayed(claim.id)


@pytest.mark.spec("READ-3", "FLOW-24")
@pytest.mark.parametrize("verb", ["cancel", "pause", "delete"])
def test_for_a_chain_the_present_run_counts(driver, verb):
    """An id of any run of the chain names the present run, which has just begun."""
    claim = driver.held()
    driver.clock.turn(1)
    since = driver.clock.now
    go_on(driver, claim)
    with pytest.raises(ChangedSince):
        move(driver, verb, claim.id, unchanged_since=since)
    driver.clock.turn(1)
    move(driver, verb, claim.id, unchanged_since=driver.clock.now)


@pytest.mark.spec("READ-3", "TEN-5")
@pytest.mark.parametrize("verb", ENDS)
def test_another_tenants_run_is_unknown_whether_it_changed_or_not(driver, verb):
    """The instant tells a stranger nothing."""
    run = ready_for(driver, verb, tenant="acme")
    driver.clock.turn(1)
    for since in (driver.clock.now - 60_000_000, driver.clock.now):
        with pytest.raises(UnknownRun):
            move(driver, verb, run, tenant="beta", unchanged_since=since)
    move(driver, verb, run, tenant="acme", unchanged_since=driver.clock.now)


@pytest.mark.spec("READ-3", "MOVE-1")
def test_a_wrong_status_is_named_when_the_run_has_not_changed(driver):
    run = driver.start()
    driver.clock.turn(1)
    with pytest.raises(IllegalMove) as refused:
        driver.retry_run(run, unchanged_since=driver.clock.now)
    assert refused.value.status is Status.PENDING


@pytest.mark.spec("START-10")
@pytest.mark.parametrize("verb", ENDS)
@pytest.mark.parametrize("wrong", [True, 1.5, "now", 10**30, -(10**30)])
def test_a_wrong_instant_is_refused(driver, verb, wrong):
    run = ready_for(driver, verb)
    before = driver.snapshot(run)
    with pytest.raises(UsageError, match="unchanged_since"):
        move(driver, verb, run, unchanged_since=wrong)
    assert driver.snapshot(run) == before
