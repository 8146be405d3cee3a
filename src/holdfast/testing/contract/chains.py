"""Driver functions for chains: runs that go on as another, and the events that their waits took."""

from __future__ import annotations

import msgspec

from holdfast.lifecycle import Status
from holdfast.records import NewRun

from .driver import TYPE, listen


def next_of(driver, claim, **fields):
    """Return the start of the next run of a chain."""
    return NewRun(**{"id": driver.id(), "type": TYPE, "follows": claim.id, **fields})


def go_on(driver, claim, *steps, **fields):
    """End the run and start the next one of its chain in one commit; return the id of the next."""
    new = next_of(driver, claim, **fields)
    verdict = driver.complete(claim, *steps, result=f'{{"continued_as":"{new.id}"}}', starts=(new,))
    assert (verdict.answer, verdict.status) == ("applied", Status.SUCCEEDED)
    return new.id


def chain(driver, links=2, **fields):
    """Make a chain of `links` runs, the last one leased; return the ids, and the claim."""
    claim = driver.held(**fields)
    ids = [claim.id]
    for _ in range(links - 1):
        ids.append(go_on(driver, claim))
        claim = driver.take(ids[-1])
    return ids, claim


def payloads(driver, run):
    """Return the payloads that the waits of a run took, in order."""
    steps = [step for step in driver.steps(run) if step.topic is not None and step.output is not None]
    return [msgspec.json.decode(step.output)["payload"] for step in steps]


def wait(driver, claim, key="wait", **fields):
    """Wait for one event; return the payload if the event is there already: then the run stays leased."""
    known = max((step.seq for step in driver.steps(claim.id)), default=0)
    verdict = driver.park(claim, listen(key, **fields), known=known)
    return msgspec.json.decode(verdict.settled[-1].output)["payload"] if verdict.settled else None


def purge_all(driver, **fields):
    """Purge until nothing is left; return the number of removed runs."""
    gone = 0
    while (purged := driver.purge(**fields)).total:
        gone += purged.runs
    return gone
