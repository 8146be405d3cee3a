"""Starts by a script, from any language: the same as a start by the library, and refused where that is."""

from __future__ import annotations

import re
import time
from uuid import UUID, uuid4

import pytest
import redis

from holdfast import App, codec
from holdfast.errors import KeyReused
from holdfast.lifecycle import Status
from holdfast.records import Counted, Definition, NewRun
from holdfast.sealing import Encrypt, Sealed
from holdfast.stores.redis.producing import producer
from holdfast.testing.contract.driver import TYPE, gate, task
from servers.redis_store import cluster, make_in_cluster
from tests.stores.redis.test_scripts import WRITES, dump, failing, held

PARAMS = '{"order": 17, "items": ["ä", 1e3, null]}'
COMPACT = '{"order":17,"items":["ä",1000.0,null]}'


def without(text, id_, prefix):
    """Return a text without the id, the prefix and the times in it."""
    text = str(text).replace(str(id_), "ID").replace(f"{{{prefix}}}", "{p}")
    return re.sub(r"1[6-9]\d{14}", "TIME", text)


def compared(one, id_):
    """Return everything in a namespace as it would be if all happened at the same time."""
    prefix, found = one.store.address.prefix, {}
    for key, value in dump(one.driver).items():
        if isinstance(value, dict):
            plain = {without(k, id_, prefix): without(v, id_, prefix) for k, v in value.items()}
        elif isinstance(value, list):
            plain = sorted((without(member, id_, prefix), min(score, 1e15)) for member, score in value)
        else:
            plain = without(value, id_, prefix)
        found[without(key, id_, prefix)] = plain
    return found


PLAN = (task("A"), gate("ok", 60.0), task("B", max_attempts=9))
CASES = {
    "code": ({}, {}, ()),
    "key": ({}, {"key": "k:1%"}, ("k:1%",)),
    "tenant and priority": ({}, {"tenant": "t:ü", "priority": 7}, ("", "t:ü", "7")),
    "published": ({"max_attempts": 5, "timeout_seconds": 90.5, "budget": 250_000}, {}, ()),
    "delay": ({"timeout_seconds": 60.0}, {"delay_seconds": 1.5}, ("", "", "", "1500")),
    "account": ({"budget": 7, "covers_children": True}, {}, ()),
    "plan": ({"kind": "plan", "steps": PLAN, "max_attempts": 2}, {"key": "k"}, ("k",)),
    "plan without steps": ({"kind": "plan"}, {}, ()),
    "large plan": ({"kind": "plan", "steps": tuple(task(f"s{n}") for n in range(3000))}, {}, ()),
}


@pytest.mark.spec("STORE-3", "START-1")
@pytest.mark.parametrize(("definition", "fields", "words"), CASES.values(), ids=CASES)
def test_a_start_by_the_script_writes_what_a_start_by_the_library_writes(made, definition, fields, words):
    one, two = made(), made()
    for producer_ in (one, two):
        if definition:
            producer_.driver.run(producer_.store.publish([Definition(type=TYPE, **definition)]))
    by_library = one.start(params=PARAMS, **fields)
    id_, created = two(TYPE, PARAMS, *words)
    assert created == 1
    library, script = compared(one, by_library.id), compared(two, id_)
    digest = codec.digest(TYPE, PARAMS)
    for value in library.values():
        if isinstance(value, dict) and value.get("digest"):
            value["digest"] = "script"
    library = {key: v.replace(digest, "script") if isinstance(v, str) else v for key, v in library.items()}
    for numbers in (library["{p}:numbers"], script["{p}:numbers"]):
        numbers.pop("server", None)
    assert script == library
    run, other = two.driver.get(UUID(id_)), one.driver.get(by_library.id)
    assert run.params_json == PARAMS
    later = fields.get("delay_seconds", 0) * 1_000_000
    assert (run.run_at - run.created_at) // (run.run_at - run.run_at).resolution == later
    assert (run.timeout_seconds, run.budget_units) == (other.timeout_seconds, other.budget_units)


@pytest.mark.spec("START-8")
def test_ids_are_uuids_of_version_7_in_the_order_of_time(produce):
    before = time.time_ns() // 1_000_000
    ids = [UUID(produce()[0]) for _ in range(200)]
    assert len({*ids}) == 200
    assert {(id_.version, id_.variant) for id_ in ids} == {(7, "specified in RFC 4122")}
    stamps = [id_.int >> 80 for id_ in ids]
    assert stamps == sorted(stamps)
    assert before - 1000 <= stamps[0] <= stamps[-1] <= before + 60_000


