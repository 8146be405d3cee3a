"""Webhooks, end to end: from a step's commit to a real receiver that verifies the messages."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast import App, Encrypt, MessageStatus, OutboxFilter, UsageError, WrongKey
from holdfast.engine.outbox import signing
from holdfast.engine.outbox.http_post import Poster
from holdfast.engine.outbox.relay import Relay
from holdfast.records import ANY
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.driver import Clock
from tests.engine.outbox.receiver import receiving
from tests.laws.effort import longer

SECRET = "whsec_" + "QUJD" * 8
PENDING = OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", *longer("memory")])
def shop(request, clock, tmp_path):
    """An app on a real event loop. The test moves the clock of its store."""
    stores = {"memory": MemoryStore, "sqlite": lambda clock: SqliteStore(str(tmp_path / "h.db"), clock=clock)}
    app = App(stores[request.param](clock=clock))

    @app.workflow("shop.order.v1")
    async def order(ctx, numbers):
        for number in numbers:
            ctx.send("carrier", {"n": number}, key="42")
        return "done"

    return app


def told(app, story):
    """Run a scenario on a real event loop."""

    async def whole():
        try:
            return await story()
        finally:
            await app.close()

    return asyncio.run(whole())


async def sent(app, *numbers):
    """Start a run that has sent these messages, without a relay."""
    async with app.worker(relay=False):
        await (await app.start("shop.order.v1", list(numbers))).result(10)


def relay(app):
    return Relay(app.store, app.world, "r1", app.sinks)


@pytest.mark.spec("OUT-2", "FLOW-18")
def test_a_receiver_can_verify_what_it_gets(shop):
    """The reference implementation of Standard Webhooks accepts the message, and refuses it with a changed
    byte.
    """

    async def story():
        assert await shop.webhook("carrier", server.url, SECRET, allow_private=True) is None
        async with shop.worker():
            await (await shop.start("shop.order.v1", [1])).result(10)
            async with asyncio.timeout(10):
                while await shop.outbox(PENDING):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        return (await shop.outbox())[0]

    with receiving() as server:
        message = told(shop, story)
        (got,) = server.got
    assert Webhook(SECRET).verify(got.body, got.headers) == {"n": 1}
    assert (got.headers["webhook-id"], got.headers["Content-Type"]) == (message.id, "application/json")
    assert (message.status, message.attempts) == (MessageStatus.SENT, 1)
    for wrong in (got.body + b" ", got.body.replace(b"1", b"2")):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(wrong, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "REVG" * 8).verify(got.body, got.headers)


@pytest.mark.spec("OUT-1", "OUT-2")
def test_a_receiver_that_is_down_for_an_hour_loses_nothing_and_gets_its_key_in_order(shop, clock):
    """It refuses, then answers errors, then works: the ids are the same, in the order of the commits."""
    ids = []

    async def story():
        await shop.webhook("carrier", server.url, SECRET, allow_private=True)
        await sent(shop, 1, 2, 3)
        until = clock.now + 3600 * 1_000_000
        while clock.now < until:
            await relay(shop).drain()
            clock.now = max(clock.now, await shop.store.relay_at(()))
        ids.extend(one.headers["webhook-id"] for one in server.got)
        server.got.clear()
        server.answer = 200
        await relay(shop).drain()

    with receiving() as server:
        server.answer = lambda _: 503 if len(server.got) % 2 else 429
        told(shop, story)
    assert len(ids) == 12
    assert server.payloads == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert set(ids) == {server.got[0].headers["webhook-id"]}


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (200, "sent", None),
        (204, "sent", None),
        (301, "pending", "answered 301 (redirects are not followed)"),
        (400, "pending", "answered 400"),
        (404, "pending", "answered 404"),
        (500, "pending", "answered 500"),
        (410, "dead", "answered 410"),
    ],
)
def test_answers_of_a_receiver(shop, answer, status, said):
    """2xx is a success, 410 is final, all else is retried. The body of an answer is not kept."""

    async def story():
        await shop.webhook("carrier", server.url, SECRET, allow_private=True)
        await sent(shop, 1)
        await relay(shop).drain()
        return (await shop.outbox())[0]

    with receiving() as server:
        server.answer = (answer, {"Location": "http://127.0.0.1:1/"}, b"" if answer == 204 else b"s3cret")
        message = told(shop, story)
        assert len(server.got) == 1
    assert message.status == status
    assert (message.error and message.error.message) == said
    assert "s3cret" not in (message.error_json or "")


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(
    ("status", "seconds", "waits"),
    [(429, 90, 90), (503, 90, 90), (429, 10**9, 3600), (500, 90, 1), (429, 0, 1)],
)
def test_a_busy_receiver_says_when_to_retry(shop, clock, status, seconds, waits):
    """The delay is at most the longest one, and never shorter than the usual one."""

    async def story():
        await shop.webhook("carrier", server.url, SECRET, allow_private=True)
        await sent(shop, 1)
        await relay(shop).drain()
        return (await shop.store.relay_at(()) - clock.now) / 1_000_000

    with receiving() as server:
        server.answer = (status, {"Retry-After": str(seconds)}, b"")
        assert waits <= told(shop, story) <= waits * 1.1 + 0.1


@pytest.mark.spec("OUT-2")
def test_a_private_address_is_refused_at_every_try_unless_it_was_allowed(shop):
    """This includes an address that was allowed once and is not any more."""

    async def story():
        await shop.webhook("carrier", f"https://shop.example:{server.port}/", SECRET)
        await sent(shop, 1)
        inside = Poster(shop.world, lambda *_: ["127.0.0.1"])
        await Relay(shop.store, shop.world, "r1", poster=inside).drain()
        return (await shop.outbox())[0]

    with receiving() as server:
        message = told(shop, story)
        assert server.got == []
    assert message.error.kind == "refused"
    assert "shop.example has the address 127.0.0.1" in message.error.message


@pytest.mark.spec("OUT-2")
def test_a_new_secret_signs_beside_the_one_before_it(shop):
    """The receiver may switch at any time; only the newest two of three secrets sign."""
    made = [signing.make_secret() for _ in range(3)]

    async def story():
        for number, secret in enumerate(made):
            await shop.webhook("carrier", server.url, secret, allow_private=True)
            await sent(shop, number)
            await relay(shop).drain()
        # A repeated definition, as at every start of an app, changes nothing.
        await shop.webhook("carrier", server.url, allow_private=True)
        await sent(shop, 3)
        await relay(shop).drain()
        return await shop.webhooks()

    with receiving() as server:
        (known,) = told(shop, story)
    valid = [[n for n, secret in enumerate(made) if _verifies(secret, got)] for got in server.got]
    assert valid == [[0], [0, 1], [1, 2], [1, 2]]
    assert known.secrets == (f"whsec_…{made[2][-4:]}", f"whsec_…{made[1][-4:]}")


def _verifies(secret, got):
    try:
        return bool(Webhook(secret).verify(got.body, got.headers))
    except WebhookVerificationError:
        return False


@pytest.mark.spec("OUT-2")
def test_a_secret_that_is_made_here_is_shown_once(shop):
    async def story():
        made = await shop.webhook("carrier", server.url, allow_private=True)
        again = await shop.webhook("carrier", f"{server.url}?q=1", allow_private=True)
        await sent(shop, 1)
        await relay(shop).drain()
        (shown,) = await shop.webhooks()
        assert await shop.remove_webhook("carrier") is True
        assert (await shop.webhooks(), await shop.remove_webhook("carrier")) == ([], False)
        return made, again, shown

    with receiving() as server:
        made, again, shown = told(shop, story)
    assert again is None
    assert _verifies(made, server.got[0])
    assert server.got[0].path == "/in?q=1"
    assert (shown.url, shown.allow_private) == (f"{server.url}…", True)


@pytest.mark.spec("OUT-2")
def test_two_apps_that_add_a_webhook_at_once_sign_with_a_secret_that_one_was_given(shop):
    """The quicker one decides. A secret that is returned to a caller always signs."""

    async def story():
        seen, both, real = [], asyncio.Event(), shop.store.webhooks

        async def webhooks():
            found = await real()
            seen.append(found)
            if len(seen) == 2:
                both.set()
            await both.wait()
            return found

        shop.store.webhooks = webhooks
        made = await asyncio.gather(*[shop.webhook("carrier", "https://example.com/in") for _ in range(2)])
        return made, json.loads((await real())[0].target)["secrets"]

    made, secrets = told(shop, story)
    assert [one for one in made if one is not None] == secrets


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(
    "secret", ["", "s3cret", "whsec_", "whsec_s3cret!", "whsec_czNjcmV0", "whsec_" + "QUJD" * 30]
)
def test_a_secret_that_cannot_sign_is_refused_and_not_repeated(shop, secret):
    async def story():
        await shop.webhook("carrier", "https://example.com/", secret)

    with pytest.raises(UsageError, match="24 to 64 bytes") as error:
        told(shop, story)
    assert "s3cret" not in str(error.value)


def test_a_webhook_is_not_called_like_a_function_of_the_app(shop):
    shop.sink("mail")(print)

    async def story():
        await shop.webhook("mail", "https://example.com/")

    with pytest.raises(UsageError, match="is a function of this app"):
        told(shop, story)


@pytest.mark.spec("OUT-2")
def test_neither_log_nor_error_tells_the_secret_or_the_query(shop, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")

    async def story():
        await shop.webhook("carrier", f"{server.url}?token=s3cret", SECRET, allow_private=True)
        await sent(shop, 1)
        await relay(shop).drain()
        return (await shop.outbox())[0]

    with receiving() as server:
        server.answer = 500
        message = told(shop, story)
    said = caplog.text + (message.error_json or "")
    assert "carrier" in caplog.text
    assert "s3cret" not in said
    assert SECRET.removeprefix("whsec_") not in said


KEYS = {"new": bytes(range(32))}


class TestSealed:
    """With a codec payload and address are sealed in the store, and arrive readable."""

    @pytest.fixture
    def sealed(self, clock):
        store = MemoryStore(clock=clock)
        return lambda codec: self.app(App(store, codec=codec))

    @staticmethod
    def app(app):
        @app.workflow("shop.order.v1")
        async def order(ctx, numbers):
            for number in numbers:
                ctx.send("carrier", {"n": number, "who": "ann"}, key="42")

        return app

    @pytest.mark.spec("OUT-2", "OPS-5")
    def test_nothing_of_the_users_is_readable_in_the_store_and_the_receiver_gets_it(self, sealed):
        shop = sealed(Encrypt(KEYS))

        async def story():
            await shop.webhook("carrier", f"{server.url}?token=s3cret", SECRET, allow_private=True)
            await sent(shop, 1)
            (kept,), (webhook,) = await shop.store.inner.outbox(), await shop.store.inner.webhooks()
            assert "ann" not in kept.payload_json
            assert "s3cret" not in webhook.target
            assert "whsec_" not in webhook.target
            assert (await shop.outbox())[0].payload == {"n": 1, "who": "ann"}
            await relay(shop).drain()

        with receiving() as server:
            told(shop, story)
        assert Webhook(SECRET).verify(server.got[0].body, server.got[0].headers) == {"n": 1, "who": "ann"}

    @pytest.mark.spec("OUT-2")
    @pytest.mark.parametrize("codec", [None, Encrypt({"new": bytes(32)}), Encrypt({"other": bytes(32)})])
    def test_a_relay_without_the_key_sends_nothing_and_leaves_it_to_others(self, sealed, codec, clock):
        """No sealed value is sent, and no attempt is used up."""
        shop, other = sealed(Encrypt(KEYS)), sealed(codec)

        async def story():
            await shop.webhook("carrier", server.url, SECRET, allow_private=True)
            await sent(shop, 1)
            keyless = relay(other)
            await keyless.drain()
            await keyless.drain()
            (message,) = await shop.outbox()
            assert (message.status, message.attempts, message.error.kind) == ("pending", 0, "sealed")
            assert server.got == []
            assert [one.url for one in await other.webhooks()] == ["(sealed)"]
            await relay(shop).drain()

        with receiving() as server:
            told(shop, story)
        assert server.payloads == [{"n": 1, "who": "ann"}]

    def test_a_payload_that_was_moved_to_another_message_is_not_sent(self, sealed):
        shop = sealed(Encrypt(KEYS))

        async def story():
            await shop.webhook("carrier", server.url, SECRET, allow_private=True)
            await sent(shop, 1, 2)
            rows = shop.store.inner._state.post.messages.values()
            one, two = rows
            one.payload, two.payload = two.payload, one.payload
            await relay(shop).drain()
            return (await shop.outbox())[0]

        with receiving() as server:
            message = told(shop, story)
            assert server.got == []
        assert json.loads(message.payload_json)["holdfast.sealed"]["why"] == WrongKey.__name__

    def test_an_exception_of_a_function_is_sealed_too(self, sealed):
        shop = sealed(Encrypt(KEYS))

        @shop.sink("carrier")
        def carrier(delivery):
            raise ValueError(delivery.payload["who"])

        async def story():
            await sent(shop, 1)
            await relay(shop).drain()
            return (await shop.outbox())[0], (await shop.store.inner.outbox())[0]

        shown, kept = told(shop, story)
        assert (shown.error.type, shown.error.message) == ("ValueError", "ann")
        assert "ann" not in kept.error_json
        assert (kept.error.type, kept.error.message) == ("ValueError", "(sealed)")
