"""The outbox: a message is committed with the move that sends it, kept, listed, and resent on request."""

from __future__ import annotations

import pytest

from holdfast.contract import DUE_COUNTED
from holdfast.errors import UnknownMessage
from holdfast.records import ANY, SECOND, MessageStatus, moment

from .driver import done, error, listen, sleep
from .outbox import answered, ids, message, outbox, relay, relay_at, sent_by, shown, webhook

# Messages in commits.


@pytest.mark.spec("OUT-1", "MOVE-2")
def test_a_message_is_there_with_the_commit_that_sends_it(driver):
    """It is pending and due now, with all its fields."""
    claim = sent_by(driver, message("m1", key="42", step="post"), tenant="acme")
    (found,) = outbox(driver, tenant="acme")
    assert (found.id, found.run, found.step, found.sink, found.key) == ("m1", claim.id, "post", "mail", "42")
    assert (found.payload, found.tenant, found.status) == ("m1", "acme", MessageStatus.PENDING)
    assert (found.attempts, found.held_by, found.tried_at, found.sent_at) == (0, None, None, None)
    assert (found.created_at, found.next_at) == (moment(driver.clock.now), moment(driver.clock.now))
    assert relay_at(driver) == driver.clock.now


@pytest.mark.spec("OUT-1", "MOVE-2", "LEASE-4")
def test_a_refused_item_sends_nothing(driver):
    """A message of a zombie is not sent."""
    claim = driver.held()
    driver.clock.turn(31)
    driver.tick()
    assert driver.checkpoint(claim, done("a"), outbox=(message("m1"),)).answer == "lost"
    assert outbox(driver) == []


@pytest.mark.spec("OUT-1", "FLOW-18")
def test_a_known_message_id_is_left_as_it_is(driver):
    """This holds for a repeated item and for the same id in a later one, in every status."""
    claim = driver.held()
    item = driver.item(claim, "checkpoint", done("a"), outbox=(message("m1"),))
    driver.send(item)
    driver.send(item)
    (parcel,) = relay(driver)
    answered(driver, parcel)
    driver.checkpoint(claim, done("b"), outbox=(message("m1", payload='"other"'), message("m2")))
    assert [(one.id, one.payload, one.status) for one in outbox(driver)] == [
        ("m1", "m1", MessageStatus.SENT),
        ("m2", "m2", MessageStatus.PENDING),
    ]


@pytest.mark.spec("OUT-1", "MOVE-2", "PLAN-6")
@pytest.mark.parametrize("move", ["checkpoint", "park", "complete", "fail", "retry", "release"])
def test_every_move_of_a_holder_may_send(driver, move):
    """The message is committed with the move."""
    claim = driver.held()
    steps = {"checkpoint": (done("a"),), "park": (listen(),)}.get(move, ())
    getattr(driver, move)(claim, *steps, outbox=(message("m1"),))
    assert [one.id for one in outbox(driver)] == ["m1"]


def test_a_segment_may_send_many(driver):
    """Messages have the order of the item, across all items of a commit."""
    one, two = driver.held(), driver.held()
    driver.send(
        driver.item(one, "complete", done("a"), done("b"), outbox=(message("m1"), message("m2"))),
        driver.item(two, "checkpoint", done("a"), outbox=(message("m3"),)),
    )
    assert [found.id for found in outbox(driver)] == ["m1", "m2", "m3"]
    assert ids(relay(driver)) == ["m1", "m2", "m3"]


# Resending.


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("end", ["sent", "dead"])
def test_a_sent_message_can_be_resent_at_the_end_of_its_queue(driver, end):
    """It keeps its id, and its attempts begin anew."""
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (first,) = relay(driver)
    answered(driver, first, end, error=error())
    driver.clock.turn(5)
    again = driver.run(driver.store.resend("m1", ANY))
    assert (again.status, again.attempts, again.tried_at, again.sent_at) == ("pending", 0, None, None)
    assert [one.id for one in outbox(driver)] == ["m2", "m1"]
    assert again.next_at is None
    (second,) = relay(driver)
    assert answered(driver, first) is False
    answered(driver, second)
    (parcel,) = relay(driver)
    assert (second.id, parcel.id, parcel.attempt) == ("m2", "m1", 1)
    assert parcel.fence > first.fence


