"""The table of moves is complete, and agrees with the laws."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import (
    ALIASES,
    FINAL,
    HOLDER_MOVES,
    MOVES,
    OPEN,
    RULES,
    SETTLED,
    WAIT_MOVES,
    WAITS,
    Actor,
    Move,
    Status,
    StepKind,
    StepStatus,
    WaitMove,
    allows,
    legal,
)


def test_every_move_has_exactly_one_row():
    """The machine is written once."""
    assert sorted(rule.move for rule in MOVES) == sorted(Move)
    assert set(RULES) == set(Move)
    assert sorted(rule.move for rule in WAIT_MOVES) == sorted(WaitMove)


def test_every_row_leads_somewhere():
    """A row names its targets, its maker and what else it does; only start comes from nowhere."""
    for rule in MOVES:
        assert rule.targets
        assert rule.also
        assert bool(rule.sources) == (rule.move is not Move.START)


def test_a_holder_writes_only_what_is_leased():
    """Every holder's move has leased as its one source."""
    assert {move for move in Move if RULES[move].who is Actor.HOLDER} == HOLDER_MOVES
    for move in HOLDER_MOVES:
        assert RULES[move].sources == {Status.LEASED}


@pytest.mark.spec("MOVE-3")
def test_an_end_is_left_only_by_the_hand_of_an_operator():
    """Final statuses never change, except by an explicit rewind or retry of the run."""
    hiding = {Move.DELETE, Move.RESTORE}  # they keep the status, so they change no final one
    leaving = {rule.move for rule in MOVES if rule.sources & FINAL and rule.targets - FINAL} - hiding
    assert leaving == {Move.REWIND, Move.RETRY_RUN}
    assert {RULES[move].who for move in leaving} == {Actor.OPERATOR}


@pytest.mark.spec("MOVE-7")
def test_every_open_status_can_reach_an_end():
    """An open run can always continue."""
    for status in OPEN:
        ways = {target for move in legal(status) for target in RULES[move].targets}
        assert ways & FINAL
        assert ways & OPEN - {status}


def test_open_and_final_part_the_statuses():
    """Every status is one or the other."""
    assert set(Status) == OPEN | FINAL
    assert not OPEN & FINAL
    assert set(StepStatus) > SETTLED


@pytest.mark.parametrize("status", Status)
def test_legal_is_the_table_read_by_status(status):
    """The buttons show what the guards allow."""
    assert legal(status) == {move for move in Move if allows(move, status)}
    assert Move.START not in legal(status)


def test_only_waits_are_settled_by_the_moves_of_waits():
    """Also tasks of plans, whose handlers may wait."""
    for rule in WAIT_MOVES:
        assert rule.settles <= WAITS | {StepKind.TASK}


def test_an_alias_is_another_word_and_never_one_of_ours():
    """Both vocabularies are understood where a person types a status."""
    assert not set(ALIASES) & {status.value for status in Status}
    assert ALIASES["running"] is Status.LEASED
    assert ALIASES["canceled"] is Status.CANCELLED
