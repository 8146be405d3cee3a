"""A move by a file that is repeated, brought to the wrong store, or cut: its runs go on at one store."""

from __future__ import annotations

import os
import shutil
import stat

import pytest

from holdfast import App
from holdfast.errors import Conflict, UsageError
from holdfast.testing.contract.driver import done
from holdfast.testing.contract.transfers import runs
from holdfast.transfer import receipts
from tests.transfer.test_hazards import Hooked, _kill, exported, two
from tests.transfer.test_movers import Once, ends_inside
from tests.transfer.test_moving import Killed, away, fresh, kept, loop  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


def copy_of(path, name, *ends):
    """Copy FILE, and the files beside it that have these ends, into another folder."""
    path.with_name(name).mkdir(exist_ok=True)
    for end in ("", *ends):
        shutil.copy(f"{path}{end}", path.with_name(name))
    return path.with_name(name) / path.name


def test_a_file_is_confirmed_for_one_import_only(fresh, tmp_path):  # noqa: F811
    source, target, (one,) = two(fresh, 1)
    other, path = fresh(), tmp_path / "a"
    exported(source, path)
    copy = copy_of(path, "elsewhere")
    target.run(App(target.store).import_(path))
    other.run(App(other.store).import_(copy))
    assert source.run(App(source.store).confirm_export(path)).runs == 1
    left = (tmp_path / "a.left").read_bytes()
    assert source.run(App(source.store).confirm_export(path)).runs == 1
    shutil.copy(f"{copy}.taken", tmp_path)
    with pytest.raises(UsageError, match="was confirmed for another import before"):
        source.run(App(source.store).confirm_export(path))
    assert (tmp_path / "a.left").read_bytes() == left
    assert away(other) == {one: True}


def test_a_confirmation_at_another_store_drops_nothing(fresh, tmp_path):  # noqa: F811
    source, target, ids = two(fresh)
    path = tmp_path / "a"
    exported(source, path)
    target.run(App(target.store).import_(path))
    with pytest.raises(UsageError, match="is not in this store"):
        source.run(App(fresh().store).confirm_export(path))
    with pytest.raises(UsageError, match="waits for its release in this store"):
        target.run(App(target.store).confirm_export(path))
    assert not (tmp_path / "a.left").exists()
    assert source.run(App(source.store).confirm_export(path)).runs == 2
    source.clock.turn(365 * 86400)
    assert source.purge().runs == 2
    again = source.run(App(source.store).confirm_export(path))
    assert (again.runs, again.back) == (2, 0)
    assert target.run(App(target.store).release_import(path)).runs == len(ids)


def test_a_file_is_imported_into_one_store_of_a_name(fresh, tmp_path):  # noqa: F811
    source, target, _ = two(fresh)
    other, path = fresh(), tmp_path / "a"
    exported(source, path)
    for imported, there in ((2, 0), (0, 2)):
        report = target.run(App(target.store).import_(path))
        assert (report.imported, report.there) == (imported, there)
    with pytest.raises(UsageError, match=r"was imported before, and run .* is not in this store"):
        other.run(App(other.store).import_(path))
    assert runs(other) == []


def test_a_file_that_was_cut_at_the_end_of_a_line_is_not_confirmed_or_released(fresh, tmp_path):  # noqa: F811
    source, target, ids = two(fresh, 3)
    path = tmp_path / "a"
    exported(source, path)
    target.run(App(target.store).import_(path))
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (lines[:-1], lines[:-2], [*lines[:-2], lines[-1]], lines[:1]):
        path.write_bytes(b"".join(cut))
        with pytest.raises(UsageError, match="is not whole"):
            source.run(App(source.store).confirm_export(path))
    assert {run.pause_asked_by for run in map(source.get, ids)} == {"move"}
    path.write_bytes(whole)
    source.run(App(source.store).confirm_export(path))
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(UsageError, match="is not whole"):
        target.run(App(target.store).release_import(path))
    assert set(away(target).values()) == {True}


