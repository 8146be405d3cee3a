"""Children: started with the step that waits for them, their end told to the parent, cancelled with it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.contract import TTL_SECONDS
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import NewRun, RunFilter

from .hand import TYPE, call, done, error, gate

decode = msgspec.json.decode
CHILD = "shop.child.v1"
TYPES = (TYPE, CHILD)


def _parent(hand, *keys, **fields):
    """A run that waits for children, and their ids."""
    parent, children = hand.held(**fields), [hand.id() for _ in keys or "c"]
    calls = [call(key, child, CHILD) for key, child in zip(keys or ("c",), children, strict=True)]
    hand.park(parent, *calls, known=0)
    return parent, children


def _end(hand, child, how="succeeded"):
    """Bring a child to its end; its parent is not told yet."""
    if how == "cancelled":
        hand.cancel(child)
        return
    for claim in hand.claim(types=(CHILD,)):
        if claim.id != child:
            hand.release(claim)
        elif how == "failed":
            hand.fail(claim, kind="fatal")
        else:
            hand.complete(claim, result='{"n":7}')


def _statuses(hand, *runs):
    return [hand.status(run).value for run in runs]


@pytest.mark.spec("FLOW-7", "MOVE-2", "TRAIL-1")
def test_a_child_is_started_in_the_commit_of_the_step_that_waits_for_it(hand):
    """A run of its own, which knows its parent; the parent holds nothing and names it."""
    parent, (child,) = _parent(hand)
    seen, started = hand.get(parent.id), hand.get(child)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    (wait,) = seen.waiting_on
    assert (wait.key, wait.kind, wait.child) == ("c", StepKind.CHILD, child)
    assert (started.type, started.status, started.parent, started.parent_step) == (
        CHILD, Status.PENDING, parent.id, "c",
    )  # fmt: skip
    assert [run.id for run in hand.run(hand.store.list(RunFilter(parent=parent.id)))] == [child]
    waiting = RunFilter(waiting_on=StepKind.CHILD)
    assert [run.id for run in hand.run(hand.store.list(waiting))] == [parent.id]
    assert hand.run(hand.store.stuck()) == []
    assert hand.told(parent.id)[-2:] == ["child_started", "waiting"]
    assert hand.last(parent.id, "child_started") == {"step": "c", "child": str(child)}
    assert hand.last(parent.id, "waiting") == {"step": "c", "kind": "child", "status": "waiting"}
    assert hand.told(child) == ["created"]
    hand.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7", "LEASE-14")
def test_a_step_that_stands_starts_no_second_child(hand):
    """Neither the same item again, nor a later execution that asks under the same key."""
    parent, child = hand.held(), hand.id()
    item = hand.item(parent, Move.PARK, call("c", child, CHILD), known=0)
    first = hand.send(item)
    before = hand.everything()
    assert hand.send(item) == first
    assert hand.everything() == before
    hand.pause(parent.id)
    hand.resume(parent.id)
    hand.cancel(child)
    hand.deliver()
    again, second = hand.take(parent.id), hand.id()
    assert hand.park(again, call("c", second, CHILD), known=2).kept[0][0] == "c"
    assert hand.get(second) is None


@pytest.mark.spec("FLOW-7", "MOVE-2", "MOVE-5")
@pytest.mark.parametrize("by", ["deliver", "tick"])
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_the_end_of_a_child_wakes_its_parent(hand, how, by):
    """Recorded with the child's end, carried out after it; a keeper finishes what was left."""
    parent, (child,) = _parent(hand)
    hand.clock.turn(5)
    _end(hand, child, how)
    if how != "cancelled":
        assert hand.status(parent.id) is Status.WAITING
        assert hand.due().chore_at <= hand.clock.now
    assert hand.deliver() <= 1 if by == "deliver" else hand.tick().delivered <= 1
    step, seen = hand.step(parent.id, "c"), hand.get(parent.id)
    assert (seen.status, seen.attempt, seen.waiting_on) == (Status.PENDING, 0, ())
    assert (step.status is StepStatus.SUCCEEDED) == (how == "succeeded")
    assert (step.seq, step.finished_at) == (2, hand.clock.now)
    output = decode(step.output)
    assert (output["run"], output["status"]) == (str(child), how)
    if how == "succeeded":
        assert (output["result"], step.error) == ({"n": 7}, None)
    else:
        assert decode(step.error)["kind"] == "child_failed"
        assert how == "cancelled" or output["error"] == decode(error("fatal"))
    told = hand.last(parent.id, "woken")
    assert (told["step"], told["child"], told["status"]) == ("c", str(child), "pending")
    assert ("error" in told) == (how != "succeeded")
    assert (hand.deliver(), hand.tick().total) == (0, 0)
    hand.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7", "MOVE-2")
