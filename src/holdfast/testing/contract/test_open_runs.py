"""Open runs of an API key: a limit that holds however many callers start runs at once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import (
    Conflict,
    DuplicateRun,
    HoldfastError,
    TooManyRuns,
    Unavailable,
    UnknownRun,
    UsageError,
)
from holdfast.lifecycle import Move
from holdfast.records import NewRun, Started

from .chains import go_on
from .driver import TYPE, call, gate, task
from .keys import ID, OTHER_ID
from .schedules import fire, made, shot


def counted(driver, most=2, api_key=ID, **fields):
    return NewRun(**{"id": driver.id(), "type": TYPE, "api_key": api_key, "open_runs_max": most, **fields})


def start(driver, most=2, **fields):
    return driver.start_many([counted(driver, most, **fields)])[0]


def is_full(answer):
    return isinstance(answer, TooManyRuns)


@pytest.mark.spec("TEN-3")
def test_a_key_starts_no_more_runs_than_may_be_open(driver):
    """The answer names key and limit; nothing is written. Other keys, and starts without one, go on."""
    first, second = start(driver), start(driver)
    before = driver.everything()
    refused = counted(driver)
    (answer,) = driver.start_many([refused])
    assert is_full(answer)
    assert isinstance(answer, Conflict)
    assert (answer.key_id, answer.limit) == (ID, 2)
    assert (driver.everything(), driver.get(refused.id)) == (before, None)
    assert start(driver, 3).created
    assert is_full(start(driver, 3))
    assert start(driver, api_key=OTHER_ID).created
    assert start(driver, None).created
    assert driver.start()
    assert first.created
    assert second.created


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_run_counts_until_it_has_ended(driver, end):
    """Leased, waiting, paused and deleted runs are open."""
    run = start(driver, 1).id
    claim = driver.take(run)
    assert is_full(start(driver, 1))
    driver.pause(run)
    driver.release(claim)
    assert is_full(start(driver, 1))
    driver.delete(run)
    assert is_full(start(driver, 1))
    driver.restore(run)
    driver.resume(run)
    claim = driver.take(run)
    driver.cancel(run) if end == "cancel" else getattr(driver, end)(claim)
    assert start(driver, 1).created


@pytest.mark.spec("TEN-3")
def test_a_run_that_is_retried_counts_again(driver):
    run = start(driver, 1).id
    driver.fail(driver.take(run))
    driver.retry_run(run)
    assert is_full(start(driver, 1))


@pytest.mark.spec("TEN-3", "START-4")
def test_a_repeat_returns_the_run_that_is_there(driver):
    """Key and id are checked before the limit."""
    run = start(driver, 1, key="k", digest="d")
    assert start(driver, 1, key="k", digest="d") == Started(run.id, created=False)
    assert isinstance(start(driver, 1, id=run.id), DuplicateRun)
    assert isinstance(start(driver, 2, id=run.id), DuplicateRun)
    assert isinstance(start(driver, 1, parent=driver.id()), UnknownRun)
    assert start(driver, 2).created


def new_ones(driver, *keys, most=3, **fields):
    return [counted(driver, most, key, **fields) for key in keys]


@pytest.mark.spec("TEN-3", "START-5")
def test_the_limit_holds_inside_one_call(driver):
    """Each item is answered on its own, in order; runs without a limit count too."""
    start(driver, None)
    runs = new_ones(driver, ID, OTHER_ID, ID, ID, OTHER_ID)
    runs.insert(2, NewRun(id=driver.id(), type=TYPE))
    runs.append(counted(driver, None))
    answers = driver.start_many(runs)
    assert [is_full(answer) for answer in answers] == [False] * 4 + [True, False, False]
    assert is_full(start(driver, 4))
    assert start(driver, 5).created
    assert [driver.get(run.id) is None for run in runs] == [False] * 4 + [True, False, False]


@pytest.mark.spec("TEN-3", "START-5")
def test_a_conflict_in_a_call_takes_no_place(driver):
    first = start(driver, 3, key="k", digest="d").id
    runs = [
        counted(driver, 3, id=first),
        counted(driver, 3, key="k", digest="d"),
        *new_ones(driver, ID, ID, ID),
    ]
    answers = driver.start_many(runs)
    assert isinstance(answers[0], DuplicateRun)
    assert answers[1] == Started(first, created=False)
    assert [is_full(answer) for answer in answers[2:]] == [False, False, True]


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("batch", [1, 4])
def test_the_limit_holds_for_callers_at_once(driver, batch):
    """Each caller sends again what another one's transaction held up."""

    async def started(runs):
        answers = await driver.store.start(runs)
        while busy := [n for n, answer in enumerate(answers) if isinstance(answer, Unavailable)]:
            for n in busy:
                (answers[n],) = await driver.store.start([runs[n]])
        return answers

    async def at_once():
        calls = [new_ones(driver, *[ID] * batch, most=5) for _ in range(24 // batch)]
        return await asyncio.gather(*map(started, calls))

    answers = [answer for answers in driver.run(at_once()) for answer in answers]
    assert sum(isinstance(answer, Started) for answer in answers) == 5
    assert sum(map(is_full, answers)) == 19


@pytest.mark.spec("TEN-3", "FLOW-24")
def test_a_chain_counts_as_one_run(driver):
    """The next run takes the place of the run before."""
    claim = driver.take(start(driver, 1).id)
    run = go_on(driver, claim)
    assert is_full(start(driver, 1))
    last = go_on(driver, driver.take(run))
    assert is_full(start(driver, 1))
    assert start(driver, 2).created
    assert is_full(start(driver, 2))
    driver.cancel(last)
    assert start(driver, 2).created


@pytest.mark.spec("TEN-3")
def test_children_do_not_count(driver):
    claim = driver.take(start(driver, 2).id)
    driver.checkpoint(claim, call("c", driver.id()))
    assert start(driver, 2).created
    assert is_full(start(driver, 2))


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("steps", [(task("A"),), (gate("G"), task("A"))], ids=["task", "gate"])
def test_plans_count_too(driver, steps):
    driver.publish(*steps)
    assert start(driver, 1, by="eve").created
    assert is_full(start(driver, 1))


@pytest.mark.spec("TEN-3")
def test_only_a_start_counts(driver):
    """A commit and a schedule cannot name an API key."""
    claim = driver.held()
    for item in (
        driver.item(claim, Move.COMPLETE, starts=(counted(driver),)),
        driver.item(claim, Move.CHECKPOINT, call("c", driver.id(), api_key=ID)),
    ):
        with pytest.raises(UsageError, match="only a run of `start` counts under an API key"):
            driver.send(item)
    schedule = made(driver)
    at = driver.clock.now
    with pytest.raises(UsageError, match="only a run of `start`"):
        fire(driver, schedule, type(shot(driver, schedule, at))(at, counted(driver)))


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize(
    "wrong",
    [{"api_key": None}, {"api_key": "x"}, {"open_runs_max": 0}, {"open_runs_max": 10_001}, {"by": "a\0"}],
    ids=str,
)
def test_bad_limits_of_a_start_are_refused(driver, wrong):
    fields = {"id": driver.id(), "type": TYPE, "api_key": ID, "open_runs_max": 1, **wrong}
    good = NewRun(id=driver.id(), type=TYPE)
    answers = driver.start_many([NewRun(**fields), good])
    assert isinstance(answers[0], UsageError)
    assert isinstance(answers[0], HoldfastError)
    assert answers[1] == Started(good.id, created=True)


@pytest.mark.spec("TRAIL-1")
@pytest.mark.parametrize("plan", [False, True])
def test_the_trail_says_who_has_started_a_run(driver, plan):
    """Alone, in a batch, with a parent, under an API key."""
    if plan:
        driver.publish("A")
    steps = {"steps": ["A"]} if plan else {}
    who = 'eve "é"'
    first = driver.start(by=who)
    runs = [NewRun(id=driver.id(), type=TYPE, by=who, **more) for more in ({}, {"parent": first})]
    runs.append(counted(driver, by=who))
    driver.start_many([*runs, NewRun(id=driver.id(), type=TYPE)])
    for run in (first, *(run.id for run in runs)):
        assert driver.last(run, "created") == {"type": TYPE, **steps, "by": who}
    repeated = driver.start(origin=first, by=who)
    assert driver.last(repeated, "created") == {"type": TYPE, **steps, "origin": str(first), "by": who}
