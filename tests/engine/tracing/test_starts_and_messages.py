"""Spans of starts, and of tries to deliver messages. Webhooks get a traceparent."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from holdfast import App, Fatal, KeyReused, UsageError
from holdfast.records import Ask, NewRun
from tests.engine.kit import outcome
from tests.engine.outbox.receiver import receiving
from tests.engine.tracing.kit import text

pytestmark = pytest.mark.spec("OPS-4")

REMOTE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECRET = "whsec_" + "QUJD" * 8


async def traces(app, type_="shop.order.v1"):
    """Claim the runs, and return their stored traces."""
    return [one.trace for one in await app.store.claim(Ask(worker="w", types=(type_,), limit=100))]


async def test_all_runs_of_one_call_have_one_span(app, spans):
    @app.workflow("shop.order.v1")
    async def order(ctx, number):
        return number

    with spans.tracer.start_as_current_span("request"):
        handles = await app.start_many([(order, number) for number in range(3)])
    start = spans.one("holdfast.start")
    assert (start.kind, spans.parent(start)) == (SpanKind.PRODUCER, "request")
    assert start.attributes["messaging.batch.message_count"] == len(handles)
    assert start.attributes["holdfast.run.type"] == "shop.order.v1"
    assert await traces(app) == [text(start)] * 3


async def test_a_rerun_belongs_to_the_program_that_asks_for_it(app, spans):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    run = await app.start(order)
    again = await app.rerun(run.id)
    first, second = spans.named("holdfast.start")
    assert await traces(app) == [text(first), text(second)]
    assert second.attributes["holdfast.run.id"] == str(again.id)
    assert first.context.trace_id != second.context.trace_id


async def test_a_start_that_is_refused_has_the_name_of_its_error_and_no_value(app, spans):
    @app.workflow("shop.order.v1")
    async def order(ctx, number):
        return number

    await app.start(order, 1, key="k")
    with pytest.raises(KeyReused):
        await app.start(order, 2, key="k")
    refused = spans.named("holdfast.start")[1]
    assert (refused.status.status_code, refused.attributes["error.type"]) == (StatusCode.ERROR, "KeyReused")
    with pytest.raises(UsageError):
        await app.start(order, 3, priority=-1)
    assert spans.names == {"holdfast.start": 2}  # nothing was sent


async def test_without_a_provider_the_context_of_a_caller_is_passed_on(app):
    """A program may have the API alone, and a context that came from elsewhere."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    remote = SpanContext(int(REMOTE[3:35], 16), int(REMOTE[36:52], 16), True, TraceFlags(1))
    with trace.use_span(NonRecordingSpan(remote)):
        await app.start(order)
    assert await traces(app) == [REMOTE]


def test_a_blocking_start_has_the_context_of_its_thread(spans, tmp_path):
    """`app.sync` calls on a loop in another thread."""
    app = App(f"sqlite:///{tmp_path / 'h.db'}")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    with spans.tracer.start_as_current_span("request"):
        app.sync.start(order)
    assert spans.parent(spans.one("holdfast.start")) == "request"
    app.sync.close()


async def test_a_function_gets_its_message_inside_a_span(app, spans):
    """Each try has one, under the start of the run; async functions and sync ones have their spans in it."""
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", 1)
        ctx.send("file", 2)

    @app.sink("mail")
    async def mail(delivery):
        tries.append(delivery)
        with spans.tracer.start_as_current_span("mailing"):
            pass
        if len(tries) == 1:
            raise ConnectionError("the server is away")
        raise Fatal("no such address")

    @app.sink("file")
    def file(delivery):
        with spans.tracer.start_as_current_span("filing"):
            pass

    async with app.worker():
        await outcome(app, await app.start(order))
        await asyncio.sleep(60)
    first, second = spans.named("send mail")
    assert [one.attributes["holdfast.outcome"] for one in (first, second)] == ["failed", "dead"]
    assert [one.attributes["error.type"] for one in (first, second)] == ["ConnectionError", "Fatal"]
    assert [one.attributes["holdfast.message.attempt"] for one in (first, second)] == [1, 2]
    assert (first.kind, first.status.status_code) == (SpanKind.PRODUCER, StatusCode.ERROR)
    assert spans.one("send file").status.status_code is StatusCode.UNSET
    assert {spans.parent(one) for one in (first, second, spans.one("send file"))} == {"holdfast.start"}
    assert [spans.parent(one) for one in spans.named("mailing")] == ["send mail", "send mail"]
    assert spans.parent(spans.one("filing")) == "send file"
    assert len(spans.traces) == 1


def shop():
    app = App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("carrier", {"n": 1})

    return app


async def delivered(app, server, *starts):
    await app.webhook("carrier", server.url, SECRET, allow_private=True)
    async with app.worker():
        for start in starts:
            await app.final((await start()).id, 10)
        async with asyncio.timeout(10):
            while len(server.got) < len(starts):  # noqa: ASYNC110 - a real server
                await asyncio.sleep(0.01)
    await app.close()


def test_a_webhook_gets_the_traceparent_of_its_span(spans):
    with receiving() as server:
        app = shop()
        asyncio.run(delivered(app, server, lambda: app.start("shop.order.v1")))
        (got,) = server.got
    sent = spans.one("send carrier")
    assert got.headers["traceparent"] == text(sent)
    assert (sent.kind, spans.parent(sent)) == (SpanKind.CLIENT, "holdfast.start")
    assert server.url not in sent.to_json()


@pytest.mark.parametrize(
    ("stored", "header"),
    [
        (REMOTE, REMOTE),
        (f"{REMOTE} {REMOTE[:36]}1111111111111111-01 4", REMOTE),
        ("", None),
        ("a\r\nX-Evil: 1", None),
        (f"{REMOTE}\r\nX-Evil: 1", None),
    ],
)
def test_without_a_provider_a_webhook_gets_the_trace_of_the_run(stored, header):
    """It is passed on, as far as it is valid: what a user's SQL has stored may be anything."""

    async def start():
        run = NewRun(id=app.world.uuid7(), type="shop.order.v1", trace=stored)
        await app.store.start([run])
        return run

    with receiving() as server:
        app = shop()
        asyncio.run(delivered(app, server, start))
        (got,) = server.got
    assert got.headers.get("traceparent") == header
    assert "X-Evil" not in got.headers


@pytest.mark.parametrize("key", [None, "order:42"])
async def test_a_start_names_the_run_that_it_has_found(app, spans, key):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    first = await app.start(order, key=key)
    second = await app.start(order, key=key)
    named = [one.attributes["holdfast.run.id"] for one in spans.named("holdfast.start")]
    assert named == [str(first.id), str(second.id)]
    assert (first.id == second.id) is (key is not None)