def moved_by(source, target, path):
    """Move runs by a file, in its four steps."""
    exported(source, path)
    target.run(App(target.store).import_(path))
    source.run(App(source.store).confirm_export(path))
    return target.run(App(target.store).release_import(path))


def test_a_repeated_import_and_release_do_not_execute_a_run_again(fresh, tmp_path):  # noqa: F811
    source, target = fresh(), fresh()
    run, path = source.start(ttl_seconds=60.0), tmp_path / "a"
    source.checkpoint(source.take(run), done("charge"))
    other = source.start()  # the first one of the file
    assert moved_by(source, target, path).runs == 2
    claims = {claim.id: claim for claim in target.claim(10)}
    target.complete(claims[run], done("ship"))
    target.clock.turn(3600)
    assert target.purge().runs == 1
    for _ in range(2):
        report = target.run(App(target.store).import_(path))
        assert (report.imported, report.there, report.gone) == (0, 1, 1)
        assert target.run(App(target.store).release_import(path)).runs == 1
    assert away(target) == {other: False}
    target.tick()
    assert run not in {claim.id for claim in target.claim(10)}


def test_a_repeated_import_brings_runs_that_were_refused_before(fresh, tmp_path):  # noqa: F811
    source, target, path = fresh(), fresh(), tmp_path / "a"
    target._ids = 9_000_000
    run, taken = source.start(key="k"), target.start(key="k")
    exported(source, path)
    report = target.run(App(target.store).import_(path))
    assert (report.imported, report.refused_runs) == (0, 1)
    target.delete(taken)
    target.clock.turn(8 * 86400)
    target.purge()
    assert target.run(App(target.store).import_(path)).imported == 1
    source.run(App(source.store).confirm_export(path))
    assert target.run(App(target.store).release_import(path)).runs == 1
    assert target.take(run)


def test_an_import_that_another_one_has_overtaken_ends(fresh, tmp_path):  # noqa: F811
    source, target, path = fresh(), fresh(), tmp_path / "a"
    run = source.start(ttl_seconds=60.0)
    exported(source, path)

    async def overtake():
        await App(target.store).import_(path)
        await App(source.store).confirm_export(path)
        await App(target.store).release_import(path)
        await ends_inside(target, run)

    slow = Once(target.store, "trail", overtake)
    with pytest.raises(Conflict, match="another import of"):
        target.run(App(slow).import_(path))
    assert away(target) == {}


def test_a_run_that_left_by_a_file_is_kept_until_the_file_says_so(fresh, tmp_path):  # noqa: F811
    source, target, path = fresh(), fresh(), tmp_path / "a"
    run = source.start()
    exported(source, path)
    target.run(App(target.store).import_(path))
    with pytest.raises(Killed):
        source.run(App(Hooked(source.store, "left", after=_kill)).confirm_export(path))
    source.clock.turn(365 * 86400)
    assert source.purge(ttl_seconds=0.0).runs == 0
    assert source.run(App(source.store).confirm_export(path)).runs == 1
    assert target.run(App(target.store).release_import(path)).runs == 1
    assert source.purge(ttl_seconds=0.0).runs == 1
    assert target.take(run)


@pytest.mark.parametrize("undone", [False, True])
def test_a_file_is_not_imported_into_its_own_source(fresh, tmp_path, undone):  # noqa: F811
    source, target, (run,) = two(fresh, 1)
    path = tmp_path / "a"
    exported(source, path)
    if undone:
        source.run(App(source.store).undo_export(path))
    with pytest.raises(UsageError, match=r"is the store that .* comes from"):
        source.run(App(source.store).import_(path))
    assert not (tmp_path / "a.taken").exists()
    assert target.run(App(target.store).import_(path)).imported == 1
    if not undone:
        source.run(App(source.store).confirm_export(path))
        assert target.run(App(target.store).release_import(path)).runs == 1
        assert target.take(run)


DAY = 86400


