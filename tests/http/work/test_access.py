"""Access: tokens, tenants, patterns of keys, the registry, and what the refused can learn."""

from __future__ import annotations

import asyncio
import base64
import os
from uuid import UUID, uuid4

import pytest

from holdfast.api_keys import make_signing_key
from holdfast.http.signing import Signing
from holdfast.http.work.tokens import Tokens
from holdfast.records import Scope
from holdfast.stores.memory import MemoryStore
from holdfast.wire.items import Origin
from holdfast.world import RealWorld
from tests.http.work.kit import TYPE, Worker, get, problem, start, trail
from tests.laws.two_tenants import CallRecorder

UPKEEP = {"signing_keys", "find_key", "use_keys", "keys", "note_audit"}  # calls that are about no run
RELEASE = {"op": "release", "seq": 1}


def forgeries(lease, others):
    """Tokens and names of leases that were never given."""
    token = lease.token
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    facts = raw[32:].replace(b'"default"', b'"other"')
    signed = Tokens([b"x" * 32]).make(uuid4(), 1, Origin("default", 1, 1, False))
    yield from ("", "AAAA", token[:-1], token + "A", "é" * 10, "A" * 3000, f"{token}=", token[1:], signed)
    yield base64.urlsafe_b64encode(raw[:32] + facts).rstrip(b"=").decode()
    yield base64.urlsafe_b64encode(bytes(32) + raw[32:]).rstrip(b"=").decode()
    yield from (one.token for one in others)


@pytest.mark.spec("TEN-6")
def test_a_forged_token_writes_nothing_and_the_store_is_not_asked(kit, worker):
    start(kit, 1), start(kit, 2)
    lease, other = worker.claim()
    stranger = Worker(kit)  # a worker's own name would find the lease as a stray
    work, store = kit.api.work, CallRecorder(kit.app.store)
    kit.api.store = work.store = work.commits._store = store
    for token in forgeries(lease, [other]):
        named = {"run": lease.run, "fence": lease.fence, "token": token}
        store.calls.clear()
        if len(token) > 2000:
            worker.ask("/leases/load", named, 422)
            continue
        (answer,) = worker.batch({**RELEASE, **named})
        assert problem(answer) == (409, "lease-lost")
        assert worker.ask("/leases/load", named, 409)["code"] == "lease-lost"
        (news,) = stranger.beat(named)["leases"]
        assert (news["state"], news["renewed"]) == ("lost", False)
        (news,) = worker.ask("/leases/states", {"leases": [named], "wait_ms": 5000})["leases"]
        assert news["state"] == "lost"
        row = {**named, "steps": [{"step": "a", "attempt": 1, "started_ms": 0}]}
        assert worker.ask("/leases/running", {"worker": "w", "runs": [row]})["written"] == [False]
        assert {*store.calls} <= UPKEEP
    for fence in (lease.fence - 1, lease.fence + 1, 0):
        (answer,) = worker.batch({**RELEASE, **lease.named, "fence": fence})
        assert problem(answer) == (409, "lease-lost")
    assert trail(kit, lease.run) == ["created", "leased"]


@pytest.mark.spec("TEN-6")
def test_a_token_survives_one_new_signing_key_and_other_servers_learn_of_it(kit, worker):
    start(kit, 1), start(kit, 2)
    lease, other = worker.claim()
    kit.run(kit.app.store.add_signing_key, os.urandom(32))
    kit.api.signing._read_at = float("-inf")
    fresh = kit.run(kit.app.store.signing_keys, os.urandom(32))
    origin = kit.api.signing.tokens.read(other.token, UUID(other.run), other.fence)
    # Another server, which knows the new key, has given this token.
    signed = Tokens([one.secret for one in fresh]).make(UUID(other.run), other.fence, origin)
    (answer,) = worker.batch({**RELEASE, **other.named, "token": signed})
    assert answer["status"] == "pending"
    assert lease.send("complete")["status"] == "succeeded"


