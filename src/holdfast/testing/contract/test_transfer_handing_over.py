"""Runs that have left: which copy goes on, how long the source keeps them, and which runs leave together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from .chains import purge_all
from .test_transfer_moving import back, departures, leave, left, went_on
from .transfers import carry, memory, runs, write


@pytest.mark.spec("STORE-6")
def test_a_run_that_has_left_is_kept_until_the_source_knows_that_it_goes_on(driver):
    there = memory(driver)
    ended = driver.held(ttl_seconds=60.0)
    driver.complete(ended)
    sleeping = driver.start()
    ids = [sleeping, ended.id]
    leave(driver, *ids)
    carry(driver, there)
    assert went_on(driver, *ids) == ["refused", "refused"]
    assert left(driver, *ids) == ["left", "left"]
    driver.clock.turn(365 * 86400)
    assert driver.purge(ttl_seconds=0.0).runs == 0
    assert [one.answer for one in driver.run(driver.store.leave(ids, "elsewhere"))] == ["left", "left"]
    early = [(run, number - 1) for run, number in departures(driver, *ids)]
    assert {one.answer for one in driver.run(driver.store.went_on(early))} == {"refused"}
    assert went_on(driver, *ids) == went_on(driver, *ids) == ["went_on", "went_on"]
    assert driver.told(sleeping).count("went_on") == 1
    again = driver.run(driver.store.leave(ids, "elsewhere"))
    assert [(one.answer, one.to) for one in again] == [("went_on", "elsewhere")] * 2
    assert left(driver, *ids) == ["went_on", "went_on"]
    assert back(driver, *ids) == ["refused", "refused"]
    assert purge_all(driver) == 2


@pytest.mark.spec("STORE-6")
def test_only_the_copy_that_the_source_has_recorded_goes_on(driver):
    source, there = memory(driver), memory(driver)
    for home, target in ((source, driver), (driver, there)):
        run = home.held(ttl_seconds=60.0).id
        (leaving,) = leave(home, run)
        departure = [(run, leaving.departure)]
        (part,) = carry(home, target, [run])
        first = {run: target.get(run).fence}
        for copies in (first, {run: first[run] + 7}, {}):
            (said,) = home.run(home.store.left(departure, copies=copies))
            assert (said.answer, said.copy) == ("left", first[run])
        (again,) = home.run(home.store.leave([run], "elsewhere"))
        assert (again.answer, again.copy) == ("left", first[run])
        (refused,) = target.run(target.store.arrive(departure, copies={run: first[run] + 1}))
        assert (refused.answer, refused.reason) == (
            "refused", "it is another copy than the one that goes on")  # fmt: skip
        assert target.run(target.store.arrive(departure, copies=first))[0].answer == "here"
        target.complete(target.take(run))
        target.clock.turn(3600)
        assert target.purge().runs == 1
        (late,) = write(target, [part])
        assert late.answer == "imported"
        second = {run: target.get(run).fence}
        assert second[run] > first[run]
        assert target.run(target.store.arrive(departure, copies=first))[0].answer == "refused"
        assert target.run(target.store.drop_arrived(departure, copies=first))[0].answer == "refused"
        assert target.run(target.store.drop_arrived(departure, copies=second))[0].answer == "dropped"
        assert target.claim(10) == []
        assert target.purge().runs == 1


@pytest.mark.spec("STORE-6")
def test_runs_behind_one_that_is_busy_are_not_stopped(driver):
    source = memory(driver)
    claim = source.held()
    source.complete(claim)
    first = claim.id
    (part,) = runs(source, [first])
    # A debt of an ended run that nobody has carried out yet: to cancel its children.
    write(driver, [replace(part, row=replace(part.row, owes=2))])
    other = driver.start()
    answers = driver.run(driver.store.leave([first, other], "elsewhere"))
    assert [one.answer for one in answers] == ["busy", "busy"]
    assert driver.status(other) == "pending"
    driver.deliver()
    answers = driver.run(driver.store.leave([first, other], "elsewhere"))
    assert [one.answer for one in answers] == ["leaving", "leaving"]