@pytest.mark.spec("OUT-1")
def test_a_message_that_backs_off_can_be_resent_at_once(driver):
    """This does not hold for a leased message, nor for one behind another message of its key."""
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (parcel,) = relay(driver)
    held = shown(driver, "m1")
    assert driver.run(driver.store.resend("m1", ANY)) == held
    answered(driver, parcel, "failed", delay_seconds=3600.0)
    assert driver.run(driver.store.resend("m2", ANY)).next_at is None
    assert relay(driver) == []
    assert driver.run(driver.store.resend("m1", ANY)).next_at == moment(driver.clock.now)
    (again,) = relay(driver)
    assert (again.id, again.attempt) == ("m1", 2)


def test_what_is_not_there_or_another_tenants_cannot_be_sent_again(driver):
    sent_by(driver, message("m1"))
    for tenant, wanted in ((ANY, "m9"), ("acme", "m1")):
        with pytest.raises(UnknownMessage, match=wanted):
            driver.run(driver.store.resend(wanted, tenant))


# Reading.


@pytest.mark.spec("OUT-1")
def test_messages_are_listed_by_what_is_asked_for_page_by_page(driver):
    one = sent_by(driver, message("m1"), message("m2", "pager"), message("m3"))
    sent_by(driver, message("m4"), tenant="acme")
    first, _ = relay(driver, limit=2)
    answered(driver, first, "dead")

    def listed(**where):
        return [found.id for found in outbox(driver, **where)]

    assert [found.id for found in driver.run(driver.store.outbox())] == ["m1", "m2", "m3"]
    assert listed(tenant=ANY) == ["m1", "m2", "m3", "m4"]
    assert listed(statuses=(MessageStatus.DEAD,)) == ["m1"]
    assert listed(statuses=(MessageStatus.DEAD, MessageStatus.PENDING)) == ["m1", "m2", "m3"]
    assert listed(statuses=(MessageStatus.SENT,)) == []
    assert listed(sink="pager") == ["m2"]
    assert listed(run=one.id, sink="mail") == ["m1", "m3"]
    page = outbox(driver, limit=2, tenant=ANY)
    assert [found.id for found in page] == ["m1", "m2"]
    assert [found.id for found in outbox(driver, after=page[-1].seq, tenant=ANY)] == ["m3", "m4"]


@pytest.mark.spec("OUT-1")
def test_the_backlog_tells_what_each_sink_is_owed(driver):
    sent_by(driver, message("m1"), message("m2"))
    born = driver.clock.now
    driver.clock.turn(5)
    sent_by(driver, message("m3"), message("m4", "pager"))
    first, second, third = relay(driver)
    answered(driver, first)
    answered(driver, second, "failed", delay_seconds=1.0)
    answered(driver, third, "dead")
    told = [(one.sink, one.pending, one.dead, one.oldest_at) for one in driver.run(driver.store.backlog())]
    assert told == [("mail", 1, 1, born), ("pager", 1, 0, born + 5 * SECOND)]


@pytest.mark.spec("OUT-1")
def test_a_large_backlog_is_counted_up_to_a_bound(driver):
    """A sink with few messages is counted beside it, and the oldest message is known."""
    born = driver.clock.now
    for part in range(0, DUE_COUNTED + 1, 1000):
        size = min(1000, DUE_COUNTED + 1 - part)
        sent_by(driver, *(message(f"m{part + number}") for number in range(size)))
        driver.clock.turn(1)
    sent_by(driver, message("n1", "pager"))
    told = [(one.sink, one.pending, one.dead, one.oldest_at) for one in driver.run(driver.store.backlog())]
    assert told == [("mail", DUE_COUNTED, 0, born), ("pager", 1, 0, driver.clock.now)]