@pytest.mark.every_store
@pytest.mark.spec("TEN-4", "TEN-2")
def test_a_key_claims_runs_of_its_own_tenant_only(kit):
    mine, foreign = start(kit, 1), start(kit, 2, tenant="other")
    worker, others = Worker(kit), Worker(kit, tenant="other")
    lease = worker.one()
    assert (lease.run, worker.claim()) == (mine, [])
    theirs = others.one()
    assert (theirs.run, theirs["tenant"]) == (foreign, "other")
    # With the very token of the other tenant's lease: as for a run that does not exist.
    missing = {**RELEASE, "run": str(uuid4()), "fence": 1, "token": "AAAA"}
    first, second = worker.batch({**RELEASE, **theirs.named}, missing)
    assert problem(first) == (409, "lease-lost")
    first["run"] = second["run"] = None
    assert first == second
    assert worker.load(theirs, 409)["code"] == "lease-lost"
    assert worker.beat(theirs)["leases"][0]["state"] == "lost"
    assert theirs.send("complete")["status"] == "succeeded"
    assert get(kit, foreign, "other").status == "succeeded"


@pytest.mark.spec("TEN-4")
def test_an_operator_may_work_for_all_tenants(kit):
    start(kit, 1), start(kit, 2, tenant="other")
    key = kit.key(Scope.WORK, Scope.OPERATOR)
    worker = Worker(kit, key=key)
    (own,) = worker.claim()
    (all_,) = worker.claim(tenant="*")
    assert [own["tenant"], all_["tenant"]] == ["default", "other"]
    (answer,) = worker.batch(all_.item("release"))
    assert problem(answer) == (409, "lease-lost"), "the request is about the tenant of the key"
    (answer,) = worker.batch(all_.item("complete"), tenant="*")
    assert answer["status"] == "succeeded"
    refused = kit.ask("POST", "/leases/claim", kit.key(Scope.WORK), params={"tenant": "other"},
                      json={"worker": "w", "runtime": "go", "types": [TYPE], "slots": 1})  # fmt: skip
    assert refused.status_code == 403


@pytest.mark.spec("TEN-1", "TEN-4")
def test_a_key_claims_only_types_that_its_patterns_allow(kit):
    start(kit, 1), start(kit, 2, type="bank.pay.v1")
    worker = Worker(kit, patterns=["bank.%"])
    for path, body in (("/leases/claim", {}), ("/workers/register", {"language": "go", "library": "x"})):
        sent = {"worker": "w", "runtime": "go", "slots": 5, "types": ["bank.pay.v1", TYPE], **body}
        refused = worker.ask(path, sent, 403)
        assert refused["code"] == "scope-missing"
        assert TYPE in refused["detail"]
    worker.types = ["bank.pay.v1"]
    assert worker.one()["params"] == 2


@pytest.mark.spec("HTTP-3")
def test_types_of_the_engine_are_not_claimed(worker):
    body = {"worker": "w", "runtime": "python", "slots": 5, "types": ["holdfast.bulk.v1"]}
    assert worker.ask("/leases/claim", body, 422)["code"] == "bad-value"


@pytest.mark.spec("REG-1", "REG-2")
def test_the_registry_decides_which_runtime_gets_a_type(kit):
    store = kit.app.store
    run = start(kit)
    go, python = Worker(kit, runtime="go"), Worker(kit, runtime="python")
    kit.run(store.register, TYPE, runtime="python")
    assert go.claim() == []
    kit.run(store.register, TYPE, runtime="python", enabled=False)
    assert python.claim() == []
    kit.run(store.register, TYPE, runtime="go", enabled=True)
    assert python.claim() == []
    lease = go.one()
    kit.run(store.register, TYPE, runtime="python")
    assert lease.send("checkpoint", {"key": "a"})["status"] == "leased", "a leased run ends where it is"
    assert lease.send("release")["status"] == "pending"
    assert python.one().run == run


