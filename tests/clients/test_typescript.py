"""The TypeScript client on real servers: what a workflow may do, what a crash costs, and how it stops."""

from __future__ import annotations

import re
import signal
import sys
import time

import pytest

from tests.clients.kit import CLIENTS, until
from tests.laws.effort import only_long

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LEASE = {"HOLDFAST_LEASE_MS": "2000", "HOLDFAST_SLOTS": "10"}
LONG_LEASE = {"HOLDFAST_LEASE_MS": "30000", "HOLDFAST_SLOTS": "10"}
VALUES = [
    1,
    9007199254740993,
    -(2**70),
    -0.5,
    1e300,
    "naïve 漢字 🎉 <&>",
    {"__proto__": [None, True]},
    "",
    [],
]

# The workflow of example/order.ts in Python, with the same keys: one language finishes a run of the other.
ORDER = """
import holdfast as hf

app = hf.App()


@app.workflow("shop.ship.v1")
async def ship(ctx: hf.Context, order: dict) -> str:
    tracking = await ctx.step("label", lambda: f"parcel-{order['id']}")
    ctx.emit(f"shipped:{order['id']}", {"tracking": tracking})
    return tracking


@app.workflow("shop.order.v1")
async def order(ctx: hf.Context, order: dict) -> dict:
    ctx.log("order received", id=order["id"])
    receipt = await ctx.step("charge", lambda: f"charged {order['cents']} by Python")
    reserved = await ctx.map(
        "reserve", lambda one: f"{one['count']} of {one['sku']}", order["lines"], key=lambda one: one["sku"]
    )
    packed = await ctx.await_event(f"packed:{order['id']}", hf.hours(48))
    if order["cents"] > 100_000:
        decision = await ctx.approval("large order", ask=f"Ship order {order['id']}?")
        if not decision.approved:
            return {"status": f"rejected by {decision.by}"}
    await ctx.sleep(1)
    tracking = await ctx.call(ship, order)
    return {
        "status": "shipped", "receipt": receipt, "reserved": reserved, "weight": packed.payload["weight"],
        "tracking": tracking,
    }
"""


@pytest.fixture
def script(typescript):
    """The program that executes scripts."""
    return typescript.program("conformance/worker")


@pytest.fixture
def flows(typescript):
    """The program with workflows that scripts cannot express."""
    return typescript.program("test/flows")


def test_the_tests_of_the_client_pass(typescript):
    typescript.tested()


def test_the_client_has_no_dependencies_and_its_pins_name_no_host():
    package, lock = (
        (CLIENTS / "typescript" / name).read_text("utf-8") for name in ("package.json", "package-lock.json")
    )
    assert '"dependencies"' not in package
    assert "://" not in lock


