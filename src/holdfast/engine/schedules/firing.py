"""Firing of schedules by keepers: due times are computed here, and the store lets one keeper fire each
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile
from uuid import UUID

import msgspec

from holdfast.codec import MARK, digest, untyped
from holdfast.contract import Store
from holdfast.cron import Rhythm, delayed
from holdfast.engine.measured import measures_of
from holdfast.engine.measures import Measures
from holdfast.errors import DuplicateRun, HoldfastError, StoreError, UnknownWorkflow
from holdfast.escaping import safe_logger
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
from holdfast.world import uuid7

from .versions import published_types, resolved

log = safe_logger("holdfast.keeper")

PAGE = 100
TURN = 5  # schedules that are computed before other tasks get a turn
FIRES_MAX = 100  # times of one schedule in one commit
# times that are fired at once: a store may make one commit of them, and other commits wait for it
BATCH_MAX = 100
ROUND_MAX = 1000  # times in one round: other chores must not wait for a long catch-up round
LATE_SECONDS = 60.0  # a time that was not fired for this long was missed
SKIP_SECONDS = 60.0  # delay before a schedule that cannot be fired here is retried
UNPUBLISHED_SECONDS = 5.0  # delay before a schedule is retried whose workflow is not published yet
SKIPPED_MAX = 1000  # unfirable schedules that are remembered

Due = tuple[list[Instant], Instant | None, Instant | None]  # times to fire, the next one, the latest missed
Known = tuple[UUID, int]  # a schedule at one revision


class ScheduleFirer:
    """Fires all due schedules. Any number of keepers may do so at once."""

    def __init__(self, store: Store) -> None:
        self._store, self._measures = store, measures_of(store)
        self._clock: tuple[Instant, float] = 0, 0.0  # the store's time, and that of the event loop then
        self._after: UUID | None = None
        # schedules that cannot be fired here, and the end of their delay
        self._unfirable: dict[Known, float] = {}
        self._logged: dict[Known, float] = {}  # when the log last named a schedule that cannot be fired here

    @property
    def unfinished(self) -> bool:
        """True when the last round was cut short; the next one goes on from there."""
        return self._after is not None

    def unfirable(self) -> list[Known]:
        """Return the schedules that are known to be unfirable here: they are no reason to wake up."""
        now = asyncio.get_running_loop().time()
        self._unfirable = {one: until for one, until in self._unfirable.items() if until > now}
        return list(self._unfirable)

    async def round(self) -> int:
        """Fire at most ROUND_MAX due times; return the number of runs that were started here."""
        started, left = 0, ROUND_MAX
        while left > 0:
            whole = self._after is None
            spent, fired = await self._pass(left)
            left -= spent
            started += sum(len(one.started) for one in fired)
            if whole and not any(one.answer == "applied" for one in fired):
                break
        return started

    async def _pass(self, most: int) -> tuple[int, list[Fired]]:
        """Go on where the last pass was cut short, to the end or until `most` times are fired."""
        spent, fired, unfirable = 0, list[Fired](), set(self.unfirable())
        while page := await self._store.due_schedules(PAGE, self._after):
            now = await self._store.now()
            self._clock = now, asyncio.get_running_loop().time()
            due = await self._due([one for one in page if (one.id, one.rev) not in unfirable], now)
            for batch in _batches(due):
                self._after = batch[-1][0].id
                # Fired at the same time: a store with group commit makes few commits of them.
                fired += await self._fire_all(batch)
                spent += sum(_weight(due) for _, due in batch)
                if spent >= most:
                    return spent, fired
            self._after = page[-1].id
        self._after = None
        return spent, fired

    async def _due(self, page: Sequence[Schedule], now: Instant) -> list[tuple[Schedule, Firing]]:
        found: list[tuple[Schedule, Firing]] = []
        published = await published_types(self._store, page)
        for n, one in enumerate(page):
            if n % TURN == TURN - 1:
                await asyncio.sleep(0)  # an expression may cost milliseconds: other tasks get a turn
            due = self._firing(one, now, published)
            if due is not None:
                found.append(due)
        return found

    def _firing(
        self, one: Schedule, now: Instant, published: Sequence[str]
    ) -> tuple[Schedule, Firing] | None:
        try:
            known = resolved(one, published)
            due = firing(known, now)
            return None if due is None else (known, due)
        except UnknownWorkflow as error:
            self._skip(one, error, UNPUBLISHED_SECONDS)
            return None
        except Exception as error:  # noqa: BLE001 - one schedule fails: the others are fired all the same
            self._skip(one, error)
            return None

    async def _fire_all(self, batch: list[tuple[Schedule, Firing]]) -> list[Fired]:
        """Fire a batch. An error of one schedule does not stop the others."""
        answers = await asyncio.gather(*(self._fire(*each) for each in batch), return_exceptions=True)
        fired: list[Fired] = []
        for (one, _), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Fired):
                fired.append(answer)
            elif isinstance(answer, StoreError) or not isinstance(answer, Exception):
                raise answer
            else:
                self._skip(one, answer)
        return fired

    async def _fire(self, one: Schedule, due: Firing) -> Fired:
        fired = await self._store.fire_schedule(due)
        if fired.answer == "taken":
            log.warning(
                "schedule %s of tenant %s: its run id %s belongs to another run, so it uses another id",
                one.name,
                one.tenant,
                fired.taken[0],
            )
            fired = await self._store.fire_schedule(salted(one, due, fired.taken))
        if fired.answer == "taken":
            raise DuplicateRun(fired.taken[0])
        if fired.answer == "applied" and due.missed_at is not None:
            _tell_missed(one, due.missed_at)
        if self._measures is not None and fired.started:
            self._measure(self._measures, due, fired)
        return fired

    def _measure(self, measures: Measures, due: Firing, fired: Fired) -> None:
        now = self._clock[0] / SECOND + asyncio.get_running_loop().time() - self._clock[1]
        started = set(fired.started)
        for each in due.fires:
            if each.run.id in started:
                measures.fired(now - each.at / SECOND)

    def _skip(self, one: Schedule, error: Exception, delay_seconds: float = SKIP_SECONDS) -> None:
        known, now = (one.id, one.rev), asyncio.get_running_loop().time()
        if self._logged.get(known, -SKIP_SECONDS) + SKIP_SECONDS <= now:
            log.warning(
                "schedule %s of tenant %s cannot fire here, will retry in %g s: %s",
                one.name,
                one.tenant,
                delay_seconds,
                error,
                exc_info=None if isinstance(error, HoldfastError) else error,
            )
            self._logged = {each: at for each, at in self._logged.items() if at + SKIP_SECONDS > now}
            if len(self._logged) < SKIPPED_MAX:
                self._logged[known] = now
        if len(self._unfirable) < SKIPPED_MAX:
            self._unfirable[known] = now + delay_seconds


def _batches(due: list[tuple[Schedule, Firing]]) -> Iterator[list[tuple[Schedule, Firing]]]:
    batch: list[tuple[Schedule, Firing]] = []
    weight = 0
    for one, fires in due:
        if batch and weight + _weight(fires) > BATCH_MAX:
            yield batch
            batch, weight = [], 0
        batch.append((one, fires))
        weight += _weight(fires)
    if batch:
        yield batch


def _weight(due: Firing) -> int:
    return max(1, len(due.fires))


def _tell_missed(one: Schedule, last: Instant) -> None:
    log.warning(
        "schedule %s of tenant %s: times from %s to %s were missed (catch_up is %s)",
        one.name,
        one.tenant,
        one.next_at,
        moment(last),
        one.catch_up,
    )


def firing(one: Schedule, now: Instant) -> Firing | None:
    """Return the firing of a schedule that is due now; None when there is nothing to do."""
    if one.next_at is not None and (first := instant(one.next_at)) <= now:
        times, next_at, missed_at = due_times(rhythm_of(one), one.catch_up, first, now)
        fires = tuple(Fire(at, timed_run(one, at)) for at in times)
        return _firing(one, FiredBy.RHYTHM, fires, next_at, missed_at)
    if one.waiting:
        at = instant(one.waiting[0])
        return _firing(one, FiredBy.QUEUE, (Fire(at, timed_run(one, at)),))
    return None


def firing_by_hand(one: Schedule, run: UUID, now: Instant) -> Firing:
    """Return the firing of one run now, outside the rhythm."""
    return _firing(one, FiredBy.HAND, (Fire(now, run_of(one, run, now)),))


def due_times(rhythm: Rhythm, catch_up: CatchUp, first: Instant, now: Instant) -> Due:
    """Return the times to fire between `first` and now, the next time, and the latest missed one."""
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
    """Return the rhythm of a schedule."""
    return Rhythm(cron=one.cron, zone=one.zone, every_us=one.every_us, anchor_at=instant(one.anchor_at))


def salted(one: Schedule, due: Firing, taken: Sequence[UUID]) -> Firing:
    """Return the same firing, with ids that nobody can guess for the runs whose ids are taken."""
    fires = [
        Fire(each.at, timed_run(one, each.at, str(one.id))) if each.run.id in taken else each
        for each in due.fires
    ]
    return msgspec.structs.replace(due, fires=tuple(fires))


def timed_run(one: Schedule, at: Instant, salt: str = "") -> NewRun:
    """Return the run of one time. Its id is computed from the time, so that the run exists only once."""
    seed = f"{one.tenant}\x1f{one.name}\x1f{at}{salt}"
    drawn = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())
    run_at = delayed(f"{one.tenant}\x1f{one.name}", at, one.jitter_us) if one.jitter_us else None
    return run_of(one, uuid7(at * 1000, drawn), at, run_at)


def run_of(one: Schedule, run: UUID, at: Instant, run_at: Instant | None = None) -> NewRun:
    """Return a run of the schedule, with its time in a label."""
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
        labels=untyped.encode(labels, "labels"),
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
