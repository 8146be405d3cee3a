"""Log lines inside a span have its ids: as attributes, in JSON, and in text."""

from __future__ import annotations

import json
import logging

import pytest

from holdfast import LogContext
from holdfast.cli.logs import JsonFormatter, TextFormatter
from tests.engine.kit import outcome

pytestmark = pytest.mark.spec("OPS-4", "OPS-6")

log = logging.getLogger("shop")


class Lines(logging.Handler):
    """A handler of a user, with our filter."""

    def __init__(self):
        super().__init__()
        self.records = []
        self.addFilter(LogContext())

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def lines():
    handler, root = Lines(), logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


async def told(app):
    def charge():
        log.warning("in the step")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        log.warning("in the body")
        await ctx.step("charge", charge)

    async with app.worker():
        assert (await outcome(app, await app.start(order)))[0] == "succeeded"


async def test_a_line_has_the_ids_of_the_span_that_it_is_written_in(app, spans, lines):
    await told(app)
    said = {one.getMessage(): one for one in lines.records}
    for text, name in (("in the body", "run shop.order.v1"), ("in the step", "step charge")):
        record, context = said[text], spans.one(name).context
        ids = f"{context.trace_id:032x}", f"{context.span_id:016x}"
        assert (record.trace_id, record.span_id) == ids
        shown = json.loads(JsonFormatter().format(record))
        assert (shown["trace_id"], shown["span_id"]) == ids
        assert f"{text}  trace_id={ids[0]} span_id={ids[1]}" in unstyled(record)


async def test_without_a_span_a_line_has_no_ids(app, lines):
    await told(app)
    records = [one for one in lines.records if one.name == "shop"]
    assert len(records) == 2
    assert not any(hasattr(one, "trace_id") for one in records)
    assert "trace_id" not in "".join([*map(JsonFormatter().format, records), *map(unstyled, records)])


async def test_a_line_about_the_worker_has_no_ids_of_a_run(app, spans, lines):
    """It may be written in the context of any run."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        logging.getLogger("holdfast.worker").warning("about the worker")

    async with app.worker():
        assert (await outcome(app, await app.start(order)))[0] == "succeeded"
    (line,) = [one for one in lines.records if one.getMessage() == "about the worker"]
    assert (line.run, hasattr(line, "trace_id")) == ("", False)


def unstyled(record):
    import click

    return click.unstyle(TextFormatter(with_date=False).format(record))
