"""Random histories under limits are the same on every store, and no limit is ever exceeded."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.lifecycle import Status
from holdfast.records import ANY, SECOND, NewRun, RunFilter
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.claiming import capacity, lanes, next_claim
from holdfast.stores.sqlite.claiming import limited as limiting
from tests.laws.effort import LONG, often
from tests.laws.store_pair import Pair

TYPES = ("shop.order.v1", "shop.order.v2", "web.page.v1")
TENANTS = ("default", "acme", "umbra")
KEYS = (None, None, "api.a", "api.b", "web")
NAMES = {
    "type": (*TYPES, "shop.%", "%"),
    "tenant": (*TENANTS, "a%", "%"),
    "key": ("api.a", "api.b", "web", "api.%", "%"),
}
TURNS = (0.000001, 0.5, 1.0, 5.0, 31.0, -1.0, -6.0)
EVERY = RunFilter(tenant=ANY)

OPERATIONS = {
    "start": 6, "claim": 10, "end": 6, "limit": 3, "unlimit": 1, "pause": 1, "resume": 1, "register": 1,
    "unregister": 1, "turn": 5, "tick": 2, "look": 3,
}  # fmt: skip
WEIGHTED = [name for name, weight in OPERATIONS.items() for _ in range(weight)]


class LimitsAgree(RuleBasedStateMachine):
    """Random limits over random runs, on two stores."""

    @initialize(patience=st.sampled_from([0, 1, 3, 100]), few=st.sampled_from([0, 3, 20]))
    def begin(self, patience, few):
        self.pair = Pair(lambda clock: MemoryStore(clock=clock), self.other)
        # With a low bound on passed-over runs nearly every claim goes lane by lane, a few runs at a time.
        self.set_bounds(patience, few)
        self.runs, self.claims = [], []

    def teardown(self):
        if hasattr(self, "pair"):
            self.calm()
            self.pair.close()

    @rule(data=st.data(), names=st.lists(st.sampled_from(WEIGHTED), min_size=2, max_size=6))
    def live(self, data, names):
        for name in names:
            getattr(self, name)(lambda *choices: data.draw(st.sampled_from(choices)))
            self.pair.do(lambda driver: driver.due(TYPES).claim_at)
            self.pair.do(lambda driver: driver.stats().unclaimable)

    def _run(self, name, *args, **fields):
        return self.pair.do(lambda driver: driver.run(getattr(driver.store, name)(*args, **fields)))

    def start(self, pick):
        for _ in range(pick(1, 2, 8)):
            new = NewRun(
                id=self.pair.drivers[0].id(), type=pick(*TYPES), tenant=pick(*TENANTS), limit_key=pick(*KEYS),
                priority=pick(100, 100, 5), delay_seconds=pick(None, None, 5.0),
            )  # fmt: skip
            self.pair.do(lambda driver, new=new: driver.start_many([new]))
            self.runs.append(new.id)

    def claim(self, pick):
        limit, types, runtime = pick(1, 1, 2, 5, 50), pick(TYPES, TYPES[:1]), pick("python", "python", "go")
        tenants, crashed = pick(None, None, ("acme",), ("umbra", "default")), pick(None, (1,))
        was = self._leased()
        taken = self.pair.do(
            lambda driver: driver.claim(limit, "w", types, tenants=tenants, crashed=crashed, runtime=runtime)
        )
        self.claims += taken
        if taken:
            self._within_limits(was)

    def _leased(self):
        driver = self.pair.drivers[0]
        shown = driver.run(driver.store.list(EVERY, 10_000))
        held = [run for run in shown if run.status is Status.LEASED]
        return {
            (scope, name): sum(getattr(run, field) == name for run in held)
            for scope, field in (("type", "type"), ("tenant", "tenant"), ("key", "limit_key"))
            for name in {getattr(run, field) for run in held}
        }

    def _within_limits(self, was):
        driver = self.pair.drivers[0]
        exact = {(one.scope, one.name): one.concurrency for one in driver.run(driver.store.limits())}
        for name, count in self._leased().items():
            cap = exact.get(name)
            # A limit that was lowered below the number of leased runs only stops further claims.
            assert cap is None or count <= max(cap, was.get(name, 0)), name

    def end(self, pick):
        held = [claim for claim in self.claims if self._holds(claim)]
        if held:
            claim, how = pick(*held), pick("complete", "release", "retry", "cancel")
            if how == "cancel":
                self.pair.do(lambda driver: driver.cancel(claim.id).status)
            else:
                self.pair.do(lambda driver: getattr(driver, how)(claim).answer)
            self.claims.remove(claim)

    def _holds(self, claim):
        run = self.pair.drivers[0].get(claim.id)
        return run.status is Status.LEASED and run.fence == claim.fence

    def limit(self, pick):
        scope = pick(*NAMES)
        weight = pick(None, 1.0, 3.0, 0.3) if scope == "tenant" else None
        rate = pick(None, (1, 5.0), (3, 1.0), (2, 30.0))
        self._run(
            "limit", scope, pick(*NAMES[scope]), concurrency=pick(None, 0, 1, 2), rate=rate, weight=weight
        )

    def unlimit(self, pick):
        scope = pick(*NAMES)
        self._run("unlimit", scope, pick(*NAMES[scope]))

    def pause(self, pick):
        until = self.pair.clock.now + pick(-1, 1, 30) * SECOND
        self._run("pause_key", pick(*NAMES["key"]), until)

    def resume(self, pick):
        self._run("resume_key", pick(*NAMES["key"]))

    def register(self, pick):
        name = pick(*TYPES, "shop.order")
        self._run("register", name, runtime=pick(None, "go", "python"), enabled=pick(None, True, False))

    def unregister(self, pick):
        self._run("unregister", pick(*TYPES, "shop.order"))

    def turn(self, pick):
        self.pair.clock.turn(pick(*TURNS))

    def tick(self, pick):
        self.pair.do(lambda driver: driver.tick().expired)

    def look(self, pick):
        self._run("limits")
        self._run("registry")
        runtime, tenants = pick("python", "go"), pick(None, ("acme", "umbra"))
        self.pair.do(lambda driver: driver.due(TYPES, tenants=tenants, runtime=runtime).claim_at)
        if self.runs:
            self._run("held_back", pick(*self.runs), runtime)


class OnSqlite(LimitsAgree):
    """Memory is the reference; SQLite does the same."""

    def other(self, clock):
        return SqliteStore(":memory:", clock=clock, inline=True)

    def set_bounds(self, patience, few):
        values = {(limiting, "PATIENCE"): patience, (limiting, "LOOK_PATIENCE"): patience}
        values |= {(capacity, "FEW"): few, (next_claim, "SLICE"): few + 1, (lanes, "SOME"): few + 1}
        self.before = [(*of, getattr(*of)) for of in values]
        for of, value in values.items():
            setattr(*of, value)

    def calm(self):
        for of in self.before:
            setattr(*of)


class OnPostgres(LimitsAgree):
    """Memory is the reference; Postgres does the same."""

    def other(self, clock):
        from tests.stores.postgres.kit import make

        return make(clock, None)

    def set_bounds(self, patience, few):
        from tests.stores.postgres.kit import database

        say = "create or replace function workflow.{}() returns {} language sql immutable as 'select {}'"
        for said in (
            ("held_back_max", "integer", patience),
            ("glance_sizes", "integer[]", f"array[{few + 1}]"),
        ):
            database()[1].execute(say.format(*said))

    def calm(self):
        self.set_bounds(1000, 63)


class OnRedis(LimitsAgree):
    """Memory is the reference; Redis does the same."""

    def other(self, clock):
        from servers.redis_store import make

        return make(clock)

    def turn(self, pick):
        """Purge before the clock may go back. A claim under a rate forgets, on Redis, the claims of that rate
        that are over; on other stores those of all rates. They would count again."""
        self.pair.do(lambda driver: driver.purge().runs)
        super().turn(pick)

    def set_bounds(self, patience, few):
        """Do nothing: the store has no such bounds."""

    def calm(self):
        """Do nothing."""


OnSqlite.TestCase.settings = often(25, 20)
OnRedis.TestCase.settings = often(6, 20)
OnPostgres.TestCase.settings = often(6, 20)


@pytest.mark.spec("MOVE-4", "LIMIT-1", "LIMIT-2", "LIMIT-3", "REG-2")
@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 300)
class TestLimitsAgree(OnSqlite.TestCase):
    """SQLite in a file."""


@pytest.mark.spec("MOVE-4", "LIMIT-1", "LIMIT-2", "LIMIT-3", "REG-2")
@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 600)
class TestLimitsAgreeOnPostgres(OnPostgres.TestCase):
    """Postgres on a server."""


@pytest.mark.spec("MOVE-4", "LIMIT-1", "LIMIT-2", "LIMIT-3", "REG-2")
@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 600)
class TestLimitsAgreeOnRedis(OnRedis.TestCase):
    """Redis or Valkey on a server."""
