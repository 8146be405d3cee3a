"""Children: they start with the step that waits for them, wake the parent at their end, and are cancelled
with it.
"""

from __future__ import annotations

import msgspec
import pytest

from holdfast.contract import TTL_SECONDS
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import NewRun, RunFilter

from .driver import TYPE, call, done, error, gate

decode = msgspec.json.decode
CHILD = "shop.child.v1"
TYPES = (TYPE, CHILD)


def _parent(driver, *keys, **fields):
    """Return a run that waits for children, and their ids."""
    parent, children = driver.held(**fields), [driver.id() for _ in keys or "c"]
    calls = [call(key, child, CHILD) for key, child in zip(keys or ("c",), children, strict=True)]
    driver.park(parent, *calls, known=0)
    return parent, children


def _end(driver, child, how="succeeded"):
    """End a child; its parent is not told yet."""
    if how == "cancelled":
        driver.cancel(child)
        return
    for claim in driver.claim(types=(CHILD,)):
        if claim.id != child:
            driver.release(claim)
        elif how == "failed":
            driver.fail(claim, kind="fatal")
        else:
            driver.complete(claim, result='{"n":7}')


def _statuses(driver, *runs):
    return [driver.status(run).value for run in runs]


@pytest.mark.spec("FLOW-7", "MOVE-2", "TRAIL-1")
def test_a_child_is_started_in_the_commit_of_the_step_that_waits_for_it(driver):
    """The child is a run that names its parent; the parent names the child and is not leased."""
    parent, (child,) = _parent(driver)
    seen, started = driver.get(parent.id), driver.get(child)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    (wait,) = seen.waiting_on
    assert (wait.key, wait.kind, wait.child) == ("c", StepKind.CHILD, child)
    assert (started.type, started.status, started.parent, started.parent_step) == (
        CHILD, Status.PENDING, parent.id, "c",
    )  # fmt: skip
    assert [run.id for run in driver.run(driver.store.list(RunFilter(parent=parent.id)))] == [child]
    waiting = RunFilter(waiting_on=StepKind.CHILD)
    assert [run.id for run in driver.run(driver.store.list(waiting))] == [parent.id]
    assert driver.run(driver.store.stuck()) == []
    assert driver.told(parent.id)[-2:] == ["child_started", "waiting"]
    assert driver.last(parent.id, "child_started") == {"step": "c", "child": str(child)}
    assert driver.last(parent.id, "waiting") == {"step": "c", "kind": "child", "status": "waiting"}
    assert driver.told(child) == ["created"]
    driver.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7", "LEASE-14")
def test_a_recorded_step_starts_no_second_child(driver):
    """Neither a repeated item nor a later execution with the same key starts another child."""
    parent, child = driver.held(), driver.id()
    item = driver.item(parent, Move.PARK, call("c", child, CHILD), known=0)
    first = driver.send(item)
    before = driver.everything()
    assert driver.send(item) == first
    assert driver.everything() == before
    driver.pause(parent.id)
    driver.resume(parent.id)
    driver.cancel(child)
    driver.deliver()
    again, second = driver.take(parent.id), driver.id()
    assert driver.park(again, call("c", second, CHILD), known=2).kept[0][0] == "c"
    assert driver.get(second) is None


