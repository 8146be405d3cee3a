"""Servers for tests have laws of their own: ours alone, the one that was asked for, and data that stays."""

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
    """One that may be killed and stopped: every test leaves it running."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def foreign():
    """Someone else's: it listens on TCP, and writes down who comes."""
    with running_postgres(tcp=True, settings={"log_connections": "on"}) as server:
        server.create_database("precious")
        yield server


@pytest.mark.parametrize("version", [15, 16, 18])
def test_a_version_that_is_asked_for_comes_up(postgres_of, version):
    server = postgres_of(version)
    assert server.version == version
    assert ask(server.dsn("postgres"), "show server_version")[0].startswith(f"{version}.")
    assert server.bin("psql").exists()


class TestIdentity:
    def test_it_listens_in_its_private_folder_only(self, own):
        assert ask(own.dsn("postgres"), "show listen_addresses") == [""]
        assert ask(own.dsn("postgres"), "show data_directory") == [str(own.folder / "data")]
        assert own.folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(ServerError, match="tcp=True"):
            own.dsn_tcp("postgres")

    def test_another_server_at_its_address_is_not_taken_for_it(self, own, foreign, monkeypatch):
        own.stop()
        monkeypatch.setattr(own, "folder", foreign.folder)
        monkeypatch.setattr(own, "port", foreign.port)
        with pytest.raises(ServerError, match=f"its data is in {foreign.data}"):
            own.start()
        monkeypatch.undo()
        own.stop()
        own.start()

    def test_a_port_that_another_was_faster_to_take_is_passed_over(self, foreign, monkeypatch):
        ports = chain([foreign.port], iter(postgres.free_port, None))
        monkeypatch.setattr(postgres, "free_port", ports.__next__)
        with running_postgres(tcp=True) as server:
            assert server.port != foreign.port
            assert ask(server.dsn_tcp("postgres"), "show data_directory") == [str(server.data)]

    def test_a_server_that_merely_answers_is_never_spoken_to(self, foreign, monkeypatch):
        """What drivers use when they are told nothing must not lead to someone's data."""
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

    def test_it_is_used_with_databases_of_our_own_which_are_dropped(self, named):
        before = names(named)
        with postgres_for_tests() as server:
            real = server.create_database("mine")
            assert ask(server.dsn("mine"), "select current_database()") == [real]
            assert ask(server.dsn("mine"), "show data_directory") == [str(named.data)]
            assert names(named) == before | {real}
        assert names(named) == before

    def test_two_sessions_at_once_do_not_meet(self, named):
        with postgres_for_tests() as one, postgres_for_tests() as two:
            assert one.create_database("mine") != two.create_database("mine")

    def test_its_databases_can_be_templates(self, named):
        with postgres_for_tests() as server:
            server.create_database("model")
            ask(server.dsn("model"), "create table kept ()")
            server.create_database("copy", template="model")
            assert ask(server.dsn("copy"), "select to_regclass('kept')::text") == ["kept"]

    def test_the_store_is_told_when_it_has_no_fsync(self, named):
        with postgres_for_tests() as server:
            assert server.url("mine").endswith(("?allow_fsync_off=1", "&allow_fsync_off=1"))

    def test_a_version_that_is_asked_for_is_our_own_server(self, named):
        with postgres_for_tests(named.version) as server:
            assert server.data != named.data

    def test_one_that_does_not_answer_is_named_as_the_culprit(self, monkeypatch):
        monkeypatch.setenv(NAMED_BY, "postgresql://nobody@/none?host=/nonexistent")
        with pytest.raises(ServerError, match=NAMED_BY), postgres_for_tests():
            pass


class TestDeathAndReturn:
    def test_what_was_committed_is_there_after_a_kill(self):
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

    def test_a_kill_takes_the_busy_children_along(self, own):
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

    def test_a_stopped_server_comes_back_at_the_same_address(self, foreign):
        before = foreign.dsn_tcp("precious")
        foreign.stop()
        foreign.start()
        assert foreign.dsn_tcp("precious") == before
        assert ask(before, "select 1") == [1]

    def test_one_that_does_not_start_tells_its_own_reason(self):
        with (
            pytest.raises(ServerError, match="no_such_setting"),
            running_postgres(settings={"no_such_setting": "1"}),
        ):
            pass


class TestDatabases:
    def test_each_test_has_an_empty_one(self, postgres_database):
        assert ask(postgres_database.dsn, "select current_database()") == [postgres_database.name]
        assert ask(postgres_database.dsn, "select 1 from pg_class where relnamespace = 2200") == []

    def test_one_is_dropped_though_someone_is_still_connected(self, own):
        own.create_database("left")
        with psycopg.connect(own.dsn("left")):
            own.drop_database("left")
        assert "left" not in names(own)

    def test_a_server_without_fsync_keeps_its_word_to_a_killed_process(self, own):
        """And the store is told that it would not, were the power lost."""
        assert ask(own.dsn("postgres"), "show fsync") == ["off"]
        assert ask(own.dsn("postgres"), "show full_page_writes") == ["on"]
        assert ask(own.dsn("postgres"), "show synchronous_commit") == ["on"]
        assert own.url("postgres") == own.dsn("postgres") + "&allow_fsync_off=1"

    def test_settings_are_the_servers(self, foreign):
        assert ask(foreign.dsn("postgres"), "show log_connections") == ["on"]


class TestNoneToBeHad:
    @pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to root")
    def test_a_closed_folder_on_the_path_is_passed_over(self, monkeypatch, tmp_path):
        (tmp_path / "closed").mkdir(mode=0)
        monkeypatch.setenv("PATH", f"{tmp_path / 'closed'}{os.pathsep}{os.environ['PATH']}")
        assert installs.find()

    def test_one_line_names_every_way(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(installs, "FOLDERS", ())
        monkeypatch.setattr(installs, "WHEELS", ())
        with pytest.raises(ServerError, match="no Postgres here") as caught, running_postgres():
            pass
        for way in ("apt install", "brew install", "pip install", NAMED_BY, "--no-postgres"):
            assert way in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_version_that_is_not_here_is_told_with_those_that_are(self, own):
        with pytest.raises(
            ServerError, match=rf"Postgres 7 is not here \(but .*{own.version}.*\): install it"
        ):
            installs.find(7)
