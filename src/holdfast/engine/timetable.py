"""Keepers fire schedules: which times are due is worked out here, and the store lets one keeper win each."""

from __future__ import annotations

import asyncio
import logging
from hashlib import blake2b
from itertools import takewhile
from uuid import UUID

from holdfast.codec import MARK, digest, plain
from holdfast.cron import Rhythm, delayed
from holdfast.errors import HoldfastError, StoreError
from holdfast.records import (
    SECOND,
    CatchUp,
    Fire,
    Fired,
    FiredBy,
    Firing,
    Instant,
    NewRun,
    Schedule,
    instant,
    moment,
)
from holdfast.sealing.envelope import reason
from holdfast.store import Store
from holdfast.world import uuid7

log = logging.getLogger("holdfast.keeper")

PAGE = 100
FIRES_MAX = 100  # times of one schedule in one commit
PASSES_MAX = 10  # over all that is due, in one round: other chores must not wait for a long catch-up
LATE_SECONDS = 60.0  # a time that nobody has fired for so long was missed

Due = tuple[list[Instant], Instant | None, Instant | None]  # times to fire, the next one, the latest missed


class Timetable:
    """What of all schedules is due, fired. Any number of keepers at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: set[tuple[UUID, int]] = set()  # schedules that cannot be fired, each said once

    async def round(self) -> int:
        """Fire what is due; the number of runs that were started here."""
        started = 0
        for _ in range(PASSES_MAX):
            fired = await self._pass()
            started += sum(len(one.started) for one in fired)
            if not any(one.answer == "applied" for one in fired):
                break
        return started

    async def _pass(self) -> list[Fired]:
        fired: list[Fired] = []
        after: UUID | None = None
        while page := await self._store.due_schedules(PAGE, after):
            now = await self._store.now()
            due = [firing for one in page if (firing := self._firing(one, now)) is not None]
            # All at once: a store with group commit makes few commits of them.
            answers = await asyncio.gather(*map(self._store.fire_schedule, due), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
                fired.append(answer)
            after = page[-1].id
        return fired

    def _firing(self, one: Schedule, now: Instant) -> Firing | None:
        """One that cannot be fired here does not stand in the way of the others."""
        try:
            return firing(one, now)
        except StoreError:
            raise
        except HoldfastError as error:
            if (one.id, one.rev) not in self._told:
                self._told.add((one.id, one.rev))
                log.warning("schedule %s of %s cannot be fired here: %s", one.name, one.tenant, error)
            return None


def firing(one: Schedule, now: Instant) -> Firing | None:
    """What a keeper does about it now."""
    if one.next_at is not None and (first := instant(one.next_at)) <= now:
        times, next_at, missed_at = due_times(rhythm_of(one), one.catch_up, first, now)
        if missed_at is not None:
            log.warning(
                "schedule %s of %s: times from %s to %s were missed (catch_up is %s)",
                one.name,
                one.tenant,
                moment(first),
                moment(missed_at),
                one.catch_up,
            )
        fires = tuple(Fire(at, timed_run(one, at)) for at in times)
        return _firing(one, FiredBy.RHYTHM, fires, next_at, missed_at)
    if one.waiting:
        at = instant(one.waiting[0])
        return _firing(one, FiredBy.QUEUE, (Fire(at, timed_run(one, at)),))
    return None


def firing_by_hand(one: Schedule, run: UUID, now: Instant) -> Firing:
    """A run at once, outside the rhythm."""
    return _firing(one, FiredBy.HAND, (Fire(now, run_of(one, run, now)),))


def due_times(rhythm: Rhythm, catch_up: CatchUp, first: Instant, now: Instant) -> Due:
    """Of the times from `first` to now: those to fire."""
    if catch_up is CatchUp.ALL:
        later = takewhile(lambda at: at <= now, rhythm.times(first))
        times = [first, *(at for at, _ in zip(later, range(FIRES_MAX - 1), strict=False))]
        return times, rhythm.after(times[-1]), None
    last, next_at = first, rhythm.after(first)
    if next_at is not None and next_at <= now:
        last, next_at = rhythm.latest(now) or next_at, rhythm.after(now)
    if catch_up is CatchUp.NONE and now - last > LATE_SECONDS * SECOND:
        return [], next_at, last
    return [last], next_at, None if last == first else max(first, rhythm.latest(last - 1) or first)


def rhythm_of(one: Schedule) -> Rhythm:
    """When it fires."""
    return Rhythm(cron=one.cron, zone=one.zone, every_us=one.every_us, anchor_at=instant(one.anchor_at))


def timed_run(one: Schedule, at: Instant) -> NewRun:
    """The run of one time. Its id is made of the time, so that it can be there only once."""
    seed = f"{one.tenant}\x1f{one.name}\x1f{at}"
    drawn = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())
    run_at = delayed(f"{one.tenant}\x1f{one.name}", at, one.jitter_us) if one.jitter_us else None
    return run_of(one, uuid7(at * 1000, drawn), at, run_at)


def run_of(one: Schedule, run: UUID, at: Instant, run_at: Instant | None = None) -> NewRun:
    """A run of the schedule, with its time on a label."""
    if one.params_json.startswith(MARK):
        raise reason(one.params_json, f"the params of schedule {one.name!r}")
    labels = {**one.labels, "schedule": one.name, "fire_at": moment(at).isoformat()}
    return NewRun(
        id=run,
        type=one.type,
        params=one.params_json,
        digest=digest(one.type, one.params_json),
        tenant=one.tenant,
        priority=one.priority,
        run_at=run_at,
        max_attempts=one.max_attempts,
        timeout_seconds=one.timeout_seconds,
        ttl_seconds=one.ttl_seconds,
        budget=one.budget_units,
        limit_key=one.limit_key,
        labels=plain.encode(labels, "labels"),
    )


def _firing(
    one: Schedule,
    by: FiredBy,
    fires: tuple[Fire, ...],
    next_at: Instant | None = None,
    missed_at: Instant | None = None,
) -> Firing:
    return Firing(
        schedule=one.id,
        name=one.name,
        tenant=one.tenant,
        rev=one.rev,
        by=by,
        fires=fires,
        next_at=next_at,
        missed_at=missed_at,
    )
