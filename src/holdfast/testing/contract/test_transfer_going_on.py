"""Imported runs go on where they would have gone on: each is compared with the run that did not move."""

from __future__ import annotations

import pytest

from holdfast.records import NewRun, Relayed, RunFilter

from .chains import go_on, payloads
from .driver import TYPE, ask, backing_off, call, done, error, gate, hear, listen, sleep, task
from .outbox import ids, message, outbox, relay, sent_by
from .transfers import carry, emitted, events, memory, runs, write


def moved(driver, source, *resumed):
    """Carry everything, and resume these runs, each by itself."""
    carry(source, driver)
    for run in resumed:
        driver.resume(run)
    driver.tick()


def parked(source, *steps, **fields):
    claim = source.held(**fields)
    source.park(claim, *steps)
    return claim.id


@pytest.mark.spec("STORE-6")
def test_a_sleep_ends_at_its_time(driver):
    source = memory(driver)
    run = parked(source, sleep(seconds=60.0))
    moved(driver, source, run)
    assert driver.status(run) == "waiting"
    driver.clock.turn(59)
    driver.tick()
    assert driver.status(run) == "waiting"
    driver.clock.turn(1)
    driver.tick()
    assert driver.take(run).steps[0].key == "nap"


@pytest.mark.spec("STORE-6")
def test_a_sleep_that_ends_while_the_run_is_paused_is_over_when_it_resumes(driver):
    source = memory(driver)
    run = parked(source, sleep(seconds=60.0))
    carry(source, driver)
    driver.clock.turn(60)
    driver.tick()
    assert driver.status(run) == "paused"
    driver.resume(run)
    assert driver.take(run).steps[0].key == "nap"


@pytest.mark.spec("STORE-6")
def test_a_wait_takes_the_event_that_comes_at_the_target(driver):
    source = memory(driver)
    run = parked(source, listen())
    moved(driver, source, run)
    driver.emit(payload='"here"')
    driver.take(run)
    assert payloads(driver, run) == ["here"]


@pytest.mark.spec("STORE-6")
def test_events_since_its_start_come_with_it_and_earlier_ones_do_not(driver):
    source = memory(driver)
    driver.emit(payload='"older, and of the target"')
    source.emit(payload='"too early"')
    claim = source.held()
    later = [emitted(source) for _ in range(2)]
    moved(driver, source, claim.id)
    held = driver.take(claim.id)
    for number in range(3):
        driver.park(held, listen(f"w{number}"))
    assert payloads(driver, claim.id) == later
    assert driver.status(claim.id) == "waiting"
    assert [event.id for event in events(driver)].count(later[0]) == 1


@pytest.mark.spec("STORE-6")
def test_an_event_that_was_taken_is_not_taken_again_until_the_run_is_rewound(driver):
    source = memory(driver)
    claim = source.held()
    taken = emitted(source, run=claim.id)
    source.park(claim, listen("first"))
    source.park(claim, listen("second"))
    moved(driver, source, claim.id)
    assert driver.status(claim.id) == "waiting"
    assert payloads(driver, claim.id) == [taken]
    driver.rewind(claim.id, "first")
    driver.park(driver.take(claim.id), listen("first"))
    assert payloads(driver, claim.id) == [taken]


@pytest.mark.spec("STORE-6")
def test_a_wait_since_now_leaves_older_events_alone(driver):
    source = memory(driver)
    claim = source.held()
    emitted(source, run=claim.id)
    emitted(source)
    source.park(claim, listen(since_now=True))
    moved(driver, source, claim.id)
    assert driver.status(claim.id) == "waiting"
    late = emitted(driver, run=claim.id)
    driver.take(claim.id)
    assert payloads(driver, claim.id) == [late]


