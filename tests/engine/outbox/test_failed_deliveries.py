"""Messages that their sink did not accept: the recorded error and the log."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from holdfast import Fatal
from holdfast.engine.outbox import sinks
from holdfast.engine.outbox.http_post import Poster
from holdfast.records import Parcel, Webhook
from tests.engine.outbox.test_outbox import settled


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("failure", [ValueError, Fatal], ids=["tried again", "dead"])
async def test_an_exception_of_a_sink_is_logged_without_its_text(app, caplog, failure):
    """The text may contain the payload or a forged log line: it is kept with the message and never logged."""
    answers = [failure("no route for 4111 1111\n2026-01-01 ERROR forged\x1b[2J"), Fatal("last 4111 1111")]

    @app.sink("mail")
    async def mail(delivery):
        raise answers.pop(0)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.send("mail", {"card": "4111 1111"})

    with caplog.at_level(logging.DEBUG):
        async with app.worker():
            await (await app.start(order)).result()
            await settled(app)
    first = next(one for one in caplog.records if "failed at attempt 1" in one.getMessage())
    assert f"({failure.__name__} at " in first.getMessage()
    assert "test_failed_deliveries.py:" in first.getMessage()
    assert first.exc_info is None
    assert "4111 1111" not in caplog.text
    assert "forged" not in caplog.text
    (message,) = await app.outbox()
    assert "4111 1111" in message.error.message
    assert message.error.type == "Fatal"


@pytest.mark.spec("OUT-1")
async def test_a_payload_that_nobody_can_read_is_a_dead_letter_at_once(app):
    taken = []

    @app.sink("mail")
    async def mail(delivery):
        taken.append(delivery)

    deep = "[" * 1000 + "]" * 1000
    with pytest.raises(sinks.Refused, match="the payload is nested deeper than 64 levels") as refused:
        await sinks.call(app.sinks["mail"], parcel(payload=deep), app.world)
    assert refused.value.final
    assert taken == []


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize("target", ["{", "[]", "[" * 100_000, '{"url": 7}'])
async def test_an_unreadable_address_is_reported_without_its_text(app, target):
    webhook = Webhook(name="erp", target=target, allow_private=False)
    with pytest.raises(sinks.Refused, match="its stored address cannot be read") as refused:
        await sinks.post(webhook, parcel(webhook=webhook), Poster(app.world), app.world)
    assert not refused.value.final


@pytest.mark.spec("OUT-2")
async def test_a_webhook_that_cannot_be_read_hides_no_other_and_can_be_added_again(app):
    await app.webhook("good", "https://example.com/in")
    await app.store.put_webhook(Webhook(name="bad", target="[" * 1000 + "]" * 1000, allow_private=False))
    assert [(one.name, one.url) for one in await app.webhooks()] == [
        ("bad", "unreadable"),
        ("good", "https://example.com/in"),
    ]
    assert await app.webhook("bad", "https://example.com/in")


@pytest.mark.parametrize("error", [None, "{", "[" * 9999, "7", sinks.failure("http", "", "a?b=c x")])
def test_every_stored_error_has_one_line(error):
    assert sinks.in_short(error).isprintable()


def parcel(**fields):
    known = {"payload": "1", "webhook": None, "tenant": "default", "created_at": 0, **fields}
    return Parcel(id="m", sink="mail", key=None, run=UUID(int=1), fence=1, attempt=1, **known)
