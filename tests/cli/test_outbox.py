"""`holdfast outbox`, `holdfast sink`, and what other commands say of messages."""

from __future__ import annotations

import json

import pytest

from tests.engine.outbox.receiver import receiving

SECRET = "whsec_" + "QUJD" * 8
TYPE = "shop.order.v1"


async def order(ctx):
    ctx.send("carrier", {"n": 1}, key="42")
    ctx.send("carrier", {"n": 2}, key="42")
    ctx.send("mail", {"to": "ann"})


@pytest.fixture
def sent(cli_, work):
    """The id of a run that has sent three messages."""
    run = cli_.start(TYPE)
    work(order=order)
    return run


def said(cli_, *args, **more):
    found = cli_(*args, **more)
    assert found.exit_code == 0, found.stderr
    return found.stdout.strip()


def rows(cli_, *args):
    return [json.loads(line) for line in said(cli_, *args, "--json").splitlines()]


@pytest.mark.spec("CLI-4")
def test_show_calls_the_step_of_a_message_send_and_json_keeps_its_kind(cli_, sent):
    lines = said(cli_, "show", sent).splitlines()
    assert [line.split()[:2] for line in lines if "send:" in line and "last step" not in line] == [
        ["send:carrier", "send"], ["send:carrier#2", "send"], ["send:mail", "send"],
    ]  # fmt: skip
    assert {one["kind"] for one in cli_.json("show", sent)["steps"]} == {"emit"}


@pytest.mark.spec("OUT-1", "CLI-1", "CLI-2")
def test_messages_are_listed_and_sinks_without_a_worker_are_named(cli_, sent):
    """Oldest first; with the reason why they wait."""
    found = cli_("outbox", "ls")
    head, *lines = found.stdout.splitlines()
    assert head.split()[:4] == ["ID", "SINK", "KEY", "STATUS"]
    assert [line.split()[1:4] for line in lines] == [
        ["carrier", "42", "pending"], ["carrier", "42", "pending"], ["mail", "-", "pending"],
    ]  # fmt: skip
    assert "queued" in lines[1]
    assert found.stderr.splitlines() == [
        f"no live worker has a function for sink {name!r}, and no webhook has this name"
        for name in ("carrier", "mail")
    ]
    assert [one["payload"] for one in rows(cli_, "outbox", "ls", "--sink", "carrier")] == [{"n": 1}, {"n": 2}]
    first, second, _ = rows(cli_, "outbox", "ls", "--run", sent[-8:])
    assert (first["status"], first["run"], first["next_at"] is None) == ("pending", sent, False)
    assert second["next_at"] is None
    assert [one["id"] for one in rows(cli_, "outbox", "ls", "--limit", 1)] == [first["id"]]
    assert rows(cli_, "outbox", "ls", "--after", second["seq"])[0]["sink"] == "mail"
    assert rows(cli_, "outbox", "ls", "--status", "dead") == []
    shown = said(cli_, "outbox", "show", first["id"])
    assert '{"n":1}' in shown
    assert f"run {sent}, step send:carrier" in shown
    assert "no live worker has a function for sink" in shown
    assert "no live worker has a function for sink 'carrier'" in said(cli_, "explain", sent)


@pytest.mark.spec("OUT-2", "CLI-1")
def test_a_webhook_is_added_listed_masked_and_removed(cli_, sent):
    """The secret that is made is shown once; after that only its end."""
    added = said(cli_, "sink", "add", "shop", "https://example.com/in?token=s3cret")
    made = added.split()[-1]
    assert made.startswith("whsec_")
    listed = said(cli_, "sink", "ls")
    assert f"whsec_…{made[-4:]}" in listed
    assert "https://example.com/in…" in listed
    assert made not in listed
    assert "s3cret" not in listed + json.dumps(rows(cli_, "sink", "ls"))
    again = cli_.json("sink", "add", "shop", "https://example.com/in")
    assert again == {"name": "shop", "secret": None}
    given = cli_("sink", "add", "shop", "https://example.com/in", "--secret-stdin", stdin=f"{SECRET}\n")
    assert (given.exit_code, SECRET in given.output) == (0, False)
    assert rows(cli_, "sink", "ls")[0]["secrets"] == [f"whsec_…{SECRET[-4:]}", f"whsec_…{made[-4:]}"]
    env = {"SHOP_SECRET": SECRET}
    assert (
        cli_(
            "sink", "add", "two", "https://example.com/", "--secret-from-env", "SHOP_SECRET", env=env
        ).exit_code
        == 0
    )
    assert said(cli_, "sink", "rm", "two") == "webhook two is removed"
    assert "there is no webhook 'two'" in cli_.refused("sink", "rm", "two", code=1)