@pytest.mark.parametrize("how", ["crash cap", "run timeout", "rejected plan"])
def test_a_child_owes_its_parent_the_news_however_it_ends(hand, how):
    """By a keeper or by a person's decision as well as by its holder."""
    if how == "rejected plan":
        hand.publish(gate("G"), type=CHILD)
    parent, child = hand.held(), hand.id()
    hand.park(parent, call("c", child, CHILD, timeout_seconds=100_000.0), known=0)
    match how:
        case "crash cap":
            for _ in range(4):
                hand.clock.turn(4000)
                hand.claim(types=(CHILD,))
                hand.clock.turn(31)
                hand.tick()
        case "run timeout":
            hand.clock.turn(100_000)
            hand.tick()
        case "rejected plan":
            hand.reject(child)
    hand.deliver()
    assert _statuses(hand, child, parent.id) == ["failed", "pending"]
    assert decode(hand.step(parent.id, "c").error)["kind"] == "child_failed"
    hand.assert_replayed(parent.id)


@pytest.mark.spec("MOVE-8", "FLOW-7")
def test_a_park_finds_the_end_of_a_child_that_was_quicker(hand):
    """Though nobody has delivered it: the run stays leased."""
    parent, child = hand.held(), hand.id()
    hand.checkpoint(parent, call("c", child, CHILD), known=0)
    _end(hand, child)
    verdict = hand.park(parent, call("c", child, CHILD), known=1)
    assert (verdict.status, [(step.key, step.status) for step in verdict.settled]) == (
        Status.LEASED, [("c", StepStatus.SUCCEEDED)],
    )  # fmt: skip
    assert hand.deliver() == 0
    assert hand.told(parent.id).count("woken") == 1
    hand.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7", "FLOW-9")
def test_the_end_of_a_child_reaches_a_parent_that_is_at_work(hand):
    """It stays leased and learns it at its next boundary; the other child stays awaited."""
    parent, (first, second) = hand.held(), (hand.id(), hand.id())
    hand.checkpoint(parent, call("a", first, CHILD), call("b", second, CHILD), known=0)
    _end(hand, second)
    assert hand.deliver() == 1
    verdict = hand.checkpoint(parent, done("x"), known=2)
    assert [step.key for step in verdict.settled] == ["b"]
    assert [wait.key for wait in hand.get(parent.id).waiting_on] == ["a"]
    hand.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-7")
def test_a_child_that_nobody_waits_for_tells_nobody(hand):
    """Started and left to itself: its end changes nothing of its parent."""
    parent, child = hand.held(), hand.id()
    hand.checkpoint(parent, call("c", child, CHILD, StepStatus.SUCCEEDED))
    assert (hand.get(child).parent, hand.step(parent.id, "c").child) == (parent.id, child)
    before = hand.snapshot(parent.id)
    _end(hand, child, "failed")
    assert (hand.deliver(), hand.snapshot(parent.id)) == (0, before)


