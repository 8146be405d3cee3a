"""Files of `export` that somebody has edited: a line that cannot be imported is named by its number."""

from __future__ import annotations

import json
import zlib

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.errors import UsageError
from holdfast.records.transfer import CarriedNote, digest_of
from holdfast.testing.contract.transfers import runs
from holdfast.transfer import lines
from holdfast.transfer.lines import DamagedLine, Header, RunLine, line_of, record_of
from tests.transfer.test_hazards import two
from tests.transfer.test_moving import fresh, loop  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


def _numbers(**fields):
    def edit(line):
        record = json.loads(line)
        record["data"]["run"]["row"] |= fields
        return _sealed_line(record["kind"], record["data"])

    return edit


def _sealed_line(kind, data):
    text = msgspec.json.encode(data)
    return b'{"kind":"%s","crc":"%08x","data":%s}\n' % (kind.encode(), zlib.crc32(text), text)


def _noted(type, data):
    def edit(line):
        run = record_of(line, 1).run
        other = replace(run, notes=(*run.notes, CarriedNote(type=type, at=1, data=data)))
        return line_of(RunLine(run=replace(other, digest=digest_of(other))))

    return edit


def _row(**fields):
    def edit(line):
        run = record_of(line, 1).run
        other = replace(run, row=replace(run.row, **fields))
        return line_of(RunLine(run=replace(other, digest=digest_of(other))))

    return edit


WAS = {
    "status": "pending", "resume_to": None, "pause_asked_by": None, "run_at": 1, "attempt": 0, "owes": 0,
    "waiting_on": None, "wait_topic": None, "deadline_at": None, "error": None, "last_error": None,
}  # fmt: skip


def _was(departure=1, **fields):
    record = {"to": "x", "departure": departure, "was": {"row": WAS | fields}}
    return _noted("leaving", json.dumps(record))


HOSTILE = {
    "attempts": (_numbers(attempt=10**30), "attempt"),
    "instant": (_numbers(run_at=10**18), "run_at"),
    "negative": (_numbers(cost=-1), "cost"),
    "text": (_numbers(fence="7"), "Expected `int`, got `str`"),
    "leaving": (_noted("leaving", "[]"), "data of the trail row 'leaving'"),
    "leaving before": (
        _noted("leaving", '{"to":"x","departure":1,"was":{"row":{}}}'), "missing required field"),
    "leaving leased": (_was(status="leased"), "no open run can be that"),
    "leaving ended": (_was(status="succeeded"), "no open run can be that"),
    "leaving paused": (_was(status="paused"), "no open run can be that"),
    "leaving to pending": (_was(resume_to="pending"), "no open run can be that"),
    "leaving to succeeded": (_was(status="paused", resume_to="succeeded"), "no open run can be that"),
    "leaving error": (_was(error="{"), "error in the trail row 'leaving'"),
    "departure": (_was(departure=2**52 + 1), "departure in the trail row 'leaving'"),
    "fence": (_row(fence=2**52 + 1), "fence is 4503599627370497"),
    "imported": (_noted("imported", "7"), "data of the trail row 'imported'"),
    "pause": (_row(pause_asked_by="move"), "a pause is asked of a paused run"),
    "account": (_row(shared=(5, 5)), "it shares its own account"),
    "debts": (_row(owes=64), "owes"),
    "debts before": (_was(owes=2**31 - 1), "owes in the trail row 'leaving'"),
    "timeout": (_row(timeout_at=5), "its timeout is known when it has an instant"),
    "key": (_row(key="k" * 1000), "key"),
    "limit": (
        lambda _: _sealed_line("limit", {"scope": "galaxy", "name": "x", "concurrency": 1}), "galaxy"),
    "schedule": (
        lambda _: _sealed_line("schedule", {
            "id": "00000000-0000-0000-0000-000000000000", "name": "", "type": "shop.order.v1"}),
        "1 to 255 characters"),
    "deep": (lambda _: b'{"kind":"run","crc":"","data":' + b"[" * 100_000 + b"\n", "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_line_that_somebody_has_edited_is_named_by_its_number(fresh, tmp_path, what):  # noqa: F811
    source, target, ids = two(fresh, 3)
    source.run(App(source.store).export(tmp_path / "a"))
    edit, why = HOSTILE[what]
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join([*lines[:2], edit(lines[2]), *lines[3:]]))
    with pytest.raises(DamagedLine, match="line 3 is damaged") as caught:
        target.run(App(target.store).import_(tmp_path / "a"))
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500
    report = target.run(App(target.store).import_(tmp_path / "a", skip_damaged=True))
    assert (report.imported + report.there, len(report.damaged)) == (len(ids) - 1, 1)


def test_a_debt_without_an_account_does_not_end_the_chores_of_the_store(fresh, tmp_path):  # noqa: F811
    source, target, _ = two(fresh, 1)
    source.run(App(source.store).export(tmp_path / "a"))
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join([lines[0], _row(owes=63)(lines[1])]))
    target.run(App(target.store).import_(tmp_path / "a", hold=False, skip_damaged=True))
    target._ids = 9_000_000
    own = target.start(type="shop.other.v1")
    target.tick()
    assert target.take(own, types=("shop.other.v1",))


