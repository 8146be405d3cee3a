"""The machine, generated: every status x every move x whoever tries it, on every store."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast.errors import DuplicateRun, IllegalMove
from holdfast.lifecycle import HOLDER_MOVES, OPEN, RULES, Move, Status
from holdfast.records import Claim, NewRun

from .hand import TYPE, done, error, listen

TIMEOUT = 100_000.0
WHO = ("holder", "zombie", "lapsed holder")


class Standing(NamedTuple):
    """A run in some status, and who would write it."""

    run: object
    claim: Claim


def _with_a_zombie(hand):
    """A held run with one recorded step, which another holder lost before."""
    zombie = hand.held(timeout_seconds=TIMEOUT)
    hand.checkpoint(zombie)
    hand.clock.turn(31)
    hand.tick()
    return zombie, hand.take(zombie.id, "w2")


def _bring(hand, claim, status):
    match status:
        case Status.PENDING:
            hand.release(claim)
        case Status.WAITING:
            hand.park(claim, listen(topic="never"))
        case Status.PAUSED:
            hand.release(claim)
            hand.pause(claim.id)
        case Status.SUCCEEDED:
            hand.complete(claim)
        case Status.FAILED:
            hand.fail(claim)
        case Status.CANCELLED:
            hand.cancel(claim.id)
    assert hand.status(claim.id) is status


def standing(hand, status, who) -> Standing:
    zombie, claim = _with_a_zombie(hand)
    _bring(hand, claim, status)
    if who == "lapsed holder":
        hand.clock.turn(30.000001)
    return Standing(claim.id, zombie if who == "zombie" else claim)


FIELDS = {
    Move.CHECKPOINT: {"steps": (done("second"),)},
    Move.PARK: {"steps": (listen("park", "never2"),)},
    Move.COMPLETE: {"result": "1"},
    Move.RETRY: {"error": error(), "last_error": "it broke", "delay_seconds": 60.0},
    Move.FAIL: {"error": error(), "last_error": "it broke", "kind": "boom"},
    Move.RELEASE: {},
}


def _try(hand, move, at):
    """Make the move; what the store said to it."""
    match move:
        case Move.START:
            return hand.start_many([NewRun(id=at.run, type=TYPE)])[0]
        case Move.CLAIM:
            return hand.claim(worker="w3")
        case Move.EXPIRE:
            return hand.tick()
        case Move.TIME_OUT:
            hand.clock.turn(TIMEOUT)
            return hand.tick()
        case Move.REWIND:
            return hand.rewind(at.run, "first")
        case Move.PAUSE | Move.RESUME | Move.CANCEL | Move.RETRY_RUN | Move.DELETE | Move.RESTORE:
            return getattr(hand, move.value)(at.run)
        case _:
            return hand.send(hand.item(at.claim, move, **FIELDS[move]))[0]


def _is_legal(move, status, who):
    if move in HOLDER_MOVES:
        return status is Status.LEASED and who == "holder"
    if move is Move.EXPIRE:
        return status is Status.LEASED and who == "lapsed holder"
    return status in RULES[move].sources


def _assert_refused(move, answer, status):
    if move in HOLDER_MOVES:
        assert answer.answer == ("cancelled" if status is Status.CANCELLED else "lost")
    elif move is Move.START:
        assert isinstance(answer, DuplicateRun)
    elif move is Move.CLAIM:
        assert answer == []
    elif move is Move.RESTORE:
        assert answer.status is status
    else:
        assert answer.total == 0


@pytest.mark.spec("MOVE-1", "MOVE-3", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("move", Move)
@pytest.mark.parametrize("status", Status)
def test_a_move_is_made_where_the_table_has_it_and_refused_elsewhere(hand, status, move, who):
    """A move in the table leads to one of its targets; any other is refused and changes nothing."""
    at = standing(hand, status, who)
    if move is Move.RESUME and status is Status.LEASED:
        hand.pause(at.run)
    before = hand.snapshot(at.run)
    if move is Move.RESTORE and _is_legal(move, status, who):
        hand.delete(at.run)

    if _is_legal(move, status, who):
        answer = _try(hand, move, at)
        if move is Move.DELETE:
            assert (hand.get(at.run), answer.deleted_at is not None) == (None, True)
            assert answer.status is (Status.PENDING if status is Status.LEASED else status)
            hand.restore(at.run)
        assert hand.status(at.run) in RULES[move].targets
        assert move is not Move.RESTORE or hand.status(at.run) is status
    elif move in {Move.PAUSE, Move.RESUME, Move.CANCEL, Move.RETRY_RUN}:
        with pytest.raises(
            IllegalMove, match=f"cannot {str(move).removesuffix('_run')} run {at.run}: it is {status}"
        ) as refusal:
            _try(hand, move, at)
        assert (refusal.value.status, refusal.value.move) == (status, move)
        assert hand.snapshot(at.run) == before
    else:
        _assert_refused(move, _try(hand, move, at), status)
        assert hand.snapshot(at.run) == before
    hand.assert_replayed(at.run)


@pytest.mark.spec("MOVE-3")
@pytest.mark.parametrize("status", sorted(set(Status) - OPEN))
def test_an_end_is_left_only_by_rewind_or_retry_run_and_that_is_in_the_trail(hand, status):
    """Final statuses never change, except by an explicit rewind or retry of the run."""
    at = standing(hand, status, "holder")
    hand.clock.turn(TIMEOUT)
    before = hand.snapshot(at.run)

    hand.tick()
    hand.emit("never")
    hand.claim()

    assert hand.snapshot(at.run) == before
    assert hand.rewind(at.run, "first").status is Status.PENDING
    assert hand.told(at.run)[-1] == "rewound"
