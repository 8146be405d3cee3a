"""Messages of runs that have moved: the old store does not send them, and does not ask anybody to."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast import App
from holdfast.cli.main import cli
from holdfast.records import ANY, MessageStatus, OutboxFilter
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.outbox import answered, message, relay, sent_by
from tests.transfer.test_moving import fresh, loop, move  # noqa: F401  # fixtures

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
