"""Messages of runs that have moved: the old store does not send them, and does not ask anybody to."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast import App
from holdfast.cli.main import cli
from holdfast.engine.outbox import health
from holdfast.records import ANY, MessageStatus, OutboxFilter, Scope
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.outbox import answered, message, relay, sent_by
from tests.cli.conftest import Cli
from tests.client.kit import Serving
from tests.transfer.test_moving import fresh, kept, loop, move  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


def test_the_old_store_neither_sends_messages_that_moved_nor_complains(fresh, clock, tmp_path):  # noqa: F811
    path = tmp_path / "a.db"
    source, target = fresh(SqliteStore(str(path), clock=clock)), fresh()
    run = sent_by(source, message("m1"), message("m2")).id
    dead = sent_by(source, message("m3"))
    answered(source, relay(source)[-1], "dead", error='{"kind":"x","message":"no"}')
    source.complete(dead)
    assert move(source, target).moved == 2
    app = App(source.store)
    said = [one.what for one in source.run(app.doctor()).findings if "dead letter" in one.what]
    assert [text[:13] for text in said] == ["1 dead letter"]
    assert "moved to another store with the run: that store sends it" in source.run(app.explain(run)).text
    resent = CliRunner().invoke(cli, ["outbox", "resend", "--dead", "--store", f"sqlite:///{path}"])
    assert resent.output == "1 message will be sent\n"
    pending = source.run(source.store.outbox(OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY), 10))
    assert [one.id for one in pending] == ["m3"]
    refused = CliRunner().invoke(cli, ["outbox", "resend", "m1", "--store", f"sqlite:///{path}"])
    assert "message m1 moves to another store with its run" in refused.output
    assert [parcel.id for parcel in relay(target)] == ["m1", "m2"]


def dead(driver, id, sink="mail"):
    """Make a run with a dead letter."""
    run = sent_by(driver, message(id, sink=sink)).id
    answered(driver, relay(driver, sinks=(sink,))[-1], "dead", error='{"kind":"x","message":"no"}')
    return run


def test_the_doctor_counts_dead_letters_among_many_moved_messages(kept, fresh, monkeypatch):  # noqa: F811
    monkeypatch.setattr(health, "PENDING_MAX", 2)
    source, target = kept(), fresh()
    sent_by(source, *[message(f"m{n}", sink="post") for n in range(5)])
    move(source, target)

    def said():
        found = source.run(App(source.store).doctor()).findings
        return [one for one in found if "dead letter" in one.what or "dead messages" in one.what]

    assert said() == []
    run = dead(source, "m9")
    (finding,) = said()
    assert (finding.what, finding.runs) == (
        "1 dead letter, which is not retried any more: mail (1)", (run,))  # fmt: skip
    monkeypatch.setattr(health, "PAGES_MAX", 2)
    (finding,) = said()
    assert (finding.level, finding.what) == (
        "ok",
        (
            "the oldest dead messages have moved to another store; 2 more dead messages, which this has not "
            "looked at: mail (1), post (1)"
        ),
    )


def test_a_key_that_reads_no_payloads_resends_dead_letters_behind_moved_messages(
    fresh,  # noqa: F811
    clock,
    tmp_path,
):
    path = tmp_path / "a.db"
    source, target = fresh(SqliteStore(str(path), clock=clock)), fresh()
    sent_by(source, message("m1", sink="post"))
    move(source, target)
    dead(source, "m2")
    with Serving(App(f"sqlite:///{path}"), open=False) as server:
        key = server.key(Scope.RUNS_READ, Scope.RUNS_WRITE, name="few")
        done = Cli(server.url)("outbox", "resend", "--dead", env={"HOLDFAST_KEY": key})
    assert done.stdout == "1 message will be sent\n"
    assert "1 message moved to another store" in done.stderr
