"""The state machine, generated: every status x every move x holder or zombie, on every store."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast.errors import DuplicateRun, IllegalMove
from holdfast.lifecycle import HOLDER_MOVES, OPEN, RULES, Move, Status, StepStatus, spoken_status
from holdfast.records import Claim, NewRun, StepWrite

from .driver import TYPE, done, error, gate, hear, listen, nap

TIMEOUT = 100_000.0
WHO = ("holder", "zombie", "lapsed holder")
KINDS = ("code", "plan")
CODE_ONLY = {Move.CHECKPOINT, Move.COMPLETE}  # a plan's steps and its end are `advance`


class Standing(NamedTuple):
    """A run in some status, and its possible writers."""

    run: object
    claim: Claim


def _with_a_zombie(driver, kind):
    """Return a leased run with one recorded step, which another holder lost before."""
    if kind == "plan":
        driver.publish("first", "second", "third")
    zombie = driver.held(timeout_seconds=TIMEOUT)
    if kind == "plan":
        driver.advance(zombie, "first", in_place=True)
    else:
        driver.checkpoint(zombie)
    driver.clock.turn(31)
    driver.tick()
    return zombie, driver.take(zombie.id, "w2")


def _bring(driver, claim, status, kind):
    match status:
        case Status.PENDING:
            driver.release(claim)
        case Status.WAITING:
            driver.park(claim, _waits("never", kind))
        case Status.PAUSED:
            driver.release(claim)
            driver.pause(claim.id)
        case Status.SUCCEEDED if kind == "plan":
            driver.advance(claim, "second", in_place=True)
            driver.advance(claim, "third")
        case Status.SUCCEEDED:
            driver.complete(claim)
        case Status.FAILED:
            driver.fail(claim)
        case Status.CANCELLED:
            driver.cancel(claim.id)
    assert driver.status(claim.id) is status


def _waits(topic, kind):
    """Return a wait of a code run, or a plan's current task that waits."""
    if kind == "plan":
        return StepWrite(key="second", status=StepStatus.WAITING, topic=topic)
    return listen(topic, topic)


def standing(driver, status, who, kind="code") -> Standing:
    zombie, claim = _with_a_zombie(driver, kind)
    _bring(driver, claim, status, kind)
    if who == "lapsed holder":
        driver.clock.turn(30.000001)
    return Standing(claim.id, zombie if who == "zombie" else claim)


FIELDS = {
    Move.CHECKPOINT: {"steps": (done("second"),)},
    Move.ADVANCE: {"steps": (done("second"),)},
    Move.COMPLETE: {"result": "1"},
    Move.RETRY: {"error": error(), "last_error": "it broke", "delay_seconds": 60.0},
    Move.FAIL: {"error": error(), "last_error": "it broke", "kind": "boom"},
    Move.RELEASE: {},
}


def _try(driver, move, at, kind):
    """Make the move, and return the store's answer."""
    match move:
        case Move.START:
            return driver.start_many([NewRun(id=at.run, type=TYPE)])[0]
        case Move.CLAIM:
            return driver.claim(worker="w3")
        case Move.EXPIRE:
            return driver.tick()
        case Move.TIME_OUT:
            driver.clock.turn(TIMEOUT)
            return driver.tick()
        case Move.REWIND:
            return driver.rewind(at.run, "first")
        case Move.PAUSE | Move.RESUME | Move.CANCEL | Move.RETRY_RUN | Move.DELETE | Move.RESTORE:
            return getattr(driver, move.value)(at.run)
        case Move.PARK:
            return driver.park(at.claim, _waits("never2", kind))
        case _:
            return driver.send(driver.item(at.claim, move, **FIELDS[move]))[0]


def _is_legal(move, status, who, kind):
    if move is Move.ADVANCE and kind == "code":
        return False
    if move in HOLDER_MOVES:
        return status is Status.LEASED and who == "holder"
    if move is Move.EXPIRE:
        return status is Status.LEASED and who == "lapsed holder"
    return status in RULES[move].sources


