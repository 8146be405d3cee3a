"""Random histories of the outbox are the same on every store: memory reads all rows, the others keep
watermarks.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.contract import GIVE_UP_SECONDS
from holdfast.lifecycle import Move
from holdfast.records import ANY, MessageStatus, Outbound, OutboxFilter, RelayAsk, Relayed, Webhook
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.driver import done
from tests.laws.effort import LONG, often
from tests.laws.store_pair import Pair

SINKS = ("mail", "shop")
ANSWERS = ("sent", "sent", "failed", "dead", "released")
TURNS = (0.000001, 1.0, 5.0, 30.0, 30.000001, GIVE_UP_SECONDS, -5.0)
ALL = OutboxFilter(tenant=ANY)


class OutboxesAgree(RuleBasedStateMachine):
    """Random histories of a few messages, on two stores."""

    @initialize()
    def begin(self):
        self.pair = Pair(lambda clock: MemoryStore(clock=clock), self.other)
        self.claims, self.out, self.ids = [], [], 0
        for tenant in ("default", "acme"):
            self.claims.append(self.pair.do(lambda driver, tenant=tenant: driver.held(tenant=tenant)))

    def teardown(self):
        if hasattr(self, "pair"):
            self.pair.close()

    @rule(data=st.data(), names=st.lists(st.sampled_from(
        ["send"] * 3 + ["relay"] * 3 + ["answer"] * 4 + ["turn"] * 2 + ["resend", "webhook", "late", "purge"]
    ), min_size=2, max_size=5))  # fmt: skip
    def live(self, data, names):
        for name in names:
            getattr(self, name)(lambda *choices: data.draw(st.sampled_from(choices)))
            self.compare()

    def send(self, pick):
        """Send messages with a commit that is applied, or with one that is not because the lease has
        ended.
        """
        claim = pick(*self.claims)
        self.ids += pick(1, 1, 1, 0)
        messages = tuple(
            Outbound(id=f"m{self.ids}.{n}", sink=pick(*SINKS), key=pick(None, "k", "k", "l"))
            for n in range(pick(1, 2))
        )
        step, move = done(f"s{self.ids}"), pick(Move.CHECKPOINT, Move.CHECKPOINT, Move.RELEASE)
        self.pair.do(
            lambda driver: driver.commit(claim, move, step, outbox=messages, tenant=claim.tenant).answer
        )
        self.claims += self.pair.do(lambda driver: driver.claim())
        self.claims = list({one.id: one for one in self.claims}.values())

    def relay(self, pick):
        ask = RelayAsk(
            relay=pick("r1", "r2"), sinks=pick(("mail",), ("mail",), ("mail", "shop"), ()),
            tenants=pick(None, None, ("acme",)), webhooks=pick(True, True, False),
            limit=pick(1, 2, 100), each=pick(1, 3, 100), bounds=pick({}, {}, {"mail": 0}, {"shop": 2}),
            taken=pick({}, {"mail": 1}, {"shop": 2}),
            lease_seconds=pick(5.0, 30.0),
        )  # fmt: skip
        self.out += self.pair.do(lambda driver: driver.run(driver.store.relay(ask)))
        lines = [(one.tenant, one.sink, one.key) for one in self._held() if one.key is not None]
        assert len(lines) == len(set(lines)), "two of one line are out"

    def _held(self):
        rows = self.pair.drivers[1].run(self.pair.drivers[1].store.outbox(ALL, 1000))
        return [one for one in rows if one.held_by is not None]

    def answer(self, pick):
        if self.out:
            self._answer(pick, self.out.pop(pick(0, -1)))

    def late(self, pick):
        """Answer for a parcel that was answered before, or that another relay holds by now."""
        if self.out:
            self._answer(pick, pick(*self.out))

    def _answer(self, pick, parcel):
        said = Relayed(
            id=parcel.id, fence=parcel.fence, answer=pick(*ANSWERS), error=pick(None, '{"kind":"http"}'),
            delay_seconds=pick(0.0, 1.0, 30.0),
        )  # fmt: skip
        self.pair.do(lambda driver: driver.run(driver.store.relayed([said])))

    def turn(self, pick):
        self.pair.clock.turn(pick(*TURNS))

    def resend(self, pick):
        chosen, tenant = pick(*range(self.ids + 1)), pick(ANY, ANY, "acme")
        self.pair.do(
            lambda driver: msgspec.structs.replace(
                driver.run(driver.store.resend(f"m{chosen}.0", tenant)), seq=0
            )
        )

    def webhook(self, pick):
        if pick(True, True, False):
            known = Webhook(name="shop", target=pick("{}", '{"a":1}'), rev=pick(0, 0, 1, 2))
            self.pair.do(lambda driver: driver.run(driver.store.put_webhook(known)))
        else:
            self.pair.do(lambda driver: driver.run(driver.store.remove_webhook("shop")))

    def purge(self, pick):
        claim = pick(*self.claims)
        self.pair.do(lambda driver: driver.complete(claim).answer)
        removed = self.pair.do(lambda driver: driver.purge(ttl_seconds=0.0).runs)
        if removed:
            self.claims = [one for one in self.claims if self.pair.drivers[0].get(one.id) is not None]
            self.claims.append(self.pair.do(lambda driver: driver.held()))

    def compare(self):
        for look in (
            lambda store: _listed(store, ALL, 1000),
            lambda store: _listed(
                store, OutboxFilter(statuses=(MessageStatus.PENDING, MessageStatus.DEAD)), 2
            ),
            lambda store: _listed(store, OutboxFilter(sink="mail", tenant="acme"), 2),
            lambda store: store.backlog(),
            lambda store: store.webhooks(),
            lambda store: store.relay_at(("mail",)),
            lambda store: store.relay_at(("mail",), tenants=("acme",)),
            lambda store: store.relay_at((), webhooks=True),
            lambda store: store.relay_at(("mail", "shop"), webhooks=False),
        ):
            self.pair.do(lambda driver, look=look: driver.run(look(driver.store)))


async def _listed(store, where, limit):
    """Return messages in order without their numbers: a store may leave numbers out."""
    rows = await store.outbox(where, limit)
    assert [one.seq for one in rows] == sorted({one.seq for one in rows})
    return [msgspec.structs.replace(one, seq=0) for one in rows]


class OnSqlite(OutboxesAgree):
    """SQLite: one writer."""

    def other(self, clock):
        return SqliteStore(":memory:", clock=clock, inline=True)


class OnPostgres(OutboxesAgree):
    """Postgres: many writers."""

    def other(self, clock):
        from tests.stores.postgres.kit import make

        return make(clock, None)


class OnRedis(OutboxesAgree):
    """Redis: many writers."""

    def other(self, clock):
        from servers.redis_store import make

        return make(clock)


TestOutboxesAgree = OnSqlite.TestCase
TestOutboxesAgree.settings = often(15, 15)


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 300)
class TestOutboxesAgreeOnPostgres(OnPostgres.TestCase):
    settings = often(8, 15)


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 300)
class TestOutboxesAgreeOnRedis(OnRedis.TestCase):
    settings = often(8, 15)
