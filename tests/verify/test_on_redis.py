"""Experiments on Redis: switched-in bugs change the scripts, and losses are told from breaches."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from holdfast.stores.redis import scripts
from servers.redis_store import make, server
from verify import sabotage
from verify.checks.evidence import Evidence
from verify.checks.redis_drift import found_drift
from verify.environment import stores as places
from verify.environment.ledger import Entry
from verify.redis_outages.aof import cut, log_file
from verify.redis_outages.losses import Losses, Window, fence_given_twice, twice_under_one_claim
from verify.worker_crashes.kill9 import kill9

RUN = UUID(int=7)


@pytest.mark.parametrize("name", sabotage.SCRIPTS)
def test_a_sabotage_of_a_script_holds_inside_its_block(name):
    changed, guard, _ = sabotage.SCRIPTS[name]
    before = scripts.script(changed, flagged=True)
    with sabotage.broken(name, "redis"):
        assert guard not in scripts.script(changed, flagged=True).text
    assert scripts.script(changed, flagged=True) == before


def test_a_sabotage_of_a_script_without_a_guard_to_remove_raises(monkeypatch):
    monkeypatch.setattr(scripts, "_read", lambda _: "return 1")
    with pytest.raises(RuntimeError, match="mend this sabotage"):
        sabotage.change_script(sabotage.UNGUARDED)


def test_only_losses_outside_of_the_window_are_breaches():
    losses = Losses({RUN: 10.0}, [Window(9.0, 11.0)])
    evidence = Evidence(acked=[RUN])
    assert losses.starts(evidence) == [RUN]
    assert list(losses.starts_too_old(evidence)) == []
    losses.windows = [Window(20.0, 21.0)]
    assert len(list(losses.starts_too_old(evidence))) == 1


def test_a_lost_step_and_work_under_a_lost_claim_are_judged_by_their_times():
    entries = [
        Entry(kind="seen", run=str(RUN), step="a", nonce="x", at=10_000_000),
        Entry(kind="effect", run=str(RUN), step="a", fence=3, at=10_000_000),
    ]
    losses = Losses({}, [Window(9.0, 11.0)])
    evidence = Evidence(entries=entries)
    assert list(losses.steps_too_old(evidence)) == list(losses.unknown_claims(evidence)) == []
    losses.windows = []
    assert len(list(losses.steps_too_old(evidence))) == len(list(losses.unknown_claims(evidence))) == 1


def test_a_fence_of_two_claims_and_a_step_twice_under_one_are_found():
    claimed, done = (Entry(kind=kind, run=str(RUN), step="", fence=3) for kind in ("claimed", "effect"))
    assert list(fence_given_twice(Evidence(entries=[claimed]))) == []
    assert len(list(fence_given_twice(Evidence(entries=[claimed, claimed])))) == 1
    assert list(twice_under_one_claim(Evidence(entries=[done]))) == []
    assert len(list(twice_under_one_claim(Evidence(entries=[done, done])))) == 1


def test_the_last_part_of_a_log_is_cut(tmp_path):
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    for number in (9, 10):
        (folder / f"appendonly.aof.{number}.incr.aof").write_bytes(b"0123456789")
    assert cut(log_file(tmp_path), 4) == 6
    assert (folder / "appendonly.aof.10.incr.aof").read_bytes() == b"012345"
    assert log_file(tmp_path / "other").name == "appendonly.aof"


@pytest.mark.slow
def test_a_set_without_its_row_is_found():
    store = make(None)

    async def drifted():
        await store.open()
        url = server().url(store.address.prefix)
        before = found_drift(url)
        with server().client() as client:
            client.zadd(f"{{{store.address.prefix}}}:status:pending", {str(RUN): 0})
        found = found_drift(url)
        await store.close()
        return before, found

    before, found = asyncio.run(drifted())
    assert before == []
    assert len(found) == 1
    assert str(RUN) in found[0]


@pytest.mark.slow
@pytest.mark.spec("LEASE-4", "MOVE-2")
def test_workers_on_redis_are_killed_and_every_run_ends_well():
    """No recorded step is done again, with real processes."""
    with places.use_redis_server(server()):
        report = asyncio.run(kill9(runs=12, kills=4, seed=1, store="redis"))
    # Whether a takeover fell into so short a time is chance.
    assert [check for check in report.checks if not check.ok and check.name != "takeovers were seen"] == []