@pytest.mark.spec("HTTP-3")
def test_a_worker_of_another_tenant_with_the_same_name_sees_no_strays(kit):
    start(kit), start(kit, tenant="other")
    worker, others = Worker(kit), Worker(kit, tenant="other")
    others.name = worker.name
    worker.one(), others.one()
    assert worker.beat()["strays"] != []
    assert [one["run"] for one in worker.beat()["strays"]] != [one["run"] for one in others.beat()["strays"]]
    assert len(others.beat()["strays"]) == 1
    assert others.register()["worker"] == f"{worker.name}@other"


@pytest.mark.spec("HTTP-3")
def test_only_an_operator_publishes(kit):
    definition = {"type": TYPE, "max_attempts": 7, "timeout_ms": 60_000, "description": "orders"}
    assert Worker(kit).register(definitions=[definition])["published"] is False
    assert kit.run(kit.app.store.definitions) in ([], ())
    operator = Worker(kit, key=kit.key(Scope.WORK, Scope.OPERATOR))
    assert operator.register(definitions=[definition])["published"] is True
    (found,) = kit.run(kit.app.store.definitions)
    assert (found.type, found.max_attempts, found.timeout_seconds) == (TYPE, 7, 60.0)


@pytest.mark.spec("HTTP-3")
def test_people_see_who_is_there(kit, worker):
    said = worker.register()
    assert (said["protocol"], said["tenant"], said["wait_ms_max"]) == (1, "default", 25_000)
    assert said["limits"]["value_bytes"] == 4 << 20
    (found,) = kit.run(kit.app.workers)
    assert (found.worker, found.types, found.runtime, found.slots) == (worker.name, (TYPE,), "go", 10)
    assert found.library == "tests (go)"
    assert worker.ask("/workers/leave", {"worker": worker.name}, 204) is None
    assert not kit.run(kit.app.workers)


@pytest.mark.spec("HTTP-3", "HTTP-4")
def test_versions_unknown_fields_and_unknown_operations(kit, worker):
    start(kit)
    body = {"worker": worker.name, "runtime": "go", "types": [TYPE], "slots": 1, "later": {"a": [1]}}
    for version, status in (("1", 200), ("2", 422), ("x", 422), ("", 422)):
        response = kit.ask(
            "POST", "/leases/claim", worker.key, json=body, headers={"holdfast-protocol": version}
        )
        assert response.status_code == status
        assert response.headers["holdfast-protocol"] == "1"
        if status == 200:
            (found,) = response.json()["leases"]
        else:
            assert response.json()["code"] == "protocol-version"
    named = {name: found[name] for name in ("run", "fence", "token")}
    (answer,) = worker.batch({**named, "op": "juggle", "seq": 1})
    assert problem(answer) == (422, "unknown-operation")
    assert "checkpoint" in answer["problem"]["detail"]
    (answer,) = worker.batch(
        {**named, "op": "complete", "seq": 1, "later": 1, "steps": [{"key": "a", "b": 1}]}
    )
    assert answer["status"] == "succeeded"


@pytest.mark.spec("TEN-6")
def test_all_requests_with_a_token_of_a_new_key_wait_for_one_read_of_the_keys():
    """Another server has made the key and signed with it."""
    run, origin = uuid4(), Origin("default", 5, 1, False)

    async def asked():
        store, reads = MemoryStore(), []
        here, there = Signing(store, RealWorld()), Signing(store, RealWorld())
        await here.read()
        await store.add_signing_key(make_signing_key())
        await there.read()
        token, read = there.tokens.make(run, 1, origin), store.signing_keys

        async def slow_read(key):
            reads.append(key)
            await asyncio.sleep(0)
            return await read(key)

        store.signing_keys = slow_read
        here._read_at = float("-inf")
        found = await asyncio.gather(*(here.lease(token, run, 1) for _ in range(3)))
        return found, len(reads)

    assert asyncio.run(asked()) == ([origin] * 3, 1)
