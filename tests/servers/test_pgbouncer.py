"""The pooler in front of a server is really a pooler, and really in front of that server."""

from __future__ import annotations

import psycopg
import pytest

from servers import pgbouncer as module
from servers.private import ServerError

pytestmark = pytest.mark.slow


@pytest.fixture
def server(postgres_18):
    postgres_18.create_database("pooled")
    yield postgres_18
    postgres_18.drop_database("pooled")


def test_in_transaction_mode_two_clients_share_a_connection(server, pgbouncer):
    """A setting of one is then seen by the other: that is what code behind it has to live with."""
    through = pgbouncer(server, "pooled")
    with (
        psycopg.connect(through.dsn, autocommit=True) as one,
        psycopg.connect(through.dsn, autocommit=True) as two,
    ):
        pids = {client.execute("select pg_backend_pid()").fetchone() for client in (one, two)}
    assert len(pids) == 1


def test_in_session_mode_each_client_has_its_own(server, pgbouncer):
    through = pgbouncer(server, "pooled", "session")
    with psycopg.connect(through.dsn) as one, psycopg.connect(through.dsn) as two:
        pids = {client.execute("select pg_backend_pid()").fetchone() for client in (one, two)}
    assert len(pids) == 2


def test_the_store_is_told_as_it_is_of_the_server(server, pgbouncer):
    through = pgbouncer(server, "pooled")
    assert through.url == f"{through.dsn}&allow_fsync_off=1"


def test_without_it_one_line_says_how_to_have_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "SYSTEM_FOLDERS", ())
    with pytest.raises(ServerError, match="no PgBouncer here: install it") as caught:
        module.find(tmp_path)
    assert "\n" not in str(caught.value)