@pytest.mark.spec("PAUSE-4")
@pytest.mark.parametrize("how", ["succeeded", "failed"])
def test_a_child_goes_on_while_its_parent_is_paused(hand, how):
    """Children are not paused; the end that falls in the pause takes effect at resume."""
    parent, (child,) = _parent(hand)
    hand.pause(parent.id)
    _end(hand, child, how)
    assert (hand.deliver(), hand.status(parent.id)) == (0, Status.PAUSED)
    assert hand.step(parent.id, "c").status == how
    hand.assert_replayed(parent.id)
    assert hand.resume(parent.id).status is Status.PENDING
    assert hand.take(parent.id, types=(TYPE,)).steps[0].status == how


@pytest.mark.spec("FLOW-21", "FLOW-7")
def test_a_parent_waits_for_the_run_that_its_child_goes_on_as(hand):
    """The end of the first is not the end of the child; the second's is."""
    parent, (child,) = _parent(hand)
    follower = NewRun(id=hand.id(), type=CHILD, parent=parent.id, parent_step="c")
    hand.complete(hand.take(child, types=(CHILD,)), starts=(follower,))
    assert hand.deliver() == 0
    assert (hand.status(parent.id), hand.step(parent.id, "c").child) == (Status.WAITING, follower.id)
    _end(hand, follower.id)
    assert hand.deliver() == 1
    assert decode(hand.step(parent.id, "c").output)["run"] == str(follower.id)
    hand.assert_replayed(parent.id)


@pytest.mark.spec("FLOW-21", "REW-3")
def test_a_started_child_that_goes_on_as_another_is_no_orphan(hand):
    """Nobody waits for it; the step names it all the same, and a rewind of a later step lets it be."""
    parent, child, follower = hand.held(), hand.id(), hand.id()
    hand.checkpoint(parent, call("c", child, CHILD, status=StepStatus.SUCCEEDED))
    hand.checkpoint(parent, call("later", hand.id(), CHILD, status=StepStatus.SUCCEEDED))
    started = {one.id: one for one in hand.claim(types=(CHILD,))}
    on = NewRun(id=follower, type=CHILD, parent=parent.id, parent_step="c")
    hand.complete(started[child], starts=(on,))
    assert hand.step(parent.id, "c").child == follower
    hand.rewind(parent.id, "later")
    assert hand.status(follower) is Status.PENDING


@pytest.mark.spec("REW-3", "FLOW-21")
def test_a_child_that_was_kept_does_not_take_its_successors_place_when_it_goes_on(hand):
    parent, (kept,) = _parent(hand)
    holder = hand.take(kept, types=(CHILD,))
    hand.rewind(parent.id, "c", children=False)
    new = hand.id()
    hand.park(hand.take(parent.id, types=(TYPE,)), call("c", new, CHILD), known=0)
    on = NewRun(id=hand.id(), type=CHILD, parent=parent.id, parent_step="c")
    hand.complete(holder, starts=(on,))
    assert (hand.deliver(), hand.step(parent.id, "c").child) == (0, new)


@pytest.mark.spec("FLOW-7")
def test_a_run_that_names_a_step_which_does_not_wait_is_no_answer_to_it(hand):
    """Only the run that the step waits for settles it."""
    parent, (child,) = _parent(hand)
    other = hand.start(CHILD, parent=parent.id)
    hand.cancel(other)
    assert (hand.deliver(), hand.step(parent.id, "c").child) == (0, child)
    stranger = hand.start(CHILD, parent=parent.id, parent_step="nowhere")
    hand.cancel(stranger)
    assert (hand.deliver(), hand.status(parent.id)) == (0, Status.WAITING)