def _writers(status):
    """Return whose view makes a difference: a lapsed lease does only in a run that is leased."""
    return WHO if status is Status.LEASED else ("holder", "zombie")


def _moves(kind):
    return [move for move in Move if kind == "code" or move not in CODE_ONLY]


@pytest.mark.spec("MOVE-1", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize(
    ("status", "kind", "move", "who"),
    [
        (status, kind, move, who)
        for status in Status
        for kind in KINDS
        for move in _moves(kind)
        for who in _writers(status)
        if who != "zombie" and _is_legal(move, status, who, kind)
    ],
)
def test_a_move_of_the_table_leads_to_one_of_its_targets(driver, status, kind, move, who):
    """The trail shows it too."""
    at = standing(driver, status, who, kind)
    if move is Move.RESUME and status is Status.LEASED:
        driver.pause(at.run)
    if move is Move.RESTORE:
        driver.delete(at.run)
    answer = _try(driver, move, at, kind)
    if move is Move.DELETE:
        assert (driver.get(at.run), answer.deleted_at is not None) == (None, True)
        assert answer.status is (Status.PENDING if status is Status.LEASED else status)
        driver.restore(at.run)
    assert driver.status(at.run) in RULES[move].targets
    assert move is not Move.RESTORE or driver.status(at.run) is status
    driver.assert_replayed(at.run)


@pytest.mark.spec("MOVE-1", "MOVE-3", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize(
    ("status", "kind", "who"),
    [(status, kind, who) for status in Status for kind in KINDS for who in _writers(status)],
)
def test_a_move_that_the_table_does_not_have_is_refused_and_changes_nothing(driver, status, kind, who):
    """All of them, one after the other. Only moves of holders ask who makes them."""
    at = standing(driver, status, who, kind)
    before = driver.snapshot(at.run)
    wrong = [move for move in _moves(kind) if not _is_legal(move, status, who, kind)]
    wrong.sort(key=lambda move: move is Move.TIME_OUT)  # it turns the clock, so it is the last
    for move in wrong:
        if who != "zombie" or move in HOLDER_MOVES:
            _assert_refused(driver, move, at, status, kind)
            assert driver.snapshot(at.run) == before, f"{move} has changed something"
    driver.assert_replayed(at.run)


def _assert_refused(driver, move, at, status, kind):
    if move in {Move.PAUSE, Move.RESUME, Move.CANCEL, Move.RETRY_RUN}:
        said = f"cannot {str(move).removesuffix('_run')} run {at.run}: it is {spoken_status(status)}"
        with pytest.raises(IllegalMove, match=said) as refusal:
            _try(driver, move, at, kind)
        assert (refusal.value.status, refusal.value.move) == (status, move)
        return
    answer = _try(driver, move, at, kind)
    if move in HOLDER_MOVES:
        assert answer.answer == ("cancelled" if status is Status.CANCELLED else "lost"), move
    elif move is Move.START:
        assert isinstance(answer, DuplicateRun)
    elif move is Move.CLAIM:
        assert answer == []
    elif move is Move.RESTORE:
        assert answer.status is status
    else:
        assert answer.total == 0, move


@pytest.mark.spec("MOVE-3")
@pytest.mark.parametrize("status", sorted(set(Status) - OPEN))
def test_an_end_is_left_only_by_rewind_or_retry_run_and_that_is_in_the_trail(driver, status):
    """Final statuses never change, except by an explicit rewind or retry of the run."""
    at = standing(driver, status, "holder")
    driver.clock.turn(TIMEOUT)
    before = driver.snapshot(at.run)

    driver.tick()
    driver.emit("never")
    driver.claim()

    assert driver.snapshot(at.run) == before
    assert driver.rewind(at.run, "first").status is Status.PENDING
    assert driver.told(at.run)[-1] == "rewound"


def _decided_in_a_pause(verdict):
    def bring(driver):
        run = driver.plan(gate("G"))
        driver.pause(run)
        getattr(driver, verdict)(run)
        return driver.resume(run)

    return bring


def _advanced(*following, in_place=False, paused=False):
    def bring(driver):
        claim = driver.begun("A", *following)
        if paused:
            driver.pause(claim.id)
        driver.advance(claim, "A", in_place=in_place)
        return driver.get(claim.id)

    return bring


def _started(*steps):
    return lambda driver: driver.get(driver.plan(*steps))


def _resumed(*steps, leased=False):
    def bring(driver):
        run = driver.plan(*steps)
        if leased:
            driver.take(run)
        driver.pause(run)
        return driver.resume(run)

    return bring


def _rewound(first, *, paused=False):
    def bring(driver):
        run = driver.plan(first, "B")
        if paused:
            driver.pause(run)
        return driver.rewind(run, "A")

    return bring


def _retried(first):
    def bring(driver):
        run = driver.plan(first, "B", timeout_seconds=1.0)
        driver.clock.turn(1)
        driver.tick()
        return driver.retry_run(run)

    return bring


def _rewound_to_what_has_come(driver):
    run = driver.plan(hear("A"))
    driver.emit("parcel")
    return driver.rewind(run, "A")


def _retried_when_it_had_come(driver):
    """Retry a plan whose event came after the first deadline, and is there for the second."""
    run = driver.plan(hear("A", seconds=1.0))
    driver.clock.turn(2)
    driver.tick()
    driver.emit("parcel")
    return driver.retry_run(run)


# Ways of a plan to each target of the moves that have several. Failing by drift is left out: no verb writes
# such rows.
PLANS = {
    (Move.START, Status.PENDING): _started("A"),
    (Move.START, Status.WAITING): _started(hear("A")),
    (Move.START, Status.SUCCEEDED): _started(nap("A", 0)),
    (Move.START, Status.FAILED): _started(gate("A", 0)),
    (Move.ADVANCE, Status.LEASED): _advanced("B", in_place=True),
    (Move.ADVANCE, Status.PENDING): _advanced("B"),
    (Move.ADVANCE, Status.WAITING): _advanced(gate("B"), in_place=True),
    (Move.ADVANCE, Status.PAUSED): _advanced("B", in_place=True, paused=True),
    (Move.ADVANCE, Status.SUCCEEDED): _advanced(),
    (Move.RESUME, Status.PENDING): _resumed("A"),
    (Move.RESUME, Status.WAITING): _resumed(gate("A")),
    (Move.RESUME, Status.LEASED): _resumed("A", leased=True),
    (Move.RESUME, Status.SUCCEEDED): _decided_in_a_pause("approve"),
    (Move.RESUME, Status.FAILED): _decided_in_a_pause("reject"),
    (Move.REWIND, Status.PENDING): _rewound("A"),
    (Move.REWIND, Status.PAUSED): _rewound("A", paused=True),
    (Move.REWIND, Status.WAITING): _rewound(gate("A")),
    (Move.REWIND, Status.SUCCEEDED): _rewound_to_what_has_come,
    (Move.REWIND, Status.FAILED): _rewound(gate("A", 0)),
    (Move.RETRY_RUN, Status.PENDING): _retried("A"),
    (Move.RETRY_RUN, Status.WAITING): _retried(gate("A")),
    (Move.RETRY_RUN, Status.SUCCEEDED): _retried_when_it_had_come,
    (Move.RETRY_RUN, Status.FAILED): _retried(gate("A", 0)),
}


@pytest.mark.spec("MOVE-1", "MOVE-5", "MOVE-7")
@pytest.mark.parametrize(
    ("move", "target"),
    [
        (move, target)
        for move in sorted({move for move, _ in PLANS})
        for target in sorted(RULES[move].targets)
        if (move, target) != (Move.ADVANCE, Status.FAILED)
    ],
)
def test_a_plan_gets_to_every_target_of_the_table(driver, move, target):
    """From there it can go on, and the trail shows how it got there."""
    seen = PLANS[move, target](driver)
    assert seen.status is target
    assert driver.run(driver.store.stuck()) == []
    driver.assert_replayed(seen.id)
