"""The outbox: a message is committed with what it tells of, kept, listed, and sent again when one asks."""

from __future__ import annotations

import pytest

from holdfast.errors import UnknownMessage
from holdfast.records import ANY, SECOND, MessageStatus, moment

from .hand import done, error, listen, sleep
from .post import answered, ids, message, outbox, relay, relay_at, sent_by, shown, webhook

# In the commit that sends it.


@pytest.mark.spec("OUT-1", "MOVE-2")
def test_a_message_is_there_with_the_commit_that_sends_it(hand):
    """Pending, due now, with what it is made of."""
    claim = sent_by(hand, message("m1", key="42", step="post"), tenant="acme")
    (found,) = outbox(hand, tenant="acme")
    assert (found.id, found.run, found.step, found.sink, found.key) == ("m1", claim.id, "post", "mail", "42")
    assert (found.payload, found.tenant, found.status) == ("m1", "acme", MessageStatus.PENDING)
    assert (found.attempts, found.held_by, found.tried_at, found.sent_at) == (0, None, None, None)
    assert (found.created_at, found.next_at) == (moment(hand.clock.now), moment(hand.clock.now))
    assert relay_at(hand) == hand.clock.now


@pytest.mark.spec("OUT-1", "MOVE-2", "LEASE-4")
def test_a_refused_item_sends_nothing(hand):
    """What a zombie wanted to send is not sent."""
    claim = hand.held()
    hand.clock.turn(31)
    hand.tick()
    assert hand.checkpoint(claim, done("a"), outbox=(message("m1"),)).answer == "lost"
    assert outbox(hand) == []


@pytest.mark.spec("OUT-1", "FLOW-18")
def test_an_id_that_is_there_is_left_alone(hand):
    """The same item again, and the same id in a later one: the first stands, wherever it is by then."""
    claim = hand.held()
    item = hand.item(claim, "checkpoint", done("a"), outbox=(message("m1"),))
    hand.send(item)
    hand.send(item)
    (parcel,) = relay(hand)
    answered(hand, parcel)
    hand.checkpoint(claim, done("b"), outbox=(message("m1", payload='"other"'), message("m2")))
    assert [(one.id, one.payload, one.status) for one in outbox(hand)] == [
        ("m1", "m1", MessageStatus.SENT),
        ("m2", "m2", MessageStatus.PENDING),
    ]


@pytest.mark.spec("OUT-1", "MOVE-2", "PLAN-6")
@pytest.mark.parametrize("move", ["checkpoint", "park", "complete", "fail", "retry", "release"])
def test_every_move_of_a_holder_may_send(hand, move):
    """The message goes with the move, whatever it is."""
    claim = hand.held()
    steps = {"checkpoint": (done("a"),), "park": (listen(),)}.get(move, ())
    getattr(hand, move)(claim, *steps, outbox=(message("m1"),))
    assert [one.id for one in outbox(hand)] == ["m1"]


def test_a_segment_may_send_many(hand):
    """They stand in the order of the item, across all items of a commit."""
    one, two = hand.held(), hand.held()
    hand.send(
        hand.item(one, "complete", done("a"), done("b"), outbox=(message("m1"), message("m2"))),
        hand.item(two, "checkpoint", done("a"), outbox=(message("m3"),)),
    )
    assert [found.id for found in outbox(hand)] == ["m1", "m2", "m3"]
    assert ids(relay(hand)) == ["m1", "m2", "m3"]


# Sending again.


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("end", ["sent", "dead"])
def test_what_has_left_can_be_sent_again_at_the_end_of_its_line(hand, end):
    """Under its old id, with all its tries before it."""
    sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(hand)
    answered(hand, first, end, error=error())
    hand.clock.turn(5)
    again = hand.run(hand.store.resend("m1", ANY))
    assert (again.status, again.attempts, again.tried_at, again.sent_at) == ("pending", 0, None, None)
    assert [one.id for one in outbox(hand)] == ["m2", "m1"]
    assert again.next_at is None
    (second,) = relay(hand)
    assert answered(hand, first) is False
    answered(hand, second)
    (parcel,) = relay(hand)
    assert (second.id, parcel.id, parcel.attempt) == ("m2", "m1", 1)
    assert parcel.fence > first.fence


@pytest.mark.spec("OUT-1")
def test_one_that_backs_off_can_be_hurried(hand):
    """But not one that is held, nor one that waits for another of its key."""
    sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    (parcel,) = relay(hand)
    held = shown(hand, "m1")
    assert hand.run(hand.store.resend("m1", ANY)) == held
    answered(hand, parcel, "failed", delay_seconds=3600.0)
    assert hand.run(hand.store.resend("m2", ANY)).next_at is None
    assert relay(hand) == []
    assert hand.run(hand.store.resend("m1", ANY)).next_at == moment(hand.clock.now)
    (again,) = relay(hand)
    assert (again.id, again.attempt) == ("m1", 2)


def test_what_is_not_there_or_another_tenants_cannot_be_sent_again(hand):
    sent_by(hand, message("m1"))
    for tenant, wanted in ((ANY, "m9"), ("acme", "m1")):
        with pytest.raises(UnknownMessage, match=wanted):
            hand.run(hand.store.resend(wanted, tenant))


# Reading.


