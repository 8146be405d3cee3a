"""Messages in a rehearsal: none is sent, and the test can look at them."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.testing import Rehearsal


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_rehearsal_sends_no_real_mail(store):
    """Neither a sink of the app nor a webhook is called; the messages stay in the outbox."""
    app, mails = App("memory://"), []
    app.sink("mail")(mails.append)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", {"to": "ann"})
        ctx.send("shop", {"n": 1})
        await ctx.sleep(days=1)

    with Rehearsal(app, store=store) as stage:
        stage.do(stage.app.webhook("shop", "https://shop.invalid/in"))
        stage.start(order).result()
        stage.advance(days=1)
        sent = stage.do(stage.app.outbox())
    assert [(one.sink, one.payload, str(one.status)) for one in sent] == [
        ("mail", {"to": "ann"}, "pending"),
        ("shop", {"n": 1}, "pending"),
    ]
    assert mails == []
    assert list(app.sinks) == ["mail"]
