"""Files of `export`: what they hold, how they are read, and how damage and breaks are met."""

from __future__ import annotations

import errno
import json
import tracemalloc
from pathlib import Path

import pytest

import holdfast as hf
from holdfast import App, RunFilter, UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY
from holdfast.records.transfer import digest_of
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contract.transfers import events, plain, runs, without_import
from holdfast.transfer import exporting
from holdfast.transfer.lines import DamagedLine
from holdfast.transfer.masking import _line

FORMAT_1 = Path(__file__).parent / "format-1.jsonl"
pytestmark = pytest.mark.spec("STORE-6")


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def kinds(path):
    return [line["kind"] for line in lines_of(path)]


def test_a_whole_store_goes_into_another(source, fresh, exported, imported):
    path = exported(source)
    target = fresh()
    report = imported(target, path)
    left = runs(source)
    assert (report.imported, report.there, report.refused, report.complete) == (len(left), 0, [], True)
    assert plain(without_import(runs(target))) == plain(left)
    assert [one.id for one in events(target)] == ["e-all", "e-one"]
    (schedule,) = target.run(target.store.schedules(ANY))
    assert (schedule.name, schedule.paused_by, schedule.next_at) == ("nightly", "import", None)
    assert [one.type for one in target.run(target.store.definitions())] == ["shop.plan.v1"]
    assert [one.concurrency for one in target.run(target.store.limits())] == [3]
    assert [one.description for one in target.run(target.store.registry())] == ["orders"]
    again = imported(target, path)
    assert (again.imported, again.there) == (0, len(left))
    assert (report.schedules, again.schedules) == (1, 0)


def test_the_order_of_the_lines(source, exported):
    found = kinds(exported(source))
    order = ["header", "definition", "registry", "limit", "schedule", "event", "run", "end"]
    assert list(dict.fromkeys(found)) == order


def test_no_secret_of_the_store_is_in_a_file(source, exported):
    app = App(source.store)
    key = source.run(app.create_key("ci", scopes=["work"]))
    source.run(app.rotate_signing_key())
    source.run(app.webhook("shop", "https://example.com/in"))
    text = exported(source).read_text()
    assert "whsec" not in text
    assert key.secret not in text
    assert "example.com" not in text


def test_a_chain_comes_with_its_first_and_its_present_run(source, fresh, exported, imported):
    path = exported(source, where=RunFilter(type="shop.chain.v1", statuses=(Status.PENDING,)))
    found = [(line["data"]["run"]["id"], line["data"].get("along", False)) for line in lines_of(path)
             if line["kind"] == "run"]  # fmt: skip
    assert found == [(str(source.ids["first"]), True), (str(source.ids["second"]), True)]
    target = fresh()
    assert imported(target, path).imported == 2
    assert target.get(source.ids["first"]).present == source.ids["second"]


def test_a_filter_chooses_runs_and_brings_the_events_addressed_to_them(source, fresh, exported, imported):
    path = exported(source, where=RunFilter(type="shop.listening.v1"))
    target = fresh()
    assert imported(target, path).imported == 1
    assert [one.id for one in events(target)] == ["e-all", "e-one"]
    other = exported(source, "other.jsonl", where=RunFilter(type="shop.sleeping.v1"))
    target = fresh()
    imported(target, other)
    assert [one.id for one in events(target)] == ["e-all"]


def test_an_export_that_was_ended_goes_on(source, exported, tmp_path):
    whole = exported(source).read_bytes()
    lines = whole.splitlines(keepends=True)
    for number in range(1, len(lines)):
        for cut in (0, 7):
            path = tmp_path / f"{number}-{cut}.jsonl"
            path.write_bytes(b"".join(lines[:number]) + lines[number][:cut])
            exported(source, path.name, resume=True)
            assert path.read_bytes() == whole, (number, cut)
    with pytest.raises(UsageError, match="is complete: give another name"):
        exported(source, resume=True)
    with pytest.raises(UsageError, match="is there already"):
        exported(source)
    with pytest.raises(UsageError, match="was begun with other options"):
        exported(source, resume=True, mask=True)


def test_an_import_that_was_ended_is_started_again(source, fresh, exported, imported):
    path = exported(source)
    lines = path.read_bytes().splitlines(keepends=True)
    half = path.with_name("half.jsonl")
    half.write_bytes(b"".join(lines[: len(lines) - 5]))
    target = fresh()
    with pytest.raises(UsageError, match="ends before its last line"):
        imported(target, half)
    some = len(runs(target))
    assert 0 < some < len(runs(source))
    report = imported(target, path)
    assert (report.there, report.imported) == (some, len(runs(source)) - some)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda line: line[:40], "line 9 is damaged"),
        (lambda line: line.replace(b'"sleep', b'"slept', 1), "its checksum does not match its content"),
        (lambda line: b"\xff\xfe" + line, "line 9 is damaged"),
        (lambda line: line.replace(b'"kind":"run"', b'"kind":"rum"', 1), "it is of no known kind: 'rum'"),
    ],
)
def test_a_damaged_line_is_named_and_skipped_only_when_told(source, fresh, exported, imported, damage, why):
    path = exported(source)
    lines = path.read_bytes().splitlines()
    at = next(n for n, line in enumerate(lines) if b'"waiting_on":"sleep"' in line)
    lines[8], lines[at] = lines[at], lines[8]
    lines[8] = damage(lines[8])
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(DamagedLine, match=why) as caught:
        imported(fresh(), path)
    assert caught.value.number == 9
    target = fresh()
    report = imported(target, path, skip_damaged=True)
    assert [why in one for one in report.damaged] == [True]
    assert (report.imported, report.complete) == (len(runs(source)) - 1, False)


