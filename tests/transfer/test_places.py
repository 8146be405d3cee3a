"""Names of targets: the same URL on two machines is two stores, where it is one of the machine only."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from holdfast import App
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres.address import parsed as postgres
from holdfast.stores.redis.address import parsed as redis
from holdfast.transfer import places
from holdfast.transfer.moving import Mover
from holdfast.transfer.places import target_of
from tests.transfer.test_hazards import two
from tests.transfer.test_moving import fresh, loop  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


def is_local(store, monkeypatch):
    """Return True when a store has another name on another machine."""
    names = []
    for machine in ("web-1", "web-2"):
        monkeypatch.setattr(places.socket, "gethostname", lambda machine=machine: machine)
        names.append(target_of(store))
    assert ("web-1" in names[0]) == (names[0] != names[1])
    return names[0] != names[1]


@pytest.mark.parametrize(
    ("address", "local"),
    [
        (postgres("postgresql://app@db/shop"), False),
        (postgres("postgresql://app:secret@10.0.0.7:5432/shop"), False),
        (postgres("postgresql://app@localhost/shop"), True),
        (postgres("postgresql://app@127.0.0.2:5432/shop"), True),
        (postgres("postgresql://app@[::1]:5432/shop"), True),
        (postgres("postgresql:///shop?host=/run/postgresql"), True),
        (postgres("postgresql://app@a,localhost/shop"), True),
        (redis("redis://cache:6379/0"), False),
        (redis("redis://localhost:6379/0?prefix=other"), True),
        (redis("unix:///run/redis.sock"), True),
    ],
)
def test_a_server_of_this_machine_is_another_one_elsewhere(address, local, monkeypatch):
    store = SimpleNamespace(address=address)
    assert is_local(store, monkeypatch) == local
    assert "secret" not in target_of(store)


def test_files_and_memory_are_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_local(SimpleNamespace(path="a.db"), monkeypatch)
    assert target_of(SimpleNamespace(path="a.db")).startswith(f"sqlite:///{tmp_path}/a.db on machine ")
    assert is_local(SimpleNamespace(path=None), monkeypatch)
    one, other = MemoryStore(), MemoryStore()
    assert target_of(one) == target_of(one) != target_of(other)


def test_a_move_does_not_go_on_with_that_of_another_machine_but_undoes_it(fresh, monkeypatch):  # noqa: F811
    source, target, ids = two(fresh)
    here, there = App(source.store), App(target.store)
    name = target_of(target.store)
    source.run(source.store.leave(ids, name.replace(socket.gethostname(), "elsewhere")))
    report = source.run(here.move(there))
    assert (report.moved, sum(report.elsewhere.values())) == (0, 2)
    assert set(source.run(here.undo_move(there)).runs) == set(ids)
    assert source.run(here.move(there)).moved == 2
    assert source.run(Mover(source.store, target.store, to=name).undo()).runs == []