@pytest.mark.spec("FLOW-7", "MOVE-2", "MOVE-5")
@pytest.mark.parametrize("by", ["deliver", "tick"])
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_the_end_of_a_child_wakes_its_parent(driver, how, by):
    """The news is recorded with the child's end and delivered after it; a keeper delivers what was left."""
    parent, (child,) = _parent(driver)
    driver.clock.turn(5)
    _end(driver, child, how)
    if how != "cancelled":
        assert driver.status(parent.id) is Status.WAITING
        assert driver.due().chore_at <= driver.clock.now
    assert driver.deliver() <= 1 if by == "deliver" else driver.tick().delivered <= 1
    step, seen = driver.step(parent.id, "c"), driver.get(parent.id)
    assert (seen.status, seen.attempt, seen.waiting_on) == (Status.PENDING, 0, ())
    assert (step.status is StepStatus.SUCCEEDED) == (how == "succeeded")
    assert (step.seq, step.finished_at) == (2, driver.clock.now)
    output = decode(step.output)
    assert (output["run"], output["status"]) == (str(child), how)
    if how == "succeeded":
        assert (output["result"], step.error) == ({"n": 7}, None)
    else:
        assert step.error.kind == "child_failed"
        assert how == "cancelled" or output["error"] == decode(error("fatal"))
    told = driver.last(parent.id, "woken")
    assert (told["step"], told["child"], told["status"]) == ("c", str(child), "pending")
    assert ("error" in told) == (how != "succeeded")
    assert (driver.deliver(), driver.tick().total) == (0, 0)
    driver.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7", "MOVE-2")
@pytest.mark.parametrize("how", ["crash cap", "run timeout", "rejected plan"])
def test_a_parent_is_told_of_a_childs_end_however_it_ends(driver, how):
    """The end may come from the holder, from a keeper or from a person's decision."""
    if how == "rejected plan":
        driver.publish(gate("G"), type=CHILD)
    parent, child = driver.held(), driver.id()
    driver.park(parent, call("c", child, CHILD, timeout_seconds=100_000.0), known=0)
    match how:
        case "crash cap":
            for _ in range(4):
                driver.clock.turn(4000)
                driver.claim(types=(CHILD,))
                driver.clock.turn(31)
                driver.tick()
        case "run timeout":
            driver.clock.turn(100_000)
            driver.tick()
        case "rejected plan":
            driver.reject(child)
    driver.deliver()
    assert _statuses(driver, child, parent.id) == ["failed", "pending"]
    assert driver.step(parent.id, "c").error.kind == "child_failed"
    driver.assert_replayed(parent.id)


@pytest.mark.spec("MOVE-8", "FLOW-7")
def test_a_park_finds_the_end_of_a_child_that_ended_before(driver):
    """The run stays leased, though the news was not delivered yet."""
    parent, child = driver.held(), driver.id()
    driver.checkpoint(parent, call("c", child, CHILD), known=0)
    _end(driver, child)
    verdict = driver.park(parent, call("c", child, CHILD), known=1)
    assert (verdict.status, [(step.key, step.status) for step in verdict.settled]) == (
        Status.LEASED, [("c", StepStatus.SUCCEEDED)],
    )  # fmt: skip
    assert driver.deliver() == 0
    assert driver.told(parent.id).count("woken") == 1
    driver.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7", "FLOW-9")
def test_the_end_of_a_child_reaches_a_leased_parent(driver):
    """The parent stays leased and learns it at its next commit; the other child stays awaited."""
    parent, (first, second) = driver.held(), (driver.id(), driver.id())
    driver.checkpoint(parent, call("a", first, CHILD), call("b", second, CHILD), known=0)
    _end(driver, second)
    assert driver.deliver() == 1
    verdict = driver.checkpoint(parent, done("x"), known=2)
    assert [step.key for step in verdict.settled] == ["b"]
    assert [wait.key for wait in driver.get(parent.id).waiting_on] == ["a"]
    driver.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7")
def test_a_child_that_nobody_waits_for_changes_nothing_of_its_parent(driver):
    """The parent started the child and does not wait for it."""
    parent, child = driver.held(), driver.id()
    driver.checkpoint(parent, call("c", child, CHILD, StepStatus.SUCCEEDED))
    assert (driver.get(child).parent, driver.step(parent.id, "c").child) == (parent.id, child)
    before = driver.snapshot(parent.id)
    _end(driver, child, "failed")
    assert (driver.deliver(), driver.snapshot(parent.id)) == (0, before)


