"""Messages that fill many pages: reports about the outbox do not end with the first page."""

from __future__ import annotations

import pytest

from holdfast.engine.failures import encoded
from holdfast.engine.outbox.health import SHOWN
from holdfast.records import Error, RelayAsk, Relayed

MESSAGES = 7
SEALED = encoded(Error(kind="sealed", message="no key 'old'"))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    """Let two messages fill a page."""
    monkeypatch.setattr("holdfast.bounds.BATCH_BYTES", 10_000)


@pytest.fixture
def given_back(app):
    """Start runs that send messages; call it to answer their parcels."""

    @app.workflow("shop.order.v1")
    async def order(ctx, count):
        for n in range(count):
            ctx.send("mail", "x" * 4_000, name=f"m{n}")

    async def back(counts, answer_of):
        handles = [await app.start(order, count) for count in counts]
        async with app.worker():
            for handle in handles:
                await handle.result(60)
        parcels = await app.store.relay(RelayAsk(relay="r", sinks=("mail",), bytes=1_000_000))
        assert len(parcels) == MESSAGES
        answers = [Relayed(id=one.id, fence=one.fence, **answer_of(n)) for n, one in enumerate(parcels)]
        assert all(await app.store.relayed(answers))
        return [handle.id for handle in handles]

    return back


@pytest.mark.spec("EXPL-1", "READ-1")
async def test_explain_names_messages_behind_the_first_page(app, given_back):
    (run,) = await given_back([MESSAGES], lambda _: {"answer": "released"})
    assert len((await app.explain(run)).data["messages"]) == SHOWN


@pytest.mark.spec("READ-1", "OUT-1")
async def test_the_doctor_finds_a_sealed_message_behind_the_first_page(app, given_back):
    def answered(n):
        return {"answer": "released", "error": SEALED if n >= MESSAGES - 2 else None}

    runs = await given_back([1] * MESSAGES, answered)
    (said,) = [one for one in (await app.doctor()).findings if "could not be decrypted" in one.what]
    assert said.runs == tuple(runs[-2:])
    assert said.what.endswith("no key 'old', and 1 more")


@pytest.mark.spec("READ-1", "OUT-1")
async def test_the_doctor_names_the_runs_of_dead_letters_behind_the_first_page(app, given_back):
    runs = await given_back([1] * MESSAGES, lambda _: {"answer": "dead"})
    (said,) = [one for one in (await app.doctor()).findings if "dead letters" in one.what]
    assert said.runs == tuple(runs[:SHOWN])
