"""Export and import: runs of every kind go from any store to any other, and go on there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records.transfer import CarriedStep

from .driver import TYPE, done, listen, sleep
from .lives import LIVES
from .transfers import carry, encoded, events, memory, plain, runs, said, without_import, write


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("life", LIVES)
def test_a_run_is_the_same_in_every_store(driver, life):
    """Runs of all kinds come out of this store as out of the store in memory, and the other way round."""
    LIVES[life](driver)
    there, back = memory(driver), memory(driver)
    left = carry(driver, there)
    assert encoded(left) == left
    assert plain(without_import(runs(there))) == plain(left)
    assert [*map(said, events(there))] == [*map(said, events(driver))]
    LIVES[life](back)
    own = plain(runs(back))
    for one in runs(driver):
        assert one.row is not None
    assert plain(runs(back)) == own


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize("life", LIVES)
def test_a_run_that_comes_is_as_it_was_and_paused(driver, life):
    source = memory(driver)
    LIVES[life](source)
    before = driver.counts().totals
    left = carry(source, driver)
    assert plain(without_import(runs(driver))) == plain(left)
    assert driver.recount() == []
    assert driver.counts().totals == before, "nothing has happened here"
    for part in left:
        shown = driver.get(part.id)
        if part.row.deleted_at is not None:
            assert shown is None
            continue
        assert shown.status == (part.row.status if part.row.status in FINAL else "paused")
        assert shown.fence > part.row.fence
        driver.assert_replayed(part.id)


@pytest.mark.spec("STORE-6")
def test_a_run_that_is_there_is_not_written_again(driver):
    source = memory(driver)
    claim = source.held(key="k", digest="d")
    source.checkpoint(claim)
    carry(source, driver)
    first = driver.snapshot(claim.id)
    (answer,) = write(driver, runs(source))
    assert (answer.answer, answer.reason) == ("there", "")
    source.checkpoint(claim, done("second"))
    (answer,) = write(driver, runs(source))
    assert (answer.answer, answer.reason) == ("refused", "a run with this id is there, with other content")
    assert driver.snapshot(claim.id) == first
    driver.resume(claim.id)
    source.clock.turn(1)
    assert driver.take(claim.id).steps[0].key == "first"


@pytest.mark.spec("STORE-6")
def test_runs_that_were_never_imported_are_refused(driver):
    source = memory(driver)
    driver._ids = source._ids
    mine, its = driver.start(), source.start()
    assert mine == its
    (answer,) = write(driver, runs(source))
    assert answer.answer == "refused"
    assert driver.told(mine) == ["created"]


@pytest.mark.spec("STORE-6")
def test_a_key_of_another_run_is_refused_and_the_others_come(driver):
    source = memory(driver)
    taken, free = source.start(key="a"), source.start(key="b")
    mine = driver.start(key="a")
    answers = {one.run: one for one in write(driver, runs(source))}
    assert answers[taken].reason == f"its key 'a' belongs to run {mine}"
    assert answers[free].answer == "imported"
    assert driver.get(taken) is None
    assert driver.start(key="b") == free


@pytest.mark.spec("STORE-6")
def test_a_run_does_not_reach_runs_of_another_tenant(driver):
    source = memory(driver)
    theirs = driver.held(tenant="theirs", budget=100)
    driver.complete(theirs)
    mine, its = source.start(), driver.start()
    (part,) = runs(source, [mine])
    waits = CarriedStep(seq=1, key="kid", kind=StepKind.CHILD, status=StepStatus.WAITING, child=theirs.id)
    was_waiting = replace(waits, status=StepStatus.CANCELLED)
    edits = {
        "chain": replace(part, chain=theirs.id, row=replace(part.row, is_present=True)),
        "part": replace(part, chain=theirs.id, row=None),
        "parent": replace(part, row=replace(part.row, parent=theirs.id)),
        "account": replace(part, row=replace(part.row, account=theirs.id)),
        "child": replace(part, steps=(waits,)),
        "child that it waited for": replace(part, steps=(was_waiting,)),
    }
    for what, edited in edits.items():
        (answer,) = driver.run(driver.store.import_runs([edited]))
        assert (answer.answer, answer.reason.endswith("that one is another tenant's")) == ("refused", True), (
            what
        )
        assert str(theirs.id) in answer.reason
        assert driver.get(mine) is None
    for whole in (part.row, None):
        edited = replace(part, chain=its, row=whole)
        (answer,) = driver.run(driver.store.import_runs([edited]))
        assert answer.answer == "refused"
        assert answer.reason.endswith("has not ended: it has not gone on as another run")
    assert driver.get(theirs.id).present == theirs.id
    (answer,) = driver.run(driver.store.import_runs([part]))
    assert answer.answer == "imported"


@pytest.mark.spec("STORE-6")
def test_fences_are_higher_than_any_at_the_source_and_stay_above(driver):
    source = memory(driver)
    source.store._state.trail_seq = 5_000_000
    run = source.start()
    source.take(run)
    carry(source, driver)
    driver.resume(run)
    claim = driver.take(run)
    assert claim.fence > 5_000_001
    assert driver.held().fence >= claim.fence


@pytest.mark.spec("STORE-6")
def test_large_runs_come_in_parts_and_nobody_sees_a_part(driver):
    source = memory(driver)
    claim = source.held()
    for number in range(8):
        source.checkpoint(claim, done(f"s{number}", output=f'"{"x" * 1000}"'))
    source.park(claim, sleep())
    run, store = claim.id, source.store
    parts, place = [], None
    while True:
        (one,) = source.run(store.export_runs([run], place, 3000))
        parts.append(one.part)
        if (place := one.after) is None:
            break
    assert len(parts) > 3
    assert [part.row is None for part in parts] == [True] * (len(parts) - 1) + [False]
    for _ in range(2):  # the second time from the beginning
        answers = write(driver, parts[:2])
        assert [one.answer for one in answers] == ["part", "part"]
        assert driver.get(run) is None
        assert driver.recount() == []
    driver.clock.turn(3600)
    driver.tick()
    assert [one.answer for one in write(driver, parts)] == ["part"] * (len(parts) - 1) + ["imported"]
    assert driver.shape(run) == source.shape(run)
    assert driver.told(run) == [*source.told(run), "imported"]
    driver.resume(run)
    driver.tick()
    assert len(driver.take(run).steps) == 9


@pytest.mark.spec("STORE-6")
def test_parts_are_read_of_this_store_too(driver):
    claim = driver.held()
    for number in range(6):
        driver.checkpoint(claim, done(f"s{number}", output=f'"{"x" * 1000}"'))
    driver.park(claim, listen())
    parts, place = [], None
    while True:
        (one,) = driver.run(driver.store.export_runs([claim.id], place, 3000))
        parts.append(one.part)
        if (place := one.after) is None:
            break
    assert len(parts) > 2
    there = memory(driver)
    write(there, parts)
    assert there.shape(claim.id) == driver.shape(claim.id)
    assert there.told(claim.id) == [*driver.told(claim.id), "imported"]


@pytest.mark.spec("STORE-6")
def test_pages_of_runs_end_by_bytes_and_ids_are_ascending(driver):
    ids = [driver.start(params=f'"{"x" * 1000}"') for _ in range(5)]
    deleted = driver.start(type="shop.x.v1")
    driver.delete(deleted)
    assert driver.run(driver.store.run_ids(3)) == ids[:3]
    assert driver.run(driver.store.run_ids(9, ids[2])) == [*ids[3:], deleted]
    page = driver.run(driver.store.export_runs(ids, None, 4000))
    assert 0 < len(page) < 5
    assert [one.part.id for one in page] == ids[: len(page)]
    assert len(driver.run(driver.store.export_runs(ids, None, 1))) == 1
    assert driver.run(driver.store.export_runs([driver.id()])) == []


@pytest.mark.spec("STORE-6")
def test_a_run_that_is_imported_without_hold_goes_on(driver):
    source = memory(driver)
    run, paused = source.start(), source.start()
    source.pause(paused, by="ann")
    carry(source, driver, hold=False)
    assert driver.status(run) == "pending"
    assert driver.get(paused).pause_asked_by == "ann"
    assert driver.last(run, "imported")["status"] == "pending"
    assert driver.take(run).type == TYPE


@pytest.mark.spec("STORE-6")
@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        ({"status": "leased"}, "it is not leased"),
        ({"status": "succeeded"}, "it has an end exactly when it is final"),
        ({"status": "paused"}, "it says how it goes on exactly while it is paused"),
        ({"status": "waiting"}, "it waits for something while it is waiting"),
        ({"priority": 5000}, "priority"),
        ({"params": "{"}, "params"),
        ({"run_at": 10**18}, "run_at"),
    ],
)
def test_a_run_that_no_store_could_have_is_refused(driver, wrong, law):
    source = memory(driver)
    source.start()
    (part,) = runs(source)
    if "status" in wrong:
        wrong = {"status": Status(wrong["status"])}
    with pytest.raises(UsageError, match=law):
        driver.run(driver.store.import_runs([replace(part, row=replace(part.row, **wrong))]))
    assert driver.run(driver.store.run_ids()) == []


@pytest.mark.spec("STORE-6")
def test_a_call_has_bounds(driver):
    source = memory(driver)
    source.start()
    (part,) = runs(source)
    with pytest.raises(UsageError, match="at most 1,000 in one call, not 1,001"):
        driver.run(driver.store.import_runs([part] * 1001))
    with pytest.raises(UsageError, match="at most 1,000 in one call, not 1,001"):
        driver.run(driver.store.export_runs([part.id] * 1001))