@pytest.mark.spec("PAUSE-4")
@pytest.mark.parametrize("how", ["succeeded", "failed"])
def test_a_child_goes_on_while_its_parent_is_paused(driver, how):
    """Children are not paused; an end during the pause takes effect at resume."""
    parent, (child,) = _parent(driver)
    driver.pause(parent.id)
    _end(driver, child, how)
    assert (driver.deliver(), driver.status(parent.id)) == (0, Status.PAUSED)
    assert driver.step(parent.id, "c").status == how
    driver.assert_replayed(parent.id)
    assert driver.resume(parent.id).status is Status.PENDING
    assert driver.take(parent.id, types=(TYPE,)).steps[0].status == how


@pytest.mark.spec("FLOW-21", "FLOW-7")
def test_a_parent_waits_for_the_run_that_its_child_goes_on_as(driver):
    """The end of the first run is not the end of the child; the end of the second run is."""
    parent, (child,) = _parent(driver)
    follower = NewRun(id=driver.id(), type=CHILD, parent=parent.id, parent_step="c")
    driver.complete(driver.take(child, types=(CHILD,)), starts=(follower,))
    assert driver.deliver() == 0
    assert (driver.status(parent.id), driver.step(parent.id, "c").child) == (Status.WAITING, follower.id)
    _end(driver, follower.id)
    assert driver.deliver() == 1
    assert decode(driver.step(parent.id, "c").output)["run"] == str(follower.id)
    driver.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-21", "REW-3")
def test_a_started_child_that_goes_on_as_another_is_no_orphan(driver):
    """The step still names the child, and a rewind of a later step does not cancel it."""
    parent, child, follower = driver.held(), driver.id(), driver.id()
    driver.checkpoint(parent, call("c", child, CHILD, status=StepStatus.SUCCEEDED))
    driver.checkpoint(parent, call("later", driver.id(), CHILD, status=StepStatus.SUCCEEDED))
    started = {one.id: one for one in driver.claim(types=(CHILD,))}
    on = NewRun(id=follower, type=CHILD, parent=parent.id, parent_step="c")
    driver.complete(started[child], starts=(on,))
    assert driver.step(parent.id, "c").child == follower
    driver.rewind(parent.id, "later")
    assert driver.status(follower) is Status.PENDING


@pytest.mark.spec("REW-3", "FLOW-21")
def test_a_child_that_was_kept_does_not_take_its_successors_place_when_it_goes_on(driver):
    parent, (kept,) = _parent(driver)
    holder = driver.take(kept, types=(CHILD,))
    driver.rewind(parent.id, "c", children=False)
    new = driver.id()
    driver.park(driver.take(parent.id, types=(TYPE,)), call("c", new, CHILD), known=0)
    on = NewRun(id=driver.id(), type=CHILD, parent=parent.id, parent_step="c")
    driver.complete(holder, starts=(on,))
    assert (driver.deliver(), driver.step(parent.id, "c").child) == (0, new)


@pytest.mark.spec("FLOW-7")
def test_a_run_that_names_a_step_which_does_not_wait_is_no_answer_to_it(driver):
    """Only the run that the step waits for settles it."""
    parent, (child,) = _parent(driver)
    other = driver.start(CHILD, parent=parent.id)
    driver.cancel(other)
    assert (driver.deliver(), driver.step(parent.id, "c").child) == (0, child)
    stranger = driver.start(CHILD, parent=parent.id, parent_step="nowhere")
    driver.cancel(stranger)
    assert (driver.deliver(), driver.status(parent.id)) == (0, Status.WAITING)