def half_confirmed(source, path, monkeypatch):
    """Begin a confirmation that is killed when one run has left."""
    monkeypatch.setattr(receipts, "EXPORT_MAX", 1)
    with pytest.raises(Killed):
        source.run(App(Hooked(source.store, "left", after=_kill)).confirm_export(path))


def test_an_undo_is_refused_when_a_confirmation_was_begun(kept, fresh, tmp_path, monkeypatch):  # noqa: F811
    """Otherwise some runs come back, end and are purged; then no confirmation can be ended any more."""
    source, target, path = kept(), fresh(), tmp_path / "a"
    ids = [source.start() for _ in range(3)]
    exported(source, path)
    target.run(App(target.store).import_(path))
    half_confirmed(source, path, monkeypatch)
    with pytest.raises(Conflict, match=r"have left for good: a confirmation .* was begun and not ended"):
        source.run(App(source.store).undo_export(path))
    assert away(source) == dict.fromkeys(ids, True)
    source.clock.turn(365 * DAY)
    assert source.purge(ttl_seconds=0.0).runs == 0
    assert source.run(App(source.store).confirm_export(path)).runs == 3
    assert source.run(App(source.store).undo_export(path)) == []
    assert target.run(App(target.store).release_import(path)).runs == 3
    assert {claim.id for claim in target.claim(10)} == set(ids)


def test_an_undo_without_the_file_brings_back_what_has_not_left(fresh, tmp_path, monkeypatch):  # noqa: F811
    source, target, _ = two(fresh, 3)
    path = tmp_path / "a"
    exported(source, path)
    target.run(App(target.store).import_(path))
    half_confirmed(source, path, monkeypatch)
    assert len(source.run(App(source.store).undo_export(path, lost=True))) == 2


@pytest.mark.parametrize("when", ["left", "come_back"])
def test_a_refused_run_comes_back_when_a_killed_confirmation_is_ended(
    fresh,  # noqa: F811
    tmp_path,
    monkeypatch,
    when,
):
    source, target, path = fresh(), fresh(), tmp_path / "a"
    refused, run = source.start(key="k"), source.start()
    target._ids = 9_000_000
    target.start(key="k", type="shop.other.v1")
    exported(source, path)
    target.run(App(target.store).import_(path))
    here = source.store
    if when == "left":
        with monkeypatch.context() as patched:
            patched.setattr(receipts, "write_left", lambda *_: _kill())
            with pytest.raises(Killed):
                source.run(App(here).confirm_export(path))
    else:
        with pytest.raises(Killed):
            source.run(App(Hooked(here, when, before=_kill)).confirm_export(path))
    for claim in source.claim(10):
        source.complete(claim)
    source.clock.turn(365 * DAY)
    source.purge(ttl_seconds=0.0)
    confirmed = source.run(App(source.store).confirm_export(path))
    assert (confirmed.runs, confirmed.back) == (1, 1)
    assert source.take(refused)
    assert target.run(App(target.store).release_import(path)).runs == 1
    assert target.take(run)


def test_the_names_of_the_files_are_on_the_disk_before_the_next_step(fresh, tmp_path, monkeypatch):  # noqa: F811
    """A power cut takes away names that are not: of the export before its runs leave, and of FILE.left before
    the source may purge them."""
    source, target, _ = two(fresh)
    path, durable, seen = tmp_path / "a", dict[str, int](), []
    sync = os.fsync

    def noted(place):
        sync(place)
        if stat.S_ISDIR(os.fstat(place).st_mode):
            durable.clear()
            durable.update({one.name: one.stat().st_ino for one in tmp_path.iterdir()})

    def look(name):
        async def looked():
            seen.append((name, durable.get(name) == (tmp_path / name).stat().st_ino))

        return looked

    monkeypatch.setattr(os, "fsync", noted)
    source.run(App(Hooked(source.store, "leave", before=look("a"))).export(path, move=True))
    target.run(App(target.store).import_(path))
    source.run(App(Hooked(source.store, "went_on", before=look("a.left"))).confirm_export(path))
    assert set(seen) == {("a", True), ("a.left", True)}
