"""The same operations under the same clock end in the same state on every store."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.arguments import BIG_MAX
from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.errors import UsageError
from holdfast.lifecycle import HOLDER_MOVES, Move, Status, StepKind, StepStatus
from holdfast.records import (
    ANY,
    SECOND,
    Definition,
    Lease,
    NewEvent,
    NewRun,
    RunFilter,
    StepWrite,
    TrailWrite,
)
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract import driver as store_driver
from holdfast.testing.contract.driver import backing_off, broken, done, error, listen, sleep
from tests.laws import api_keys, budgets
from tests.laws.api_keys import ApiKeys
from tests.laws.chains import follower, followers
from tests.laws.effort import LONG, often
from tests.laws.plans import DEFINITIONS, GATED, LATER, PLAN, TASKS, Plans, child, is_foreign, starts_runs
from tests.laws.store_pair import Pair, as_far_as_known, events_of, news_of, purged, renew_and_look, search

CODE = ("shop.order.v1", "shop.order.v2")
TYPES = (*CODE, PLAN, GATED, TASKS)
TENANTS = ("default", "default", "default", "acme")
TOPICS = ("t", "u")
MICRO = 0.000001
WEEK = EVENT_KEEP_SECONDS
EVERY = RunFilter(tenant=ANY, deleted=True)
NEXT = UUID(int=(0x018BCFE6 << 96) | (7 << 76) | (2 << 62))  # the run that continue_as starts

# Durations that end exactly at, just before or just after leases, delays and deadlines.
TURNS = (MICRO, 1.0, 2.0, 5.0, 5.0 - MICRO, 10.0, 10.0 + MICRO, 30.0, 30.0 + MICRO, 40.0)
BACK = (-1.0, -5.0, -30.0)  # a clock that was set right
NOW_OR_THEN = st.sampled_from([0.0, 5.0, 10.0])

WRITES: dict[str, st.SearchStrategy[StepWrite]] = {
    "a": st.builds(done, st.just("a"), st.sampled_from(["1", '"x"']), cost=st.sampled_from([0, 0, 3])),
    "b": st.sampled_from([done("b"), broken("b"), broken("b", cost=2)]),
    "c": st.just(done("c", attempts=2, started_at=1)),
    "nap": st.builds(sleep, st.just("nap"), NOW_OR_THEN),
    "nap2": st.builds(sleep, st.just("nap2"), NOW_OR_THEN),
    "hear": st.sampled_from([
        listen("hear", "t"), listen("hear", "t"), listen("hear", "t", delay_seconds=5.0), done("hear"),
    ]),
    "gate": st.just(
        StepWrite(
            key="gate", kind=StepKind.APPROVAL, status=StepStatus.WAITING, topic="t", delay_seconds=5.0
        )
    ),
    "hear2": st.sampled_from([
        listen("hear2", "t", since_now=True), listen("hear2", "u"), listen("hear2", "u", delay_seconds=10.0),
    ]),
}  # fmt: skip
STEPS = st.lists(st.sampled_from(sorted(WRITES)), max_size=3).flatmap(
    lambda keys: st.tuples(*(WRITES[key] for key in keys))
)
MOVES = st.sampled_from(sorted(HOLDER_MOVES) + 3 * [Move.CHECKPOINT, Move.PARK] + [Move.RETRY])
RARELY = st.integers(0, 5).map(lambda n: n == 0)

# Operations with their weights. They are one rule of Hypothesis, which would otherwise leave whole rules out
# of an example: a history without claims or without time passing is short.
OPERATIONS = {
    "start": 3, "claim": 2, "claim_all": 6, "commit": 14, "commit_two": 3, "send_again": 4, "renew": 2,
    "emit": 5, "tick": 4, "deliver": 1, "ask": 3, "rewind": 2, "turn": 3, "turn_to_the_next_chore": 4,
    "turn_back": 1, "turn_far": 1, "publish": 1, "look": 2, "delete": 2, "restore": 2, "purge": 1,
    "decide": 5, "append_step": 1, "inbox": 1, "set_priority": 2, "change_key": 2, "look_at_keys": 1,
}  # fmt: skip
WEIGHTED = [name for name, weight in OPERATIONS.items() for _ in range(weight)]


class StoresAgree(Plans, ApiKeys, RuleBasedStateMachine):
    """Random histories of a few runs, on two stores."""

    def other(self, clock):
        return SqliteStore(":memory:", clock=clock, inline=True)

    @initialize()
    def begin(self):
        self.pair = Pair(lambda clock: MemoryStore(clock=clock), self.other)
        self.runs, self.purged, self.claims, self.sent, self.refused = [], [], [], [], set()
        self.numbers = Counter()
        self.event_ids = 0
        self.pair.do(lambda driver: driver.run(driver.store.publish(DEFINITIONS)))
        for type_ in (CODE[0], CODE[0], PLAN, TASKS):
            new = NewRun(id=self.pair.drivers[0].id(), type=type_)
            (answer,) = self.pair.do(lambda driver, new=new: driver.start_many([new]))
            self.runs.append(answer.id)

    def teardown(self):
        if hasattr(self, "pair"):
            self.pair.close()

    @rule(data=st.data(), names=st.lists(st.sampled_from(WEIGHTED), min_size=2, max_size=4))
    def live(self, data, names):
        for name in names:
            getattr(self, name)(lambda *choices: data.draw(st.sampled_from(choices)), data)
            self.pair.compare(self.runs, TYPES)
            budgets.assert_costs_add_up(self)

    # Producers.

    def start(self, pick, data):
        if len(self.runs) >= 7:
            return
        fresh = self.pair.drivers[0].id()
        parent = {}
        if self.runs and data.draw(RARELY):
            parent = {"parent": pick(*self.runs), "parent_step": pick("kid", "kid2")}
        new = NewRun(
            id=pick(*self.runs[:1], *self.purged, fresh) if data.draw(RARELY) else fresh,
            type=pick(*TYPES), tenant=pick(*TENANTS), digest=pick("d", "d", "e"),
            key=pick(None, None, "k", "l"), priority=pick(100, 100, 5), delay_seconds=pick(None, None, 5.0),
            timeout_seconds=pick(None, None, None, None, 40.0), ttl_seconds=pick(None, 60.0),
            **budgets.started(self, pick), **parent, **api_keys.counted(pick),
        )  # fmt: skip
        (answer,) = self.pair.do(lambda driver: driver.start_many([new]))
        if getattr(answer, "created", False):
            self.runs.append(answer.id)

    def emit(self, pick, data):
        event = self._event(pick, tenant=pick(*TENANTS), run=self._addressee(pick))
        self.pair.do(lambda driver: driver.run(driver.store.emit(event)))

    def _addressee(self, pick):
        if pick(True, True, True, False):
            return None
        return pick(*self.runs, None, self.pair.drivers[0].id())

    def _event(self, pick, **fields):
        self.event_ids += pick(1, 1, 1, 1, 0)
        return NewEvent(
            topic=pick(*TOPICS), id=f"e{self.event_ids}", payload=f"{self.event_ids}",
            keep_seconds=pick(None, None, 1.0, 10 * WEEK), **fields,
        )  # fmt: skip

    # Workers.

    def claim(self, pick, data):
        limit, worker, types = pick(1, 2, 3), pick("w1", "w2"), pick(TYPES, TYPES[:1])
        tenants, crashed = pick(None, ("acme",)), pick(None, None, (1,), (2, 1))
        self._take(lambda driver: driver.claim(limit, worker, types, tenants=tenants, crashed=crashed))

    def claim_all(self, pick, data):
        self._take(lambda driver: driver.claim(types=TYPES))

    def _take(self, claim):
        taken = self.pair.do(claim)
        for one in taken:
            older = [known.fence for known in self.claims if known.id == one.id]
            assert one.fence > max(older, default=0), "fences only grow, also under an id that was purged"
        self.claims += taken

    def _item(self, pick, data):
        """Draw the next item of a holder, now and then of an old holder."""
        alive, gone = self._writers()
        claim = pick(*(not data.draw(RARELY) and alive) or gone or alive)
        if self._kind(claim.id) == "plan" and not data.draw(RARELY):
            return self._planned(pick, data, claim)
        move, steps = data.draw(MOVES), data.draw(STEPS)
        known = pick(None, "all", "all", 0, 1, 2)
        if known == "all":
            known = max((step.seq for step in self._steps(claim.id)), default=0)
        if move is Move.CHECKPOINT and not steps:
            steps = (done("d"),)
        if move is Move.RETRY and pick(True, False):
            steps = (*steps, backing_off("r", cost=1, attempts=2, delay_seconds=5.0))
        if move is not Move.RETRY and data.draw(RARELY):
            steps = (*steps, done("r"))
        if move in {Move.CHECKPOINT, Move.PARK} and len(self.runs) < 8 and pick(True, False, False):
            steps = (*steps, child(pick, pick("kid", "kid2"), self.pair.drivers[0].id(), (*CODE, GATED)))
        extras = self._extras(pick, data, move) | follower(self, pick, claim, move)
        extras |= budgets.short(pick, move)
        if move is Move.ADVANCE and pick(True, False):
            steps, extras = (), extras | {"plan": LATER}
        self.numbers[claim.id, claim.fence] += 1
        named = {"run": claim.id, "fence": claim.fence, "number": self.numbers[claim.id, claim.fence]}
        return store_driver.item(move, *steps, known=known, **named, **extras)

    def _steps(self, run):
        """Return the steps that can be read: none for a run that is deleted or gone."""
        driver = self.pair.drivers[0]
        return driver.steps(run) if driver.get(run) is not None else []

    def _writers(self):
        """Return present and former holders. A refused worker stays stopped, even when time goes back."""
        holders = self._holders()
        alive = [claim for claim in holders if (claim.id, claim.fence) not in self.refused]
        return alive, [claim for claim in self.claims if claim not in holders]

    def _holders(self):
        shown = map(self.pair.drivers[0].get, self.runs)
        now_held = {(run.id, run.fence) for run in shown if run is not None and run.leased_by}
        return [claim for claim in self.claims if (claim.id, claim.fence) in now_held]

    def _extras(self, pick, data, move):
        extras = {}
        if data.draw(RARELY):
            extras["started_at"] = self.pair.clock.now
        if data.draw(RARELY):
            extras["trail"] = (TrailWrite("log", '{"message":"m","level":"info"}'),)
        if data.draw(RARELY):
            extras["events"] = (self._event(pick, tenant=pick(*TENANTS), run=self._addressee(pick)),)
        if data.draw(RARELY):
            extras["progress"] = '{"done":1}'
        if move in {Move.RETRY, Move.FAIL}:
            blamed = pick(None, "a", "hear", "b")
            extras["error"] = error("boom", blamed)
        if move is Move.RETRY:
            extras["delay_seconds"] = pick(0.0, 5.0, 10.0)
            extras["in_place"], extras["refund"] = pick(True, False), pick(True, False)
        extras["shares"] = pick(True, False)
        if move is Move.COMPLETE:
            extras["result"] = '{"ok":true}'
            if data.draw(st.booleans()):
                ids = (*self.runs[:1], NEXT)
                extras["starts"] = (NewRun(id=pick(*ids), type=TYPES[0], key=pick(None, "k")),)
        return extras

    def commit(self, pick, data):
        if any(self._writers()):
            self._send([self._item(pick, data)])

    def commit_two(self, pick, data):
        if any(self._writers()):
            first, second = self._item(pick, data), self._item(pick, data)
            # A new run's fence depends on the writes before it, and stores may apply fast-path items first.
            both = sorted([first, second], key=starts_runs)
            # A refused item undoes the other writes of its batch, and Postgres does not reuse their numbers.
            alone = first.run == second.run or any(is_foreign(one, self.claims) for one in both)
            self._send([first] if alone else both)

    def _send(self, items):
        verdicts = self.pair.do(lambda driver: driver.send(*items))
        if isinstance(verdicts, UsageError):
            return  # an item for another tenant: nothing of the batch has changed
        self.sent += items
        started = [write.child.id for item in items for write in item.steps if write.child] + followers(items)
        there = {run.id for run in self.pair.drivers[0].run(self.pair.drivers[0].store.list(EVERY))}
        self.runs += [run for run in started if run in there and run not in self.runs]
        for item, verdict in zip(items, verdicts, strict=True):
            if verdict.answer in {"lost", "cancelled"}:
                self.refused.add((item.run, item.fence))

    def send_again(self, pick, data):
        """Send an item again, after a lost reply or as a late duplicate: nothing changes."""
        held = {(claim.id, claim.fence) for claim in self._holders()}
        # A refused item is no repeat: with the clock turned back it may be applied after all.
        sent = [item for item in self.sent if (item.run, item.fence) not in self.refused & held]
        if sent:
            item = pick(*(sent[-2:] if pick(True, False) else sent))
            applied = (item.run, item.fence, item.number)
            before = [self._everything(driver) for driver in self.pair.drivers]
            newest = all(one.number <= item.number for one in sent if one.run == item.run)
            self.pair.do(lambda driver: as_far_as_known(driver.send(item), newest))
            assert [self._everything(driver) for driver in self.pair.drivers] == before, applied

    def _everything(self, driver):
        return driver.everything(), [driver.snapshot(run) for run in self.runs if driver.get(run) is not None]

    def renew(self, pick, data):
        holders = self._holders() or self.claims
        claims = [pick(*holders, *self.claims[-1:]) for _ in range(pick(0, 1, 2, 3))] if holders else []
        leases = [
            Lease(
                run=claim.id, fence=claim.fence, known=pick(None, 0, 2), heartbeat=pick(True, False),
                started_at=pick(None, self.pair.clock.now), progress=pick(None, '{"done":2}'),
            )
            for claim in {claim.id: claim for claim in claims}.values()
        ]  # fmt: skip
        renew_and_look(self.pair, pick, leases, self.runs)

    # Keepers, people, time.

    def tick(self, pick, data):
        limit, every = pick(1, 500), pick(True, True, False)
        self.pair.do(lambda driver: driver.tick(limit=limit, wait_timeouts=every))

    def deliver(self, pick, data):
        limit = pick(1, 500)
        self.pair.do(lambda driver: driver.deliver(limit=limit))

    def ask(self, pick, data):
        if self.runs:
            verb = pick("pause", "pause", "pause", "resume", "resume", "resume", "cancel", "retry_run")
            run, tenant = pick(*self.runs), pick(ANY, ANY, ANY, "default")
            more = {"children": pick(True, True, False)} if verb == "cancel" else {}
            more |= budgets.renewed(pick, verb) | {
                "unchanged_since": pick(None, None, self.pair.clock.now - 9)
            }
            self.pair.do(lambda driver: getattr(driver, verb)(run, tenant=tenant, by="ann", **more))

    def rewind(self, pick, data):
        if self.runs:
            run = pick(*self.runs)
            keys = [step.key for step in self._steps(run)]
            step = pick(*keys, *keys, "none")
            theirs = pick(True, True, False)
            self.pair.do(lambda driver: driver.rewind(run, step, by="ann", children=theirs))

    def set_priority(self, pick, data):
        if self.runs:
            run, tenant, priority = pick(*self.runs), pick(ANY, ANY, ANY, "default"), pick(0, 5, 100, 999)
            self.pair.do(lambda driver: driver.set_priority(run, priority, tenant=tenant, by="ann"))

    def delete(self, pick, data):
        if self.runs:
            run, tenant = pick(*self.runs), pick(ANY, ANY, ANY, "default")
            self.pair.do(lambda driver: driver.delete(run, tenant=tenant, by="ann"))

    def restore(self, pick, data):
        if self.runs:
            hidden = [run for run in self.runs if self.pair.drivers[0].get(run) is None]
            run = pick(*hidden, *hidden, *self.runs)
            self.pair.do(lambda driver: driver.restore(run, by="ann"))

    def purge(self, pick, data):
        """Purge until nothing is left: the size of one slice is the store's own choice."""
        terms = {"ttl_seconds": pick(0.0, 30.0, WEEK), "deleted_seconds": pick(0.0, 5.0, WEEK)}
        limit = pick(1, 2, 100)
        self.pair.do(lambda driver: purged(driver, limit=limit, **terms))
        left = {run.id for run in self.pair.drivers[0].run(self.pair.drivers[0].store.list(EVERY))}
        self.purged += [run for run in self.runs if run not in left]
        self.runs = [run for run in self.runs if run in left]
        self.sent = [item for item in self.sent if item.run in left]

    def turn_far(self, pick, data):
        self.pair.clock.turn(pick(WEEK, WEEK - MICRO))

    def turn(self, pick, data):
        self.pair.clock.turn(pick(*TURNS))

    def turn_back(self, pick, data):
        self.pair.clock.turn(pick(*BACK))

    def publish(self, pick, data):
        attempts, seconds = pick(None, 5), pick(None, 60.0)
        known = Definition(
            type=pick(*CODE, PLAN), max_attempts=attempts, timeout_seconds=seconds, budget=pick(None, 6)
        )
        self.pair.do(lambda driver: driver.run(driver.store.publish([known])))
        self.pair.do(lambda driver: driver.run(driver.store.definitions()))

    def look(self, pick, data):
        """Read lists and trails with all their filters."""
        where = RunFilter(
            statuses=pick((), (Status.WAITING, Status.LEASED), (Status.PENDING,), (Status.FAILED,)),
            waiting_on=pick(None, None, StepKind.EVENT, StepKind.APPROVAL),
            tenant=pick(None, "default", "acme"), type=pick(None, TYPES[0], "shop.%", "Shop.%", "%"),
            key=pick(None, None, "k"), deleted=pick(False, False, True),
        )  # fmt: skip
        limit, after = pick(1, 2, 100), pick(None, *self.runs)
        self.pair.do(lambda driver: driver.run(driver.store.list(where, limit, after)))
        search(self.pair, pick, where, limit, after)
        topic, tenant = pick(*TOPICS), pick(*TENANTS)
        self.pair.do(lambda driver: driver.run(driver.store.waiting_on(topic, tenant)))
        self.pair.do(lambda driver: driver.due(TYPES[:1], tenants=(tenant,), wait_timeouts=pick is None))
        types, since = pick((), ("woken", "leased")), self.pair.clock.now - pick(0, 10 * SECOND)
        run, between = pick(None, *self.runs), pick((None, None), (since, None), (None, since))
        self.pair.do(lambda driver: events_of(driver.trail(run, tenant=tenant, types=types, between=between)))
        asked, whose = [(one, pick(0, BIG_MAX)) for one in self.runs[-5:]], pick(ANY, tenant)
        self.pair.do(lambda driver: news_of(driver.run(driver.store.follow(asked, whose))))
        self.pair.do(lambda driver: events_of(driver.run(driver.store.follow_all(whose, types, 0)).entries))

    def turn_to_the_next_chore(self, pick, data):
        """Turn the clock to the instant at which a chore is due, or one microsecond before it."""
        chore_at = self.pair.drivers[0].due(TYPES).chore_at
        if chore_at is not None and chore_at > self.pair.clock.now:
            self.pair.clock.now = chore_at - pick(0, 0, 1)


StoresAgree.TestCase.settings = often(25, 30)


@pytest.mark.spec("MOVE-4", "MOVE-5", "MOVE-7", "STORE-4")
@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 300)
class TestStoresAgree(StoresAgree.TestCase):
    """Every history is the same on memory and on SQLite."""