@pytest.mark.spec("OUT-1")
def test_messages_are_listed_by_what_is_asked_for_page_by_page(hand):
    one = sent_by(hand, message("m1"), message("m2", "pager"), message("m3"))
    sent_by(hand, message("m4"), tenant="acme")
    first, _ = relay(hand, limit=2)
    answered(hand, first, "dead")

    def listed(**where):
        return [found.id for found in outbox(hand, **where)]

    assert [found.id for found in hand.run(hand.store.outbox())] == ["m1", "m2", "m3"]
    assert listed(tenant=ANY) == ["m1", "m2", "m3", "m4"]
    assert listed(statuses=(MessageStatus.DEAD,)) == ["m1"]
    assert listed(statuses=(MessageStatus.DEAD, MessageStatus.PENDING)) == ["m1", "m2", "m3"]
    assert listed(statuses=(MessageStatus.SENT,)) == []
    assert listed(sink="pager") == ["m2"]
    assert listed(run=one.id, sink="mail") == ["m1", "m3"]
    page = outbox(hand, limit=2, tenant=ANY)
    assert [found.id for found in page] == ["m1", "m2"]
    assert [found.id for found in outbox(hand, after=page[-1].seq, tenant=ANY)] == ["m3", "m4"]


@pytest.mark.spec("OUT-1")
def test_the_backlog_tells_what_each_sink_is_owed(hand):
    sent_by(hand, message("m1"), message("m2"))
    born = hand.clock.now
    hand.clock.turn(5)
    sent_by(hand, message("m3"), message("m4", "pager"))
    first, second, third = relay(hand)
    answered(hand, first)
    answered(hand, second, "failed", delay_seconds=1.0)
    answered(hand, third, "dead")
    told = [(one.sink, one.pending, one.dead, one.oldest_at) for one in hand.run(hand.store.backlog())]
    assert told == [("mail", 1, 1, born), ("pager", 1, 0, born + 5 * SECOND)]


# Webhooks.


@pytest.mark.spec("OUT-2")
def test_a_message_for_a_webhook_brings_its_address_as_it_is_now(hand):
    """Changed or removed meanwhile: the next taking knows. A function of that name goes before."""
    assert hand.run(hand.store.webhooks()) == []
    sent_by(hand, message("m1", "shop"))
    hand.run(hand.store.put_webhook(webhook()))
    (known,) = hand.run(hand.store.webhooks())
    assert (known.name, known.allow_private, known.created_at) == ("shop", False, hand.clock.now)
    (parcel,) = relay(hand, ())
    assert parcel.webhook == known
    answered(hand, parcel, "failed")

    hand.clock.turn(5)
    other = webhook(target='{"url":"http://b/","secrets":[]}', allow_private=True, rev=known.rev)
    assert hand.run(hand.store.put_webhook(other)) is True
    (parcel,) = relay(hand, ())
    assert (parcel.webhook.target, parcel.webhook.allow_private) == ('{"url":"http://b/","secrets":[]}', True)
    assert parcel.webhook.updated_at - parcel.webhook.created_at == 5 * SECOND
    answered(hand, parcel, "failed")
    (parcel,) = relay(hand, ("shop",))
    assert parcel.webhook is None
    answered(hand, parcel, "failed")

    assert hand.run(hand.store.remove_webhook("shop")) is True
    assert hand.run(hand.store.remove_webhook("shop")) is False
    assert relay(hand, ()) == []
    assert shown(hand, "m1").status is MessageStatus.PENDING


@pytest.mark.spec("OUT-2")
def test_of_two_who_change_a_webhook_at_once_one_is_told_that_it_was_too_late(hand):
    """Made, changed or removed since it was read: nothing is written over what nobody has seen."""

    def put(target, rev):
        return hand.run(hand.store.put_webhook(webhook(target=f'"{target}"', rev=rev)))

    def known():
        return [(one.target, one.rev) for one in hand.run(hand.store.webhooks())]

    assert (put("a", 1), known()) == (False, [])
    assert (put("a", 0), put("b", 0), known()) == (True, False, [('"a"', 1)])
    assert (put("b", 1), put("c", 1), put("c", 0), known()) == (True, False, False, [('"b"', 2)])
    hand.run(hand.store.remove_webhook("shop"))
    assert (put("c", 2), known()) == (False, [])


# Runs.


@pytest.mark.spec("TTL-1", "OUT-1")
def test_a_run_stays_until_its_messages_are_delivered_or_dead_and_takes_them_along(hand):
    claim = sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    hand.complete(claim)
    hand.clock.turn(60)
    assert hand.purge(ttl_seconds=1.0).total == 0
    (first,) = relay(hand)
    answered(hand, first)
    assert hand.purge(ttl_seconds=1.0).total == 0
    (second,) = relay(hand)
    assert hand.purge(ttl_seconds=1.0).total == 0
    answered(hand, second, "dead")
    assert hand.purge(ttl_seconds=1.0).runs == 1
    assert outbox(hand, tenant=ANY) == []
    assert hand.run(hand.store.backlog()) == []


@pytest.mark.spec("REW-3", "OUT-1")
def test_what_was_sent_stays_sent_whatever_becomes_of_its_run(hand):
    """Rewound, cancelled, deleted: a message that is committed goes out."""
    claim = sent_by(hand, message("m1"), message("m2"))
    hand.rewind(claim.id, "post")
    hand.cancel(claim.id)
    hand.delete(claim.id)
    assert ids(relay(hand)) == ["m1", "m2"]


def test_messages_are_no_part_of_the_trail(hand):
    """Replayed, it gives the run's status, whatever was sent."""
    claim = sent_by(hand, message("m1"))
    hand.park(claim, sleep(), outbox=(message("m2"),))
    hand.assert_replayed(claim.id)