class TestKeys:
    @pytest.mark.spec("START-4")
    def test_the_same_key_is_the_same_run(self, produce):
        id_, _ = produce(TYPE, PARAMS, "k")
        before = dump(produce.driver)
        spaced = PARAMS.replace(" ", " \n\t ").replace("17", " 17 ")
        assert produce(TYPE, PARAMS, "k") == produce(TYPE, spaced, "k") == [id_, 0]
        assert dump(produce.driver) == before
        assert produce(TYPE, PARAMS, "k", "other")[1] == 1
        assert produce(TYPE, PARAMS, "")[0] != produce(TYPE, PARAMS, "")[0]

    @pytest.mark.spec("START-4")
    @pytest.mark.parametrize(
        ("type_", "params"),
        [("a.b.v2", '"a b"'), (TYPE, '"ab"'), (TYPE, '"a  b"'), (TYPE, '"a\\u0020b"')],
    )
    def test_the_same_key_with_another_type_or_params_is_refused(self, produce, type_, params):
        id_, _ = produce(TYPE, '"a b"', "k")
        before = dump(produce.driver)
        with pytest.raises(redis.ResponseError, match=f"^KEYREUSED the key 'k' belongs to run {id_}"):
            produce(type_, params, "k")
        assert dump(produce.driver) == before

    @pytest.mark.spec("START-4")
    @pytest.mark.parametrize("fast", [True, False])
    def test_a_key_of_the_script_is_known_to_the_library(self, produce, fast):
        produce.store.fast = fast
        id_, _ = produce(TYPE, PARAMS, "k")
        again = produce.start(params=COMPACT, key="k")
        assert (str(again.id), again.created) == (id_, False)
        assert isinstance(produce.start(params='{"order":18}', key="k"), KeyReused)
        assert isinstance(produce.start("a.b.v2", COMPACT, key="k"), KeyReused)

    @pytest.mark.spec("START-4")
    def test_a_key_of_the_library_is_known_to_the_script(self, produce):
        by_library = produce.start(params='{"order":17,"note":"a \\" b"}', key="k")
        assert produce(TYPE, '{ "order": 17, "note": "a \\" b" }', "k") == [str(by_library.id), 0]
        for params in ('{"order":18}', '{"order":17,"note":"a \\"  b"}'):
            with pytest.raises(redis.ResponseError, match=r"^KEYREUSED .* other params"):
                produce(TYPE, params, "k")

    @pytest.mark.spec("START-4")
    def test_the_key_of_a_deleted_run_is_taken(self, produce):
        id_, _ = produce(TYPE, "1", "k")
        produce.driver.delete(UUID(id_))
        assert produce(TYPE, "1", "k") == [id_, 0]
        assert produce.start(params="1", key="k").id == UUID(id_)

    def test_an_encrypted_store_compares_the_value_that_was_not_encrypted(self, produce):
        id_, _ = produce(TYPE, "[1]", "k")
        sealed = Sealed(produce.store, [Encrypt({"k": bytes(32)}, accept_plain=True)])
        new = NewRun(id=uuid4(), type=TYPE, params="[1]", digest=codec.digest(TYPE, "[1]"), key="k")
        (answer,) = produce.driver.run(sealed.start([new]))
        assert (str(answer.id), answer.created) == (id_, False)


@pytest.mark.spec("START-1")
def test_a_definition_that_is_published_again_counts_from_then_on(produce):
    for attempts, timeout in ((5, 60.0), (None, None)):
        definition = Definition(type=TYPE, max_attempts=attempts, timeout_seconds=timeout)
        produce.driver.run(produce.store.publish([definition]))
        run = produce.driver.get(UUID(produce()[0]))
        assert (run.max_attempts, run.timeout_seconds) == (attempts or 3, timeout)


@pytest.mark.spec("START-2", "START-3", "LEASE-1")
def test_runs_of_the_script_are_claimed_by_priority_and_time(produce):
    produce()
    first, _ = produce(TYPE, "null", "", "", "5")
    later, _ = produce(TYPE, "null", "", "", "1", "60000")
    claims = produce.driver.claim()
    assert str(claims[0].id) == first
    assert len(claims) == 2
    assert produce.driver.status(UUID(later)) is Status.PENDING


@pytest.mark.spec("START-2", "OPS-2")
def test_a_worker_executes_the_runs_and_everything_is_counted(produce):
    app = App(produce.store)

    @app.workflow("shop.order.v1")
    async def order(ctx, params: dict):
        return await ctx.step("double", lambda: params["n"] * 2)

    @app.workflow("shop.fast.v1")
    async def fast(ctx, params: int):
        return params

    async def work():
        async with app.worker(slots=4):
            with produce.store.client() as client:
                ids = [
                    client.eval(producer(), 1, produce.numbers, "shop.order.v1", f'{{"n": {n}}}', f"k{n}")[0]
                    for n in range(5)
                ]
            return [await app.result(id_, timeout=20) for id_ in ids]

    assert produce.driver.run(work()) == [0, 2, 4, 6, 8]
    produce.driver.run(produce.store.open())
    produce("shop.order.v1", '{"n":1}', "", "other")
    counts = produce.driver.counts()
    assert counts.by_type == {"shop.order.v1": {"succeeded": 5, "pending": 1}}
    assert counts.totals["shop.order.v1"][Counted.STARTED] == 6
    assert produce.driver.recount() == []


@pytest.mark.spec("PLAN-1")
def test_a_plan_of_the_script_is_executed_step_by_step(produce):
    produce.driver.publish("A", "B")
    id_, _ = produce()
    run = UUID(id_)
    assert produce.driver.shape(run) == [("A", "ready"), ("B", "pending")]
    for step in ("A", "B"):
        produce.driver.advance(produce.driver.take(run), step)
    assert produce.driver.status(run) is Status.SUCCEEDED
    assert produce.driver.told(run)[0] == "created"


