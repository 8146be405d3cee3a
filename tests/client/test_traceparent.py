"""The client sends the current span's context, and the run belongs to it: one trace over HTTP."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from tests.client.kit import Serving
from tests.engine.tracing.kit import Spans

pytestmark = [pytest.mark.spec("OPS-4"), pytest.mark.slow]

RUN = "run shop.quick.v1"


@pytest.fixture
def spans(monkeypatch):
    made = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    return made


def instrumented(spans):
    """An ASGI application in a span of its own, as instrumentation makes it."""

    def wrapped(app):
        async def called(scope, receive, send):
            with spans.tracer.start_as_current_span("server"):
                await app(scope, receive, send)

        return called

    return wrapped


async def test_a_run_that_a_client_starts_belongs_to_the_span_of_its_caller(spans):
    """The server makes no span: its own process may have no provider at all."""
    with Serving(worker=True) as server:
        async with server.client() as client:
            with spans.tracer.start_as_current_span("request"):
                run = await client.start("shop.quick.v1", 1)
                (many,) = await client.start_many([("shop.quick.v1", 2)])
            assert [await run.result(10), await many.result(10)] == [1, 2]
    assert spans.names == {"request": 1, RUN: 2}
    assert [spans.parent(one) for one in spans.named(RUN)] == ["request", "request"]


async def test_a_run_belongs_to_the_span_of_an_instrumented_server(spans):
    with Serving(worker=True, wrap=instrumented(spans)) as server:
        async with server.client() as client:
            run = await client.start("shop.quick.v1", 1)
            assert await run.result(10) == 1
    assert spans.parent(spans.one(RUN)) == "server"


async def test_without_a_span_a_request_has_no_traceparent(spans):
    with Serving(worker=True) as server:
        async with server.client() as client:
            assert await (await client.start("shop.quick.v1", 1)).result(10) == 1
    assert spans.one(RUN).parent is None
