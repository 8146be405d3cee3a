"""A store with runs of all kinds, for tests of files; and what can be read of it."""

from __future__ import annotations

from holdfast.records import DEFAULT_TENANT, NewEvent, NewSchedule, Overlap
from holdfast.testing.contract.chains import go_on
from holdfast.testing.contract.driver import ask, backing_off, call, done, gate, hear, listen, sleep
from holdfast.testing.contract.outbox import message


def furnish(driver):
    """Make runs of all kinds; return their ids by name."""
    run = driver.run
    ids = {
        "pending": driver.start(key="order:1", labels='{"team":"a"}', params='{"name":"Ann","n":[1,true]}')
    }
    ids["done"] = _done(driver)
    ids["failed"] = _failed(driver)
    for name, step in (("sleeping", sleep(seconds=3600.0)), ("listening", listen()), ("gated", ask())):
        claim = held(driver, name)
        driver.park(claim, step)
        ids[name] = claim.id
    claim = held(driver, "back")
    driver.retry(claim, backing_off("r", delay_seconds=60.0), delay=60.0)
    ids["backing off"] = claim.id
    parent, kid = held(driver, "family"), driver.id()
    driver.park(parent, call("kid", kid, type="shop.kid.v1"))
    ids |= {"parent": parent.id, "kid": kid}
    first = held(driver, "chain")
    ids |= {"first": first.id, "second": go_on(driver, first, type="shop.chain.v1")}
    driver.publish("A", gate("ok"), hear("news"), type="shop.plan.v1")
    plan = driver.start("shop.plan.v1")
    driver.advance(driver.take(plan, types=("shop.plan.v1",)), "A")
    ids["plan"] = plan
    ids["deleted"] = driver.start(type="shop.deleted.v1")
    driver.delete(ids["deleted"])
    run(driver.store.emit(NewEvent(id="e-all", topic="news of all", payload='{"secret":"s3"}')))
    run(driver.store.emit(NewEvent(id="e-one", topic="later", payload='"for one"', run=ids["listening"])))
    run(driver.store.limit("type", "shop.order.v1", concurrency=3))
    run(driver.store.register("shop.order.v1", runtime="python", description="orders"))
    run(driver.store.schedule(NewSchedule(
        id=driver.id(), name="nightly", tenant=DEFAULT_TENANT, type="shop.order", cron="0 3 * * *",
        next_at=driver.clock.now + 1, overlap=Overlap.QUEUE,
    )))  # fmt: skip
    return ids


def held(driver, name):
    """Start and claim a run of a type of its own."""
    kind = f"shop.{name}.v1"
    return driver.take(driver.start(type=kind), types=(kind,))


def _done(driver):
    claim = held(driver, "done")
    driver.checkpoint(claim, done("post", output='{"token":"t0p"}'), outbox=(message("m1"),))
    driver.complete(claim, result='{"total":42}')
    return claim.id


def _failed(driver):
    claim = held(driver, "failed")
    driver.fail(claim)
    return claim.id
