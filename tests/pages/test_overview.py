"""The overview: numbers, groups of equal errors, latencies."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from holdfast.http.pages.latency import Latencies
from holdfast.http.pages.run.errors import caused
from holdfast.http.pages.views.overview import _types
from holdfast.records import Counted, Presence, Rate, Scope
from holdfast.shown.shapes import NULL, ErrorData

AT = datetime(2026, 1, 1, tzinfo=UTC)


def row(type_, run, milliseconds):
    return SimpleNamespace(type=type_, run=UUID(int=run), at=AT + timedelta(milliseconds=milliseconds))


class Pages:
    """A trail that is read in pages."""

    def __init__(self, *pages):
        self.pages, self.asked = list(pages), []

    async def follow_all(self, tenant, types, after, limit):
        self.asked.append(after)
        rows, more = self.pages.pop(0) if self.pages else ((), False)
        return SimpleNamespace(entries=rows, seq=len(self.asked), more=more)


def test_the_latency_is_from_the_wake_up_to_the_next_claim():
    first = [row("leased", 1, 0), row("woken", 1, 10), row("woken", 2, 20), row("leased", 2, 25)]
    second = [row("leased", 1, 40), row("leased", 1, 90), row("woken", 3, 99)]
    trail = Pages(((), False), (first, False), (second, True), ([row("leased", 3, 200)], False))
    latencies = Latencies(trail)
    assert asyncio.run(latencies.read("default")) is None
    assert asyncio.run(latencies.read("default")) == (pytest.approx(0.005), pytest.approx(0.005), 1)
    assert asyncio.run(latencies.read("default")) == (pytest.approx(0.030), pytest.approx(0.030), 2)
    assert asyncio.run(latencies.read("default")).number == 2  # rows were left out: run 3 does not count
    assert trail.asked == [None, 1, 2, None]


def test_the_overview_counts_runs_and_groups_errors(furnished_visit):
    text = furnished_visit.text("/")
    assert "Failures by error" in text
    assert ">3</a>" in text  # three runs that failed in the same way
    assert "Of the last 3 failed runs." in text
    assert "shop.broken.v1" in text


def test_a_type_without_a_worker_is_named_while_others_have_one(visit):
    store = visit.kit.app.store
    visit.kit.run(visit.kit.app.start, "shop.quick.v1")
    visit.kit.run(store.present, Presence(worker="w1", types=("shop.report.v1", "holdfast.bulk.v1"), slots=3))
    visit.kit.run(store.present, Presence(worker="serve", types=("holdfast.bulk.v1",), slots=5))
    text = visit.text("/")
    assert re.search(r"No worker for <a [^>]*>shop.quick.v1</a>: 1 due run", text)
    assert "0 of 3 slots in use" in text
    assert "No worker for shop.quick.v1" in visit.text("/workers")
    assert "only bulk operations" in visit.last.text
    assert visit.text("/workflows").count("no worker") == 1
    assert "No worker for shop.quick.v1" in visit.text("/workflows/shop.quick.v1")
    visit.kit.run(store.present, Presence(worker="w2", types=("shop.quick.v1",), slots=1))
    assert "No worker for" not in visit.text("/")


@pytest.mark.parametrize(
    ("type_", "message", "shown"),
    [
        ("StepFailed", "step 'pay' failed: ValueError: no card: 7", ("ValueError", "no card: 7")),
        ("StepFailed", "step 'pay' failed: it is closed", ("StepFailed", "it is closed")),
        ("StepFailed", "", ("StepFailed", "")),
        ("ValueError", "step 'pay' failed: x", ("ValueError", "step 'pay' failed: x")),
    ],
)
def test_the_error_of_a_step_is_the_exception_inside(type_, message, shown):
    error = ErrorData(
        kind="fatal", type=type_, message=message, traceback="", step="pay", attempt=1, max_attempts=1,
        since=None, args=NULL,
    )  # fmt: skip
    assert caused(error) == shown
    assert caused(None) == ("", "")


def test_the_latency_of_real_runs_is_shown(visit):
    visit.text("/")
    run = visit.kit.run(visit.kit.app.start, "shop.order.v1", {"id": 7})
    visit.kit.work(run.id)
    visit.kit.run(visit.kit.app.emit, "paid:7", None)
    visit.kit.work(run.id)
    assert ", of 1</small>" in visit.text("/")


def test_a_key_for_metrics_sees_numbers_only(keyed_visit):
    keyed_visit.kit.furnish()
    keyed_visit.sign_in(Scope.METRICS)
    text = keyed_visit.text("/")
    assert "shop.broken.v1" in text
    assert "Failures by error" not in text
    assert "Workers" not in text


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "types", "started"), [(4, 4_000, "16,000"), (2, 11_000, "10,000")])
def test_all_minutes_are_counted_though_one_answer_has_few(visit, monkeypatch, minutes, types, started):
    """One answer of the operation has at most 10,000 numbers, the oldest minute first."""
    now = int(visit.kit.api.world.now() // 60e6) * 60_000_000
    rows = [Rate(minute=now - minute * 60_000_000, type=f"a.t{n}.v1", what=Counted.STARTED, number=1)
            for minute in reversed(range(minutes)) for n in range(types)]  # fmt: skip

    async def rates(tenant, since, until=None, limit=10_000):
        first = since // 60_000_000 * 60_000_000
        return [one for one in rows if one.minute >= first][:limit]

    monkeypatch.setattr(visit.kit.app.store, "rates", rates)
    text = visit.text("/")
    assert f"<b>{started}</b> in the last hour" in text
    assert ("does not count all of the last hour" in text) == (started == "10,000")
    visit.kit.run(visit.kit.app.start, "a.t3999.v1", delay=60)
    one = visit.text("/workflows/a.t3999.v1")
    assert f"<span>{minutes if started == '16,000' else 1} started</span>" in one
    assert ("does not count all of the last hour" in one) == (started == "10,000")
    assert ("some numbers are too low" in visit.text("/workflows")) == (started == "10,000")


def test_the_numbers_of_many_types_are_found_at_once():
    """It took a second when each type looked through all due runs."""
    many = [str(number) for number in range(4_000)]
    counts = SimpleNamespace(by_type={one: {"pending": 1} for one in many})
    queued = [SimpleNamespace(type=one, due=1, more=False, oldest_due_seconds=1.0) for one in many]
    began = time.process_time()
    rows, number = _types(counts, SimpleNamespace(items=queued), [], AT)
    assert (len(rows), number, rows[0].due) == (30, 4_000, 1)
    assert time.process_time() - began < 0.5
