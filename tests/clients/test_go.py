"""The Go client against a real server: what a workflow may do, what a crash costs, and how it stops."""

from __future__ import annotations

import signal

import pytest

from tests.clients import kit
from tests.clients.golang import Go
from tests.clients.kit import until
from tests.docs import pages
from tests.laws.effort import only_long

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LEASE = {"HOLDFAST_LEASE_MS": "1500", "HOLDFAST_SLOTS": "10"}
LONG_LEASE = {"HOLDFAST_LEASE_MS": "30000", "HOLDFAST_SLOTS": "10"}
VALUES = [1, 9007199254740993, -0.5, 1e300, "naïve 漢字 🎉 <&>", {"__proto__": [None, True]}, "", []]


@pytest.fixture
def script(go):
    """The program that executes scripts. It ends at once when the race detector finds something."""
    return ["env", "GORACE=halt_on_error=1", go.build("conformance", "-race")]


def test_the_code_is_formatted_and_vetted(go):
    assert go.unformatted() == ""
    go("vet", "./...")


def test_the_tests_of_the_client_pass_under_the_race_detector(go):
    go("test", "-race", "./...")  # Go keeps the verdict of the same sources


@pytest.mark.spec("HTTP-3")
def test_a_run_with_every_kind_of_wait(site_on, script, book):
    """Each wait parks the run; the code is executed again from its beginning, the steps are not."""
    site_on.worker(script, **LEASE)
    run = site_on.start(
        book.type,
        book.script(
            {"step": "first", "value": 1},
            {"sleep": 50},
            {"event": "paid:{run}"},
            {"approval": "large", "ask": "Accept?"},
            {"child": book.script({"step": "inner", "value": {"n": 9007199254740993}})},
            {"step": "first", "value": "again"},
        ),
    )
    site_on.until(run, "waiting")
    site_on.emit("paid:{run}", {"cents": 100})
    until(lambda: site_on.ask("POST", f"/runs/{run}/approve", {"step": "large", "comment": "ok"})[0] == 200)

    ended = site_on.ended(run)

    assert ended["result"] == [1, "slept", {"cents": 100}, True, [{"n": 9007199254740993}], "again"]
    assert book.step_keys() == ["first", "inner", "first#2"]
    assert [one["step"] for one in site_on.steps(run)] == [
        "first", "sleep", "event:paid:{run}", "large", "conformance.script", "first#2",
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
def test_a_value_that_is_too_large_fails_the_run(site, script, book):
    site.worker(script, **LEASE)
    run = site.start(book.type, book.script({"step": "big", "bytes": (4 << 20) + 1}))
    ended = site.ended(run)
    assert (ended["status"], ended["error"]["kind"]) == ("failed", "too_large")


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

    def test_a_step_without_tries_left_fails_the_run_unless_the_code_catches_it(self, site, script, book):
        site.worker(script, **LEASE)
        book.refuse("never", 500, "no money", times=10)
        book.refuse("fatal", 422, "no such card")
        run = site.start(
            book.type,
            book.script(
                {"step": "never", "attempts": 2, "delay_ms": 0, "or": "instead"},
                {"step": "fatal"},
            ),
        )
        ended = site.ended(run)
        assert ended["status"] == "failed"
        assert (ended["error"]["kind"], ended["error"]["step"]) == ("fatal", "fatal")
        assert "no such card" in ended["error"]["message"]
        assert [one["status"] for one in site.steps(run)] == ["failed", "failed"]
        assert book.step_keys() == ["never", "never", "fatal"]

    def test_an_error_of_the_code_itself_is_retried_and_then_fails_the_run(self, site, script, book):
        site.worker(script, **LEASE)
        run = site.start(book.type, book.script({"step": "a"}, {"raise": "broken"}), max_attempts=2)
        ended = site.ended(run)
        assert (ended["error"]["kind"], ended["error"]["message"]) == ("exhausted", "broken")
        assert book.step_keys() == ["a"]

    def test_an_event_that_does_not_come_in_time(self, site, script, book):
        site.worker(script, **LEASE)
        run = site.start(book.type, book.script({"event": "never", "timeout_ms": 100}, {"step": "after"}))
        assert site.ended(run)["result"] == ["timeout", None]

    def test_a_child_that_fails_fails_its_parent(self, site, script, book):
        site.worker(script, **LEASE)
        book.refuse("inner", 422, "no")
        run = site.start(book.type, book.script({"child": book.script({"step": "inner"})}))
        ended = site.ended(run)
        assert (ended["error"]["kind"], ended["error"]["step"]) == ("child_failed", "conformance.script")


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
def test_a_cancel_interrupts_the_step_and_nothing_is_written(site, script, book):
    site.worker(script, **LEASE)
    book.hold("slow")
    run = site.start(book.type, book.script({"step": "slow"}, {"step": "after"}))
    until(book.step_keys)

    site.must("POST", f"/runs/{run}/cancel", {})

    other = site.start(book.type, book.script({"step": "other"}))
    site.ended(other)
    assert site.run(run)["status"] == "cancelled"
    assert "after" not in book.step_keys()
    assert all(one["status"] != "succeeded" for one in site.steps(run))


def test_a_cancel_arrives_long_before_the_next_heartbeat(site, script, book):
    worker = site.worker(script, **LONG_LEASE)
    book.hold("slow")
    run = site.start(book.type, book.script({"step": "slow"}))
    until(book.step_keys)
    site.must("POST", f"/runs/{run}/cancel", {})
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(9) == 0  # it waits for its step, which the ledger holds for a minute


def test_a_wrong_address_is_said_once(site, script):
    worker = site.worker(script, HOLDFAST_STORE="http://127.0.0.1:1")
    worker.said("does not answer, trying again")
    assert worker.stop() == 0
    assert len(worker.log.splitlines()) == 1
    assert site.worker(script, HOLDFAST_STORE="sqlite:///x.db").process.wait(10) == 1


def test_steps_go_on_while_the_server_is_away(own_site, script, book):
    """The result of a step is sent until it is answered."""
    worker = own_site.worker(script, **LONG_LEASE)
    hold = book.hold("slow")
    run = own_site.start(book.type, book.script({"step": "slow", "value": 1}, {"step": "after", "value": 2}))
    until(book.step_keys)

    own_site.server.kill()
    hold.set()
    own_site.serve()

    assert own_site.ended(run)["result"] == [1, 2]
    assert book.step_keys() == ["slow", "after"]
    assert worker.runs


def test_the_order_example(site_on_some, go):
    """One order on each store: a person accepts it, parcels are children, the carrier's event ends it."""
    worker = site_on_some.worker([go.build("examples/order")])
    run = site_on_some.start("shop.order.v1", {"id": 42, "cents": 250_000, "parcels": ["books", "lamp"]})
    site_on_some.until(run, "waiting")
    site_on_some.must("POST", f"/runs/{run}/approve", {"step": "large-order"})
    site_on_some.emit("delivered:42", {"at": "the door"})

    assert site_on_some.ended(run)["result"] == "receipt-42, delivered at the door"
    assert worker.log.count(f"charge 250000 cents, idempotency key {run}:charge") == 1
    assert [one["step"] for one in site_on_some.steps(run)] == [
        "large-order", "charge", "shop.ship", "shop.ship#2", "sleep", "event:delivered:42",
    ]  # fmt: skip


class TestTour:
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def worker(cls, sqlite_site, go):
        with sqlite_site.workers() as one:
            yield one.worker([go.build("examples/tour")])

    def test_a_map_records_each_item(self, site):
        run = site.start("tour.squares.v1", [1, 2, 3, 4])
        assert site.ended(run)["result"] == [1, 4, 9, 16]
        assert sorted(one["step"] for one in site.steps(run)) == [f"square[{n}]" for n in range(4)]

    def test_a_chain_of_runs(self, site):
        run = site.start("tour.countdown.v1", 3)
        chain = [site.ended(run)]
        while isinstance(chain[-1]["result"], dict):
            chain.append(site.ended(chain[-1]["result"]["continued_as"]))
        assert [one["params"] for one in chain] == [3, 2, 1, 0]
        assert chain[-1]["result"] == "lift-off"

    def test_a_child_that_nobody_waits_for(self, site):
        child = site.ended(site.start("tour.starter.v1", 7))["result"]
        ended = site.ended(child)
        assert (ended["result"], ended["labels"]) == ([49], {"number": "7"})

    def test_notes_are_written_once_although_the_function_is_executed_again(self, site):
        run = site.start("tour.notes.v1", "noted")
        ended = site.ended(run)
        assert ended["status"] == "succeeded"
        assert [one["data"]["message"] for one in site.trail(run) if one["type"] == "log"] == ["begun"]
        assert [one["step"] for one in site.steps(run)] == ["now", "emit:noted", "try"]
        assert (ended["cost"], ended["progress"]["note"]) == (0.5, "half of it")

    def test_a_step_that_takes_too_long(self, site):
        ended = site.ended(site.start("tour.slow.v1"))
        assert ended["status"] == "failed"
        assert (ended["error"]["kind"], ended["error"]["step"]) == ("timeout", "wait")


def test_the_readme(site, go, tmp_path):
    """The program of the page, in a module of its own as the page says, survives a kill."""
    code = next(one for one in pages.blocks(kit.CLIENTS / "go" / "README.md") if one.language == "go")
    (tmp_path / "main.go").write_text(code.text)
    module = Go(tmp_path, tmp_path)
    module("mod", "init", "shop")
    module(
        "mod",
        "edit",
        "-require",
        "holdfast.internal/holdfast@v0.1.0",
        "-replace",
        f"holdfast.internal/holdfast={kit.CLIENTS / 'go'}",
    )
    program = [module.build(".")]
    first = site.worker(program)
    run = site.start("shop.order.v1", 42)
    site.until(run, "waiting")
    first.kill()
    site.worker(program)
    site.emit("delivered", "at the door")
    assert site.ended(run)["result"] == "receipt-1 at the door"


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

    def test_an_idle_worker_stops_at_once(self, site, script):
        worker = site.worker(script, **LONG_LEASE, HOLDFAST_WORKER="idle")
        until(lambda: any(one["worker"].startswith("idle:") for one in site.must("GET", "/workers")["items"]))
        assert worker.stop(5) == 0

    @pytest.mark.parametrize("key", ["hf_aaaaaaaaaaaa_" + "a" * 32, None])
    def test_a_worker_whose_key_is_refused_says_so(self, site, script, key):
        worker = site.worker(script, HOLDFAST_KEY=key or site.key)
        assert worker.process.wait(10) == 1
        assert "API key" in worker.log
        assert len(worker.log.splitlines()) == 1