def test_lines_that_are_missing_are_noticed(source, fresh, exported, imported):
    path = exported(source)
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[8]
    path.write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match="lines are missing, or were added or changed"):
        imported(fresh(), path)


def test_parts_of_a_large_run_go_through_a_file(source, fresh, exported, imported, monkeypatch):
    async def small(self, runs, place=None, bytes=0):
        return await MemoryStore.export_runs(self, runs, place, 500)

    monkeypatch.setattr(source.store, "export_runs", small.__get__(source.store))
    path = exported(source)
    monkeypatch.undo()
    lines = lines_of(path)
    parts = [line["data"]["run"]["id"] for line in lines if line["kind"] == "run"]
    assert len(parts) > len(set(parts)) == len(runs(source))
    target = fresh()
    report = imported(target, path)
    assert (report.imported, report.complete) == (len(set(parts)), True)
    assert plain(without_import(runs(target))) == plain(runs(source))
    large = next(one for one in parts if parts.count(one) > 1)
    first = next(n for n, line in enumerate(lines) if line["data"].get("run", {}).get("id") == large)
    text = path.read_bytes().splitlines(keepends=True)
    del text[first]
    path.write_bytes(b"".join(text))
    with pytest.raises(DamagedLine, match=f"a part of run {large} is missing"):
        imported(fresh(), path)


@pytest.mark.parametrize("text", [b"", b"hello\n", b'{"a":1}\n', b'{"kind":"run","crc":"","data":{}}\n'])
def test_another_file_is_refused(tmp_path, fresh, imported, text):
    path = tmp_path / "other"
    path.write_bytes(text)
    with pytest.raises(UsageError, match="is no file of an export"):
        imported(fresh(), path)


def test_a_newer_format_is_refused(tmp_path, fresh, imported):
    path = tmp_path / "newer"
    path.write_text('{"kind":"header","crc":"00000000","data":{"format":3,"unheard":"of"}}\n')
    with pytest.raises(UsageError, match="has format 3, and this version of Holdfast reads up to 2"):
        imported(fresh(), path)


def test_a_file_of_format_1_is_read(fresh, imported):
    """The file was written when the format was new. Every later version reads it."""
    target = fresh()
    report = imported(target, FORMAT_1)
    assert (report.imported, report.events, report.complete, report.damaged) == (13, 2, True, [])
    counts = target.counts().by_status()
    assert counts == {"paused": 9, "succeeded": 2, "failed": 1}


def test_a_masked_copy_shows_no_values(source, fresh, exported, imported):
    path = exported(source, mask=True)
    text = path.read_text()
    for secret in ("Ann", "t0p", "42", "s3", "for one", "Ship it?", "it broke"):
        assert f'{secret}"' not in text.replace("\\", ""), secret
    target = fresh()
    assert imported(target, path).complete
    shown = target.get(source.ids["pending"])
    assert shown.params == {"name": "***", "n": [0, True]}
    assert shown.key == "order:1"
    assert target.get(source.ids["failed"]).error.kind == "fatal"
    target.resume(source.ids["sleeping"])
    assert target.status(source.ids["sleeping"]) == "waiting"


def test_only_the_owner_can_read_the_files(source, fresh, exported, imported):
    path = exported(source, move=True)
    imported(fresh(), path)
    source.run(App(source.store).confirm_export(path))
    modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    assert modes == dict.fromkeys([path.name, f"{path.name}.taken", f"{path.name}.left"], 0o600)


def test_a_full_disk_is_told_in_one_line(source, fresh, exported, imported, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "synced", full)
        with pytest.raises(UsageError, match=r"runs.jsonl cannot be .*: No space left on device; mend that"):
            exported(source, move=True)
    path, target = exported(source, move=True, resume=True), fresh()
    blocked = path.with_name(f"{path.name}.taken.new")
    blocked.mkdir()
    with pytest.raises(UsageError, match=r"taken.new cannot be read or written: Is a directory"):
        imported(target, path)
    blocked.rmdir()
    assert imported(target, path).complete


def test_a_file_that_was_cut_off_says_so(source, fresh, exported, imported):
    path = exported(source)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DamagedLine, match=r"the file ends in the middle of it; .* bring the file again"):
        imported(fresh(), path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("ValueError: Ann", "ValueError: ***"), ("no money for Ann", "***"), ("Ann is poor: sorry", "***")],
)
def test_a_masked_error_in_one_line_keeps_its_kind_only(text, shown):
    assert _line(text) == shown


def test_sealed_values_stay_sealed(tmp_path, clock, fresh):
    key = {"k1": bytes(range(32))}
    apps = [App(MemoryStore(clock=clock), codec=hf.Encrypt(key)) for _ in range(2)]
    driver = fresh()

    async def main():
        run = await apps[0].start("shop.order.v1", {"name": "Ann Lee"})
        await apps[0].export(tmp_path / "sealed")
        assert "Ann Lee" not in (tmp_path / "sealed").read_text()
        await apps[1].import_(tmp_path / "sealed")
        assert (await apps[1].get(run.id)).params == {"name": "Ann Lee"}
        await App(driver.store).export(tmp_path / "plain")
        with pytest.raises(UsageError, match="holds plain values, and this store is encrypted"):
            await apps[1].import_(tmp_path / "plain")

    driver.run(main())


def test_digests_of_many_runs_leave_no_memory_behind(source):
    parts = runs(source)
    tracemalloc.start()
    for _ in range(20):
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10):
            digest_of(*parts)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1000


def test_progress_is_told(source, exported):
    told = []
    exported(source, progress=told.append)
    assert told[-1] == len(runs(source))
