"""One trace over real processes, sent by OTLP: a start, two workers of which one is killed, a webhook."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import holdfast as hf
from tests.engine.outbox.receiver import receiving
from tests.engine.tracing.collector import collecting
from tests.laws.effort import longer

SECRET = "whsec_" + "QUJD" * 8
WAIT_SECONDS = 40.0
APP = """
import os, pathlib, time
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
import holdfast as hf

provider = TracerProvider()
exporter = OTLPSpanExporter(endpoint=os.environ["COLLECTOR"])
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
app = hf.App(name="shop")

@app.workflow("shop.child.v1")
async def child(ctx, params: str):
    return await ctx.step("grow", lambda: params)

def charge():
    with tracer.start_as_current_span("charging"):
        return 1

def hang():
    if "HANG" in os.environ:
        pathlib.Path("hangs").write_text("")
        time.sleep(600)

@app.workflow("shop.order.v1")
async def order(ctx, params: str):
    await ctx.step("charge", charge)
    await ctx.call(child, params)
    await ctx.step("pack", lambda: 1)
    await ctx.step("hang", hang)
    ctx.send("carrier", {"params": params})
    return "done"
"""


class Workers:
    """Workers as processes, in one folder."""

    def __init__(self, folder, **env):
        self._folder, self._env, self._running = folder, os.environ | env, []

    def start(self, **env):
        argv = [
            sys.executable,
            "-m",
            "holdfast.cli",
            "worker",
            "shop:app",
            "--lease",
            "3",
            "--log-level",
            "error",
        ]
        with (self._folder / "log").open("ab") as log:
            one = subprocess.Popen(argv, cwd=self._folder, env=self._env | env, stdout=log, stderr=log)
        self._running.append(one)
        return one

    def kill(self, one, number=signal.SIGKILL):
        one.send_signal(number)
        one.wait(WAIT_SECONDS)
        self._running.remove(one)

    def until(self, look):
        """Wait in real time, because real processes have no clock that a test can turn."""
        end = time.monotonic() + WAIT_SECONDS
        while not (found := look()):
            assert time.monotonic() < end, (self._folder / "log").read_text()[-4000:]
            time.sleep(0.02)
        return found

    def close(self):
        for one in list(self._running):
            self.kill(one)


@pytest.fixture(params=["postgres", *longer("sqlite", "redis")])
def url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_database").url
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def collector(monkeypatch):
    """A collector, and a provider of this process that sends to it."""
    with collecting() as server:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=server.url)))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        yield server
        provider.shutdown()


def played(url, folder, collector, carrier):
    """Start a run, kill the worker that executes it, and let another one finish it."""
    app = hf.App(url).sync
    workers = Workers(folder, HOLDFAST_STORE=url, COLLECTOR=collector.url, PYTHONPATH=".")
    try:
        app.webhook("carrier", carrier.url, SECRET, allow_private=True)
        with trace.get_tracer("shop").start_as_current_span("request"):
            run = app.start("shop.order.v1", "s3cr3t")
        first = workers.start(HANG="1")
        workers.until((folder / "hangs").exists)
        workers.until(lambda: collector.named("run shop.child.v1"))
        workers.until(lambda: collector.named("step pack"))
        workers.kill(first)
        second = workers.start()
        assert run.result(WAIT_SECONDS) == "done"
        workers.until(lambda: collector.named("send carrier"))
        workers.kill(second, signal.SIGTERM)
    finally:
        workers.close()
        app.close()


@pytest.mark.slow
@pytest.mark.spec("OPS-4")
def test_a_trace_over_processes_of_which_one_is_killed_is_one_tree(url, tmp_path, collector):
    """Every span hangs on one that has come, by its parent or by a link. No value of a user is in any."""
    (tmp_path / "shop.py").write_text(APP)
    with receiving() as carrier:
        played(url, tmp_path, collector, carrier)
    spans, above = collector.spans, collector.above()
    assert {one.trace for one in spans} == {spans[0].trace}
    assert [one.name for one in spans if above[one.id] is None] == ["request"]
    assert {top(one, above).name for one in spans} == {"request"}
    (request,) = collector.named("request")
    (start, of_child) = sorted(collector.named("holdfast.start"), key=lambda one: one.parent != request.id)
    assert start.parent == request.id
    # The first execution parked for the child; the second was killed; the third has ended the run.
    first, last = collector.named("run shop.order.v1")
    assert (first.parent, last.parent, last.links) == (start.id, start.id, [first.id])
    assert [one.attributes["holdfast.outcome"] for one in (first, last)] == ["waiting", "succeeded"]
    assert first.attributes["holdfast.worker"] != last.attributes["holdfast.worker"]
    (child,) = collector.named("run shop.child.v1")
    assert (child.parent, child.links, of_child.parent) == (start.id, [of_child.id], first.id)
    (packed,) = collector.named("step pack")  # of the execution that was killed, which never came
    assert (packed.parent in above, packed.links) == (False, [start.id])
    (sent,) = collector.named("send carrier")
    assert (sent.kind, sent.parent) == ("SPAN_KIND_CLIENT", start.id)
    assert carrier.got[0].headers["traceparent"] == f"00-{sent.trace}-{sent.id}-01"
    assert {"step charge", "charging", "step grow", "wait child", "step hang"} <= {one.name for one in spans}
    assert not any(b"s3cr3t" in one.raw for one in spans)


def top(span, above):
    """Return the span that all above this one hang on."""
    for _ in above:
        if above[span.id] is None:
            return span
        span = above[span.id]
    raise AssertionError(f"{span} hangs on itself")
