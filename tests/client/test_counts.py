"""The verbs that count, over HTTP: the same records as those of an app."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import holdfast as hf
from holdfast.client import counts as back
from holdfast.records import ANY, SECOND, Backlog, Counts, DueRuns, Scale
from holdfast.shown import counts as shown

NOW = 1_800_000_000 * SECOND
COUNTS = Counts(
    now=NOW, by_type={"a": {"pending": 2}}, totals={"a": {"started": 7}, "b": {"failed": 1}}, more=True
)
ITEMS = (
    DueRuns(type="a", tenant="x", due=10_000, more=True, oldest_due_at=NOW - 90 * SECOND, leased=3),
    DueRuns(type="b", tenant="y", due=0, more=False, oldest_due_at=None, leased=1),
)
SCALE = Scale(now=NOW, items=ITEMS)


def over_the_wire(shape):
    return msgspec.json.decode(msgspec.json.encode(shape), type=type(shape))


@pytest.mark.spec("HTTP-8")
def test_records_come_back_as_they_were():
    assert back.counts_of(over_the_wire(shown.counts_data(COUNTS))) == COUNTS
    assert back.scale_of(over_the_wire(shown.scale_data(SCALE))) == SCALE
    left_out = Scale(now=NOW, items=(), more=True)
    assert back.scale_of(over_the_wire(shown.scale_data(left_out))) == left_out
    one = Backlog(sink="mail", pending=1, dead=2, oldest_at=NOW)
    assert [back.backlog_of(over_the_wire(each)) for each in shown.backlog_data([one], NOW)] == [one]


@pytest.mark.spec("OPS-7")
def test_the_sums_of_the_scaling_signal_are_always_there():
    data = shown.scale_data(SCALE)
    assert (data.due, data.leased, data.load, data.oldest_due_seconds) == (10_000, 4, 10_004, 90.0)
    assert (data.more, data.more_types) == (True, False)
    none = shown.scale_data(Scale(now=NOW, items=()))
    assert (none.due, none.leased, none.load, none.oldest_due_seconds, none.more) == (0, 0, 0, 0.0, False)


@pytest.mark.spec("HTTP-8", "OPS-7")
async def test_counts_rates_and_scale_are_those_of_the_app(server):
    async with server.client() as client:
        for n in range(3):
            await client.start("shop.order.v1", {"id": n}, delay=3600)
        await client.start("shop.order.v1", {"id": 9}, delay=3600, tenant="other")
        assert (await client.counts()).by_type["shop.order.v1"] == {"pending": 3}
        everywhere = client.of(ANY)
        for one, app in ((client, server.app.of("default")), (everywhere, server.app)):
            here, there = await one.counts(), server.run(app.counts())
            assert (here.by_type, here.totals, here.more) == (there.by_type, there.totals, there.more)
            assert list(await one.rates()) == list(server.run(app.rates()))
            assert (await one.scale()).items == (server.run(app.scale())).items
        assert (await everywhere.counts()).totals["shop.order.v1"] == {"started": 4}
        assert await client.rates(limit=0) == []
        assert len(await client.rates(limit=1)) == 1
        assert await client.rates(datetime.now(UTC) + timedelta(hours=1)) == []
        assert await client.backlog() == []
        with pytest.raises(hf.UsageError, match="no time zone"):
            await client.rates(datetime(2030, 1, 1))  # noqa: DTZ001 - that it has no zone is the point
