"""counts, rates, scale and recount: counts that scripts keep, and queues that are counted when asked for."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import repeat
from typing import Any

from holdfast.contract import DUE_COUNTED, RATE_SECONDS, RATES_MAX, SCALE_MAX
from holdfast.errors import StoreError
from holdfast.machine.durations import micros
from holdfast.records import Counts, DueRuns, Instant, Miscount, Rate, Scale, Tenant, tenant_name
from holdfast.stores.counting import counts_of, minute_of
from holdfast.stores.redis import counting
from holdfast.stores.redis.connections import Connections
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.indexes import BIG, EARLIEST
from holdfast.stores.redis.names import Names, unpart
from holdfast.stores.redis.snapshot import Command, Snapshot

from .due_runs import heads

PAIRS_MAX = 10 * SCALE_MAX  # types and tenants that one call of `scale` looks at
LEASED_MAX = 100_000  # leased runs that it counts
PAGE = 1000  # members of a set that are read at once
HOURS = 8  # hours of happenings that are read at once
RUNS = 200  # runs that one script of a recount counts
RECOUNT_SECONDS = 60  # a recount that stops for so long is given up
WAIT_SECONDS, WAITS = 0.05, 12_000  # for another recount

Pair = tuple[str, str]  # type and tenant
Difference = tuple[str, str, int, int]  # tenant, field, kept number, real number


class CountVerbs(Core):
    """The verbs, as a mixin of the store."""

    async def counts(self, tenant: Tenant) -> Counts:
        return await self._read(lambda snapshot: counts(snapshot, tenant_name(tenant)))

    async def rates(
        self, tenant: Tenant, since: Instant, until: Instant | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        name, found, limit = tenant_name(tenant), list[Rate](), max(0, min(limit, RATES_MAX))
        now = await self._read(lambda snapshot: snapshot.now)
        newest = now + counting.HOUR  # the clock may have gone back a little; hours after that have none
        until = newest if until is None else min(until, newest)
        first = counting.hour_of(max(since, now - micros(RATE_SECONDS)))
        hours = range(first, until + 1, counting.HOUR)
        for at in range(0, len(hours), HOURS):
            if len(found) >= limit:
                break
            hashes = await self._connections.ask(
                [("HGETALL", counting.rates_key(self._names, hour, name)) for hour in hours[at : at + HOURS]]
            )
            found += (
                Rate(minute=minute, type=kind, what=what, number=number)
                for one in hashes
                for minute, kind, what, number in counting.minutes(one)
                if minute_of(since) <= minute <= until
            )
        return found[:limit]

    async def scale(self, tenant: Tenant, limit: int = SCALE_MAX) -> Scale:
        name, limit = tenant_name(tenant), max(0, min(limit, SCALE_MAX))
        # Due runs first: a run that is claimed meanwhile is counted twice, and not left out.
        now, due, cut = await self._read(lambda snapshot: due_runs(snapshot, name))
        leased, more = await self._leased(name)
        items = [
            DueRuns(
                type=kind, tenant=whose, due=min(number, DUE_COUNTED), more=number > DUE_COUNTED,
                oldest_due_at=oldest, leased=leased[kind, whose],
            )
            for kind, whose in sorted({*due, *leased})
            for number, oldest in (due.get((kind, whose), (0, None)),)
        ]  # fmt: skip
        return Scale(now=now, items=tuple(items[:limit]), more=cut or more or len(items) > limit)

    async def _leased(self, tenant: str | None) -> tuple[Counter[Pair], bool]:
        """Count leased runs by type and tenant, up to a bound."""
        names, found = self._names, Counter[Pair]()
        key = names("leases") if tenant is None else names.of("leased", "tenant", tenant)
        for at in range(0, LEASED_MAX, PAGE):
            (ids,) = await self._connections.ask([("ZRANGE", key, at, at + PAGE - 1)])
            asked = [("HMGET", names.run(id), "type", "tenant", "status") for id in ids]
            for kind, whose, status in await self._connections.ask(asked) if asked else ():
                if status == "leased":
                    found[kind, whose] += 1
            if len(ids) < PAGE:
                return found, False
        return found, True

    # Recounts.

    async def recount(self, *, repair: bool = False) -> Sequence[Miscount]:
        recount = Recount(self._names, self._connections)
        await recount.begin()
        try:
            return await recount.compared(repairs=repair)
        finally:
            await recount.end()


class Recount:
    """One recount: it walks all runs in short scripts. Only one is under way at a time."""

    def __init__(self, names: Names, connections: Connections) -> None:
        self._names, self._connections, self._token = names, connections, secrets.token_hex(8)

    async def _run(self, what: str, *words: Any) -> Any:
        keys, args = [self._names.numbers], [what, self._token, RECOUNT_SECONDS, *words]
        answer = await self._connections.run("recount", keys, args)
        if answer is None:
            raise StoreError(f"{self._connections.address.shown}: the recount took a pause that was too long")
        return answer

    async def begin(self) -> None:
        for _ in range(WAITS):
            if await self._run("begin"):
                break
            await asyncio.sleep(WAIT_SECONDS)
        else:
            raise StoreError(
                f"{self._connections.address.shown}: others recount too; wait until they have ended"
            )
        await self._forget()

    async def compared(self, *, repairs: bool) -> list[Miscount]:
        while not await self._run("page", RUNS):
            pass
        flag, wrong = "1" if repairs else "", list[Difference]()
        async for tenants in self._tenants():
            wrong += _differences(await self._run("compare", flag, *tenants))
        explained = Counter[str]()
        for _, field, kept, real in wrong:
            explained[field] += kept - real
        for _, field, kept, real in _differences(await self._run("whole", flag)):
            # Corrected counts of tenants were corrected in the whole, too.
            corrected = explained.pop(field, 0)
            before, alone = (kept + corrected, kept - real) if repairs else (kept, kept - real - corrected)
            if alone:
                wrong.append(("", field, before, before - alone))
        if not repairs:  # here the whole agrees with the rows, and not with the tenants
            wrong += await self._disagreeing(explained)
        return sorted(map(_miscount, wrong), key=lambda one: (one.tenant, one.type, one.status))

    async def _disagreeing(self, explained: Counter[str]) -> list[Difference]:
        left = [field for field, number in explained.items() if number]
        key = counting.counts_key(self._names, None)
        (found,) = await self._connections.ask([("HMGET", key, "", *left)])
        kept = zip(left, (int(one or 0) for one in found[1:]), strict=True)
        return [("", field, number, number + explained[field]) for field, number in kept]

    async def _tenants(self) -> AsyncIterator[list[str]]:
        names, low = self._names, "-"
        while True:
            (found,) = await self._connections.ask(
                [("ZRANGEBYLEX", names("tenants"), low, "+", "LIMIT", 0, 100)]
            )
            if not found:
                return
            yield found
            low = f"({found[-1]}"

    async def _forget(self) -> None:
        """Remove the counts of a recount, also of one that has not ended well."""
        names, connections = self._names, self._connections
        async for tenants in self._tenants():
            await connections.ask([("UNLINK", *(names.of("recounted", one) for one in tenants))])
        await connections.ask([("UNLINK", names("recounted"))])

    async def end(self) -> None:
        if await self._run("begin"):  # else it is another's by now
            await self._forget()
            await self._run("end")


def _differences(words: Sequence[Any]) -> list[Difference]:
    found = (words[at : at + 4] for at in range(0, len(words), 4))
    return [(tenant, field, int(kept), int(real)) for tenant, field, kept, real in found]


def _miscount(one: Difference) -> Miscount:
    tenant, field, kept, real = one
    kind, _, status = field.rpartition(":")
    return Miscount(tenant=tenant, type=unpart(kind), status=status, kept=kept, real=real)


def counts(snapshot: Snapshot, tenant: str | None) -> Counts:
    """Return the kept counts of a tenant, or of all."""
    found = snapshot.read("HGETALL", counting.counts_key(snapshot.names, tenant))
    return counts_of(snapshot.now, *counting.kept(found))


def due_runs(snapshot: Snapshot, tenant: str | None) -> tuple[Instant, dict[Pair, tuple[int, Instant]], bool]:
    """Return the present time, the number of due runs by type and tenant with the time of the oldest, and
    True when not all types and tenants were looked at."""
    names, now = snapshot.names, snapshot.now
    types = snapshot.read("ZRANGE", names("types"), 0, PAIRS_MAX)
    if tenant is None:
        lanes = snapshot.all([("ZRANGE", names.of("lanes", kind), 0, PAIRS_MAX) for kind in types])
        pairs = [(kind, whose) for kind, found in zip(types, lanes, strict=True) for whose in found]
    else:
        scores = snapshot.all([("ZSCORE", names.of("lanes", kind), tenant) for kind in types])
        pairs = [(kind, tenant) for kind, score in zip(types, scores, strict=True) if score is not None]
    looked_at = sorted(pairs)[:PAIRS_MAX]
    queues = [names.of("queue", *pair) for pair in looked_at]
    firsts = [[one for one in found if one[1] <= now] for found in heads(snapshot, queues)]
    counted = list(map(_counting, queues, firsts, repeat(now)))
    snapshot.prefetch([command for commands in counted for command in commands])
    due = {
        pair: (sum(snapshot.all(commands)), min(at for _, at in found))
        for pair, commands, found in zip(looked_at, counted, firsts, strict=True)
        if found
    }
    return now, due, len(looked_at) < len(pairs) or len(types) > PAIRS_MAX


def _counting(queue: str, firsts: Sequence[tuple[int, Instant]], now: Instant) -> list[Command]:
    """Return the commands that count the due runs of a queue. `firsts`: its priorities that have some. A
    queue is in the order of priority, then of time, so each priority is one range."""
    until = f"{now + 1 + EARLIEST:0{BIG}d}"
    return [("ZLEXCOUNT", queue, f"[{priority:03d}:", f"({priority:03d}:{until}") for priority, _ in firsts]