@pytest.mark.spec("STORE-6")
def test_an_event_that_came_before_its_run_is_found(driver):
    """The events of a file are written before the runs."""
    source = memory(driver)
    run = parked(source, listen())
    source.pause(run)
    known = runs(source)
    source.store._state.runs[run].steps["wait"].watermark = 0
    event = emitted(source, run=run)
    found = [one for one in events(source) if one.id == event]
    write(driver, known, found)
    driver.deliver()
    driver.resume(run)
    driver.take(run)
    assert payloads(driver, run) == [event]


@pytest.mark.spec("STORE-6")
def test_a_gate_is_decided_at_the_target(driver):
    source = memory(driver)
    run = parked(source, ask())
    moved(driver, source, run)
    (request,) = driver.approvals()
    assert request.run == run
    driver.approve(run)
    assert driver.take(run).steps[0].key == "gate"


@pytest.mark.spec("STORE-6")
def test_a_run_that_backs_off_is_tried_at_its_time(driver):
    source = memory(driver)
    claim = source.held(max_attempts=3)
    source.retry(claim, backing_off("r", delay_seconds=60.0), delay=60.0)
    moved(driver, source, claim.id)
    assert driver.claim() == []
    driver.clock.turn(60)
    again = driver.take(claim.id)
    assert (again.attempt, again.crashes) == (2, 0)


@pytest.mark.spec("STORE-6")
def test_a_run_that_was_being_executed_is_executed_again_from_its_record(driver):
    source = memory(driver)
    claim = source.held()
    source.checkpoint(claim)
    moved(driver, source, claim.id)
    again = driver.take(claim.id)
    assert (again.attempt, [step.key for step in again.steps]) == (1, ["first"])
    driver.complete(again)
    assert driver.status(claim.id) == "succeeded"


@pytest.mark.spec("STORE-6")
def test_a_plan_goes_on_at_its_current_step(driver):
    source = memory(driver)
    source.publish("A", gate("ok"), hear("news"), task("B"))
    run = source.start()
    source.advance(source.take(run), "A")
    moved(driver, source, run)
    driver.approve(run)
    assert driver.status(run) == "waiting"
    driver.emit()
    claim = driver.take(run)
    driver.advance(claim, "B", in_place=True)
    assert driver.status(run) == "succeeded"
    driver.assert_replayed(run)


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("order", ["parent first", "child first"])
@pytest.mark.parametrize("ended", [True, False])
def test_families_find_each_other_in_either_order(driver, order, ended):
    source = memory(driver)
    parent, kid = source.held(), source.id()
    source.park(parent, call("kid", kid))
    (before,) = runs(source, [parent.id])
    if ended:
        source.complete(source.take(kid), result='"of the child"')
    (child,) = runs(source, [kid])
    for part in (before, child) if order == "parent first" else (child, before):
        assert write(driver, [part])[0].answer == "imported"
        driver.tick()
    driver.resume(parent.id)
    if not ended:
        assert driver.status(parent.id) == "waiting"
        driver.resume(kid)
        driver.complete(driver.take(kid), result='"of the child"')
        driver.deliver()
    claim = driver.take(parent.id)
    assert '"of the child"' in claim.steps[0].output
    (counts,) = driver.run(driver.store.children([parent.id], "default"))
    assert counts.total == 1


@pytest.mark.spec("STORE-6")
def test_a_chain_goes_on_as_one_run(driver):
    source = memory(driver)
    claim = source.held(key="k", digest="d")
    first = claim.id
    second = go_on(source, claim)
    third = go_on(source, source.take(second))
    event = emitted(source, run=first)
    moved(driver, source, first)
    assert driver.get(first).present == third
    (head,) = runs(driver, [first])
    assert head.row.goes_on_as == third
    assert [run.id for run in driver.run(driver.store.list(RunFilter(type=TYPE)))] == [third, second, first]
    claim = driver.take(third)
    driver.park(claim, listen())
    fourth = go_on(driver, claim)
    assert payloads(driver, third) == [event]
    assert driver.get(first).present == fourth
    driver.delete(first)
    driver.deliver()
    assert driver.get(second) is None


