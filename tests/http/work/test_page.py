"""The page of the protocol says what the code does: fields, codes, limits, test vectors, and a whole run."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

import holdfast as hf
from holdfast.http.api.batches import ItemAnswer
from holdfast.http.problems import Code
from holdfast.wire import answers, requests
from holdfast.wire.items import OPERATIONS
from tests.http.work.kit import TYPE, Worker, start

PAGE = Path(__file__).parents[3] / "docs" / "worker-protocol.md"
RUN = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
# Bases and records that only carry others.
INSIDE = {"Request", "HeldLease", "Answered", "RawBatch", "ItemApplied"}
STRUCTS = [
    one
    for module in (requests, answers)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__name__ not in INSIDE
]


def page():
    return PAGE.read_text("utf-8")


def words():
    """Every word that the page shows as code."""
    found = set()
    for code in re.findall(r"```\w*\n(.*?)```|`([^`]+)`", page(), re.DOTALL):
        found |= {*re.findall(r"\w+", " ".join(code))}
    return found


@pytest.mark.spec("HTTP-3")
@pytest.mark.parametrize("struct", [*STRUCTS, ItemAnswer], ids=lambda one: one.__name__)
def test_the_page_names_every_field(struct):
    missing = {one.encode_name for one in msgspec.structs.fields(struct)} - words()
    assert not missing, struct.__name__


@pytest.mark.spec("HTTP-3")
def test_the_tables_have_no_field_that_does_not_exist():
    known = {one.encode_name for struct in (*STRUCTS, ItemAnswer) for one in msgspec.structs.fields(struct)}
    shown = {*re.findall(r"^\| (?:`\w+\??`(?:, )?)+ \|", page(), re.MULTILINE)}
    named = {name for row in shown for name in re.findall(r"`(\w+)\??`", row)}
    others = {*OPERATIONS, "error", "exhausted", "fatal", "timeout", "child_failed", "task", "sleep", "event",
              "approval", "now", "emit", "usage", "encoding", "drift", "history", "too_large", "no_handler",
              "sealed", "unreadable", "conflict", "code"}  # fmt: skip
    assert named - known <= others


@pytest.mark.spec("HTTP-3")
def test_the_page_names_operations_and_codes_that_exist():
    text = page()
    assert all(f"`{one}`" in text for one in OPERATIONS)
    named = {*re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text)}
    assert named - {"holdfast-go"} <= {*Code}
    assert {"lease-lost", "run-busy", "unknown-operation", "protocol-version"} <= named


@pytest.mark.spec("HTTP-3")
def test_the_json_of_the_page_is_json():
    for block in re.findall(r"```json\n(.*?)```", page(), re.DOTALL):
        json.loads(re.sub(r"^POST .*\n", "", block))


@pytest.mark.spec("HTTP-3")
def test_the_requests_of_the_whole_run_are_answered_as_the_page_says(kit):
    """The bodies of the page, with the run, the fence and the token of this server."""
    text = page()[page().index("## A whole run") :]
    blocks = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    worker, lease = Worker(kit, types=[TYPE]), None
    start(kit, {"id": 42})
    for at, block in enumerate(blocks):
        if not block.startswith("POST"):
            continue
        path, body = block.removeprefix("POST ").split("\n", 1)
        said, wanted = json.loads(body), json.loads(blocks[at + 1])
        if path == "/leases/claim":
            (lease,) = worker.ask(path, said)["leases"]
            assert lease.keys() == wanted["leases"][0].keys()
            continue
        (item,), (expected,) = said["items"], wanted["items"]
        for step in item.get("steps", ()):
            if "delay_ms" in step:
                step["delay_ms"] = 300  # not a whole minute
        if (item["fence"], item["seq"]) == (2, 1):
            (lease,) = worker.claimed(wait_ms=10_000)["leases"]
            assert lease["woken_by"] == ["sleep"]
            kit.run(kit.app.emit, "shipped:42", {"carrier": "dhl"}, id="evt-7")
        (found,) = worker.batch({**item, **{name: lease[name] for name in ("run", "fence", "token")}})
        same = ("answer", "status", "kept", "more", "children", "next", "left", "known")
        assert {name: found[name] for name in same} == {name: expected[name] for name in same}
        for one, other in zip(found["settled"], expected["settled"], strict=True):
            assert {**other, "output": None}.keys() == one.keys()
            assert (one["key"], one["seq"], one["output"]["payload"]) == (
                other["key"], other["seq"], other["output"]["payload"],
            )  # fmt: skip


def vectors():
    """The test vectors of the page: what, and the values."""
    table = page()[page().index("Test vectors") :].split("\n\n")[1]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {what: [one.strip(" `") for one in value.split(", ")] for what, value in rows}


@pytest.mark.spec("HTTP-3")
def test_the_vectors_of_the_page_are_those_of_the_engine():
    said = {}
    app = hf.App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        said["draws"] = [ctx.random() for _ in range(3)]
        await ctx.step("a", lambda: 1)
        await ctx.sleep(0)
        await ctx.sleep(0)
        await ctx.await_event("paid:42")
        await ctx.call("shop.ship.v2")
        await ctx.step("a", lambda: 1)
        await ctx.sleep(0)

        def charge():
            said["key"], said["inside"] = ctx.idempotency_key, [ctx.random()]

        await ctx.step("charge", charge)

    @app.workflow("shop.ids.v1")
    async def ids(ctx):
        said["uuids"] = [str(ctx.uuid()), str(ctx.uuid())]
        await ctx.step("charge", lambda: said.update(uuid=str(ctx.uuid())))
        await ctx.step("charge", lambda: None)
        await ctx.step("charge", lambda: None)
        await ctx.step("mail", lambda: None)
        await ctx.map("mail", lambda item: item, [1, 2])

    @app.workflow("shop.ship.v2")
    async def ship(ctx):
        return None

    async def steps(name):
        app.store = hf.App("memory://").store  # the same id again
        async with app.worker(poll=0.01):
            handle = await app.start(name, id=RUN)
            await app.emit("paid:42", id="e1")
            await asyncio.wait_for(handle.result(), 10)
            return [one.key for one in await app.steps(handle.id)]

    keys = asyncio.run(steps("shop.order.v1"))
    other = asyncio.run(steps("shop.ids.v1"))
    found = vectors()
    assert found["idempotency key of step `charge`"] == [said["key"]]
    assert found["its second use, third use"] == [one for one in other if one.startswith("charge#")]
    what = "keys of: step `a`, sleep, sleep, event `paid:42`, child `shop.ship.v2`, step `a`, sleep"
    assert sorted(found[what]) == sorted(one for one in keys if one != "charge")
    assert found["step `mail`, then map `mail` over 2 items"] == [one for one in other if "mail" in one]
    assert found["first three numbers in the body"] == [repr(one) for one in said["draws"]]
    assert found["first number inside step `charge`"] == [repr(said["inside"][0])]
    assert found["first two UUIDs in the body (of a fresh generator)"] == said["uuids"]
    assert found["first UUID inside step `charge` (of a fresh generator)"] == [said["uuid"]]