# Webhooks.


@pytest.mark.spec("OUT-2")
def test_a_message_for_a_webhook_brings_its_address_as_it_is_now(driver):
    """The next relay sees a changed or removed address. A sink function of the same name comes first."""
    assert driver.run(driver.store.webhooks()) == []
    sent_by(driver, message("m1", "shop"))
    driver.run(driver.store.put_webhook(webhook()))
    (known,) = driver.run(driver.store.webhooks())
    assert (known.name, known.allow_private, known.created_at) == ("shop", False, driver.clock.now)
    (parcel,) = relay(driver, ())
    assert parcel.webhook == known
    answered(driver, parcel, "failed")

    driver.clock.turn(5)
    other = webhook(target='{"url":"http://b/","secrets":[]}', allow_private=True, rev=known.rev)
    assert driver.run(driver.store.put_webhook(other)) is True
    (parcel,) = relay(driver, ())
    assert (parcel.webhook.target, parcel.webhook.allow_private) == ('{"url":"http://b/","secrets":[]}', True)
    assert parcel.webhook.updated_at - parcel.webhook.created_at == 5 * SECOND
    answered(driver, parcel, "failed")
    (parcel,) = relay(driver, ("shop",))
    assert parcel.webhook is None
    answered(driver, parcel, "failed")

    assert driver.run(driver.store.remove_webhook("shop")) is True
    assert driver.run(driver.store.remove_webhook("shop")) is False
    assert relay(driver, ()) == []
    assert shown(driver, "m1").status is MessageStatus.PENDING


@pytest.mark.spec("OUT-2")
def test_of_two_changes_of_a_webhook_at_once_one_is_refused(driver):
    """A change is refused when the webhook was made, changed or removed since it was read."""

    def put(target, rev):
        return driver.run(driver.store.put_webhook(webhook(target=f'"{target}"', rev=rev)))

    def known():
        return [(one.target, one.rev) for one in driver.run(driver.store.webhooks())]

    assert (put("a", 1), known()) == (False, [])
    assert (put("a", 0), put("b", 0), known()) == (True, False, [('"a"', 1)])
    assert (put("b", 1), put("c", 1), put("c", 0), known()) == (True, False, False, [('"b"', 2)])
    driver.run(driver.store.remove_webhook("shop"))
    assert (put("c", 2), known()) == (False, [])


# Runs.


@pytest.mark.spec("TTL-1", "OUT-1")
def test_a_run_stays_until_its_messages_are_delivered_or_dead_and_takes_them_along(driver):
    claim = sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    driver.complete(claim)
    driver.clock.turn(60)
    assert driver.purge(ttl_seconds=1.0).total == 0
    (first,) = relay(driver)
    answered(driver, first)
    assert driver.purge(ttl_seconds=1.0).total == 0
    (second,) = relay(driver)
    assert driver.purge(ttl_seconds=1.0).total == 0
    answered(driver, second, "dead")
    assert driver.purge(ttl_seconds=1.0).runs == 1
    assert outbox(driver, tenant=ANY) == []
    assert driver.run(driver.store.backlog()) == []


@pytest.mark.spec("REW-3", "OUT-1")
def test_a_committed_message_is_sent_whatever_happens_to_its_run(driver):
    """This holds for rewound, cancelled and deleted runs."""
    claim = sent_by(driver, message("m1"), message("m2"))
    driver.rewind(claim.id, "post")
    driver.cancel(claim.id)
    driver.delete(claim.id)
    assert ids(relay(driver)) == ["m1", "m2"]


def test_messages_are_no_part_of_the_trail(driver):
    """The replayed trail gives the run's status, with or without messages."""
    claim = sent_by(driver, message("m1"))
    driver.park(claim, sleep(), outbox=(message("m2"),))
    driver.assert_replayed(claim.id)
