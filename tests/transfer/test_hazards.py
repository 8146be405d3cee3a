"""Moves beside other movers, undos and kills: a run is never lost, nor at two stores."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.engine.explain.explain import remedy
from holdfast.errors import Outcome, UsageError
from holdfast.records import ANY, NewEvent, NewSchedule, moment
from holdfast.records.transfer import CarriedEvent, digest_of
from holdfast.shown.runs import news
from holdfast.testing.contract.driver import done
from holdfast.testing.contract.transfers import runs
from holdfast.transfer import moving
from holdfast.transfer.families import ALL
from holdfast.transfer.lines import MOVES, record_of
from holdfast.transfer.moving import Mover
from holdfast.transfer.numbers import Numbers
from tests.transfer.journey import furnish
from tests.transfer.test_moving import Killed, away, fresh, loop, move  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


class Hooked:
    """A store that does something else before or after one of its verbs."""

    def __init__(self, store, verb, before=None, after=None):
        self._store, self._verb, self._before, self._after = store, verb, before, after

    def __getattr__(self, name):
        method = getattr(self._store, name)
        if name != self._verb:
            return method

        async def called(*args, **kwargs):
            if self._before is not None:
                await self._before()
            answer = await method(*args, **kwargs)
            if self._after is not None:
                after, self._after = self._after, None
                await after()
            return answer

        return called


def two(fresh, number=2):  # noqa: F811
    source, target = fresh(), fresh()
    return source, target, [source.start() for _ in range(number)]


def departures(driver, ids):
    found = {run.id: run for run in driver.run(driver.store.list(ALL, 1000))}
    return [(run, found[run].fence) for run in ids]


def test_two_moves_to_two_targets_do_not_take_the_same_run(fresh):  # noqa: F811
    source, target, (one, _) = two(fresh)
    third = fresh()
    listed = source.run(source.store.list(ALL, 1000))

    class Stale:
        """The source as a mover has listed it before the other one began."""

        def __getattr__(self, name):
            return getattr(source.store, name)

        async def list(self, where, limit, after):
            if where != ALL:
                return await source.store.list(where, limit, after)
            return listed if after is None else []

    source.run(source.store.leave([one], "the third place"))
    report = source.run(Mover(Stale(), target.store, to="there").run())
    assert (report.moved, report.refused_runs) == (1, 1)
    assert "it is leaving for the third place" in report.refused[0].reason
    report = source.run(Mover(source.store, third.store, to="the third place").run())
    assert report.moved == 1
    assert set(away(target)) & set(away(third)) == set()


def test_runs_on_their_way_elsewhere_are_named(fresh):  # noqa: F811
    source, target, (one, _) = two(fresh)
    source.run(source.store.leave([one], "a store of another spelling"))
    report = move(source, target)
    assert (report.moved, report.elsewhere) == (1, {"a store of another spelling": 1})


def test_a_mover_that_is_overtaken_drops_nothing_that_the_other_has_still_to_release(fresh):  # noqa: F811
    source, target, (one, other) = two(fresh)

    async def overtake():
        pairs = [(run.id, run.fence) for run in await source.store.list(ALL, 10)]
        await source.store.left(pairs)
        await target.store.arrive([pair for pair in pairs if pair[0] == one])

    slow = Hooked(target.store, "import_runs", after=overtake)
    report = source.run(Mover(source.store, slow, to="there").run())
    assert report.refused == []
    source.run(Mover(source.store, target.store, to="there").run())
    assert away(target) == {one: False, other: False}
    assert {run.id for run in target.claim(10)} == {one, other}


def test_an_undo_does_not_drop_the_copy_of_a_later_move(fresh):  # noqa: F811
    source, target, (one,) = two(fresh, 1)
    mover = Mover(source.store, Hooked(target.store, "arrive", before=_kill), to="there")
    source.run(source.store.leave([one], "there"))

    async def again():
        with pytest.raises(Killed):
            await mover.run()

    late = Hooked(target.store, "drop_arrived", before=again)
    source.run(Mover(source.store, late, to="there").undo())
    move(source, target)
    assert away(target) == {one: False}
    assert target.take(one)


async def _kill():
    raise Killed


def test_a_family_that_the_target_refuses_is_named_once(fresh, monkeypatch):  # noqa: F811
    monkeypatch.setattr(moving, "TOGETHER", 1000)
    source, target = fresh(), fresh()
    target._ids = 9_000_000
    ids = furnish(source)
    target.start(key="order:1", type="shop.other.v1")
    parent = source.get(ids["kid"]).parent
    target.run(target.store.import_runs([_renamed(runs(source, [ids["kid"]])[0])]))
    report = move(source, target)
    assert report.refused_runs == len(report.refused) == 2
    assert not away(source)[parent]
    assert report.moved == len(ids) - 3


def _renamed(part):
    other = replace(part, row=replace(part.row, type="shop.renamed.v1", parent=None, parent_step=None))
    return replace(other, digest=digest_of(other))


# -- By a file --------------------------------------------------------------------------------------


def exported(source, path, **fields):
    return source.run(App(source.store).export(path, move=True, **fields))


def test_an_old_receipt_does_not_hand_over_the_runs_of_a_later_move(fresh, tmp_path):  # noqa: F811
    source, target, (one,) = two(fresh, 1)
    here, there = App(source.store), App(target.store)
    exported(source, tmp_path / "a")
    target.run(there.import_(tmp_path / "a"))
    source.run(here.undo_export(tmp_path / "a"))
    source.checkpoint(source.take(one), done("paid"))
    exported(source, tmp_path / "b")
    confirmed = source.run(here.confirm_export(tmp_path / "a"))
    assert (confirmed.runs, confirmed.back) == (0, 1)
    assert source.get(one).pause_asked_by == "move"
    released = target.run(there.release_import(tmp_path / "a"))
    assert (released.runs, released.missing) == (0, [])
    target.purge()
    target.run(there.import_(tmp_path / "b"))
    assert source.run(here.confirm_export(tmp_path / "b")).runs == 1
    assert target.run(there.release_import(tmp_path / "b")).runs == 1
    assert [step.key for step in target.take(one).steps] == ["paid"]


def test_no_line_of_a_file_that_moves_may_be_left_out(fresh, tmp_path):  # noqa: F811
    source, target, _ = two(fresh, 3)
    exported(source, tmp_path / "a")
    with pytest.raises(UsageError, match="so no line may be left out"):
        target.run(App(target.store).import_(tmp_path / "a", skip_damaged=True))


def test_a_file_that_went_to_two_stores_of_the_same_name_is_released_at_one(fresh, tmp_path):  # noqa: F811
    source, target, (one,) = two(fresh, 1)
    other = fresh()
    exported(source, tmp_path / "a")
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "a"
    copy.write_bytes((tmp_path / "a").read_bytes())
    target.run(App(target.store).import_(tmp_path / "a"))
    other.run(App(other.store).import_(copy))
    source.run(App(source.store).confirm_export(tmp_path / "a"))
    (tmp_path / "elsewhere" / "a.left").write_bytes((tmp_path / "a.left").read_bytes())
    with pytest.raises(UsageError, match="is for another import of"):
        other.run(App(other.store).release_import(copy))
    assert target.run(App(target.store).release_import(tmp_path / "a")).runs == 1
    assert away(other) == {one: True}


@pytest.mark.parametrize("verb", ["leave", "schedules"])
def test_an_export_that_was_killed_at_its_begin_goes_on_or_is_undone(fresh, tmp_path, verb):  # noqa: F811
    source, _, ids = two(fresh)
    path = tmp_path / "a"

    async def look():
        assert record_of(path.read_bytes(), 1).format == MOVES  # before the first run is stopped
        raise Killed

    killed = Hooked(source.store, verb, before=look)
    with pytest.raises(Killed):
        source.run(App(killed).export(path, move=True))
    assert exported(source, path, resume=True).runs == 2
    assert set(source.run(App(source.store).undo_export(path))) == set(ids)
    path.unlink()
    exported(source, path)
    path.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        source.run(App(source.store).undo_export(path))
    assert set(source.run(App(source.store).undo_export(path, lost=True))) == set(ids)


@pytest.mark.parametrize("begin", [b"", b'{"kind":"hea', b'{"kind":"header","crc":"00'])
def test_a_file_whose_header_was_cut_off_begins_anew(fresh, tmp_path, begin):  # noqa: F811
    source, _, _ = two(fresh)
    (tmp_path / "a").write_bytes(begin)
    assert exported(source, tmp_path / "a", resume=True).runs == 2
    (tmp_path / "b").write_bytes(b"something else")
    with pytest.raises(UsageError, match="is no file of"):
        exported(source, tmp_path / "b", resume=True)
    assert (tmp_path / "b").read_bytes() == b"something else"


def test_a_release_names_runs_that_the_target_does_not_have(fresh, tmp_path):  # noqa: F811
    source, target, (one, other) = two(fresh)
    exported(source, tmp_path / "a")
    target.run(App(target.store).import_(tmp_path / "a"))
    source.run(App(source.store).confirm_export(tmp_path / "a"))
    target.delete(one)
    target.clock.turn(8 * 86400)
    assert target.purge().runs == 1
    released = target.run(App(target.store).release_import(tmp_path / "a"))
    assert (released.runs, released.missing) == (1, [one])
    assert target.take(other)


# -- Schedules --------------------------------------------------------------------------------------


def scheduled(driver, name="nightly"):
    driver.run(driver.store.schedule(NewSchedule(
        id=driver.id(), name=name, type="shop.order.v1", every_us=60_000_000,
        next_at=driver.clock() + 60_000_000,
    )))  # fmt: skip


def schedule_of(driver):
    (schedule,) = driver.run(driver.store.schedules(ANY))
    return schedule


def test_an_undone_move_lets_the_schedules_go_on_unless_another_store_has_them(fresh, tmp_path):  # noqa: F811
    source, target, third = fresh(), fresh(), fresh()
    scheduled(source)
    next_at = schedule_of(source).next_at
    mover = Mover(source.store, Hooked(target.store, "import_events", before=_kill), to="there")
    source.run(source.store.emit(_event("e")))
    with pytest.raises(Killed):
        source.run(mover.run())
    assert schedule_of(source).paused
    source.run(Mover(source.store, target.store, to="there").undo())
    assert (schedule_of(source).paused, schedule_of(source).next_at) == (False, next_at)
    move(source, target)
    assert not schedule_of(target).paused
    source.run(Mover(source.store, target.store, to="there").undo())
    source.run(Mover(source.store, third.store, to="the third place").undo())
    exported(source, tmp_path / "a")
    source.run(App(source.store).undo_export(tmp_path / "a"))
    assert schedule_of(source).paused


def _event(name):
    return NewEvent(id=name, topic="t")


def test_a_schedule_whose_import_was_killed_is_not_left_without_times(fresh):  # noqa: F811
    source, target = fresh(), fresh()
    scheduled(source)
    killed = Hooked(target.store, "pause_schedule", before=_kill)
    with pytest.raises(Killed):
        source.run(Mover(source.store, killed, to="there").run())
    move(source, target)
    assert (schedule_of(target).paused, schedule_of(target).next_at) == (False, schedule_of(source).next_at)


# -- Words for people


def test_a_masked_copy_hides_the_error_that_a_run_had_before_it_left(fresh, tmp_path):  # noqa: F811
    source, _, _ = two(fresh, 0)
    claim = source.held()
    source.retry(
        claim, error='{"kind":"exception","type":"Oops","message":"s3cret"}', last_error="Oops: s3cret"
    )
    (part,) = runs(source)
    assert "s3cret" in part.row.last_error
    source.run(source.store.leave([claim.id], "there"))
    source.run(App(source.store).export(tmp_path / "a", mask=True))
    assert "s3cret" not in (tmp_path / "a").read_text()
    assert '\\"was\\"' in (tmp_path / "a").read_text()


def test_people_are_told_where_a_run_has_gone(fresh):  # noqa: F811
    source, target, (one,) = two(fresh, 1)
    source.pause(one)
    failed = source.held()
    source.fail(failed)
    app = App(source.store)

    async def told(run):
        with pytest.raises(Outcome) as caught:
            await app.result(run)
        return news(await app.get(run), moment(source.clock())), (await app.explain(run)).text, caught.value

    source.run(source.store.leave([one], "there"))
    assert source.run(told(one))[0] == "it is on its way to there"
    move(source, target)
    shown, why, error = source.run(told(one))
    assert shown == "it moved to there"
    assert why.endswith(": it moved to there and goes on there.")
    assert str(error) == f"run {one} was cancelled: it moved to there, ask that store"
    why = source.run(told(failed.id))[1]
    assert why.endswith("; it moved to another store.")
    assert remedy(source.run(app.get(failed.id)), "R") == "it moved to another store: retry it there"
    assert "retry" not in why


def test_numbers_of_events_are_found_whatever_their_order():
    numbers = Numbers()
    event = CarriedEvent(seq=1, id="e", tenant="t", topic="t", at=1, keep_until=1)
    for seq, number in ((10, 110), (30, 105), (20, 120), (20, 7)):
        numbers.add(replace(event, seq=seq), number)
    pairs = numbers._free
    assert [pairs.get(seq) for seq in (10, 20, 30, 40)] == [110, 7, 105, None]
    assert [pairs.newest_up_to(seq) for seq in (5, 10, 20, 30, 99)] == [0, 110, 110, 110, 110]