def test_lines_after_the_end_are_not_read(fresh, tmp_path):  # noqa: F811
    source, target, ids = two(fresh)
    source.run(App(source.store).export(tmp_path / "a"))
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(DamagedLine, match="it comes after the last line"):
        target.run(App(target.store).import_(tmp_path / "a"))
    assert len(runs(target)) == len(ids)
    (tmp_path / "b").write_bytes(lines[0] + line_of(Header(format=1)) + b"".join(lines[1:]))
    with pytest.raises(DamagedLine, match="it is the first line of an export"):
        target.run(App(target.store).import_(tmp_path / "b"))


def test_the_header_of_a_file_without_lines_costs_little(fresh, tmp_path):  # noqa: F811
    target = fresh()
    (tmp_path / "a").write_bytes(b"\0" * 200_000)
    with pytest.raises(UsageError, match="is no file of"):
        target.run(App(target.store).import_(tmp_path / "a"))


def test_what_a_run_was_before_it_left_is_read(fresh, tmp_path):  # noqa: F811
    source, _, _ = two(fresh, 1)
    source.run(App(source.store).export(tmp_path / "a"))
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    for edit in (_was(), _was(status="paused", resume_to="waiting", error='{"kind":"x"}'), _row(fence=2**52)):
        (tmp_path / "a").write_bytes(b"".join([lines[0], edit(lines[1])]))
        report = fresh().run(App(fresh().store).import_(tmp_path / "a", skip_damaged=True))
        assert (report.imported, report.damaged) == (1, [])


@pytest.mark.parametrize("kind", ["event", "run"])
def test_a_line_that_is_too_long_is_passed_over_and_not_held(fresh, tmp_path, monkeypatch, kind):  # noqa: F811
    source, target, ids = two(fresh)
    source.run(App(source.store).export(tmp_path / "a"))
    monkeypatch.setattr(lines, "LINE_BYTES", 10_000)
    monkeypatch.setattr(lines, "RUN_LINE_BYTES", 20_000)
    whole = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    long = b'{"kind":"%s","crc":"00000000","data":"%s"}\n' % (kind.encode(), b"x" * 100_000)
    (tmp_path / "a").write_bytes(b"".join([whole[0], long, *whole[1:]]))
    with pytest.raises(DamagedLine, match="line 2 is damaged: it has more than"):
        target.run(App(target.store).import_(tmp_path / "a"))
    report = target.run(App(target.store).import_(tmp_path / "a", skip_damaged=True))
    assert (report.imported, len(report.damaged)) == (len(ids), 1)


def test_a_run_may_have_a_longer_line(fresh, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(lines, "LINE_BYTES", 10_000)
    source, target = fresh(), fresh()
    source.start(params=f'"{"x" * 50_000}"')
    source.run(App(source.store).export(tmp_path / "a"))
    assert target.run(App(target.store).import_(tmp_path / "a")).imported == 1
    monkeypatch.setattr(lines, "RUN_LINE_BYTES", 90_000)
    with pytest.raises(UsageError, match="too many for a line of a file: move it"):
        source.run(App(source.store).export(tmp_path / "b"))