@pytest.mark.spec("CLI-3", "OUT-2")
@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (("sink", "add", "shop", "https://a:s3cret@example.com/"), 2, "a user name or a password"),
        (("sink", "add", "shop", "http://example.com/?s3cret"), 2, "is http://"),
        (("sink", "add", "shop", "https://127.0.0.1/"), 2, "is not public: say --allow-private"),
        (("sink", "add", "shop", "https://localhost/"), 2, "is not public: say --allow-private"),
        (("sink", "add", "shop", "https://in.LOCALHOST.:8/"), 2, "is not public: say --allow-private"),
        (
            ("sink", "add", "shop", "https://example.com/", "--secret-from-env", "NO_SUCH"),
            2,
            "NO_SUCH is not set",
        ),
        (("outbox", "show", "msg_none"), 1, "no message msg_none"),
        (("outbox", "resend", "msg_none"), 1, "no message msg_none"),
        (("outbox", "resend"), 2, "name messages by their ids, or give --dead"),
        (("outbox", "resend", "msg_1", "--dead"), 2, "name messages by their ids, or give --dead"),
        (("outbox", "resend", "msg_1", "--sink", "mail"), 2, "name messages by their ids, or give --dead"),
        (("outbox", "resend", "msg_1", "--tenant", "acme"), 2, "name messages by their ids, or give --dead"),
    ],
)
def test_every_wrong_call_of_outbox_and_sink_is_one_line(cli_, sent, args, code, line):
    refused = cli_.refused(*args, code=code)
    assert line in refused
    assert "s3cret" not in refused


@pytest.mark.spec("OUT-1", "OUT-2", "CLI-1")
def test_tick_posts_pending_messages_and_dead_ones_can_be_sent_again(cli_, sent):
    """A receiver that is gone makes dead letters; once it is back they are sent, under the same ids."""
    with receiving() as server:
        cli_("sink", "add", "carrier", server.url, "--allow-private")
        server.answer = 410
        assert said(cli_, "tick") == "0 messages sent, 2 failed"
        dead = rows(cli_, "outbox", "ls", "--status", "dead")
        assert [(one["payload"]["n"], one["error"]["message"]) for one in dead] == [
            (1, "answered 410"), (2, "answered 410"),
        ]  # fmt: skip
        report = cli_("doctor").stdout
        assert "2 dead letters, which are not retried any more: carrier (2)" in report
        assert "1 message to 'mail' waits: no live worker has a function for sink 'mail'" in report
        assert "is a dead letter (" in said(cli_, "explain", sent)
        server.answer = 200
        assert said(cli_, "outbox", "resend", "--dead", "--sink", "mail") == "0 messages will be sent"
        assert said(cli_, "outbox", "resend", "--dead", "--tenant", "acme") == "0 messages will be sent"
        assert said(cli_, "outbox", "resend", dead[0]["id"]) == "1 message will be sent"
        assert said(cli_, "outbox", "resend", "--dead", "--tenant", "default") == "1 message will be sent"
        assert cli_.json("tick")["sent"] == 2
    ids = [one.headers["webhook-id"] for one in server.got]
    assert ids[:2] == ids[2:] == [one["id"] for one in dead]
    assert [one["status"] for one in rows(cli_, "outbox", "ls", "--all")] == ["pending", "sent", "sent"]


@pytest.mark.spec("OUT-1")
def test_the_doctor_says_when_all_is_sent_and_when_a_sink_lags(cli_, sent, url, monkeypatch):
    from holdfast.engine.outbox import health as outbox_health

    with receiving() as server:
        for name in ("carrier", "mail"):
            cli_("sink", "add", name, server.url, "--allow-private")
        monkeypatch.setattr(outbox_health, "LAG_SECONDS", -1.0)
        assert "messages wait for their sinks: carrier (2, 0 s), mail (1, 0 s)" in cli_("doctor").stdout
        cli_("tick")
    assert "every message is delivered" in cli_("doctor").stdout


@pytest.mark.spec("CLI-1", "OUT-1")
def test_a_message_is_named_by_the_end_of_its_id_and_a_line_fits_the_terminal(cli_, sent, monkeypatch):
    """The last error gets the room; what names several is told so."""
    first, second, third = rows(cli_, "outbox", "ls")
    lines = said(cli_, "outbox", "ls").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [one["id"][-8:] for one in (first, second, third)]
    assert all(len(line) <= 60 for line in lines[1:]), "the last error has a third of eighty columns"
    assert cli_.json("outbox", "show", second["id"][-8:])["id"] == second["id"]
    assert said(cli_, "outbox", "resend", third["id"][-6:]) == "1 message will be sent"
    for short in (first["id"][-5:], "ffffffff"):
        assert f"no message {short}" in cli_.refused("outbox", "show", short, code=1)
    assert "KEY" not in said(cli_, "outbox", "ls", "--sink", "mail")
    monkeypatch.setattr("holdfast.cli.commands.outbox.SHORT_MIN", 0)
    assert "'' names several messages, give more characters: msg_" in cli_.refused(
        "outbox", "show", "", code=2
    )


@pytest.mark.spec("OUT-1", "EXPL-1")
def test_explain_says_why_a_message_is_not_delivered_and_when_the_next_attempt_is(cli_, sent):
    """And which one is behind another of its key."""
    for sink in ("carrier", "mail"):
        said(cli_, "sink", "add", sink, "https://sink.invalid/in?token=s3cret")
    assert "waits for its first attempt" in said(cli_, "explain", sent)
    cli_("tick")
    told = said(cli_, "explain", sent)
    assert "to 'carrier' failed (connection: gaierror: " in told
    assert "); the next attempt is at 20" in told
    assert "to 'carrier' waits for an earlier message with the same key '42'" in told
    assert "s3cret" not in told
