"""A test server never outlives its owner, whatever kills the owner."""

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
    # Another process removes the server in its own time: no clock of the test can be turned.
    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline and (alive(pid) or folder.exists()):
        time.sleep(0.01)
    return not alive(pid) and not folder.exists()


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_and_its_folder_are_removed_with_a_killed_owner(holder, death):
    process, pid, folder = holder()
    assert alive(pid)
    assert folder.exists()
    shared = shared_memory(folder)
    assert shared in segments()
    process.send_signal(death)
    assert wait_until_gone(pid, folder)
    assert shared not in segments()


def shared_memory(folder):
    """Return the id of the shared memory that the system keeps for a server."""
    return (folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()[6].split()[1]


def segments():
    listed = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True)
    return {line.split()[1] for line in listed.stdout.splitlines() if len(line.split()) > 5}


def test_a_killed_server_leaves_no_shared_memory():
    """A system has few System V segments. No file stays outside the folder of the server either."""
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


def test_a_fork_that_holds_the_pipe_open_does_not_keep_the_server_alive(holder):
    process, pid, folder = holder(FORK)
    process.kill()
    process.wait()
    assert wait_until_gone(pid, folder)


def test_an_interrupt_of_the_terminal_reaches_only_the_owner():
    """Ctrl-C signals the whole foreground group, and the owner may need the server for its own cleanup."""
    with Private("test") as private:
        pid = private.start(["sleep", "60"])
        assert os.getpgid(pid) != os.getpgid(0)
        assert os.getpgid(private._supervisor.pid) != os.getpgid(0)


def test_the_end_of_a_fork_does_not_stop_the_server():
    with Private("test") as private:
        child = os.fork()
        if not child:
            private.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert private.folder.exists()
        assert private.ended() is None


def test_an_unread_answer_is_not_mistaken_for_the_next_answer():
    """A timed-out test stops in the middle of a question, and the server serves the whole session."""
    with Private("test") as private:
        private._supervisor.stdin.write(b'{"number": -1, "do": "poll"}\n')
        assert private.start(["sleep", "60"]) > 0


def test_the_environment_of_the_owner_does_not_reach_the_server(monkeypatch):
    """PGDATA, PGOPTIONS and similar variables change the behaviour of Postgres programs."""
    monkeypatch.setenv("PGDATA", "elsewhere")
    with Private("test") as private:
        private.run(["env"])
        assert "PGDATA" not in private.log()
        assert "LC_ALL=C" in private.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
class TestRoot:
    def test_the_server_runs_under_its_own_account(self):
        with Private("test") as private:
            private.run(["id", "-u"])
            private.run(["id", "-G"])
            who = account()
            assert private.log().split() == [str(who.uid), str(who.gid)]

    def test_a_wheel_in_an_unreadable_folder_is_copied_and_the_folder_stays_closed(self, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o700)
        there = self.wheel(tmp_path / "closed")
        with Private("test") as private:
            assert private.account
            reached = there.runnable_by(private.account, private.folder)
            assert reached.bin.is_relative_to(private.folder)
            self.runs(reached, private.account)
        assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o700

    @staticmethod
    def wheel(folder):
        """Programs with libraries beside them, as in the wheels: the programs need them."""
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
