"""What is told of a message that its sink did not take."""

from __future__ import annotations

import logging

import pytest

from holdfast import Fatal
from tests.engine.test_outbox import settled


@pytest.mark.spec("OUT-1")
async def test_a_try_that_fails_is_one_line_with_its_reason(app, caplog):
    """Its traceback is for debugging, and for the last word; the query of a URL is never told."""
    answers = [ValueError("no route\nto https://x.example/in?token=s3cret now"), Fatal("bad address")]

    @app.sink("mail")
    async def mail(delivery):
        raise answers.pop(0)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail")

    with caplog.at_level(logging.INFO, "holdfast.relay"):
        async with app.worker():
            await (await app.start(order)).result()
            await settled(app)
    first, *last = caplog.records
    assert first.getMessage().endswith(
        "failed at attempt 1 (ValueError: no route to https://x.example/in?… now), again in 1 s"
    )
    assert [bool(one.exc_info) for one in (first, *last)] == [False, True, False]
    assert last[1].getMessage().endswith("failed at attempt 2 (Fatal: bad address), not tried again")
