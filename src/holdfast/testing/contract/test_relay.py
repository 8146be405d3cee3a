"""Relays: each message is sent at least once, and messages of one key in order."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contract import GIVE_UP_SECONDS
from holdfast.errors import UsageError
from holdfast.records import SECOND, MessageStatus, RelayAsk, Relayed, moment

from .driver import error
from .outbox import answered, ids, message, outbox, relay, relay_at, sent_by, shown, webhook

DAY = 86400.0


# Taking.


@pytest.mark.spec("OUT-1")
def test_a_parcel_is_held_and_nobody_else_has_it(driver):
    """The parcel has the fence of this relay, and the message."""
    claim = sent_by(driver, message("m1"))
    (parcel,) = relay(driver, relay="r1", lease_seconds=20.0)
    assert (parcel.id, parcel.sink, parcel.key, parcel.payload) == ("m1", "mail", None, '"m1"')
    assert (parcel.run, parcel.tenant, parcel.attempt, parcel.webhook) == (claim.id, "default", 1, None)
    assert parcel.created_at == driver.clock.now
    assert relay(driver, relay="r2") == []
    found = shown(driver, "m1")
    assert (found.held_by, found.attempts, found.tried_at) == ("r1", 1, moment(driver.clock.now))
    assert found.next_at == moment(driver.clock.now + 20 * SECOND)
    assert relay_at(driver) == driver.clock.now + 20 * SECOND


@pytest.mark.spec("OUT-1")
def test_a_parcel_of_a_dead_relay_is_taken_again_when_its_lease_ends(driver):
    """It is not taken before; the second parcel has another fence, and the same id."""
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(driver, lease_seconds=20.0)
    driver.clock.turn(20 - 0.000001)
    assert relay(driver, relay="r2") == []
    driver.clock.turn(0.000001)
    (again,) = relay(driver, relay="r2")
    assert (again.id, again.attempt) == ("m1", 2)
    assert again.fence > first.fence


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("answer", ["sent", "failed", "dead", "released"])
def test_a_late_answer_changes_nothing(driver, answer):
    """It is late when another relay has taken the parcel since, or when it is a repeat."""
    sent_by(driver, message("m1"))
    (late,) = relay(driver, lease_seconds=5.0)
    driver.clock.turn(5)
    (current,) = relay(driver, relay="r2")
    before = shown(driver, "m1")
    assert answered(driver, late, answer, error=error()) is False
    assert shown(driver, "m1") == before
    assert answered(driver, current, "failed", delay_seconds=7.0) is True
    before = shown(driver, "m1")
    assert answered(driver, current, answer, error=error()) is False
    assert shown(driver, "m1") == before


@pytest.mark.spec("OUT-1")
def test_an_answer_past_the_lease_counts_while_nobody_else_has_taken_it(driver):
    """The message was sent, and need not be sent once more."""
    sent_by(driver, message("m1"))
    (parcel,) = relay(driver, lease_seconds=5.0)
    driver.clock.turn(50)
    assert answered(driver, parcel) is True
    assert relay(driver) == []
    found = shown(driver, "m1")
    assert (found.status, found.sent_at, found.held_by) == (
        MessageStatus.SENT,
        moment(driver.clock.now),
        None,
    )


def test_an_answer_for_what_is_not_there_counts_for_nothing(driver):
    assert driver.run(driver.store.relayed([Relayed(id="none", fence=1, answer="sent")])) == [False]
    assert driver.run(driver.store.relayed([])) == []


def test_an_answer_that_is_none_is_refused_with_all_beside_it(driver):
    sent_by(driver, message("m1"), message("m2"))
    one, two = relay(driver)
    bad = [
        Relayed(id=one.id, fence=one.fence, answer="sent"),
        Relayed(id=two.id, fence=two.fence, answer="lost"),
    ]
    with pytest.raises(UsageError, match="'lost' is no answer of a relay"):
        driver.run(driver.store.relayed(bad))
    assert [found.status for found in outbox(driver)] == [MessageStatus.PENDING] * 2


@pytest.mark.spec("OUT-1")
def test_a_relay_gets_only_what_it_can_send(driver):
    """It gets messages for its own sinks and tenants, and for webhooks of all, except those that it leaves
    out.
    """
    sent_by(driver, message("m1"), message("m2", "pager"), message("m3", "shop"))
    sent_by(driver, message("m4"), message("m5", "shop"), tenant="acme")
    assert relay(driver, ()) == []
    assert relay_at(driver, ()) is None
    driver.run(driver.store.put_webhook(webhook("shop")))
    assert relay_at(driver, (), webhooks=False) is None
    assert relay_at(driver, ()) == driver.clock.now
    assert ids(relay(driver, ("pager",), webhooks=False)) == ["m2"]
    assert relay(driver, ("mail",), bounds={"mail": 0, "shop": 0}) == []
    assert relay_at(driver, ("mail",), tenants=("none",), webhooks=False) is None
    assert relay_at(driver, ("mail",), tenants=("none", "acme"), webhooks=False) == driver.clock.now
    assert ids(relay(driver, ("mail",), tenants=("acme",))) == ["m3", "m4", "m5"]
    assert relay_at(driver, ("mail",), tenants=("default",), webhooks=False) == driver.clock.now
    assert ids(relay(driver, ("mail",))) == ["m1"]


@pytest.mark.spec("OUT-1")
def test_one_sink_does_not_take_all_slots(driver):
    """`each` bounds one sink, `limit` all of them; sinks take turns, and the first due message of each comes
    first.
    """
    sent_by(driver, *(message(f"a{n}") for n in range(5)))
    driver.clock.turn(1)
    sent_by(driver, *(message(f"b{n}", "pager") for n in range(5)))
    both = ("mail", "pager")
    assert ids(relay(driver, both, limit=3, each=2)) == ["a0", "b0", "a1"]
    assert ids(relay(driver, both, limit=0)) == []
    assert ids(relay(driver, both, each=0, bounds={"pager": 1})) == ["b1"]
    assert ids(relay(driver, both, each=3, taken={"mail": 2})) == ["b2", "b3", "a2", "b4"]
    assert ids(relay(driver, both, each=3, taken={"mail": 3})) == []
    assert ids(relay(driver, both, bounds={"mail": 1}, taken={"other": 9})) == ["a3"]
    assert ids(relay(driver, both)) == ["a4"]


@pytest.mark.spec("OUT-1")
def test_messages_of_one_instant_come_in_the_order_in_which_they_were_sent(driver):
    """Their ids say nothing about the order."""
    sent = [f"m{30 - number}" for number in range(20)]
    sent_by(driver, *map(message, sent))
    assert [ids(relay(driver, limit=limit)) for limit in (1, 2, 100)] == [sent[:1], sent[1:3], sent[3:]]


@pytest.mark.spec("OUT-1")
def test_finding_nothing_writes_nothing(driver):
    before = driver.everything()
    assert relay(driver) == []
    assert relay_at(driver) is None
    assert driver.everything() == before


# Queues.


@pytest.mark.spec("OUT-1")
def test_messages_of_a_key_come_one_at_a_time_in_the_order_of_commits(driver):
    """The next message is due when the one before it is sent, and not before."""
    sent_by(driver, message("m1", key="k"), message("m2", key="k"), message("x", key="other"), message("y"))
    sent_by(driver, message("m3", key="k"))
    first, *_ = taken = relay(driver)
    assert ids(taken) == ["m1", "x", "y"]
    assert relay(driver) == []
    assert shown(driver, "m2").next_at is None
    driver.clock.turn(3)
    answered(driver, first)
    assert shown(driver, "m2").next_at == moment(driver.clock.now)
    assert relay_at(driver) == driver.clock.now
    (second,) = relay(driver)
    answered(driver, second)
    assert (second.id, ids(relay(driver))) == ("m2", ["m3"])


@pytest.mark.spec("OUT-1")
def test_a_queue_belongs_to_a_tenant_a_sink_and_a_key(driver):
    """The same key of another tenant or sink is another queue."""
    sent_by(driver, message("m1", key="k"), message("m2", "pager", key="k"))
    sent_by(driver, message("m3", key="k"), tenant="acme")
    assert ids(relay(driver, ("mail", "pager"))) == ["m1", "m2", "m3"]


@pytest.mark.spec("OUT-1")
def test_a_queue_waits_for_its_first_message_which_backs_off(driver):
    """The order is kept: later messages are not sent meanwhile."""
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(driver)
    answered(driver, first, "failed", delay_seconds=7.0, error=error("http"))
    found = shown(driver, "m1")
    assert (found.status, found.attempts, found.error.kind) == (MessageStatus.PENDING, 1, "http")
    assert relay_at(driver) == driver.clock.now + 7 * SECOND
    driver.clock.turn(7 - 0.000001)
    assert relay(driver) == []
    driver.clock.turn(0.000001)
    (again,) = relay(driver)
    assert (again.id, again.attempt) == ("m1", 2)
    answered(driver, again)
    assert shown(driver, "m1").error is None
    assert ids(relay(driver)) == ["m2"]


@pytest.mark.spec("OUT-2", "OUT-1")
@pytest.mark.parametrize("how", ["dead", "failed"])
def test_a_dead_letter_lets_its_key_go_on(driver, how):
    """A message is dead at once when its sink refuses it for good, else after enough time."""
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(driver)
    if how == "failed":
        answered(driver, first, "failed", delay_seconds=GIVE_UP_SECONDS - 0.000001)
        driver.clock.turn(GIVE_UP_SECONDS - 0.000001)
        (first,) = relay(driver)
        answered(driver, first, "failed", delay_seconds=0.000001)
        assert shown(driver, "m1").status is MessageStatus.PENDING
        driver.clock.turn(0.000001)
        (first,) = relay(driver)
    assert answered(driver, first, how, error=error("gone"), delay_seconds=60.0)
    found = shown(driver, "m1")
    assert (found.status, found.error.kind, found.next_at) == (MessageStatus.DEAD, "gone", None)
    assert ids(relay(driver)) == ["m2"]


@pytest.mark.spec("OUT-1")
def test_giving_up_counts_from_the_first_try_and_not_from_the_commit(driver):
    """A message that no relay could send for a week still has all its attempts."""
    sent_by(driver, message("m1"))
    driver.clock.turn(7 * DAY)
    (parcel,) = relay(driver)
    answered(driver, parcel, "failed", delay_seconds=1.0)
    assert shown(driver, "m1").status is MessageStatus.PENDING


def test_a_parcel_that_is_released_has_not_been_tried(driver):
    """A relay that could not begin gives the parcel back: no attempt, and no time is counted."""
    sent_by(driver, message("m1"))
    (parcel,) = relay(driver)
    answered(driver, parcel, "released", delay_seconds=2.0, error=error("sealed"))
    found = shown(driver, "m1")
    assert (found.attempts, found.tried_at, found.error.kind) == (0, None, "sealed")
    driver.clock.turn(2)
    (parcel,) = relay(driver)
    assert parcel.attempt == 1
    answered(driver, parcel, "failed")
    tried_at = shown(driver, "m1").tried_at
    (parcel,) = relay(driver)
    answered(driver, parcel, "released")
    assert (shown(driver, "m1").attempts, shown(driver, "m1").tried_at) == (1, tried_at)


@pytest.mark.spec("OUT-1")
def test_relays_at_once_get_disjoint_parcels_in_order(driver):
    """Many relays take, fail, die and answer: of a key never two are leased, and none out of order."""
    sent_by(driver, *(message(f"{key}{n}", key=key) for n in range(5) for key in "abc"))
    out, log, relays = {}, [], [f"r{n}" for n in range(4)]

    async def take(name):
        for parcel in await driver.store.relay(RelayAsk(relay=name, sinks=("mail",), limit=2)):
            assert parcel.key not in out, "two of one key are on their way"
            out[parcel.key] = parcel
            log.append(parcel.id)

    async def settle(parcel, fails):
        answer = "failed" if fails else "sent"
        assert await driver.store.relayed([Relayed(id=parcel.id, fence=parcel.fence, answer=answer)]) == [
            True
        ]
        del out[parcel.key]

    async def rounds():
        for number in range(200):
            await asyncio.gather(*(take(name) for name in relays))
            await asyncio.gather(*(settle(one, fails=number % 3 == 0) for one in list(out.values())))
            if not await driver.store.relay_at(("mail",)):
                return

    driver.run(rounds())
    assert {one.status for one in outbox(driver)} == {MessageStatus.SENT}
    for key in "abc":
        order = list(dict.fromkeys(one for one in log if one[0] == key))
        assert order == [f"{key}{n}" for n in range(5)]


@pytest.mark.spec("OPS-7")
def test_a_look_shows_when_messages_are_due_to_those_who_ask(driver):
    """It is the answer of `relay_at`, for the same sinks, webhooks and tenants; others are told nothing."""
    driver.run(driver.store.put_webhook(webhook("shop")))
    sent_by(driver, message("m1"), message("m2", sink="shop"))
    (parcel,) = relay(driver, webhooks=False)
    answered(driver, parcel, "failed", delay_seconds=7.0)
    later = driver.clock.now + 7 * SECOND
    assert driver.due().relay_at is None
    assert driver.due(sinks=("mail",)).relay_at == relay_at(driver, webhooks=False) == later
    assert driver.due(sinks=("pager",)).relay_at is None
    assert driver.due(webhooks=True).relay_at == relay_at(driver, ()) == driver.clock.now
    assert driver.due(tenants=("acme",), sinks=("mail",)).relay_at is None
    assert driver.due(tenants=("acme", "default"), sinks=("mail",)).relay_at == later
    assert driver.due(sinks=("mail",)).chore_at == driver.due().chore_at