@pytest.mark.spec("STORE-3")
def test_workers_are_notified(produce):
    with produce.store.client() as client, client.pubsub() as listener:
        listener.subscribe(produce.store._names.channel)
        listener.get_message(timeout=5)
        produce()
        assert listener.get_message(timeout=5)["data"] == "work"


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "MOVE-6")
def test_a_key_of_the_wrong_type_is_refused_before_the_first_write(produce):
    produce.driver.publish("A", timeout_seconds=60.0)
    produce(TYPE, "null", "k")
    refused = 0
    for key in sorted(dump(produce.driver)):
        with produce.store.client() as client:
            client.rename(key, f"{key}:aside")
            client.rpush(key, "not ours")
            before = dump(produce.driver)
            try:
                produce(TYPE, "null", "k" if ":key:" in key else key)
            except redis.ResponseError:
                refused += 1
                assert dump(produce.driver) == before, key
            client.delete(key)
            client.rename(f"{key}:aside", key)
    assert refused > 10


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_an_error_in_a_call_before_the_first_write_leaves_nothing(produce):
    """All reads come before the first write: after it, there are only writes."""
    produce.driver.publish("A", timeout_seconds=60.0)
    number = 0
    with produce.store.client() as client:
        while True:
            number += 1
            before = dump(produce.driver)
            try:
                client.eval(failing(producer(), number), 1, produce.numbers, TYPE, "1", f"k{number}")
            except redis.ResponseError as error:
                names = str(error).partition("made to fail: ")[2].split()[:number]
                names = [name.strip(",") for name in names]
            else:
                break
            if WRITES.isdisjoint(names[:-1]):
                assert dump(produce.driver) == before
            else:
                assert names[-1] in WRITES, f"the script reads after its first write: {names}"
    assert number > 15


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_server_that_no_library_has_met_begins_a_new_epoch(produce):
    produce()
    with produce.store.client() as client:
        before = int(client.hget(produce.numbers, "trail"))
        client.hset(produce.numbers, "server", "another")
        id_, _ = produce()
        epoch, trail, server = client.hmget(produce.numbers, "epoch", "trail", "server")
        assert server == f"{client.info('server')['run_id']}:{client.info('replication')['master_replid']}"
        assert int(trail) == int(epoch) + 1 > before + 1_000_000
    (claim,) = [one for one in produce.driver.claim() if str(one.id) == id_]
    assert claim.fence == int(epoch) + 1


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_full_server_refuses_the_start_before_it_begins(opened, own_server):
    opened()
    with own_server.client() as client:
        client.config_set("maxmemory", "1")
        before = client.dbsize()
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            client.eval(producer(), 1, "{holdfast}:numbers", TYPE, "1", "k")
        client.config_set("maxmemory", "0")
        assert client.dbsize() == before
        assert client.eval(producer(), 1, "{holdfast}:numbers", TYPE, "1", "k")[1] == 1


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_the_script_starts_a_run_in_a_cluster(made):
    produce = made(make_in_cluster)
    id_, created = produce(TYPE, PARAMS, "k")
    assert created == 1
    assert produce.driver.take(UUID(id_)).params == PARAMS


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_while_a_namespace_moves_to_another_node_nothing_is_half_written(made):
    """The caller declares one key only. The script finds that others have gone before its first write."""
    produce = made(make_in_cluster)
    produce(TYPE, PARAMS, "k")
    prefix = produce.store.address.prefix
    target, source = cluster().other(prefix), cluster().owner(prefix)
    cluster().begin_move(prefix, target)

    def everything():
        with source.client() as one, target.client() as two:
            return _held(one, prefix), sorted(two.scan_iter())

    moved = 1
    while moved:
        before = everything()
        with pytest.raises(redis.ResponseError), source.client() as client:
            client.eval(producer(), 1, produce.numbers, TYPE, PARAMS)
        assert everything() == before
        moved = cluster().move_keys(prefix, target, 4)
    cluster().end_move(prefix, target)
    assert produce(TYPE, PARAMS, "k")[1] == 0
    assert produce(TYPE, PARAMS)[1] == 1


def _held(client, prefix):
    """Return the keys of a namespace that a node has, with their values."""
    return held(client, f"[{{]{prefix}[}}]:*")


@pytest.mark.spec("OPS-2")
def test_the_counts_are_right_for_each_tenant(produce):
    for tenant in ("", "other", "other"):
        produce(TYPE, "1", "", tenant)
    assert produce.driver.recount() == []
    assert produce.driver.counts("other").by_type == {TYPE: {"pending": 2}}


@pytest.mark.spec("STORE-3")
def test_all_sets_agree_with_the_runs(produce):
    produce.driver.publish("A", "B", timeout_seconds=60.0)
    for words in ((), ("k",), ("k", "other", "1", "60000")):
        produce(TYPE, "1", *words)
    assert {one.level for one in produce.driver.run(produce.store.check_sets())} == {"ok"}