@pytest.mark.spec("STORE-6")
def test_a_later_run_of_a_chain_needs_the_first(driver):
    source = memory(driver)
    claim = source.held()
    second = go_on(source, claim)
    (answer,) = write(driver, runs(source, [second]))
    assert answer.reason == f"its chain's first run {claim.id} is not there: import that one first"
    assert driver.get(second) is None
    answers = write(driver, runs(source, [claim.id, second]))
    assert [one.answer for one in answers] == ["imported", "imported"]


@pytest.mark.spec("STORE-6")
def test_messages_are_not_sent_twice(driver):
    source = memory(driver)
    claim = sent_by(source, message("a", key="k"), message("b", key="k"), message("c"))
    (parcel,) = [one for one in relay(source) if one.id == "c"]
    source.run(source.store.relayed([_sent(parcel)]))
    carry(source, driver)
    assert relay(driver) == []
    assert [(one.id, one.status) for one in outbox(driver)] == [("a", "dead"), ("b", "dead"), ("c", "sent")]
    driver.run(driver.store.resend("a", "default"))
    assert ids(relay(driver)) == ["a"]
    driver.resume(claim.id)
    driver.checkpoint(driver.take(claim.id), done("again"), outbox=(message("c"),))
    assert ids(relay(driver)) == []


def _sent(parcel):
    return Relayed(id=parcel.id, fence=parcel.fence, answer="sent")


@pytest.mark.spec("STORE-6")
def test_messages_keep_their_order_without_hold(driver):
    source = memory(driver)
    sent_by(source, message("a", key="k"), message("b", key="k"), message("c"))
    carry(source, driver, hold=False)
    assert sorted(ids(relay(driver))) == ["a", "c"]


@pytest.mark.spec("STORE-6")
def test_a_failed_run_is_retried_at_the_target(driver):
    source = memory(driver)
    claim = source.held()
    source.checkpoint(claim)
    source.fail(claim, error=error("boom", "second"))
    carry(source, driver)
    assert driver.status(claim.id) == "failed"
    driver.retry_run(claim.id)
    assert [step.key for step in driver.take(claim.id).steps] == ["first"]


@pytest.mark.spec("STORE-6")
def test_a_deleted_run_is_restored_or_purged_at_the_target(driver):
    source = memory(driver)
    one, other = source.start(), source.start()
    for run in (one, other):
        source.delete(run)
    carry(source, driver)
    assert driver.get(one) is None
    driver.restore(one)
    assert driver.status(one) == "paused"
    driver.clock.turn(8 * 86400)
    assert driver.purge().runs == 1
    assert driver.recount() == []


@pytest.mark.spec("STORE-6")
def test_a_shared_budget_comes_with_the_run_at_the_top(driver):
    source = memory(driver)
    top, kid = source.held(budget=10, covers_children=True), source.id()
    source.checkpoint(top, done("a", cost=4))
    source.park(top, call("kid", kid))
    moved(driver, source, kid)
    claim = driver.take(kid)
    driver.checkpoint(claim, done("b", cost=5))
    shown = driver.get(kid)
    assert (shown.account, shown.account_cost_units, shown.account_budget_units) == (top.id, 9, 10)


@pytest.mark.spec("STORE-6")
def test_lists_find_imported_runs(driver):
    source = memory(driver)
    run = source.start(key="k", labels='{"team":"a"}', tenant="acme")
    source.start(labels='{"team":"b"}', tenant="acme")
    carry(source, driver)
    for where in ({"labels": {"team": "a"}}, {"key": "k"}):
        listed = driver.run(driver.store.list(RunFilter(tenant="acme", **where)))
        assert [one.id for one in listed] == [run]
    assert (
        driver.run(driver.store.start([NewRun(id=driver.id(), type=TYPE, tenant="acme", key="k")]))[0].id
        == run
    )


@pytest.mark.spec("STORE-6")
def test_a_timeout_goes_on(driver):
    source = memory(driver)
    run = source.start(timeout_seconds=60.0)
    carry(source, driver)
    driver.clock.turn(61)
    driver.tick()
    assert driver.status(run) == "failed"
