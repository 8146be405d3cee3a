"""Runs that move: they stop at the source, and go on at one of the two stores, never at both."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY, Relayed, RunFilter
from holdfast.records.transfer import digest_of

from .chains import payloads
from .driver import ask, call, done, listen, sleep
from .lives import LIVES
from .outbox import answered, ids, message, outbox, relay, sent_by
from .transfers import carry, emitted, memory, plain, runs, write

NOTES = {"imported", "leaving", "left", "went_on", "returned", "arrived"}


def every(driver):
    """Return the ids of all runs."""
    return driver.run(driver.store.run_ids())


def leave(driver, *runs):
    """Let runs leave; carry out first what they owe to others."""
    driver.deliver()
    answers = driver.run(driver.store.leave(runs or every(driver), "elsewhere"))
    assert {one.answer for one in answers} == {"leaving"}, answers
    return answers


def departures(driver, *ids):
    """Return runs, all if none is given, with the numbers of their last departures."""
    ids = ids or every(driver)
    found = {
        part.id: [note.data for note in part.notes if note.type == "leaving"] for part in runs(driver, ids)
    }
    return [(run, json.loads(found[run][-1])["departure"] if found.get(run) else 0) for run in ids]


def left(driver, *runs):
    return [one.answer for one in driver.run(driver.store.left(departures(driver, *runs)))]


def back(driver, *runs):
    return [one.answer for one in driver.run(driver.store.come_back(departures(driver, *runs)))]


def went_on(driver, *runs):
    return [one.answer for one in driver.run(driver.store.went_on(departures(driver, *runs)))]


def arrive(driver, *runs):
    return [one.answer for one in driver.run(driver.store.arrive(departures(driver, *runs)))]


def as_before(parts):
    """Return runs without what a move adds to them."""
    return [
        replace(part, notes=tuple(note for note in part.notes if note.type not in NOTES))
        for part in plain(parts)
    ]


def at_rest(driver):
    """Return all runs as they are while nobody executes them: a lease is taken for given back now."""
    driver.deliver()
    return [
        replace(part, row=replace(part.row, run_at=0)) if part.id in _leased(driver) else part
        for part in as_before(runs(driver))
    ]


def _leased(driver):
    listed = driver.run(driver.store.list(RunFilter(statuses=(Status.LEASED,), tenant=ANY), 1000))
    return {run.id for run in listed}


def unleased(parts, leased):
    return [replace(one, row=replace(one.row, run_at=0)) if one.id in leased else one for one in parts]


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("life", LIVES)
def test_a_run_that_leaves_and_comes_back_is_as_it_was(driver, life):
    LIVES[life](driver)
    before, leased = at_rest(driver), _leased(driver)
    happened = driver.counts().totals, driver.rates()
    leave(driver)
    assert driver.claim(1000) == []
    assert (driver.counts().totals, driver.rates()) == happened, "nobody has cancelled it"
    assert not [one for one, number in driver.stats().by_status.items() if number and one not in FINAL]
    assert driver.recount() == []
    assert set(back(driver)) <= {"here"}
    assert unleased(as_before(runs(driver)), leased) == before
    assert driver.recount() == []
    for part in before:
        if part.row.deleted_at is None:
            driver.assert_replayed(part.id)


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("life", LIVES)
def test_a_run_that_moves_here_is_as_it_was(driver, life):
    source = memory(driver)
    LIVES[life](source)
    before, leased = at_rest(source), _leased(source)
    leave(source)
    carry(source, driver)
    assert driver.claim(1000) == []
    assert set(left(source)) <= {"left"}
    assert set(arrive(driver)) <= {"here"}
    assert unleased(as_before(runs(driver)), leased) == before
    assert driver.recount() == []
    for part in before:
        if part.row.deleted_at is None:
            driver.assert_replayed(part.id)


@pytest.mark.spec("STORE-6")
def test_only_one_of_the_two_stores_lets_it_go_on(driver):
    claim = driver.held(key="k", digest="d")
    driver.checkpoint(claim)
    there = memory(driver)
    run = claim.id
    leave(driver, run)
    assert driver.checkpoint(claim, done("late")).answer == "cancelled"
    carry(driver, there)
    assert arrive(driver, run) == back(there, run) == left(there, run) == ["refused"]
    assert left(driver, run) == left(driver, run) == ["left"]
    assert back(driver, run) == arrive(driver, run) == ["refused"]
    assert driver.start(key="k", digest="d") == run
    assert driver.get(run).status == "cancelled"
    assert driver.get(run).error.kind == "moved"
    assert arrive(there, run) == arrive(there, run) == ["here"]
    assert [step.key for step in there.take(run).steps] == ["first"]
    driver.clock.turn(86400)
    assert driver.purge().runs == 0
    assert driver.run(driver.store.leave([run], "x"))[0].answer == "left"


@pytest.mark.spec("STORE-6")
def test_a_run_that_moves_refuses_every_move_and_says_where_it_is(driver):
    """Nobody may take a run for cancelled that goes on at the other store."""
    there = memory(driver)
    run = driver.start()
    leave(driver, run)
    carry(driver, there)
    for store in (driver, there):
        for verb in (store.cancel, store.pause, store.resume):
            with pytest.raises(IllegalMove, match="it moves to elsewhere: do that where it goes on"):
                verb(run)
        with pytest.raises(IllegalMove, match="it moves to elsewhere: do that where it goes on"):
            store.rewind(run, None)
        with pytest.raises(IllegalMove, match=r"cannot reprioritize .* it moves to elsewhere"):
            store.set_priority(run, 3)
    assert back(driver, run) == ["here"]
    driver.cancel(run)
    assert driver.get(run).error is None


@pytest.mark.spec("STORE-6")
def test_a_message_whose_run_moves_is_not_resent_here(driver):
    claim = sent_by(driver, message("m1"), message("m2"))
    answered(driver, relay(driver, limit=1)[0])
    leave(driver, claim.id)
    with pytest.raises(Conflict, match="message m2 moves to another store with its run: that store sends it"):
        driver.run(driver.store.resend("m2", ANY))
    assert driver.run(driver.store.resend("m1", ANY)).status == "pending"  # it had been sent before
    assert back(driver, claim.id) == ["here"]
    assert driver.run(driver.store.resend("m2", ANY)).status == "pending"


@pytest.mark.spec("STORE-6")
def test_a_file_that_was_edited_frees_no_message_of_another_run(driver):
    source = memory(driver)
    sent_by(driver, message("m1"))
    answered(driver, relay(driver)[0], "dead", error='{"kind":"x","message":"no"}')
    assert [one.status for one in outbox(driver)] == ["dead"]
    run = source.start(tenant="acme")
    leave(source, run)
    (part,) = runs(source, [run])
    notes = [replace(one, data=one.data.replace('"messages":[]', '"messages":["m1"]')) for one in part.notes]
    assert "m1" in notes[-1].data
    edited = replace(part, notes=tuple(notes))
    assert [one.answer for one in write(driver, [replace(edited, digest=digest_of(edited))])] == ["imported"]
    assert arrive(driver, run) == ["here"]
    assert [one.status for one in outbox(driver)] == ["dead"]


@pytest.mark.spec("STORE-6")
def test_an_ended_run_that_has_left_is_not_begun_again(driver):
    claim = driver.held()
    driver.fail(claim)
    leave(driver, claim.id)
    with pytest.raises(IllegalMove, match="another store"):
        driver.rewind(claim.id, None)
    with pytest.raises(IllegalMove, match="another store"):
        driver.retry_run(claim.id)
    assert driver.status(claim.id) == "failed"
    assert back(driver, claim.id) == ["here"]
    driver.retry_run(claim.id)
    assert driver.status(claim.id) == "pending"


@pytest.mark.spec("STORE-6")
def test_nothing_reaches_a_run_on_its_way_and_it_finds_all_when_it_goes_on(driver):
    claim = driver.held(timeout_seconds=600.0)
    driver.park(claim, listen(), sleep("nap", seconds=3000.0))
    leave(driver, claim.id)
    event = emitted(driver)
    driver.clock.turn(601)
    driver.tick()
    assert driver.told(claim.id)[-1] == "leaving"
    assert back(driver, claim.id) == ["here"]
    driver.deliver()
    assert driver.status(claim.id) == "pending"
    assert payloads(driver, claim.id) == [event]
    driver.tick()
    assert driver.status(claim.id) == "failed"


@pytest.mark.spec("STORE-6")
def test_who_sends_something_to_a_run_that_moves_is_told_where_it_goes(driver):
    claim = driver.held()
    driver.park(claim, listen(), ask("gate"))
    run, there = claim.id, "it is cancelled; it moves to elsewhere: send it there"
    leave(driver, run)
    for settle in (lambda: None, lambda: left(driver, run), lambda: went_on(driver, run)):
        settle()
        with pytest.raises(IllegalMove, match=f"cannot emit run {run}: {there}"):
            emitted(driver, run=run)
        with pytest.raises(IllegalMove, match=f"cannot approve run {run}: {there}"):
            driver.approve(run, "gate")


@pytest.mark.spec("STORE-6")
def test_messages_wait_on_the_way_and_are_sent_where_the_run_goes_on(driver):
    source = memory(driver)
    for at, other in ((driver, None), (source, driver)):
        claim = sent_by(at, message("a", key="k"), message("b", key="k"), message("c"))
        relay(at, limit=1)
        leave(at, claim.id)
        assert {one.status for one in outbox(at)} == {"dead"}
        if other is not None:
            carry(at, other, [claim.id])
            assert ids(relay(other)) == []
            assert arrive(other, claim.id) == ["here"]
        else:
            assert back(at, claim.id) == ["here"]
        assert sorted(ids(relay(other or at))) == ["a", "c"]
        at.clock.turn(120)
        for one in every(driver):
            driver.delete(one)
        driver.clock.turn(8 * 86400)
        _sent_all(driver)
        assert driver.purge().runs == 1


def _sent_all(driver):
    while found := relay(driver):
        driver.run(
            driver.store.relayed([Relayed(id=one.id, fence=one.fence, answer="sent") for one in found])
        )


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("comes", ["here", "back"])
def test_a_family_goes_on_together_also_when_the_child_ends_first(driver, comes):
    source = memory(driver) if comes == "here" else driver
    parent, kid = source.held(), source.id()
    source.park(parent, call("kid", kid))
    leave(source, parent.id, kid)
    source.deliver()
    go_on = back
    if comes == "here":
        carry(source, driver)
        driver.deliver()
        assert left(source, parent.id, kid) == ["left", "left"]
        go_on = arrive
    assert go_on(driver, kid) == ["here"]
    driver.complete(driver.take(kid), result='"of the child"')
    driver.deliver()
    assert driver.get(parent.id).status == "cancelled"
    assert go_on(driver, parent.id) == ["here"]
    driver.deliver()
    assert '"of the child"' in driver.take(parent.id).steps[0].output


@pytest.mark.spec("STORE-6")
def test_a_copy_that_will_not_be_released_is_dropped_and_the_run_can_come_again(driver):
    source = memory(driver)
    claim = source.held(key="k")
    run = claim.id
    leave(source, run)
    carry(source, driver)
    assert back(source, run) == ["here"]
    source.checkpoint(source.take(run))
    leave(source, run)
    (part,) = runs(source, [run])
    (refused,) = driver.run(driver.store.import_runs([part]))
    assert refused.answer == "refused"
    ((_, number),) = departures(source, run)
    (answer,) = driver.run(driver.store.drop_arrived([(run, number - 1)]))
    assert answer.answer == "dropped"
    assert driver.purge().runs == 1
    carry(source, driver, [run])
    assert arrive(driver, run) == ["here"]
    assert driver.run(driver.store.drop_arrived([(run, number)]))[0].answer == "refused"
    assert len(driver.take(run).steps) == 1


@pytest.mark.spec("STORE-6")
def test_a_run_that_is_leaving_for_one_target_does_not_leave_for_another(driver):
    run = driver.start()
    (first,) = leave(driver, run)
    (other,) = driver.run(driver.store.leave([run], "a third place"))
    assert (other.answer, other.departure) == ("refused", 0)
    assert other.reason == "it is leaving for elsewhere: end that move, or undo it"
    assert driver.run(driver.store.leave([run], "elsewhere")) == [first]
    assert left(driver, run) == ["left"]
    (gone,) = driver.run(driver.store.leave([run], "a third place"))
    assert (gone.answer, gone.to, gone.departure) == ("left", "elsewhere", first.departure)


@pytest.mark.spec("STORE-6")
def test_a_copy_of_an_earlier_departure_is_not_released(driver):
    source, there = memory(driver), memory(driver)
    for home, target in ((source, driver), (driver, there)):
        run = home.held().id
        (first,) = leave(home, run)
        carry(home, target, [run])
        assert back(home, run) == ["here"]
        home.checkpoint(home.take(run))
        (second,) = leave(home, run)
        assert second.departure > first.departure
        early, late = [(run, first.departure)], [(run, second.departure)]
        for verb in ("left", "come_back"):
            (answer,) = home.run(getattr(home.store, verb)(early))
            assert (answer.answer, answer.reason) == ("refused", "it came back since, and has left again")
        assert home.run(home.store.left(late))[0].answer == "left"
        assert target.run(target.store.arrive(late))[0].answer == "refused"
        assert target.status(run) == "cancelled"
        earlier = [(run, first.departure - 1)]
        assert target.run(target.store.drop_arrived(earlier))[0].answer == "refused"
        assert target.run(target.store.drop_arrived(early))[0].answer == "dropped"


@pytest.mark.spec("STORE-6")
def test_no_purge_removes_a_run_on_its_way(driver):
    source = memory(driver)
    ended = driver.held()
    driver.complete(ended)
    sleeping = driver.start()
    other = source.start()
    leave(driver, sleeping, ended.id)
    leave(source, other)
    carry(source, driver)
    driver.clock.turn(365 * 86400)
    assert driver.purge().runs == source.purge().runs == 0
    assert left(source, other) == ["left"]
    source.clock.turn(365 * 86400)
    assert source.purge().runs == 0
    assert went_on(driver, sleeping) == ["refused"]
    assert arrive(driver, other) == back(driver, sleeping) == ["here"]
    assert went_on(source, other) == ["went_on"]
    assert source.purge().runs == 1
    assert back(driver, ended.id) == ["here"]
    assert driver.purge().runs == 1
    assert (driver.status(sleeping), driver.status(other)) == ("pending", "pending")


@pytest.mark.spec("STORE-6")
def test_unknown_runs_are_answered_and_change_nothing(driver):
    nobody = driver.id()
    for verb in ("left", "went_on", "come_back", "arrive", "drop_arrived"):
        (answer,) = driver.run(getattr(driver.store, verb)([(nobody, 1)]))
        assert (answer.run, answer.answer) == (nobody, "unknown")
    assert driver.run(driver.store.leave([nobody], "x"))[0].answer == "unknown"
