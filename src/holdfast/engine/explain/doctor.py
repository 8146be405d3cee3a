"""The check of `holdfast doctor`: problems of a store and its runs, and how to fix them.

A warning goes away once workers and keepers run, or is about speed; an error does not go away by itself. The
check only reads. A damaged store is a finding, not an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from holdfast.contract import Store
from holdfast.engine.definitions import RESERVED
from holdfast.engine.outbox import health as outbox_health
from holdfast.engine.pages import gathered
from holdfast.engine.schedules import health as schedule_health
from holdfast.errors import Unavailable
from holdfast.escaping import escaped
from holdfast.lifecycle import FINAL, Status, spoken_status
from holdfast.records import ANY, SECOND, Finding, Run, RunFilter, Stats, moment
from holdfast.sealing.envelope import SHUT

from .pending import lacked

LEVELS = ("ok", "warning", "error")
LAG_SECONDS = 60.0
LATE_SECONDS = 10.0  # keepers work every second: if something is later than this, there is no keeper
SHOWN = 5  # runs and types that a finding names
LEASED_MAX = 1000  # running runs that are read
PENDING_MAX = 1000  # pending runs that are read, the newest
STUCK_MAX = 100
TEXT_MAX = 4_000  # characters of a sentence, whatever the names in it are
_START_KEEPER = "start a worker, or `holdfast tick --loop`"


class Report(msgspec.Struct, frozen=True):
    """The findings of a check, in the order in which they were made."""

    at: datetime
    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The worst level of all findings: ok, warning or error."""
        return max((one.level for one in self.findings), key=LEVELS.index, default="ok")


