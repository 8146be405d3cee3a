"""A server never outlives its owner, whatever the owner dies of."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from servers import installs
from servers.postgres import running_postgres
from servers.private import Account, Private, account, as_account

pytestmark = pytest.mark.slow

GONE_SECONDS = 20
HOLDER = """
import os, time
from servers.postgres import running_postgres
with running_postgres() as server:
    {then}
    print(server.pid, server.folder, flush=True)
    time.sleep(60)
"""
FORK = "if not os.fork(): time.sleep(60)"


@pytest.fixture
def holder():
    started = []

    def start(then="pass"):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER.format(then=then)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        started.append(process)
        pid, folder = process.stdout.readline().split()
        return process, int(pid), Path(folder)

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid, folder):
    # Another process does it, in its own time: there is no clock here to turn.
    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline and (alive(pid) or folder.exists()):
        time.sleep(0.01)
    return not alive(pid) and not folder.exists()


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_and_its_folder_go_with_a_killed_owner(holder, death):
    process, pid, folder = holder()
    assert alive(pid)
    assert folder.exists()
    shared = shared_memory(folder)
    assert shared in segments()
    process.send_signal(death)
    assert wait_until_gone(pid, folder)
    assert shared not in segments()


def shared_memory(folder):
    """The id of what the system keeps for a server until it is told to let go."""
    return (folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()[6].split()[1]


def segments():
    told = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True)
    return {line.split()[1] for line in told.stdout.splitlines() if len(line.split()) > 5}


def test_a_server_that_was_killed_leaves_nothing_in_memory():
    """Neither segments of System V, of which a system has few, nor files outside of its folder."""
    with running_postgres() as server:
        shared = shared_memory(server.folder)
        server.kill()
        assert shared not in segments()
        server.start()
        shared = shared_memory(server.folder)
        assert shared in segments()
        with psycopg.connect(server.dsn("postgres")) as connection:
            assert connection.execute("show dynamic_shared_memory_type").fetchone() == ("mmap",)
    assert shared not in segments()


def test_a_fork_that_holds_the_pipe_open_does_not_keep_the_server(holder):
    process, pid, folder = holder(FORK)
    process.kill()
    process.wait()
    assert wait_until_gone(pid, folder)


def test_the_terminals_interrupt_is_for_the_owner_alone():
    """It may want the server for the rest of its own end: the whole foreground group is signalled."""
    with Private("test") as private:
        pid = private.start(["sleep", "60"])
        assert os.getpgid(pid) != os.getpgid(0)
        assert os.getpgid(private._supervisor.pid) != os.getpgid(0)


def test_a_fork_that_ends_leaves_the_server_to_its_owner():
    with Private("test") as private:
        child = os.fork()
        if not child:
            private.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert private.folder.exists()
        assert private.ended() is None


def test_an_answer_that_nobody_heard_is_not_taken_for_the_next():
    """A test that ran out of time goes in the middle of a question; the server is for the whole session."""
    with Private("test") as private:
        private._supervisor.stdin.write(b'{"number": -1, "do": "poll"}\n')
        assert private.start(["sleep", "60"]) > 0


def test_the_environment_of_the_owner_does_not_reach_the_server(monkeypatch):
    """PGDATA, PGOPTIONS and the like change what the programs of Postgres do."""
    monkeypatch.setenv("PGDATA", "elsewhere")
    with Private("test") as private:
        private.run(["env"])
        assert "PGDATA" not in private.log()
        assert "LC_ALL=C" in private.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
class TestRoot:
    def test_the_process_is_the_accounts_and_not_ours(self):
        with Private("test") as private:
            private.run(["id", "-u"])
            private.run(["id", "-G"])
            who = account()
            assert private.log().split() == [str(who.uid), str(who.gid)]

    def test_a_wheel_behind_a_closed_folder_is_copied_and_the_folder_stays_closed(self, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o700)
        there = self.wheel(tmp_path / "closed")
        with Private("test") as private:
            assert private.account
            reached = there.within_reach(private.account, private.folder)
            assert reached.bin.is_relative_to(private.folder)
            self.runs(reached, private.account)
        assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o700

    @staticmethod
    def wheel(folder):
        """Programs with libraries beside them, as in the wheels: they do not run without."""
        (folder / "pack" / "pginstall" / "bin").mkdir(parents=True)
        (folder / "pack.libs").mkdir()
        (folder / "pack.libs" / "word").write_text("postgres\n")
        program = folder / "pack" / "pginstall" / "bin" / "postgres"
        program.write_text('#!/bin/sh\nread word < "$(dirname "$0")/../../../pack.libs/word"\n')
        program.chmod(0o700)
        return installs.Install(program.parent, 99, folder, ("pack/pginstall", "pack.libs"))

    @staticmethod
    def runs(install, who: Account):
        subprocess.run([install.bin / "postgres"], check=True, cwd="/", **as_account(who))
