"""Servers for tests: private to the tests, of the requested version, with data that survives a kill."""

from __future__ import annotations

import os
from itertools import chain

import psycopg
import pytest

from servers import installs, postgres
from servers.postgres import NAMED_BY, postgres_for_tests, running_postgres
from servers.private import ServerError

pytestmark = pytest.mark.slow


def ask(dsn, query):
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(query)
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def names(server):
    return set(ask(server.dsn("postgres"), "select datname from pg_database"))


@pytest.fixture(scope="module")
def own():
    """A server that may be killed and stopped. Every test leaves it running."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def foreign():
    """A server of somebody else: it listens on TCP, and logs its connections."""
    with running_postgres(tcp=True, settings={"log_connections": "on"}) as server:
        server.create_database("precious")
        yield server


@pytest.mark.parametrize("version", [15, 16, 18])
def test_the_requested_version_starts(postgres_of, version):
    server = postgres_of(version)
    assert server.version == version
    assert ask(server.dsn("postgres"), "show server_version")[0].startswith(f"{version}.")
    assert server.bin("psql").exists()


class TestIdentity:
    def test_the_server_listens_in_its_private_folder_only(self, own):
        assert ask(own.dsn("postgres"), "show listen_addresses") == [""]
        assert ask(own.dsn("postgres"), "show data_directory") == [str(own.folder / "data")]
        assert own.folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(ServerError, match="tcp=True"):
            own.dsn_tcp("postgres")

    def test_another_server_at_the_same_address_is_detected(self, own, foreign, monkeypatch):
        own.stop()
        monkeypatch.setattr(own, "folder", foreign.folder)
        monkeypatch.setattr(own, "port", foreign.port)
        with pytest.raises(ServerError, match=f"its data is in {foreign.data}"):
            own.start()
        monkeypatch.undo()
        own.stop()
        own.start()

    def test_a_port_taken_by_another_server_is_skipped(self, foreign, monkeypatch):
        ports = chain([foreign.port], iter(postgres.free_port, None))
        monkeypatch.setattr(postgres, "free_port", ports.__next__)
        with running_postgres(tcp=True) as server:
            assert server.port != foreign.port
            assert ask(server.dsn_tcp("postgres"), "show data_directory") == [str(server.data)]

    def test_a_server_at_the_default_address_is_never_used(self, foreign, monkeypatch):
        """The defaults of a driver must not lead to the data of somebody else."""
        before = (foreign.folder / "server.log").read_text()
        monkeypatch.delenv(NAMED_BY, raising=False)
        for name, value in {"HOST": "127.0.0.1", "PORT": foreign.port, "DATABASE": "precious"}.items():
            monkeypatch.setenv(f"PG{name}", str(value))
        with postgres_for_tests() as server:
            server.create_database("mine")
            assert ask(server.dsn("mine"), "show data_directory") != [str(foreign.data)]
        assert (foreign.folder / "server.log").read_text() == before
        assert "connection received" in before


class TestANamedServer:
    @pytest.fixture(params=["dsn", "dsn_tcp"])
    def named(self, request, foreign, monkeypatch):
        monkeypatch.setenv(NAMED_BY, getattr(foreign, request.param)("precious"))
        return foreign

    def test_tests_use_databases_of_their_own_which_are_dropped(self, named):
        before = names(named)
        with postgres_for_tests() as server:
            real = server.create_database("mine")
            assert ask(server.dsn("mine"), "select current_database()") == [real]
            assert ask(server.dsn("mine"), "show data_directory") == [str(named.data)]
            assert names(named) == before | {real}
        assert names(named) == before

    def test_two_sessions_at_once_use_different_databases(self, named):
        with postgres_for_tests() as one, postgres_for_tests() as two:
            assert one.create_database("mine") != two.create_database("mine")

    def test_its_databases_can_be_templates(self, named):
        with postgres_for_tests() as server:
            server.create_database("model")
            ask(server.dsn("model"), "create table kept ()")
            server.create_database("copy", template="model")
            assert ask(server.dsn("copy"), "select to_regclass('kept')::text") == ["kept"]

    def test_the_url_says_that_fsync_is_off(self, named):
        with postgres_for_tests() as server:
            assert server.url("mine").endswith(("?allow_fsync_off=1", "&allow_fsync_off=1"))

    def test_a_requested_version_gets_a_private_server(self, named):
        with postgres_for_tests(named.version) as server:
            assert server.data != named.data

    def test_a_named_server_that_does_not_answer_is_reported(self, monkeypatch):
        monkeypatch.setenv(NAMED_BY, "postgresql://nobody@/none?host=/nonexistent")
        with pytest.raises(ServerError, match=NAMED_BY), postgres_for_tests():
            pass


class TestDeathAndReturn:
    def test_committed_data_is_there_after_a_kill(self):
        with running_postgres(fsync=True) as server:
            assert server.url("postgres") == server.dsn("postgres")
            assert ask(server.dsn("postgres"), "show fsync") == ["on"]
            ask(server.dsn("postgres"), "create table kept as select 7 as number")
            first = server.pid
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                ask(server.dsn("postgres"), "select 1")
            server.start()
            assert server.pid != first
            assert ask(server.dsn("postgres"), "select number from kept") == [7]

    def test_a_kill_ends_busy_backends_too(self, own):
        """A backend in the middle of a query would live on, and keep the server from starting again."""
        connection = psycopg.connect(own.dsn("postgres"))
        connection.pgconn.send_query(b"do 'begin loop end loop; end'")
        busy = connection.info.backend_pid
        os.kill(busy, 0)
        own.kill()
        for pid in (own.pid, busy):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        connection.close()
        own.start()

    def test_a_stopped_server_restarts_at_the_same_address(self, foreign):
        before = foreign.dsn_tcp("precious")
        foreign.stop()
        foreign.start()
        assert foreign.dsn_tcp("precious") == before
        assert ask(before, "select 1") == [1]

    def test_a_server_that_does_not_start_reports_its_own_reason(self):
        with (
            pytest.raises(ServerError, match="no_such_setting"),
            running_postgres(settings={"no_such_setting": "1"}),
        ):
            pass


class TestDatabases:
    def test_each_test_has_an_empty_database(self, postgres_database):
        assert ask(postgres_database.dsn, "select current_database()") == [postgres_database.name]
        assert ask(postgres_database.dsn, "select 1 from pg_class where relnamespace = 2200") == []

    def test_a_database_is_dropped_even_if_a_client_is_connected(self, own):
        own.create_database("left")
        with psycopg.connect(own.dsn("left")):
            own.drop_database("left")
        assert "left" not in names(own)

    def test_a_server_without_fsync_keeps_commits_after_a_killed_process(self, own):
        """The URL says that a power failure could lose data."""
        assert ask(own.dsn("postgres"), "show fsync") == ["off"]
        assert ask(own.dsn("postgres"), "show full_page_writes") == ["on"]
        assert ask(own.dsn("postgres"), "show synchronous_commit") == ["on"]
        assert own.url("postgres") == own.dsn("postgres") + "&allow_fsync_off=1"

    def test_given_settings_apply_to_the_server(self, foreign):
        assert ask(foreign.dsn("postgres"), "show log_connections") == ["on"]


class TestNoneToBeHad:
    @pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to root")
    def test_an_unreadable_folder_on_the_path_is_skipped(self, monkeypatch, tmp_path):
        (tmp_path / "closed").mkdir(mode=0)
        monkeypatch.setenv("PATH", f"{tmp_path / 'closed'}{os.pathsep}{os.environ['PATH']}")
        assert installs.find()

    def test_one_line_names_every_remedy(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(installs, "FOLDERS", ())
        monkeypatch.setattr(installs, "WHEELS", ())
        with pytest.raises(ServerError, match="Postgres is not installed") as caught, running_postgres():
            pass
        for way in ("apt install", "brew install", "pip install", NAMED_BY, "--no-postgres"):
            assert way in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_missing_version_is_reported_with_the_installed_versions(self, own):
        with pytest.raises(
            ServerError, match=rf"Postgres 7 is not installed \(only .*{own.version}.*\): install it"
        ):
            installs.find(7)