async def examine(store: Store) -> Report:
    """Check everything. `Unavailable` when the store cannot be reached at all."""
    at = moment(await store.now())
    checks: dict[str, Callable[[Store], Awaitable[Sequence[Finding]]]] = {
        "the state of the store": lambda store: store.checkup(),
        "the open runs": _stuck,
        "the counts of runs and workers": _by_stats,
        "the leases and the pending runs": _by_lists,
        "the schedules": schedule_health.findings,
        "the chores of keepers": _chores,
        "the outbox": outbox_health.findings,
    }
    findings: list[Finding] = []
    for subject, check in checks.items():
        try:
            findings += await check(store)
        except Unavailable as error:
            findings.append(Finding(level="error", what=f"{subject} cannot be read now", mend=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other checks are still useful
            findings.append(_unreadable(subject, error))
    return Report(at, tuple(map(_escaped, findings)))


def _escaped(one: Finding) -> Finding:
    """Escape a finding for output: it names types, sinks and schedules that users chose."""
    return msgspec.structs.replace(one, what=escaped(one.what, TEXT_MAX), mend=escaped(one.mend, TEXT_MAX))


def _unreadable(subject: str, error: Exception) -> Finding:
    return Finding(
        level="error",
        what=f"{subject} cannot be read: {type(error).__name__}: {escaped(error)}",
        mend="the store may be damaged: stop its workers, make a copy of it, restore it from a backup",
    )


def _ok(what: str) -> Finding:
    return Finding(level="ok", what=what)


def _warn(what: str, mend: str) -> Finding:
    return Finding(level="warning", what=what, mend=mend)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


async def _stuck(store: Store) -> list[Finding]:
    found = await store.stuck(STUCK_MAX)
    if not found:
        return [_ok("no run is stuck")]
    least = "at least " if len(found) == STUCK_MAX else ""
    return [
        Finding(
            level="error",
            what=f"{least}{_count(len(found), 'open run')} stuck: nothing will ever wake them",
            mend="see `holdfast trail RUN`, then `holdfast rewind RUN STEP` or `holdfast cancel RUN`; "
            "Holdfast never leaves a run like this, so another program has changed the store",
            runs=tuple(found[:SHOWN]),
        )
    ]


async def _by_stats(store: Store) -> list[Finding]:
    stats = await store.stats()
    return [_runs(stats), _workers(stats), _claimable(stats), _lag(stats), _events(stats)]


def _runs(stats: Stats) -> Finding:
    counts = {status: count for status, count in stats.by_status.items() if count}
    total = sum(counts.values())
    parts = ", ".join(f"{count:,} {spoken_status(status)}" for status, count in counts.items())
    return _ok(f"{_count(total, 'run')}: {parts}" if total else "no runs")


def _workers(stats: Stats) -> Finding:
    live = len(stats.workers)
    if live:
        slots = sum(one.slots for one in stats.workers)
        stragglers = sum(one.stragglers for one in stats.workers)
        if stragglers:
            return _warn(
                f"{_count(stragglers, 'sync function')} still running after a stop request: each keeps one "
                f"of {_count(slots, 'slot')} of {_count(live, 'live worker')}",
                "let long sync functions check `ctx.cancelled`; a restart of the worker frees the slots",
            )
        silent = (stats.now - max(one.seen_at for one in stats.workers)) / SECOND
        workers = f"{_count(live, 'live worker')} with {_count(slots, 'slot')}"
        return _ok(f"{workers}, last heartbeat {max(0.0, silent):.0f} s ago")
    is_open = sum(count for status, count in stats.by_status.items() if status not in FINAL)
    if not is_open:
        return _ok("no worker is live, and no run is open")
    return _warn(
        f"no worker is live, and {_count(is_open, 'run')} {'is' if is_open == 1 else 'are'} open",
        "start one: `holdfast worker MODULE:APP`",
    )


def _claimable(stats: Stats) -> Finding:
    unclaimable = stats.unclaimable
    if not unclaimable:
        return _ok("every due run has a live worker that can execute it")
    most = sorted(unclaimable.items(), key=lambda one: -one[1])
    named = ", ".join(f"{escaped(type_)} ({count:,}{_lacked(type_, stats)})" for type_, count in most[:SHOWN])
    more = f" and {_count(len(most) - SHOWN, 'more type')}" if len(most) > SHOWN else ""
    types = sorted({type_ for one in stats.workers for type_ in one.types if not type_.startswith(RESERVED)})
    can = ", ".join(map(escaped, types[:SHOWN])) or "none"
    return _warn(
        f"no live worker can execute {_count(sum(unclaimable.values()), 'due run')}: {named}{more}",
        f"start a worker with these types for the tenants of the runs (live workers have: {can}), or check "
        "`holdfast registry ls` for a type that is disabled or belongs to another runtime; the runs wait and "
        "lose no attempts",
    )


def _lacked(type_: str, stats: Stats) -> str:
    tasks = lacked(type_, stats.workers)
    return f"; a live worker has this plan, but no handler for the task {tasks}" if tasks else ""


def _lag(stats: Stats) -> Finding:
    since = stats.now if stats.oldest_due_at is None else stats.oldest_due_at
    lag = (stats.now - since) / SECOND
    if lag <= LAG_SECONDS:
        return _ok(f"no due run has waited longer than {LAG_SECONDS:g} s for a worker")
    return _warn(
        f"the oldest due run has waited {lag:,.0f} s for a worker",
        "add slots or workers, or raise the limits; `holdfast explain RUN` says what a run waits for",
    )


def _events(stats: Stats) -> Finding:
    if not stats.undelivered:
        return _ok("every event is delivered")
    return _warn(f"{_count(stats.undelivered, 'event')} recorded but not delivered yet", _START_KEEPER)


async def _by_lists(store: Store) -> list[Finding]:
    pending = await _newest(store, Status.PENDING, PENDING_MAX)
    return [*await _leases(store), *_shut(pending), *_crashed(pending)]


async def _newest(store: Store, status: Status, limit: int) -> list[Run]:
    fetch = partial(store.list, RunFilter(statuses=(status,), tenant=ANY, values=False))
    return await gathered(fetch, limit, None, lambda run: run.id)


async def _leases(store: Store) -> list[Finding]:
    held = await _newest(store, Status.LEASED, LEASED_MAX)
    now = moment(await store.now())
    past = [
        run
        for run in held
        if run.lease_until is not None and (now - run.lease_until).total_seconds() > LATE_SECONDS
    ]
    if not past:
        return [_ok("no lease has expired")]
    return [
        Finding(
            level="warning",
            what=f"{_count(len(past), 'run')} with an expired lease: the worker is gone, and no keeper "
            "released them",
            mend=_START_KEEPER,
            runs=tuple(run.id for run in past[:SHOWN]),
        )
    ]


def _crashed(pending: Sequence[Run]) -> list[Finding]:
    crashed = [run for run in pending if run.crashes]
    if not crashed:
        return []
    most = max(run.crashes for run in crashed)
    return [
        Finding(
            level="warning",
            what=f"{_count(len(crashed), 'pending run')} whose worker died, up to {_count(most, 'time')} "
            f"in a row: a worker begins only a few such runs at a time",
            mend="find out what kills the workers, such as memory or a crash in a driver; "
            "`holdfast explain RUN` says how many such runs a worker begins at a time",
            runs=tuple(run.id for run in crashed[:SHOWN]),
        )
    ]


def _shut(pending: Sequence[Run]) -> list[Finding]:
    shut = [run for run in pending if (run.last_error or "").startswith(SHUT)]
    if not shut:
        return []  # most stores are not encrypted: no finding for them
    return [
        Finding(
            level="error",
            what=f"{_count(len(shut), 'run')} released by workers that cannot decrypt or encrypt a value: "
            f"{escaped((shut[0].last_error or '').removeprefix(SHUT))}",
            mend="give every worker the codec and the keys; `holdfast explain RUN` says what is missing",
            runs=tuple(run.id for run in shut[:SHOWN]),
        )
    ]


async def _chores(store: Store) -> list[Finding]:
    # Schedules and events have findings of their own.
    overdue = [(one.id, one.rev) for one in await schedule_health.due(store)]
    due_at, now = (await store.due((), besides=overdue)).chore_at, await store.now()
    late = 0.0 if not due_at else (now - due_at) / SECOND  # 0: an undelivered event
    if late <= LATE_SECONDS:
        return [_ok("no chore is overdue")]
    return [
        _warn(f"timers or leases are overdue by {late:,.0f} s, and no keeper handles them", _START_KEEPER)
    ]
