"""Chains for the hand: runs that go on as another, and what their waits have taken."""

from __future__ import annotations

import msgspec

from holdfast.lifecycle import Status
from holdfast.records import NewRun

from .hand import TYPE, listen


def next_of(hand, claim, **fields):
    """What this run goes on as."""
    return NewRun(**{"id": hand.id(), "type": TYPE, "follows": claim.id, **fields})


def go_on(hand, claim, *steps, **fields):
    """End the run and start the next one of its chain, in one commit: its id."""
    new = next_of(hand, claim, **fields)
    verdict = hand.complete(claim, *steps, result=f'{{"continued_as":"{new.id}"}}', starts=(new,))
    assert (verdict.answer, verdict.status) == ("applied", Status.SUCCEEDED)
    return new.id


def chain(hand, links=2, **fields):
    """A chain of so many runs, the last one held: the ids, and the claim."""
    claim = hand.held(**fields)
    ids = [claim.id]
    for _ in range(links - 1):
        ids.append(go_on(hand, claim))
        claim = hand.take(ids[-1])
    return ids, claim


def payloads(hand, run):
    """What its waits have taken, in order."""
    steps = [step for step in hand.steps(run) if step.topic is not None and step.output is not None]
    return [msgspec.json.decode(step.output)["payload"] for step in steps]


def wait(hand, claim, key="wait", **fields):
    """Wait for one event: the payload, if it is there already; then the run is held still."""
    known = max((step.seq for step in hand.steps(claim.id)), default=0)
    verdict = hand.park(claim, listen(key, **fields), known=known)
    return msgspec.json.decode(verdict.settled[-1].output)["payload"] if verdict.settled else None


def purge_all(hand, **fields):
    """Until there is no more: how many runs went."""
    gone = 0
    while (purged := hand.purge(**fields)).total:
        gone += purged.runs
    return gone