@pytest.mark.spec("CANC-5", "MOVE-2")
@pytest.mark.parametrize("keep", [True, False])
def test_cancelling_a_parent_cancels_its_children_and_theirs_unless_told_otherwise(hand, keep):
    """Recorded in the parent's commit and carried out after it; ended ones stay as they are."""
    parent, (child, ended) = _parent(hand, "c", "d")
    _end(hand, ended)
    hand.deliver()
    grandchild = hand.id()
    holder = next(one for one in hand.claim(types=(CHILD,)) if one.id == child)
    hand.park(holder, call("g", grandchild, CHILD), known=0)
    by_itself = hand.start(CHILD)
    hand.cancel(parent.id, by="ann", children=not keep)
    expected = ["waiting", "pending"] if keep else ["cancelled", "cancelled"]
    assert _statuses(hand, child, grandchild) == expected
    assert _statuses(hand, parent.id, ended, by_itself) == ["cancelled", "succeeded", "pending"]
    assert hand.tick().total == 0
    for run in (parent.id, child, grandchild):
        hand.assert_replayed(run)


@pytest.mark.spec("CANC-5")
@pytest.mark.parametrize("parent_of", ["another tenant", "nobody"])
def test_a_commit_starts_no_child_of_a_run_that_is_not_its_kin(hand, parent_of):
    """Such a start is left alone, what else the item brings is written."""
    foreign = hand.start("shop.x.v1", tenant="acme") if parent_of == "another tenant" else hand.id()
    claim, child, own = hand.held(), hand.id(), hand.id()
    starts = (NewRun(id=child, type=CHILD, parent=foreign), NewRun(id=own, type=CHILD, parent=claim.id))
    assert hand.complete(claim, starts=starts).answer == "applied"
    assert (hand.get(child), hand.get(own).parent) == (None, claim.id)


@pytest.mark.spec("FLOW-21", "TTL-1")
@pytest.mark.parametrize("how", ["deleted", "purged"])
def test_a_child_whose_parent_is_gone_stays_and_may_go_on_as_another(hand, how):
    parent, (child,) = _parent(hand)
    hand.delete(parent.id)
    if how == "purged":
        assert hand.purge(deleted_seconds=0).runs == 1
    follower = NewRun(id=hand.id(), type=CHILD, parent=parent.id, parent_step="c")
    hand.complete(hand.take(child, types=(CHILD,)), starts=(follower,))
    hand.deliver()
    assert (hand.status(follower.id), hand.get(follower.id).parent) == (Status.PENDING, parent.id)


@pytest.mark.spec("CANC-5", "REW-3")
@pytest.mark.parametrize("how", ["cancel", "rewind"])
def test_nobody_cancels_the_runs_of_another_tenant(hand, how):
    """Though his run has the id that their purged parent had."""
    parent, (child,) = _parent(hand)
    hand.delete(parent.id)
    assert hand.purge(deleted_seconds=0).runs == 1
    claim = hand.held(id=parent.id, tenant="acme")
    hand.checkpoint(claim, call("own", hand.id(), CHILD, tenant="acme"))
    hand.cancel(claim.id) if how == "cancel" else hand.rewind(claim.id, "own")
    assert hand.status(child) is Status.PENDING
    assert (
        hand.status(hand.run(hand.store.list(RunFilter(parent=parent.id, tenant="acme")))[0].id)
        == "cancelled"
    )


@pytest.mark.spec("CANC-5")
def test_a_child_that_is_at_work_or_paused_is_cancelled_with_its_parent(hand):
    """Its holder is fenced off; also one that was started and is awaited by nobody."""
    parent, children = hand.held(), [hand.id() for _ in range(3)]
    hand.checkpoint(parent, *(call(key, child, CHILD) for key, child in zip("ab", children[:2], strict=True)))
    hand.checkpoint(parent, call("s", children[2], CHILD, StepStatus.SUCCEEDED))
    claims = {claim.id: claim for claim in hand.claim(types=(CHILD,))}
    hand.release(claims[children[1]])
    hand.pause(children[1])
    hand.cancel(parent.id)
    assert _statuses(hand, *children) == ["cancelled"] * 3
    assert hand.complete(claims[children[0]]).answer == "cancelled"


