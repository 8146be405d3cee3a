"""Running steps: the steps that a worker executes now are shown, and no others."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.contract import RUNNING_BYTES, RUNNING_MAX
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, Running, RunningStep, moment

from .driver import backing_off, broken, done, listen


def step(driver, name="charge", attempt=1):
    return RunningStep(step=name, attempt=attempt, started_at=moment(driver.clock.now))


@pytest.mark.spec("LEASE-20")
def test_a_step_is_shown_with_its_try_and_its_start_while_it_runs(driver):
    """`get` has it; a list has it not."""
    claim = driver.held()
    driver.clock.turn(1)
    assert driver.get(claim.id).running == ()
    began = driver.clock.now
    assert driver.show_running(claim, ("charge", 2), ("bill[1]", 1))
    driver.clock.turn(5)
    assert driver.get(claim.id).running == (
        RunningStep(step="charge", attempt=2, started_at=moment(began)),
        RunningStep(step="bill[1]", attempt=1, started_at=moment(began)),
    )
    driver.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-20")
@pytest.mark.parametrize("record", [done, broken])
def test_a_recorded_step_is_not_shown_as_running(driver, record):
    """The others of the same run are."""
    claim = driver.held()
    driver.show_running(claim, ("charge", 1), ("bill", 1))
    driver.checkpoint(claim, record("charge"))
    assert driver.running(claim.id) == [("bill", 1)]


@pytest.mark.spec("LEASE-20")
def test_a_step_that_is_retried_is_shown_with_its_present_try_only(driver):
    """Between two tries nothing runs."""
    claim = driver.held()
    driver.show_running(claim, ("charge", 1))
    failed = backing_off("charge", attempts=1, due_at=driver.clock.now)
    assert driver.retry(claim, failed, delay=0.0, in_place=True, refund=True).status is Status.LEASED
    assert driver.running(claim.id) == []
    driver.show_running(claim, ("charge", 2))
    assert driver.running(claim.id) == [("charge", 2)]
    driver.checkpoint(claim, done("charge", attempts=2))
    assert driver.running(claim.id) == []


@pytest.mark.spec("LEASE-20")
def test_the_current_task_of_a_plan_is_shown_until_it_has_succeeded(driver):
    """Its row exists before it is executed."""
    claim = driver.begun("A", "B")
    driver.show_running(claim, ("A", 1))
    assert driver.running(claim.id) == [("A", 1)]
    driver.advance(claim, "A", in_place=True)
    assert driver.running(claim.id) == []
    driver.show_running(claim, ("B", 1))
    assert driver.running(claim.id) == [("B", 1)]


@pytest.mark.spec("LEASE-20", "LEASE-4")
def test_nothing_is_shown_once_the_run_is_no_longer_leased_to_that_holder(driver):
    """However it was let go, and also when another worker has it."""
    for let_go in (driver.complete, driver.fail, driver.retry, driver.park, driver.release):
        claim = driver.held()
        driver.show_running(claim, ("charge", 1))
        let_go(claim)
        assert driver.running(claim.id) == []
    claim = driver.take(claim.id)
    driver.show_running(claim, ("charge", 1))
    driver.clock.turn(31)
    driver.tick()
    again = driver.take(claim.id, worker="w2")
    assert driver.running(claim.id) == []
    assert not driver.show_running(claim, ("old", 1))
    assert driver.running(claim.id) == []
    assert driver.show_running(again, ("new", 1), worker="w2")
    assert not driver.show_running(claim, ("old", 1))
    assert driver.running(claim.id) == [("new", 1)]


@pytest.mark.spec("LEASE-20", "LEASE-4")
def test_without_the_lease_nothing_is_written(driver):
    """An old fence, an expired lease, a cancelled run, an unknown run: not even `started`."""
    claim = driver.held()
    before = driver.snapshot(claim.id)
    assert not driver.show_running(claim, ("charge", 1), fence=claim.fence + 1, started_at=driver.clock.now)
    driver.clock.turn(30.000001)
    assert not driver.show_running(claim, ("charge", 1), started_at=driver.clock.now)
    assert driver.snapshot(claim.id) == before
    gone = driver.held()
    driver.cancel(gone.id)
    assert not driver.show_running(gone, ("charge", 1))
    unknown = msgspec.structs.replace(claim, id=driver.id())
    assert not driver.show_running(unknown, ("charge", 1))


@pytest.mark.spec("LEASE-20")
def test_each_row_is_answered_in_order_and_on_its_own(driver):
    """One row that is refused does not touch the others."""
    held = [driver.held() for _ in range(4)]
    driver.cancel(held[1].id)
    rows = [
        Running(run=one.id, fence=one.fence, steps=(step(driver, f"s{n}"),)) for n, one in enumerate(held)
    ]
    assert driver.run(driver.store.show_running("w1", rows)) == [True, False, True, True]
    assert driver.run(driver.store.show_running("w1", rows)) == [True, False, True, True]
    assert driver.run(driver.store.show_running("w1", [])) == []
    assert [driver.running(one.id) for one in held] == [[("s0", 1)], [], [("s2", 1)], [("s3", 1)]]


@pytest.mark.spec("LEASE-20", "TRAIL-1")
def test_the_first_write_of_an_execution_says_when_it_began(driver):
    """`started` is written once, whichever write comes first; the lease is not renewed."""
    claim = driver.held()
    began, until = driver.clock.now, driver.get(claim.id).lease_until
    driver.clock.turn(2)
    for _ in range(2):
        assert driver.show_running(claim, ("charge", 1), started_at=began)
    driver.renew(claim)
    driver.checkpoint(claim, started_at=began)
    assert driver.told(claim.id).count("started") == 1
    assert driver.last(claim.id, "started") == {"at": began}
    assert driver.get(claim.id).started_at == moment(began)
    assert until < moment(driver.clock.now) + timedelta(seconds=30)
    driver.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-20")
def test_running_steps_go_with_their_run(driver):
    """A run of the same id, started after the purge, shows nothing of them."""
    claim = driver.held()
    driver.show_running(claim, ("charge", 1))
    driver.complete(claim)
    driver.clock.turn(31 * 86400)
    driver.purge()
    assert driver.get(claim.id) is None
    driver.start(id=claim.id)
    driver.take(claim.id)
    assert driver.running(claim.id) == []


@pytest.mark.spec("LEASE-20", "TEN-5")
def test_running_steps_are_shown_to_the_tenant_of_the_run_alone(driver):
    claim = driver.held(tenant="acme")
    driver.show_running(claim, ("charge", 1))
    told = [driver.run(driver.store.get(claim.id, tenant)) for tenant in (ANY, "acme", "beta")]
    assert [None if one is None else len(one.running) for one in told] == [1, 1, None]


@pytest.mark.spec("LEASE-20")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: (),
        lambda one: (one,) * (RUNNING_MAX + 1),
        lambda one: tuple(msgspec.structs.replace(one, step="s" * 600) for _ in range(RUNNING_BYTES // 500)),
        lambda one: (msgspec.structs.replace(one, step="s" * 701),),
        lambda one: (msgspec.structs.replace(one, step=""),),
        lambda one: (msgspec.structs.replace(one, step="a\x00b"),),
        lambda one: (msgspec.structs.replace(one, attempt=0),),
        lambda one: (msgspec.structs.replace(one, attempt=1 << 40),),
        lambda one: (msgspec.structs.replace(one, started_at=one.started_at.replace(tzinfo=None)),),
    ],
    ids=["none", "too many", "too long together", "too long", "empty", "nul", "zeroth", "huge", "naive"],
)
def test_running_steps_have_bounds(driver, wrong):
    """Every store refuses the same ones, and nothing is written."""
    claim = driver.held()
    row = Running(run=claim.id, fence=claim.fence, steps=wrong(step(driver)))
    with pytest.raises(UsageError):
        driver.run(driver.store.show_running("w1", [row]))
    assert driver.running(claim.id) == []


def test_a_run_is_named_once(driver):
    claim = driver.held()
    row = Running(run=claim.id, fence=claim.fence, steps=(step(driver),))
    with pytest.raises(UsageError, match="one row"):
        driver.run(driver.store.show_running("w1", [row, row]))


@pytest.mark.spec("LEASE-20")
def test_names_of_any_language_are_shown_as_they_are(driver):
    claim = driver.held()
    name = 'größe "x"\\ 数 🐍'
    driver.show_running(claim, (name, 1))
    assert driver.running(claim.id) == [(name, 1)]
    driver.checkpoint(claim, done(name))
    assert driver.running(claim.id) == []


@pytest.mark.spec("CANC-6")
def test_the_states_of_leases_are_read_in_order(driver):
    """Applied, with a pause that is asked for; cancelled; lost. Nothing changes by it."""
    fine, paused, gone, rewound, hidden, over, parked = (driver.held() for _ in range(7))
    driver.pause(paused.id)
    driver.cancel(gone.id)
    driver.rewind(rewound.id, None)
    driver.delete(hidden.id)
    driver.complete(over)
    driver.park(parked, listen())
    unknown = msgspec.structs.replace(fine, id=driver.id())
    old = msgspec.structs.replace(fine, fence=fine.fence - 1)
    before = driver.snapshot(fine.id)
    asked = (fine, paused, gone, rewound, hidden, over, parked, unknown, old)
    answers = driver.lease_states(*asked)
    assert [(one.answer, one.pause_asked) for one in answers] == [
        ("applied", False), ("applied", True), ("cancelled", False), *[("lost", False)] * 6,
    ]  # fmt: skip
    assert driver.snapshot(fine.id) == before
    driver.clock.turn(30)
    assert driver.lease_states(fine)[0].answer == "applied"
    driver.clock.turn(0.000001)
    assert driver.lease_states(fine)[0].answer == "lost"
    assert driver.lease_states() == []


MOVES = {
    "cancel": lambda driver, claim: driver.cancel(claim.id),
    "pause": lambda driver, claim: driver.pause(claim.id),
    "rewind": lambda driver, claim: driver.rewind(claim.id, None),
    "delete": lambda driver, claim: driver.delete(claim.id),
    "time out": lambda driver, _: (driver.clock.turn(21), driver.tick()),
}


def calls_of(driver, act):
    """Return how often listeners were called for their leases, and for other news, while `act` ran."""
    import asyncio

    calls, hints = [], []

    async def listening():
        return driver.store.listen(lambda: hints.append(1), lambda: calls.append(1))

    end = driver.run(listening())
    driver.run(asyncio.sleep(0.1))
    calls.clear()
    hints.clear()
    act()
    for _ in range(100):
        driver.run(asyncio.sleep(0.01))
        if calls:
            break
    end()
    return len(calls), len(hints)


@pytest.mark.spec("CANC-6")
@pytest.mark.parametrize("move", MOVES)
def test_a_move_of_a_leased_run_calls_those_who_hold_leases(driver, move):
    """The hint says that there may be such a move: workers then read the states of their leases."""
    claim = driver.held(timeout_seconds=20.0)
    calls, hints = calls_of(driver, lambda: MOVES[move](driver, claim))
    assert calls > 0
    assert hints > 0
    state = driver.lease_states(claim)[0]
    assert state.answer != "applied" or state.pause_asked


@pytest.mark.spec("CANC-6")
def test_the_children_of_a_cancelled_parent_call_their_holders_too(driver):
    """The cancel of the parent is carried out on them right after it."""
    from .driver import call

    parent, run = driver.held(), driver.id()
    driver.park(parent, call("c", run))
    child = driver.take(run)
    calls, _ = calls_of(driver, lambda: driver.cancel(parent.id))
    assert calls > 0
    assert driver.status(child.id) is Status.CANCELLED


@pytest.mark.spec("CANC-6")
def test_other_news_do_not_call_those_who_hold_leases(driver):
    """A worker would read its leases after every commit of anybody."""
    claim, other = driver.held(), driver.start()

    def busy():
        driver.start()
        driver.checkpoint(claim)
        driver.pause(other)
        driver.cancel(other)
        driver.complete(claim)

    calls, hints = calls_of(driver, busy)
    assert calls == 0
    assert hints > 0