def test_the_first_workflow_of_the_readme(site, typescript, tmp_path):
    page = (CLIENTS / "typescript" / "README.md").read_text("utf-8")
    text = re.search(r"^```ts\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    site.worker(typescript.compiled(text.replace("http://127.0.0.1:8080", site.url), tmp_path))
    run = site.start("shop.order.v1", {"id": 42})
    site.emit("paid:42", {"cents": 100})
    assert site.ended(run)["result"] == {"receipt": f"receipt {run}:charge", "cents": 100}


@pytest.mark.spec("HTTP-3")
def test_a_run_with_every_kind_of_wait(site_on, script, book):
    """Each wait parks the run; the code is executed again from its beginning, the steps are not."""
    site_on.worker(script, **LEASE)
    run = site_on.start(
        book.type,
        book.script(
            {"step": "first", "value": 1},
            {"sleep": 50},
            {"event": "paid:42"},
            {"approval": "large", "ask": "Accept?"},
            {"child": book.script({"step": "inner", "value": {"n": 9007199254740993}})},
            {"step": "first", "value": "again"},
        ),
    )
    site_on.until(run, "waiting")
    site_on.emit("paid:42", {"cents": 100})
    until(lambda: site_on.ask("POST", f"/runs/{run}/approve", {"step": "large", "comment": "ok"})[0] == 200)

    ended = site_on.ended(run)

    assert ended["result"] == [1, "slept", {"cents": 100}, True, [{"n": 9007199254740993}], "again"]
    assert book.step_keys() == ["first", "inner", "first#2"]
    assert [one["step"] for one in site_on.steps(run)] == [
        "first", "sleep", "event:paid:42", "large", "conformance.script", "first#2",
    ]  # fmt: skip


@only_long  # the conformance kit has these cases
def test_values_come_out_as_they_came_in(site, script, book):
    site.worker(script, **LEASE)
    run = site.start(
        book.type,
        book.script(*[{"step": "same", "value": one} for one in VALUES], {"step": "big", "bytes": 4 << 20}),
    )
    assert site.ended(run)["result"] == [*VALUES, (4 << 20) - 2]
    assert [one["output"] for one in site.steps(run)][:-1] == VALUES


@only_long  # the conformance kit has these cases
class TestRetries:
    def test_a_step_is_tried_again_here_or_later(self, site, script, book):
        site.worker(script, **LEASE)
        book.refuse("soon", 500, "not yet", times=2)
        book.refuse("later", 500, "not yet")
        run = site.start(
            book.type,
            book.script(
                {"step": "soon", "delay_ms": 10, "value": "ok"},
                {"step": "later", "delay_ms": 1100, "attempts": 2, "value": "ok"},
            ),
        )
        assert site.ended(run)["result"] == ["ok", "ok"]
        assert book.step_keys() == ["soon"] * 3 + ["later"] * 2
        assert [one["attempts"] for one in site.steps(run)] == [3, 2]

    def test_a_step_that_has_used_its_tries_fails_the_run_unless_the_code_catches_it(
        self, site, script, book
    ):
        site.worker(script, **LEASE)
        book.refuse("never", 500, "no money", times=10)
        book.refuse("fatal", 422, "no such card")
        run = site.start(
            book.type,
            book.script({"step": "never", "attempts": 2, "delay_ms": 0, "or": "instead"}, {"step": "fatal"}),
        )
        ended = site.ended(run)
        assert (ended["error"]["kind"], ended["error"]["step"]) == ("fatal", "fatal")
        assert "no such card" in ended["error"]["message"]
        assert book.step_keys() == ["never", "never", "fatal"]

    def test_an_error_of_the_code_itself_is_retried_and_then_fails_the_run(self, site, script, book):
        site.worker(script, **LEASE)
        run = site.start(book.type, book.script({"step": "a"}, {"raise": "broken"}), max_attempts=2)
        ended = site.ended(run)
        assert (ended["error"]["kind"], ended["error"]["message"]) == ("exhausted", "broken")
        assert book.step_keys() == ["a"]


@pytest.mark.spec("HTTP-3")
def test_a_killed_worker_is_replaced_and_recorded_steps_are_not_run_again(site_on_some, script, book):
    first = site_on_some.worker(script, **LEASE)
    hold = book.hold("slow")
    runs = [
        site_on_some.start(book.type, book.script({"step": "a", "value": 1}, {"step": "slow", "value": 2}))
        for _ in range(4)
    ]
    until(lambda: book.step_keys().count("slow") == 4)

    first.kill()
    hold.set()
    site_on_some.worker(script, **LEASE)

    assert [site_on_some.ended(run)["result"] for run in runs] == [[1, 2]] * 4
    assert sorted(book.step_keys()) == ["a"] * 4 + ["slow"] * 8
    assert len({one["key"] for one in book.calls if one["step"] == "slow"}) == 4


@only_long  # the conformance kit has these cases
def test_code_that_blocks_the_event_loop_loses_no_lease(site, script, book):
    """Heartbeats come from another thread. The block is three leases long."""
    site.worker(script, **LEASE)
    run = site.start(book.type, book.script({"step": "block", "block_ms": 6000, "value": 1}))
    assert site.ended(run)["result"] == [1]
    assert book.step_keys() == ["block"]
    assert "lease_expired" not in [row["type"] for row in site.trail(run)]


def test_a_run_that_comes_while_code_blocks_the_event_loop_is_given_back(site, script, book):
    """Another worker may execute it meanwhile. This one takes no more until its loop goes on."""
    site.worker(script, **{**LEASE, "HOLDFAST_LEASE_MS": "1000"})
    blocked = site.start(book.type, book.script({"step": "block", "block_ms": 2500, "value": 1}))
    until(book.step_keys)
    run = site.start(book.type, book.script({"step": "a", "value": 2}))

    until(lambda: [row["type"] for row in site.trail(run)].count("released") == 1)

    assert site.run(blocked)["status"] == "leased"
    assert site.ended(run)["result"] == [2]
    assert [row["type"] for row in site.trail(run)].count("leased") == 2
    assert site.ended(blocked)["result"] == [1]


def test_steps_go_on_while_the_server_is_away(own_site, script, book):
    """The result of a step is sent until it is answered."""
    own_site.worker(script, **LONG_LEASE)
    hold = book.hold("slow")
    run = own_site.start(book.type, book.script({"step": "slow", "value": 1}, {"step": "after", "value": 2}))
    until(book.step_keys)

    own_site.server.kill()
    hold.set()
    own_site.serve()

    assert own_site.ended(run)["result"] == [1, 2]
    assert book.step_keys() == ["slow", "after"]


class TestCancel:
    def test_a_cancel_aborts_the_signal_of_the_step_at_once_and_nothing_is_written(self, site, flows):
        """A lease of 30 seconds has a heartbeat every ten seconds; the cancel does not wait for one."""
        worker = site.worker(flows, **LONG_LEASE)
        run = site.start("flows.endless.v1")
        worker.said("endless began")
        began = time.monotonic()

        site.must("POST", f"/runs/{run}/cancel", {})

        worker.said("endless aborted: the run is cancelled")
        assert time.monotonic() - began < 6
        assert site.run(run)["status"] == "cancelled"
        assert all(one["status"] != "succeeded" for one in site.steps(run))


class TestStop:
    def test_a_worker_that_stops_lets_its_step_end_and_gives_the_run_back(self, site, script, book):
        worker = site.worker(script, **LONG_LEASE)
        hold = book.hold("slow")
        run = site.start(book.type, book.script({"step": "slow", "value": 1}, {"step": "after", "value": 2}))
        until(book.step_keys)

        worker.signal(signal.SIGTERM)
        worker.said("stopping")
        hold.set()

        assert worker.process.wait(20) == 0
        now = site.run(run)
        assert (now["status"], now["crashes"], now["attempt"]) == ("pending", 0, 0)
        site.worker(script, **LONG_LEASE)
        assert site.ended(run)["result"] == [1, 2]
        assert book.step_keys() == ["slow", "after"]

    def test_a_second_signal_interrupts_the_step(self, site, flows):
        worker = site.worker(flows, **LONG_LEASE)
        run = site.start("flows.endless.v1")
        worker.said("endless began")
        worker.signal(signal.SIGTERM)
        worker.said("stopping")  # Linux joins two signals that come at the same moment
        worker.signal(signal.SIGTERM)
        assert worker.process.wait(10) == 0
        assert "endless aborted" in worker.log
        assert site.run(run)["status"] == "pending"
        site.must("POST", f"/runs/{run}/cancel", {})

    def test_an_idle_worker_stops_at_once(self, site, script):
        worker = site.worker(script, **LONG_LEASE, HOLDFAST_WORKER="idle-ts")
        until(
            lambda: any(one["worker"].startswith("idle-ts:") for one in site.must("GET", "/workers")["items"])
        )
        assert worker.stop(5) == 0

    @pytest.mark.parametrize("key", ["hf_aaaaaaaaaaaa_" + "a" * 32, None])
    def test_a_worker_whose_key_is_refused_says_so(self, site, script, key):
        worker = site.worker(script, HOLDFAST_KEY=key or site.key)
        assert worker.process.wait(10) == 1
        assert "API key" in worker.log
        assert len(worker.log.splitlines()) == 1


class TestBranches:
    def test_steps_at_once_and_a_wait_beside_them(self, site, flows):
        site.worker(flows, **LEASE)
        run = site.start("flows.branches.v1", {"topic": "branches:go"})
        site.until(run, "waiting")
        site.emit("branches:go", 7)
        assert site.ended(run)["result"] == [["a", "b", "c"], 7, [0, 2, 4, 6, 8], "first"]
        outputs = {one["step"]: one["output"] for one in site.steps(run) if one["kind"] == "task"}
        assert outputs["work#3"] == "c"
        assert outputs["double[4]"] == 8

    def test_a_chain_of_runs_with_its_effects(self, site, flows):
        site.worker(flows, **LEASE)
        run = site.start("flows.chain.v1", {"left": 2}, key="chain")
        ended = site.ended(run)
        while "continued_as" in (ended["result"] or {}):
            ended = site.ended(ended["result"]["continued_as"])
        assert ended["result"]["left"] == 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", ended["result"]["at"])
        logs = [row for row in site.trail(run) if row["type"] == "log"]
        assert [row["data"]["message"] for row in logs] == ["left 2"]


@only_long  # test_mixed.py has the same, with more languages
class TestLanguages:
    """The example order, in both languages."""

    @pytest.fixture
    def python(self, site, tmp_path):
        """A function that starts a Python worker on the store itself."""
        (tmp_path / "orders.py").write_text(ORDER, "utf-8")
        argv = [sys.executable, "-m", "holdfast.cli", "worker", "orders:app"]
        return lambda: site.worker(
            argv, HOLDFAST_STORE=site.store, PYTHONPATH=f"{tmp_path}:{CLIENTS.parent / 'src'}"
        )

    @pytest.fixture
    def example(self, site, typescript):
        return lambda: site.worker(typescript.program("example/order"), HOLDFAST_LEASE_MS="2000")

    @pytest.mark.spec("HTTP-3")
    @pytest.mark.parametrize("first", ["typescript", "python"])
    def test_a_run_parked_by_one_language_is_finished_by_the_other(self, site, python, example, first):
        begin, finish = (example, python) if first == "typescript" else (python, example)
        order = {"id": f"{first}-1", "cents": 9007199254740993, "lines": [{"sku": "tea", "count": 2}]}
        before = begin()
        run = site.start("shop.order.v1", order)
        site.until(run, "waiting")
        assert before.stop() == 0

        finish()
        site.emit(f"packed:{order['id']}", {"weight": 3})
        until(lambda: site.ask("POST", f"/runs/{run}/approve", {"step": "large order"})[0] == 200)

        ended = site.ended(run)
        by = f"under {run}:charge" if first == "typescript" else "by Python"
        assert ended["result"] == {
            "status": "shipped",
            "receipt": f"charged 9007199254740993 {by}",
            "reserved": ["2 of tea"],
            "weight": 3,
            "tracking": f"parcel-{order['id']}",
        }
        assert [one["attempts"] for one in site.steps(run) if one["kind"] == "task"] == [1, 1]
        assert len([row for row in site.trail(run) if row["type"] == "log"]) == 1