@pytest.mark.spec("CANC-5", "CANC-2")
def test_a_cancelled_parent_starts_no_further_child(hand):
    """What its worker writes later changes nothing."""
    parent, child = hand.held(), hand.id()
    hand.cancel(parent.id)
    assert hand.park(parent, call("c", child, CHILD)).answer == "cancelled"
    assert hand.get(child) is None


@pytest.mark.spec("REW-3")
@pytest.mark.parametrize("keep", [True, False])
def test_the_children_of_forgotten_steps_are_cancelled_and_started_anew(hand, keep):
    """Unless kept; those of earlier steps stay. The step starts another run, under another id."""
    parent, children = hand.held(), [hand.id() for _ in range(3)]
    for key, child in zip("abc", children[:2], strict=False):
        hand.checkpoint(parent, call(key, child, CHILD), done(f"after {key}"), known=0)
    hand.rewind(parent.id, "b", children=not keep)
    assert _statuses(hand, *children[:2]) == ["pending", "pending" if keep else "cancelled"]
    again = hand.take(parent.id)
    hand.park(again, call("b", children[2], CHILD), known=9)
    assert hand.step(parent.id, "b").child == children[2]
    if keep:
        _end(hand, children[1])
    hand.deliver()
    assert (hand.status(parent.id), hand.step(parent.id, "b").status) == ("waiting", "waiting")
    hand.assert_replayed(parent.id)


@pytest.mark.spec("REW-2", "REW-3")
def test_open_children_of_the_steps_that_a_retry_forgets_are_cancelled(hand):
    """The step that failed the run, and those that its end had cancelled."""
    parent, (failed, other) = hand.held(), (hand.id(), hand.id())
    hand.checkpoint(parent, call("f", failed, CHILD), call("o", other, CHILD), known=0)
    _end(hand, failed, "failed")
    hand.deliver()
    hand.fail(parent, step="f", kind="child_failed")
    assert hand.status(other) is Status.PENDING
    hand.retry_run(parent.id)
    assert _statuses(hand, parent.id, failed, other) == ["pending", "failed", "cancelled"]
    assert hand.steps(parent.id) == []
    hand.assert_replayed(parent.id)


@pytest.mark.spec("TTL-1")
def test_a_child_is_not_purged_while_its_parent_waits_for_it(hand):
    """However long ago it ended, while the parent has not been told; those that are read may go."""
    parent, (told, untold) = _parent(hand, "a", "b")
    _end(hand, told)
    hand.deliver()
    _end(hand, untold)
    hand.clock.turn(TTL_SECONDS)
    assert (hand.purge().runs, hand.purge().runs) == (1, 0)
    assert (hand.get(told) is None, hand.status(untold)) == (True, Status.SUCCEEDED)
    hand.deliver()
    assert decode(hand.step(parent.id, "b").output)["result"] == {"n": 7}
    assert (hand.purge().runs, hand.get(untold)) == (1, None)
    assert hand.status(parent.id) is Status.PENDING


@pytest.mark.spec("FLOW-7", "MOVE-4")
def test_a_thousand_children_are_started_and_awaited_in_one_commit(hand):
    """And their ends wake the parent once, in slices or not."""
    keys = [f"c{number}" for number in range(1000)]
    parent, children = _parent(hand, *keys)
    assert hand.stats().by_status[Status.PENDING] == 1000
    claims = hand.claim(limit=1000, types=(CHILD,))
    assert {claim.id for claim in claims} == set(children)
    hand.send(*(hand.item(claim, Move.COMPLETE, result="1") for claim in claims))
    hand.deliver(limit=100)
    steps = hand.steps(parent.id)
    assert {step.status for step in steps} == {StepStatus.SUCCEEDED}
    assert (len(steps), hand.status(parent.id)) == (1000, Status.PENDING)
    assert hand.cancel(parent.id).status is Status.CANCELLED
