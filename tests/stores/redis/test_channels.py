"""Channels: emits are announced by tenant and topic, when they are recorded and not before."""

from __future__ import annotations

import pytest

from servers.redis_store import server


class Listener:
    """Listener to all channels of a namespace on which emits are announced."""

    def __init__(self, driver, client):
        self._listener = client.pubsub(ignore_subscribe_messages=True)
        prefix = driver.store.address.prefix
        self._listener.psubscribe(f"[{{]{prefix}[}}]:emitted:*")
        while not self._listener.subscribed:
            self._listener.get_message(timeout=5)
        self._listener.get_message(timeout=5)
        self._skipped = len(f"{{{prefix}}}:emitted:")

    def heard(self, count):
        """Return the next messages: what follows `emitted:`, and the text."""
        found = []
        for _ in range(200):
            if len(found) == count:
                break
            if (one := self._listener.get_message(timeout=0.1)) is not None:
                found.append((one["channel"][self._skipped :], one["data"]))
        assert self._listener.get_message(timeout=0.05) is None
        return found


@pytest.fixture
def heard(driver):
    with server().client() as client:
        yield Listener(driver, client).heard


@pytest.mark.spec("STORE-3", "EVENT-8")
def test_an_emit_is_announced_on_the_channel_of_its_tenant_and_topic(driver, heard):
    driver.emit("parcel", id="e1")
    driver.emit("a:b%c", id="e 2", tenant="t:1")
    assert heard(2) == [("default:parcel", "e1"), ("t%3A1:a%3Ab%25c", "e 2")]


@pytest.mark.spec("EVENT-8")
def test_an_event_that_is_known_is_not_announced_again(driver, heard):
    driver.emit("parcel", id="e1")
    driver.emit("parcel", id="e1")
    assert heard(1) == [("default:parcel", "e1")]


@pytest.mark.spec("EVENT-8")
def test_an_event_for_one_run_is_announced_too(driver, heard):
    run = driver.start()
    driver.emit("parcel", id="e1", run=run)
    assert heard(1) == [("default:parcel", "e1")]
