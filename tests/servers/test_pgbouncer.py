"""PgBouncer in front of a test server: it really pools, and it uses that server."""

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
    """A setting of one client is seen by the other. Code behind the pooler must cope with that."""
    through = pgbouncer(server, "pooled")
    with (
        psycopg.connect(through.dsn, autocommit=True) as one,
        psycopg.connect(through.dsn, autocommit=True) as two,
    ):
        pids = {client.execute("select pg_backend_pid()").fetchone() for client in (one, two)}
    assert len(pids) == 1


def test_in_session_mode_each_client_has_its_own_connection(server, pgbouncer):
    through = pgbouncer(server, "pooled", "session")
    with psycopg.connect(through.dsn) as one, psycopg.connect(through.dsn) as two:
        pids = {client.execute("select pg_backend_pid()").fetchone() for client in (one, two)}
    assert len(pids) == 2


def test_the_url_allows_fsync_off_as_the_url_of_the_server_does(server, pgbouncer):
    through = pgbouncer(server, "pooled")
    assert through.url == f"{through.dsn}&allow_fsync_off=1"


def test_a_missing_pgbouncer_is_reported_with_the_way_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "SYSTEM_FOLDERS", ())
    with pytest.raises(ServerError, match="PgBouncer is not installed: install it") as caught:
        module.find(tmp_path)
    assert "\n" not in str(caught.value)
