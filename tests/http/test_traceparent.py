"""The header `traceparent` of a start becomes the trace of the run; one that is not valid is ignored."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.context import attach
from starlette.testclient import TestClient

import holdfast as hf
from holdfast.engine.tracing.spans import remote_context
from holdfast.http import asgi
from holdfast.records import Ask
from tests.engine.tracing.kit import Spans, text
from tests.http.real import ask, served

TYPE = "shop.order.v1"
GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

pytestmark = pytest.mark.spec("OPS-4", "HTTP-1")


@pytest.fixture
def app():
    app = hf.App("memory://")

    @app.workflow(TYPE)
    async def order(ctx, number: int = 0):
        return number

    return app


def traces(app):
    """Claim the runs, and return their stored traces."""
    claims = asyncio.run(app.store.claim(Ask(worker="w", types=(TYPE,), limit=100)))
    return [one.trace for one in sorted(claims, key=lambda one: one.id)]


@pytest.mark.parametrize(
    ("header", "stored"),
    [
        (GOOD, GOOD),
        (None, ""),
        ("nonsense", ""),
        (GOOD.replace("00-4", "ff-4"), ""),
        (f"{GOOD}{'-' * 5000}", ""),
        (f"{GOOD} {GOOD} 3", ""),  # the form that workers store is not taken from outside
        ("é", ""),
    ],
)
def test_a_start_has_the_trace_of_its_request(app, header, stored):
    headers = {} if header is None else {"traceparent": header.encode()}
    with TestClient(asgi(app, open=True)) as client:
        answer = client.post("/runs", json={"type": TYPE, "params": 1}, headers=headers)
        assert answer.status_code == 201, answer.text
        run = answer.json()["id"]
        many = client.post("/runs/batch", json={"starts": [{"type": TYPE}] * 2}, headers=headers)
        assert many.status_code == 200
        assert client.post(f"/runs/{run}/rerun", json={}, headers=headers).status_code == 201
    assert traces(app) == [stored] * 4


@pytest.fixture
def tracer(monkeypatch):
    """The tracer of a real SDK."""
    spans = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    return spans.tracer


@pytest.mark.parametrize("header", [GOOD, None])
def test_a_span_around_the_server_is_not_that_of_its_requests(app, tracer, header):
    around = tracer.start_span("around")

    async def prepare():
        attach(trace.set_span_in_context(around))  # the current one of the task that begins the server

    headers = {} if header is None else {"traceparent": header}
    with served(app, prepare=prepare, open=True) as (port, call):
        assert ask(port, "POST", "/runs", body={"type": TYPE}, **headers)[0] == 201
        (claim,) = call(app.store.claim, Ask(worker="w", types=(TYPE,), limit=100))
    assert text(around)[3:35] not in claim.trace
    assert claim.trace == header or header is None


@pytest.mark.parametrize("belongs", [True, False])
def test_the_span_of_an_instrumented_server_is_nearer_than_that_of_the_caller(app, tracer, belongs):
    """A span of another trace is not that of the request."""
    inner, made = asgi(app, open=True), []

    async def instrumented(scope, receive, send):
        context = remote_context(GOOD) if belongs else None
        with tracer.start_as_current_span("server", context=context) as span:
            made.append(text(span))
            await inner(scope, receive, send)

    with TestClient(instrumented) as client:
        answer = client.post("/runs", json={"type": TYPE}, headers={"traceparent": GOOD})
        assert answer.status_code == 201, answer.text
    assert traces(app) == [made[-1] if belongs else GOOD]
