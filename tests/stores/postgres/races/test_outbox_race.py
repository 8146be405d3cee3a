"""Races of the outbox: each queue has one first message, whoever sends, takes, answers or resends."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.records import ANY, MessageStatus, RelayAsk, Relayed
from holdfast.stores.postgres.verbs.calls import json_text
from holdfast.testing.contract.driver import done
from holdfast.testing.contract.outbox import answered, ids, message, outbox, relay, sent_by, shown, webhook
from tests.stores.postgres.kit import database

ASK = RelayAsk(relay="other", sinks=("mail",))
WRONG = """
select id from (
    select id, behind, row_number() over (partition by tenant, sink, key order by seq) = 1 as is_first
    from workflow.workflow_outbox where status = 'pending' and key is not null
) as line
where behind = is_first
"""


@pytest.fixture(autouse=True)
def lawful(driver):
    """Assert that of each queue its first message, and no other, can be taken."""
    yield
    wrong = database()[1].execute(WRONG).fetchall()
    assert wrong == [], "a line is stuck, or two of it are first"


def sends(driver, *messages, **fields):
    """An item of a new run that any session can commit."""
    claim = driver.held(**fields)
    return [driver.item(claim, "checkpoint", done("post"), outbox=messages)], None, None, None, True


def first_of(driver):
    return [one.id for one in outbox(driver, tenant=ANY) if one.next_at is not None]


# Commits.


@pytest.mark.spec("OUT-1")
def test_of_two_commits_into_one_line_at_once_the_second_is_behind(driver, sessions):
    """The second waits for the first: a queue has the order of its commits."""
    one, two = sessions
    first, second = sends(driver, message("m1", key="k")), sends(driver, message("m2", key="k"))
    one.begin()
    one.call("commit", *first)
    waiting = two.waits("commit", *second)
    one.commit()
    waiting.result()
    assert [(found.id, found.next_at is None) for found in outbox(driver)] == [("m1", False), ("m2", True)]


@pytest.mark.spec("OUT-1")
def test_a_commit_that_is_undone_leaves_its_place_to_the_next(driver, sessions):
    one, two = sessions
    first, second = sends(driver, message("m1", key="k")), sends(driver, message("m2", key="k"))
    one.begin()
    one.call("commit", *first)
    waiting = two.waits("commit", *second)
    one.roll_back()
    waiting.result()
    assert first_of(driver) == ["m2"]


@pytest.mark.spec("OUT-1")
def test_commits_into_the_same_lines_in_another_order_do_not_block_each_other(driver, sessions):
    """Queues are locked in one order, whatever the order of the messages."""
    one, two = sessions
    keys = [f"k{n}" for n in range(20)]
    there = [message(f"a{key}", key=key) for key in keys]
    back = [message(f"b{key}", key=key) for key in reversed(keys)]
    first, second = sends(driver, *there), sends(driver, *back)
    one.begin()
    one.call("commit", *first)
    waiting = two.waits("commit", *second)
    one.commit()
    waiting.result()
    assert set(first_of(driver)) == {found.id for found in there}


@pytest.mark.spec("OUT-1")
def test_a_message_that_commits_late_is_not_skipped(driver, sessions):
    """Its number is lower than that of a message which is sent already."""
    one, _ = sessions
    late = sends(driver, message("m1"))
    one.begin()
    one.call("commit", *late)
    sent_by(driver, message("m2"))
    (parcel,) = relay(driver)
    answered(driver, parcel)
    one.commit()
    assert (parcel.id, ids(relay(driver))) == ("m2", ["m1"])
    assert [found.id for found in outbox(driver)] == ["m1", "m2"]


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("end", ["sent", "dead"])
def test_a_commit_beside_the_answer_for_the_last_of_its_line_is_first(driver, sessions, end):
    """Otherwise the later message would wait for ever behind one that has left."""
    one, two = sessions
    sent_by(driver, message("m1", key="k"))
    (parcel,) = relay(driver)
    following = sends(driver, message("m2", key="k"))
    one.begin()
    assert one.call("relayed", [Relayed(id="m1", fence=parcel.fence, answer=end)]) == [True]
    waiting = two.waits("commit", *following)
    one.commit()
    waiting.result()
    assert ids(relay(driver)) == ["m2"]


@pytest.mark.spec("OUT-1")
def test_an_answer_beside_a_commit_into_its_line_lets_that_go_on(driver, sessions):
    one, two = sessions
    sent_by(driver, message("m1", key="k"))
    (parcel,) = relay(driver)
    following = sends(driver, message("m2", key="k"))
    one.begin()
    one.call("commit", *following)
    waiting = two.waits("relayed", [Relayed(id="m1", fence=parcel.fence, answer="sent")])
    one.commit()
    assert waiting.result() == [True]
    assert ids(relay(driver)) == ["m2"]


# Relays.


@pytest.mark.spec("OUT-1")
def test_relays_at_once_get_what_the_other_one_leaves_and_wait_for_none(driver, sessions):
    """In order, and nothing of a queue that another relay is at."""
    one, two = sessions
    sent_by(driver, *(message(f"m{n}") for n in range(4)), message("k0", key="k"), message("k1", key="k"))
    ask = RelayAsk(relay="one", sinks=("mail",), limit=2)
    one.begin()
    assert [found["id"] for found in one.call("relay", ask)] == ["m0", "m1"]
    two.begin()
    assert [found["id"] for found in two.call("relay", ask)] == ["m2", "m3"]
    assert [found["id"] for found in two.call("relay", ask)] == ["k0"]
    assert relay(driver) == []
    one.commit()
    two.commit()
    assert relay(driver) == []
    assert {found.held_by for found in outbox(driver)} == {"one", None}


@pytest.mark.spec("OUT-1")
def test_a_relay_that_dies_while_it_takes_has_taken_nothing(driver, sessions):
    """The session ends, and its uncommitted writes with it."""
    one, two = sessions
    sent_by(driver, message("m1", key="k"), message("m2"))
    one.begin()
    assert len(one.call("relay", ASK)) == 2
    ((pid,),) = one.run("select pg_backend_pid()")
    assert two.run("select pg_terminate_backend(%s, 20000)", pid) == [(True,)]
    with pytest.raises(psycopg.OperationalError):
        one.run("select 1")
    found = relay(driver)
    assert [(parcel.id, parcel.attempt, parcel.fence) for parcel in found] == [("m1", 1, 1), ("m2", 1, 1)]


@pytest.mark.spec("OUT-1")
def test_an_answer_beside_another_taking_is_late(driver, sessions):
    """The lease has ended, and another relay is just taking the message: only one of the two has it."""
    one, two = sessions
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (parcel,) = relay(driver, lease_seconds=0.0)
    one.begin()
    (again,) = one.call("relay", ASK)
    waiting = two.waits("relayed", [Relayed(id="m1", fence=parcel.fence, answer="sent")])
    one.commit()
    assert (again["id"], waiting.result()) == ("m1", [False])
    assert shown(driver, "m1").held_by == "other"


@pytest.mark.spec("OUT-1")
def test_a_relay_beside_an_answer_finds_the_next_of_the_line_when_that_is_committed(driver, sessions):
    """Not before; and the relay does not wait."""
    one, two = sessions
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (parcel,) = relay(driver, lease_seconds=0.0)
    one.begin()
    one.call("relayed", [Relayed(id="m1", fence=parcel.fence, answer="sent")])
    assert two.call("relay", ASK) == []
    one.commit()
    assert [found["id"] for found in two.call("relay", ASK)] == ["m2"]


@pytest.mark.spec("OUT-1")
def test_what_another_relay_has_taken_since_it_was_seen_is_not_taken_again(driver, sessions):
    """The same when it has been answered: the state is read again when the row is locked."""
    one, two = sessions
    sent_by(driver, message("m1"), message("m2"))
    ((seqs,),) = two.run("select due_messages(%s, clock(), '{}')", json_text(ASK))
    first, _ = one.call("relay", ASK)
    one.call("relayed", [Relayed(id=first["id"], fence=first["fence"], answer="dead")])
    assert len(seqs) == 2
    assert two.run("select lock_messages(%s, clock())", seqs) == [([],)]


@pytest.mark.spec("OUT-2")
def test_a_webhook_that_is_removed_meanwhile_gets_no_parcel_without_address(driver, sessions):
    """A message that is taken can be sent, by a function or to a URL."""
    one, two = sessions
    driver.run(driver.store.put_webhook(webhook()))
    sent_by(driver, message("m1", "shop"))
    ask = RelayAsk(relay="one")
    ((seqs,),) = two.run("select due_messages(%s, clock(), '{}')", json_text(ask))
    one.call("remove_webhook", "shop")
    assert two.run("select take_messages(%s, %s, %s, clock())", json_text(ask), seqs, seqs) == [([],)]
    assert shown(driver, "m1").attempts == 0


# Resends.


@pytest.mark.spec("OUT-1")
def test_a_relay_finds_what_is_sent_again_when_that_is_committed(driver, sessions):
    one, two = sessions
    sent_by(driver, message("m1", key="k"))
    (parcel,) = relay(driver)
    answered(driver, parcel, "dead")
    one.begin()
    one.call("resend", "m1", None)
    assert two.call("relay", ASK) == []
    one.commit()
    assert [(found["id"], found["fence"]) for found in two.call("relay", ASK)] == [("m1", parcel.fence + 1)]


@pytest.mark.spec("OUT-1")
def test_what_a_relay_is_just_taking_is_not_hurried(driver, sessions):
    """It becomes due at the end of the lease, and not now."""
    one, two = sessions
    sent_by(driver, message("m1"))
    one.begin()
    one.call("relay", ASK)
    waiting = two.waits("resend", "m1", None)
    one.commit()
    assert waiting.result()["held_by"] == "other"
    assert relay(driver) == []


@pytest.mark.spec("OUT-1")
@pytest.mark.parametrize("other", ["resend", "commit", "relayed"])
def test_of_two_who_enter_a_line_at_once_one_is_behind(driver, sessions, other):
    """A dead message is sent again, beside another dead one, a commit, and an answer."""
    one, two = sessions
    sent_by(driver, message("m1", key="k"), message("m2", key="k"), message("m3", key="k"))
    for _ in range(2):
        answered(driver, relay(driver)[0], "dead")
    (last,) = relay(driver)
    said = [Relayed(id="m3", fence=last.fence, answer="sent")]
    if other != "relayed":
        assert driver.run(driver.store.relayed(said)) == [True]
    args = {"resend": ("m2", None), "commit": sends(driver, message("m4", key="k")), "relayed": (said,)}[
        other
    ]
    one.begin()
    one.call("resend", "m1", None)
    waiting = two.waits(other, *args)
    one.commit()
    waiting.result()
    assert first_of(driver) == ["m1"]
    assert shown(driver, "m1").status is MessageStatus.PENDING


@pytest.mark.spec("OUT-1", "TTL-1")
def test_a_message_whose_run_is_just_removed_is_not_sent_again(driver, sessions):
    """Otherwise its queue would wait for a message that is gone."""
    one, two = sessions
    claim = sent_by(driver, message("m1", key="k"))
    answered(driver, relay(driver)[0], "dead")
    one.begin()
    one.run("update workflow_run set deleted_at = '-infinity', rev = rev + 1 where id = %s", claim.id)
    waiting = two.waits("resend", "m1", None)
    one.commit()
    with pytest.raises(psycopg.Error, match="no message m1"):
        waiting.result()


@pytest.mark.spec("OUT-2")
def test_of_two_who_make_a_webhook_at_once_one_is_told_that_it_was_too_late(driver, sessions):
    one, two = sessions
    one.begin()
    assert one.call("put_webhook", webhook(target='"a"')) is True
    waiting = two.waits("put_webhook", webhook(target='"b"'))
    one.commit()
    assert waiting.result() is False
    one.begin()
    assert one.call("put_webhook", webhook(target='"c"', rev=1)) is True
    waiting = two.waits("put_webhook", webhook(target='"d"', rev=1))
    one.commit()
    assert waiting.result() is False
    assert [(known.target, known.rev) for known in driver.run(driver.store.webhooks())] == [('"c"', 2)]
