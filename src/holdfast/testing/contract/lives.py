"""Short lives of runs, one for each kind of move. Each returns the statuses in which it leaves the runs that
are not deleted.
"""

from __future__ import annotations

from holdfast.records import NewRun, Started

from .chains import chain, go_on
from .driver import EPOCH, LEASE, TYPE, ask, backing_off, broken, call, done, gate, listen, nap, sleep
from .schedules import HOUR, fire, made

OTHER = "shop.refund.v1"
AGES = 100 * 365 * 86400.0


def started(driver):
    driver.start()
    driver.start_many([NewRun(id=driver.id(), type=TYPE) for _ in range(30)])
    again = driver.start(key="k", digest="d")
    assert driver.start_many([NewRun(id=driver.id(), type=TYPE, key="k", digest="d")]) == [
        Started(again, created=False)
    ]
    return ["pending"] * 32


def claimed(driver):
    runs = [driver.start() for _ in range(5)]
    assert len(driver.claim(3)) == 3
    return ["leased"] * 3 + ["pending"] * (len(runs) - 3)


def completed(driver):
    driver.complete(driver.held())
    claim = driver.held()
    driver.checkpoint(claim)
    driver.complete(claim, done("second"))
    return ["succeeded"] * 2


def failed(driver):
    driver.fail(driver.held())
    driver.fail(driver.held(), broken("b"))
    return ["failed"] * 2


def parked_and_woken(driver):
    sleeping, listening, woken, rung = (driver.held() for _ in range(4))
    driver.park(sleeping, sleep(seconds=600.0))
    driver.park(listening, listen(topic="other"))
    driver.park(woken, sleep(seconds=60.0))
    driver.park(rung, listen())
    driver.emit()
    driver.clock.turn(60)
    driver.tick()
    return ["waiting"] * 2 + ["pending"] * 2


def retried(driver):
    driver.retry(driver.held())
    driver.retry(driver.held(), backing_off("r", delay_seconds=5.0), in_place=True)
    return ["pending", "leased"]


def released(driver):
    driver.release(driver.held())
    return ["pending"]


def expired(driver):
    driver.held()
    driver.clock.turn(LEASE + 1)
    driver.tick()
    return ["pending"]


def crashed_too_often(driver):
    run = driver.start()
    for _ in range(4):
        driver.clock.turn(600)
        driver.take(run)
        driver.clock.turn(LEASE + 1)
        driver.tick()
    return ["failed"]


def timed_out(driver):
    driver.park(driver.held(timeout_seconds=60.0), listen())
    driver.start(timeout_seconds=60.0)
    driver.clock.turn(61)
    driver.tick()
    return ["failed"] * 2


def cancelled(driver):
    driver.cancel(driver.held().id)
    driver.cancel(driver.start())
    waiting = driver.held()
    driver.park(waiting, listen())
    driver.cancel(waiting.id)
    return ["cancelled"] * 3


def paused_and_resumed(driver):
    driver.pause(driver.start())
    resumed = driver.start()
    driver.pause(resumed)
    driver.resume(resumed)
    asked = driver.take(resumed)
    driver.pause(asked.id)
    driver.checkpoint(asked)
    return ["paused"] * 2


def rewound(driver):
    claim = driver.held()
    driver.checkpoint(claim)
    driver.complete(claim)
    driver.rewind(claim.id, "first")
    return ["pending"]


def retried_by_a_person(driver):
    claim = driver.held()
    driver.fail(claim)
    driver.retry_run(claim.id)
    driver.fail(driver.take(claim.id))
    return ["failed"]


def deleted(driver):
    driver.delete(driver.start())
    driver.delete(driver.held().id)
    ended = driver.held()
    driver.complete(ended)
    driver.delete(ended.id)
    driver.delete(ended.id)
    return []


def restored(driver):
    for run in (driver.start(), driver.start()):
        driver.delete(run)
        driver.restore(run)
        driver.restore(run)
    return ["pending"] * 2


def purged(driver):
    for _ in range(3):
        driver.complete(driver.held(ttl_seconds=60.0))
    driver.delete(driver.start())
    driver.start(delay_seconds=AGES)
    driver.clock.turn(AGES / 2)
    while driver.purge().total:
        pass
    return ["pending"]


def chained(driver):
    chain(driver, 3)
    return ["succeeded", "succeeded", "leased"]


def deleted_chain(driver):
    ids, claim = chain(driver, 3)
    driver.complete(claim)
    driver.delete(ids[0])
    driver.deliver()
    return []


def children(driver):
    parent, kid = driver.held(), driver.id()
    driver.park(parent, call("kid", kid))
    driver.complete(driver.take(kid))
    driver.deliver()
    return ["pending", "succeeded"]


def cancelled_family(driver):
    parent, kid = driver.held(), driver.id()
    driver.park(parent, call("kid", kid))
    driver.cancel(parent.id)
    driver.deliver()
    return ["cancelled"] * 2


def planned(driver):
    approved = driver.plan(gate("ok"))
    driver.plan(gate("ok"))
    driver.approve(approved)
    driver.publish(nap("rest"), "A", type=OTHER)
    driver.start(OTHER)
    return ["waiting"] * 2 + ["succeeded"]


def advanced(driver):
    claim = driver.begun("A", "B")
    driver.advance(claim, "A", in_place=True)
    driver.advance(claim, "B", in_place=True)
    back = driver.begun("A", "B")
    driver.advance(back, "A")
    driver.publish(gate("ok"), type=OTHER)
    driver.reject(driver.start(OTHER))
    return ["succeeded", "failed", "pending"]


def scheduled(driver):
    one = made(driver)
    driver.clock.turn(3600)
    fire(driver, one, EPOCH + HOUR)
    return ["pending"]


def gone_on(driver):
    """A commit that ends one run and starts two others."""
    driver.complete(
        driver.held(), starts=(NewRun(id=driver.id(), type=OTHER), NewRun(id=driver.id(), type=TYPE))
    )
    go_on(driver, driver.take())
    return ["succeeded"] * 2 + ["pending"] * 2


def gated(driver):
    claim = driver.held()
    driver.park(claim, ask())
    driver.approve(claim.id)
    return ["pending"]


LIVES = {
    one.__name__: one
    for one in (
        started, claimed, completed, failed, parked_and_woken, retried, released, expired, crashed_too_often,
        timed_out, cancelled, paused_and_resumed, rewound, retried_by_a_person, deleted, restored, purged,
        chained, deleted_chain, children, cancelled_family, planned, advanced, scheduled, gone_on, gated,
    )
}  # fmt: skip