@pytest.mark.spec("CANC-5", "MOVE-2")
@pytest.mark.parametrize("keep", [True, False])
def test_cancelling_a_parent_cancels_its_children_and_theirs_unless_told_otherwise(driver, keep):
    """The cancels are recorded in the parent's commit and carried out after it; ended children stay as they
    are.
    """
    parent, (child, ended) = _parent(driver, "c", "d")
    _end(driver, ended)
    driver.deliver()
    grandchild = driver.id()
    holder = next(one for one in driver.claim(types=(CHILD,)) if one.id == child)
    driver.park(holder, call("g", grandchild, CHILD), known=0)
    by_itself = driver.start(CHILD)
    driver.cancel(parent.id, by="ann", children=not keep)
    expected = ["waiting", "pending"] if keep else ["cancelled", "cancelled"]
    assert _statuses(driver, child, grandchild) == expected
    assert _statuses(driver, parent.id, ended, by_itself) == ["cancelled", "succeeded", "pending"]
    assert driver.tick().total == 0
    for run in (parent.id, child, grandchild):
        driver.assert_replayed(run)


@pytest.mark.spec("CANC-5")
@pytest.mark.parametrize("parent_of", ["another tenant", "nobody"])
def test_a_commit_starts_no_child_of_an_unrelated_run(driver, parent_of):
    """Such a start is left out; the rest of the item is written."""
    foreign = driver.start("shop.x.v1", tenant="acme") if parent_of == "another tenant" else driver.id()
    claim, child, own = driver.held(), driver.id(), driver.id()
    starts = (NewRun(id=child, type=CHILD, parent=foreign), NewRun(id=own, type=CHILD, parent=claim.id))
    assert driver.complete(claim, starts=starts).answer == "applied"
    assert (driver.get(child), driver.get(own).parent) == (None, claim.id)


@pytest.mark.spec("FLOW-21", "TTL-1")
@pytest.mark.parametrize("how", ["deleted", "purged"])
def test_a_child_whose_parent_is_gone_stays_and_may_go_on_as_another(driver, how):
    parent, (child,) = _parent(driver)
    driver.delete(parent.id)
    if how == "purged":
        assert driver.purge(deleted_seconds=0).runs == 1
    follower = NewRun(id=driver.id(), type=CHILD, parent=parent.id, parent_step="c")
    driver.complete(driver.take(child, types=(CHILD,)), starts=(follower,))
    driver.deliver()
    assert (driver.status(follower.id), driver.get(follower.id).parent) == (Status.PENDING, parent.id)


@pytest.mark.spec("CANC-5", "REW-3")
@pytest.mark.parametrize("how", ["cancel", "rewind"])
def test_nobody_cancels_the_runs_of_another_tenant(driver, how):
    """This holds also for a run with the id of their purged parent."""
    parent, (child,) = _parent(driver)
    driver.delete(parent.id)
    assert driver.purge(deleted_seconds=0).runs == 1
    claim = driver.held(id=parent.id, tenant="acme")
    driver.checkpoint(claim, call("own", driver.id(), CHILD, tenant="acme"))
    driver.cancel(claim.id) if how == "cancel" else driver.rewind(claim.id, "own")
    assert driver.status(child) is Status.PENDING
    assert (
        driver.status(driver.run(driver.store.list(RunFilter(parent=parent.id, tenant="acme")))[0].id)
        == "cancelled"
    )


@pytest.mark.spec("CANC-5")
def test_a_child_that_is_at_work_or_paused_is_cancelled_with_its_parent(driver):
    """Its holder is fenced off; this holds also for a child that nobody waits for."""
    parent, children = driver.held(), [driver.id() for _ in range(3)]
    driver.checkpoint(
        parent, *(call(key, child, CHILD) for key, child in zip("ab", children[:2], strict=True))
    )
    driver.checkpoint(parent, call("s", children[2], CHILD, StepStatus.SUCCEEDED))
    claims = {claim.id: claim for claim in driver.claim(types=(CHILD,))}
    driver.release(claims[children[1]])
    driver.pause(children[1])
    driver.cancel(parent.id)
    assert _statuses(driver, *children) == ["cancelled"] * 3
    assert driver.complete(claims[children[0]]).answer == "cancelled"


