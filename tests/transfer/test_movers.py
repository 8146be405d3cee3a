"""Movers that are overtaken, killed or undone at a bad moment: each run goes on, and goes on once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.errors import Conflict, Unavailable
from holdfast.lifecycle import Move
from holdfast.records import ANY, Ask, RunFilter
from holdfast.testing.contract.chains import next_of
from holdfast.testing.contract.driver import call, done
from holdfast.transfer import leaving, moving
from holdfast.transfer.moving import STAYS, Mover
from holdfast.transfer.places import target_of
from tests.transfer.test_hazards import Hooked, _kill, exported, schedule_of, scheduled, two
from tests.transfer.test_moving import Killed, away, fresh, kept, loop, move  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")

DAY = 86400


class Once(Hooked):
    """A store that does something else before the first call of a verb."""

    def __init__(self, store, verb, before):
        async def first():
            self._before = None
            await before()

        super().__init__(store, verb, before=first)


def mover(source, target, here=None, there=None, where=None):
    return Mover(here or source.store, there or target.store, where, to="there")


def ends(target, run, seconds=3600):
    """Let a run end at the target, and be purged there."""
    target.complete(target.take(run), done("ship"))
    target.clock.turn(seconds)
    assert target.purge().runs == 1


async def ends_inside(target, run):
    """Let a run end at the target, and be purged there, from inside of a call of a mover."""
    asked = Ask(worker="w", types=("shop.order.v1",), limit=10, lease_seconds=30.0)
    (claim,) = await target.store.claim(asked)
    assert claim.id == run
    await target.store.commit([target.item(claim, Move.COMPLETE, done("ship"))])
    target.clock.turn(3600)
    assert (await target.store.purge()).runs == 1


def test_an_overtaken_mover_does_not_bring_back_a_run_that_has_ended(fresh):  # noqa: F811
    source, target = fresh(), fresh()
    run = source.start(ttl_seconds=60.0)
    source.checkpoint(source.take(run), done("charge"))

    async def overtake():
        assert (await mover(source, target).run()).moved == 1
        await ends_inside(target, run)

    report = source.run(mover(source, target, there=Once(target.store, "import_runs", overtake)).run())
    assert (report.moved, report.refused) == (0, [])
    assert target.claim(10) == []
    assert move(source, target).missing == []
    assert target.claim(10) == []
    target.purge()
    assert away(target) == {}


@pytest.mark.parametrize("verb", ["arrive", "went_on"])
def test_an_overtaken_mover_does_so_also_when_the_other_was_killed(fresh, verb):  # noqa: F811
    source, target = fresh(), fresh()
    run = source.start(ttl_seconds=60.0)

    async def overtake():
        at_source, at_target = source.store, target.store
        if verb == "arrive":
            at_target = Hooked(target.store, verb, after=_kill)  # it was carried out: the answer is lost
        else:
            at_source = Hooked(source.store, verb, before=_kill)
        with pytest.raises(Killed):
            await mover(source, target, at_source, at_target).run()
        await ends_inside(target, run)

    source.run(mover(source, target, there=Once(target.store, "import_runs", overtake)).run())
    for _ in range(2):
        assert target.claim(10) == []
        report = move(source, target)
        # Nobody can know whether it ended there, or was deleted.
        assert [one.run for one in report.missing] == [run]


@pytest.mark.parametrize("killed", [None, "arrive"])
def test_a_copy_that_the_other_mover_relies_on_is_not_dropped(fresh, killed):  # noqa: F811
    """The slow mover has brought the copy; the other one finds it there, and records it."""
    source, target = fresh(), fresh()
    run = source.start()

    async def overtake():
        if killed is None:
            assert (await mover(source, target).run()).moved == 1
            return
        with pytest.raises(Killed):
            await mover(source, target, there=Hooked(target.store, killed, before=_kill)).run()

    source.run(mover(source, target, here=Once(source.store, "left", overtake)).run())
    move(source, target)
    assert away(target) == {run: False}
    assert target.take(run)


def test_a_mover_whose_answer_was_lost_does_not_strand_the_run(fresh):  # noqa: F811
    source, target = fresh(), fresh()
    run = source.start()

    class Retried(Hooked):
        async def twice(self, *args, **kwargs):
            await self._store.left(*args, **kwargs)
            return await self._store.left(*args, **kwargs)

        def __getattr__(self, name):
            return self.twice if name == "left" else getattr(self._store, name)

    assert source.run(mover(source, target, here=Retried(source.store, "left")).run()).moved == 1
    assert target.take(run)


def test_a_run_that_has_not_arrived_is_not_purged_at_the_source(fresh):  # noqa: F811
    source, target = fresh(), fresh()
    ended = source.held(ttl_seconds=60.0)
    source.complete(ended)
    run, short = source.start(), source.start(ttl_seconds=60.0)
    with pytest.raises(Killed):
        source.run(mover(source, target, there=Hooked(target.store, "arrive", before=_kill)).run())
    source.clock.turn(400 * DAY)
    assert source.purge(ttl_seconds=0.0).runs == 0
    move(source, target)
    assert away(target) == dict.fromkeys((run, short, ended.id), False)
    assert {one.id for one in target.claim(10)} == {run, short}
    assert source.purge(ttl_seconds=0.0).runs == 3


def test_one_run_that_was_undone_does_not_strand_the_others_of_its_group(fresh):  # noqa: F811
    source, target = fresh(), fresh()
    one, other = source.start(), source.start(type="shop.other.v1")

    async def undo_one():
        where = RunFilter(tenant=ANY, type="shop.other.v1")
        await mover(source, target, where=where).undo()

    with pytest.raises(Conflict, match=f"run {other} does not leave any more .* start it again"):
        source.run(mover(source, target, here=Once(source.store, "left", undo_one)).run())
    assert target.take(one)
    assert source.status(other) == "pending"
    assert move(source, target).moved == 1
    assert away(target)[other] is False


def test_a_mover_that_gives_up_does_not_divide_a_family(kept, fresh, monkeypatch):  # noqa: F811
    """The other mover was killed when it had recorded the parent, and not the children."""
    for module in (leaving, moving):
        monkeypatch.setattr(module, "EXPORT_MAX", 1)
    source, target = kept(), fresh()
    parent, kids = source.held(), [source.id(), source.id()]
    first = call("a", kids[0])
    source.park(parent, replace(first, child=replace(first.child, key="k")), call("b", kids[1]))
    with pytest.raises(Killed):
        source.run(mover(source, target, here=Hooked(source.store, "left", after=_kill)).run())
    # The copy of a child is lost at the target, and another run has its key.
    target.delete(kids[0])
    target.clock.turn(8 * DAY)
    assert target.purge().runs == 1
    target._ids = 9_000_000
    other = target.start(key="k", type="shop.other.v1")
    assert source.run(mover(source, target).undo()).left == 1
    report = move(source, target)
    assert away(source) == dict.fromkeys([parent.id, *kids], True)
    (refused,) = report.refused
    assert (refused.run, refused.reason) == (kids[0], f"its key 'k' belongs to run {other}; {STAYS}")
    assert source.run(mover(source, target).undo()).runs == []
    target.delete(other)
    target.clock.turn(8 * DAY)
    assert target.purge().runs == 1
    assert move(source, target).moved == 2
    assert set(away(target).values()) == {False}


def test_a_run_that_left_and_is_lost_is_named_by_every_move(fresh):  # noqa: F811
    source, target, (run,) = two(fresh, 1)
    with pytest.raises(Killed):
        source.run(mover(source, target, there=Hooked(target.store, "arrive", before=_kill)).run())
    target.delete(run)
    target.clock.turn(8 * DAY)
    assert target.purge().runs == 1
    for _ in range(2):
        report = move(source, target)
        (lost,) = report.missing
        assert (report.moved, lost.run) == (0, run)
        assert "has left, and is not at the target" in lost.reason
    source.delete(run)
    source.clock.turn(8 * DAY)
    source.purge()
    assert move(source, target).missing == []


def test_a_run_that_moved_and_ended_there_is_not_named(fresh):  # noqa: F811
    source, target = fresh(), fresh()
    run = source.start(ttl_seconds=60.0)
    move(source, target)
    ends(target, run)
    assert move(source, target).missing == []


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("by_file", [False, True])
def test_a_chain_that_goes_on_while_it_is_stopped_moves_as_a_whole(
    fresh,  # noqa: F811
    tmp_path,
    by_key,
    by_file,
):
    source, target = fresh(), fresh()
    claim = source.held(key="k")
    new = next_of(source, claim)
    where = RunFilter(tenant=ANY, key="k") if by_key else None

    async def goes_on():
        result = f'{{"continued_as":"{new.id}"}}'
        await source.store.commit([source.item(claim, Move.COMPLETE, result=result, starts=(new,))])

    here = Once(source.store, "leave", goes_on)
    if by_file:
        path = tmp_path / "a"
        source.run(App(here).export(path, where, move=True))
        target.run(App(target.store).import_(path))
        source.run(App(source.store).confirm_export(path))
        target.run(App(target.store).release_import(path))
    else:
        assert source.run(mover(source, target, here=here, where=where).run()).moved == 2
    assert away(source) == {claim.id: True, new.id: True}
    assert away(target) == {claim.id: False, new.id: False}
    assert target.get(claim.id).present == new.id
    assert target.take(new.id)


def test_an_undo_leaves_runs_alone_that_are_on_their_way_elsewhere(fresh, tmp_path):  # noqa: F811
    source, target = fresh(), fresh()
    parent, kid = source.held(), source.id()
    source.park(parent, call("kid", kid))
    source.complete(source.take(kid))  # an ended run does not show its target
    ended = source.held()
    source.complete(ended)
    exported(source, tmp_path / "a")
    assert source.run(mover(source, target).undo()).runs == []
    assert set(away(source).values()) == {True}
    back = source.run(App(source.store).undo_export(tmp_path / "a"))
    assert set(back) == {parent.id, kid, ended.id}
    assert set(away(source).values()) == {False}


class Unreachable:
    """A store that cannot be opened."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        value = getattr(self._store, name)
        if not callable(value):
            return value

        async def called(*args, **kwargs):
            raise Unavailable("the server does not answer")

        return called


@pytest.mark.parametrize("lost", [False, True])
def test_an_undo_needs_no_target_that_can_be_reached(fresh, lost):  # noqa: F811
    source, target, (run,) = two(fresh, 1)
    scheduled(source)
    with pytest.raises(Killed):
        source.run(mover(source, target, here=Hooked(source.store, "left", before=_kill)).run())
    undone = source.run(mover(source, target, there=Unreachable(target.store)).undo(lost=lost))
    assert undone.runs == [run]
    assert source.take(run)
    assert ("the server does not answer" in undone.note) is not lost
    # A schedule may go on at the target already.
    assert schedule_of(source).paused is not lost
    if not lost:
        assert source.run(mover(source, target).undo()).note == ""
        assert not schedule_of(source).paused


def test_an_app_undoes_a_move_to_a_store_that_cannot_be_opened(fresh, tmp_path):  # noqa: F811
    source = fresh()
    run = source.start()
    lost = App(f"sqlite:///{tmp_path}/missing/target.db")
    source.run(source.store.leave([run], target_of(lost.store)))
    undone = source.run(App(source.store).undo_move(lost))
    assert undone.runs == [run]
    assert "target.db" in undone.note
