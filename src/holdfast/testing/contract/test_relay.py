"""Relays: each message at least once, those of a key in order, by whoever is there to send them."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contract import GIVE_UP_SECONDS
from holdfast.errors import UsageError
from holdfast.records import SECOND, MessageStatus, RelayAsk, Relayed, moment

from .hand import error
from .post import answered, ids, message, outbox, relay, relay_at, sent_by, shown, webhook

DAY = 86400.0


# Taking.


@pytest.mark.spec("OUT-1")
def test_a_parcel_is_held_and_nobody_else_has_it(hand):
    """It names its taking, and what it is."""
    claim = sent_by(hand, message("m1"))
    (parcel,) = relay(hand, relay="r1", lease_seconds=20.0)
    assert (parcel.id, parcel.sink, parcel.key, parcel.payload) == ("m1", "mail", None, '"m1"')
    assert (parcel.run, parcel.tenant, parcel.attempt, parcel.webhook) == (claim.id, "default", 1, None)
    assert parcel.created_at == hand.clock.now
    assert relay(hand, relay="r2") == []
    found = shown(hand, "m1")
    assert (found.held_by, found.attempts, found.tried_at) == ("r1", 1, moment(hand.clock.now))
    assert found.next_at == moment(hand.clock.now + 20 * SECOND)
    assert relay_at(hand) == hand.clock.now + 20 * SECOND


@pytest.mark.spec("OUT-1")
def test_what_a_dead_relay_held_is_taken_again_when_its_lease_ends(hand):
    """Not before; the second taking has another fence, and the same id."""
    sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(hand, lease_seconds=20.0)
    hand.clock.turn(20 - 0.000001)
    assert relay(hand, relay="r2") == []
    hand.clock.turn(0.000001)
    (again,) = relay(hand, relay="r2")
    assert (again.id, again.attempt) == ("m1", 2)
    assert again.fence > first.fence


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("answer", ["sent", "failed", "dead", "released"])
def test_a_late_answer_changes_nothing(hand, answer):
    """Of a relay whose parcel another one has taken since, and of one who answers twice."""
    sent_by(hand, message("m1"))
    (late,) = relay(hand, lease_seconds=5.0)
    hand.clock.turn(5)
    (current,) = relay(hand, relay="r2")
    before = shown(hand, "m1")
    assert answered(hand, late, answer, error=error()) is False
    assert shown(hand, "m1") == before
    assert answered(hand, current, "failed", delay_seconds=7.0) is True
    before = shown(hand, "m1")
    assert answered(hand, current, answer, error=error()) is False
    assert shown(hand, "m1") == before


@pytest.mark.spec("OUT-1")
def test_an_answer_past_the_lease_counts_while_nobody_else_has_taken_it(hand):
    """Sent is sent: it need not be sent once more."""
    sent_by(hand, message("m1"))
    (parcel,) = relay(hand, lease_seconds=5.0)
    hand.clock.turn(50)
    assert answered(hand, parcel) is True
    assert relay(hand) == []
    found = shown(hand, "m1")
    assert (found.status, found.sent_at, found.held_by) == (
        MessageStatus.SENT,
        moment(hand.clock.now),
        None,
    )


def test_an_answer_for_what_is_not_there_counts_for_nothing(hand):
    assert hand.run(hand.store.relayed([Relayed(id="none", fence=1, answer="sent")])) == [False]
    assert hand.run(hand.store.relayed([])) == []


def test_an_answer_that_is_none_is_refused_with_all_beside_it(hand):
    sent_by(hand, message("m1"), message("m2"))
    one, two = relay(hand)
    bad = [
        Relayed(id=one.id, fence=one.fence, answer="sent"),
        Relayed(id=two.id, fence=two.fence, answer="lost"),
    ]
    with pytest.raises(UsageError, match="'lost' is no answer of a relay"):
        hand.run(hand.store.relayed(bad))
    assert [found.status for found in outbox(hand)] == [MessageStatus.PENDING] * 2


@pytest.mark.spec("OUT-1")
def test_a_relay_gets_only_what_it_can_send(hand):
    """Its own functions, of its tenants; webhooks, of all; not what it leaves out for now."""
    sent_by(hand, message("m1"), message("m2", "pager"), message("m3", "shop"))
    sent_by(hand, message("m4"), message("m5", "shop"), tenant="acme")
    assert relay(hand, ()) == []
    assert relay_at(hand, ()) is None
    hand.run(hand.store.put_webhook(webhook("shop")))
    assert relay_at(hand, (), webhooks=False) is None
    assert relay_at(hand, ()) == hand.clock.now
    assert ids(relay(hand, ("pager",), webhooks=False)) == ["m2"]
    assert relay(hand, ("mail",), bounds={"mail": 0, "shop": 0}) == []
    assert relay_at(hand, ("mail",), tenants=("none",), webhooks=False) is None
    assert relay_at(hand, ("mail",), tenants=("none", "acme"), webhooks=False) == hand.clock.now
    assert ids(relay(hand, ("mail",), tenants=("acme",))) == ["m3", "m4", "m5"]
    assert relay_at(hand, ("mail",), tenants=("default",), webhooks=False) == hand.clock.now
    assert ids(relay(hand, ("mail",))) == ["m1"]


@pytest.mark.spec("OUT-1")
def test_one_sink_does_not_take_all_places(hand):
    """`each` bounds one sink, `limit` all of them; they take turns, and of each what is due first."""
    sent_by(hand, *(message(f"a{n}") for n in range(5)))
    hand.clock.turn(1)
    sent_by(hand, *(message(f"b{n}", "pager") for n in range(5)))
    both = ("mail", "pager")
    assert ids(relay(hand, both, limit=3, each=2)) == ["a0", "b0", "a1"]
    assert ids(relay(hand, both, limit=0)) == []
    assert ids(relay(hand, both, each=0, bounds={"pager": 1})) == ["b1"]
    assert ids(relay(hand, both, each=3, taken={"mail": 2})) == ["b2", "b3", "a2", "b4"]
    assert ids(relay(hand, both, each=3, taken={"mail": 3})) == []
    assert ids(relay(hand, both, bounds={"mail": 1}, taken={"other": 9})) == ["a3"]
    assert ids(relay(hand, both)) == ["a4"]


@pytest.mark.spec("OUT-1")
def test_finding_nothing_writes_nothing(hand):
    before = hand.everything()
    assert relay(hand) == []
    assert relay_at(hand) is None
    assert hand.everything() == before


# Lines.


@pytest.mark.spec("OUT-1")
def test_of_a_key_one_at_a_time_in_the_order_of_the_commits(hand):
    """The next one is due when the one before it is sent, and not before."""
    sent_by(hand, message("m1", key="k"), message("m2", key="k"), message("x", key="other"), message("y"))
    sent_by(hand, message("m3", key="k"))
    first, *_ = taken = relay(hand)
    assert ids(taken) == ["m1", "x", "y"]
    assert relay(hand) == []
    assert shown(hand, "m2").next_at is None
    hand.clock.turn(3)
    answered(hand, first)
    assert shown(hand, "m2").next_at == moment(hand.clock.now)
    assert relay_at(hand) == hand.clock.now
    (second,) = relay(hand)
    answered(hand, second)
    assert (second.id, ids(relay(hand))) == ("m2", ["m3"])


@pytest.mark.spec("OUT-1")
def test_a_line_belongs_to_a_tenant_a_sink_and_a_key(hand):
    """The same key elsewhere is another line."""
    sent_by(hand, message("m1", key="k"), message("m2", "pager", key="k"))
    sent_by(hand, message("m3", key="k"), tenant="acme")
    assert ids(relay(hand, ("mail", "pager"))) == ["m1", "m2", "m3"]


@pytest.mark.spec("OUT-1")
def test_a_line_waits_for_its_first_one_which_backs_off(hand):
    """Order is worth more than speed: what comes after it is not sent meanwhile."""
    sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(hand)
    answered(hand, first, "failed", delay_seconds=7.0, error=error("http"))
    found = shown(hand, "m1")
    assert (found.status, found.attempts, found.error.kind) == (MessageStatus.PENDING, 1, "http")
    assert relay_at(hand) == hand.clock.now + 7 * SECOND
    hand.clock.turn(7 - 0.000001)
    assert relay(hand) == []
    hand.clock.turn(0.000001)
    (again,) = relay(hand)
    assert (again.id, again.attempt) == ("m1", 2)
    answered(hand, again)
    assert shown(hand, "m1").error is None
    assert ids(relay(hand)) == ["m2"]


@pytest.mark.spec("OUT-2", "OUT-1")
@pytest.mark.parametrize("how", ["dead", "failed"])
def test_a_dead_letter_lets_its_key_go_on(hand, how):
    """At once when the sink will never take it, else when it was tried for long enough."""
    sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(hand)
    if how == "failed":
        answered(hand, first, "failed", delay_seconds=GIVE_UP_SECONDS - 0.000001)
        hand.clock.turn(GIVE_UP_SECONDS - 0.000001)
        (first,) = relay(hand)
        answered(hand, first, "failed", delay_seconds=0.000001)
        assert shown(hand, "m1").status is MessageStatus.PENDING
        hand.clock.turn(0.000001)
        (first,) = relay(hand)
    assert answered(hand, first, how, error=error("gone"), delay_seconds=60.0)
    found = shown(hand, "m1")
    assert (found.status, found.error.kind, found.next_at) == (MessageStatus.DEAD, "gone", None)
    assert ids(relay(hand)) == ["m2"]


@pytest.mark.spec("OUT-1")
def test_giving_up_counts_from_the_first_try_and_not_from_the_commit(hand):
    """A message that nobody could send for a week has all its tries before it."""
    sent_by(hand, message("m1"))
    hand.clock.turn(7 * DAY)
    (parcel,) = relay(hand)
    answered(hand, parcel, "failed", delay_seconds=1.0)
    assert shown(hand, "m1").status is MessageStatus.PENDING


def test_a_parcel_that_is_released_has_not_been_tried(hand):
    """Whoever could not even begin gives it back: no attempt, and its days are not counted."""
    sent_by(hand, message("m1"))
    (parcel,) = relay(hand)
    answered(hand, parcel, "released", delay_seconds=2.0, error=error("sealed"))
    found = shown(hand, "m1")
    assert (found.attempts, found.tried_at, found.error.kind) == (0, None, "sealed")
    hand.clock.turn(2)
    (parcel,) = relay(hand)
    assert parcel.attempt == 1
    answered(hand, parcel, "failed")
    tried_at = shown(hand, "m1").tried_at
    (parcel,) = relay(hand)
    answered(hand, parcel, "released")
    assert (shown(hand, "m1").attempts, shown(hand, "m1").tried_at) == (1, tried_at)


@pytest.mark.spec("OUT-1")
def test_relays_at_once_get_disjoint_parcels_in_order(hand):
    """Many take, fail, die and answer: of a key never two are out, and none comes before its turn."""
    sent_by(hand, *(message(f"{key}{n}", key=key) for n in range(5) for key in "abc"))
    out, log, relays = {}, [], [f"r{n}" for n in range(4)]

    async def take(name):
        for parcel in await hand.store.relay(RelayAsk(relay=name, sinks=("mail",), limit=2)):
            assert parcel.key not in out, "two of one key are on their way"
            out[parcel.key] = parcel
            log.append(parcel.id)

    async def settle(parcel, fails):
        answer = "failed" if fails else "sent"
        assert await hand.store.relayed([Relayed(id=parcel.id, fence=parcel.fence, answer=answer)]) == [True]
        del out[parcel.key]

    async def rounds():
        for number in range(200):
            await asyncio.gather(*(take(name) for name in relays))
            await asyncio.gather(*(settle(one, fails=number % 3 == 0) for one in list(out.values())))
            if not await hand.store.relay_at(("mail",)):
                return

    hand.run(rounds())
    assert {one.status for one in outbox(hand)} == {MessageStatus.SENT}
    for key in "abc":
        order = list(dict.fromkeys(one for one in log if one[0] == key))
        assert order == [f"{key}{n}" for n in range(5)]