@pytest.mark.spec("CANC-5", "CANC-2")
def test_a_cancelled_parent_starts_no_further_child(driver):
    """Later writes of its worker change nothing."""
    parent, child = driver.held(), driver.id()
    driver.cancel(parent.id)
    assert driver.park(parent, call("c", child, CHILD)).answer == "cancelled"
    assert driver.get(child) is None


@pytest.mark.spec("REW-3")
@pytest.mark.parametrize("keep", [True, False])
def test_the_children_of_forgotten_steps_are_cancelled_and_started_anew(driver, keep):
    """Children of earlier steps stay, and all stay with `children=False`. The step starts a new run."""
    parent, children = driver.held(), [driver.id() for _ in range(3)]
    for key, child in zip("abc", children[:2], strict=False):
        driver.checkpoint(parent, call(key, child, CHILD), done(f"after {key}"), known=0)
    driver.rewind(parent.id, "b", children=not keep)
    assert _statuses(driver, *children[:2]) == ["pending", "pending" if keep else "cancelled"]
    again = driver.take(parent.id)
    driver.park(again, call("b", children[2], CHILD), known=9)
    assert driver.step(parent.id, "b").child == children[2]
    if keep:
        _end(driver, children[1])
    driver.deliver()
    assert (driver.status(parent.id), driver.step(parent.id, "b").status) == ("waiting", "waiting")
    driver.assert_replayed(parent.id)


@pytest.mark.spec("REW-2", "REW-3")
def test_open_children_of_the_steps_that_a_retry_forgets_are_cancelled(driver):
    """These are the step that failed the run, and the steps that its end had cancelled."""
    parent, (failed, other) = driver.held(), (driver.id(), driver.id())
    driver.checkpoint(parent, call("f", failed, CHILD), call("o", other, CHILD), known=0)
    _end(driver, failed, "failed")
    driver.deliver()
    driver.fail(parent, step="f", kind="child_failed")
    assert driver.status(other) is Status.PENDING
    driver.retry_run(parent.id)
    assert _statuses(driver, parent.id, failed, other) == ["pending", "failed", "cancelled"]
    assert driver.steps(parent.id) == []
    driver.assert_replayed(parent.id)


@pytest.mark.spec("TTL-1")
def test_a_child_is_not_purged_while_its_parent_waits_for_it(driver):
    """It stays until the parent has been told of its end, however long ago it ended."""
    parent, (told, untold) = _parent(driver, "a", "b")
    _end(driver, told)
    driver.deliver()
    _end(driver, untold)
    driver.clock.turn(TTL_SECONDS)
    assert (driver.purge().runs, driver.purge().runs) == (1, 0)
    assert (driver.get(told) is None, driver.status(untold)) == (True, Status.SUCCEEDED)
    driver.deliver()
    assert decode(driver.step(parent.id, "b").output)["result"] == {"n": 7}
    assert (driver.purge().runs, driver.get(untold)) == (1, None)
    assert driver.status(parent.id) is Status.PENDING


@pytest.mark.spec("FLOW-7", "MOVE-4")
def test_a_thousand_children_are_started_and_awaited_in_one_commit(driver):
    """Their ends wake the parent once, in slices or not."""
    keys = [f"c{number}" for number in range(1000)]
    parent, children = _parent(driver, *keys)
    assert driver.stats().by_status[Status.PENDING] == 1000
    claims = driver.claim(limit=1000, types=(CHILD,))
    assert {claim.id for claim in claims} == set(children)
    driver.send(*(driver.item(claim, Move.COMPLETE, result="1") for claim in claims))
    driver.deliver(limit=100)
    steps = driver.steps(parent.id)
    assert {step.status for step in steps} == {StepStatus.SUCCEEDED}
    assert (len(steps), driver.status(parent.id)) == (1000, Status.PENDING)
    assert driver.cancel(parent.id).status is Status.CANCELLED
