"""The check-up: what is well with a store and its runs, what is not, and how to mend it.

A warning is what goes away once workers and keepers are there, or is slow; an error is what does not mend
itself. It reads only, and a store that is damaged is a finding, not an accident.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from holdfast.contract import Store
from holdfast.errors import Unavailable
from holdfast.escaping import escaped
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY, SECOND, Finding, Run, RunFilter, Stats, moment
from holdfast.sealing.envelope import SHUT

from . import postal, timed
from .explain import lacked
from .pages import gathered

LEVELS = ("ok", "warning", "error")
LAG_SECONDS = 60.0
LATE_SECONDS = 10.0  # a keeper comes by every second: what is later than this is seen by none
SHOWN = 5  # runs and types that a finding names
LEASED_MAX = 1000  # held runs that are looked at
PENDING_MAX = 1000  # and those that wait for a worker, the newest
STUCK_MAX = 100
TEXT_MAX = 4_000  # characters of a sentence, whatever the names in it are
_KEEP = "start a worker, or `holdfast tick --loop` where none is to run"


class Report(msgspec.Struct, frozen=True):
    """What a check-up found, in the order in which it looked."""

    at: datetime
    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The worst there is: ok, warning or error."""
        return max((one.level for one in self.findings), key=LEVELS.index, default="ok")


async def examine(store: Store) -> Report:
    """Look at everything. `Unavailable` when the store cannot be reached at all."""
    at = moment(await store.now())
    looks: dict[str, Callable[[Store], Awaitable[Sequence[Finding]]]] = {
        "the store's own state": lambda store: store.checkup(),
        "the way on of the runs": _stuck,
        "the counts of runs and workers": _by_stats,
        "the leases and the pending runs": _by_lists,
        "the schedules": timed.findings,
        "what keepers have to do": _chores,
        "the outbox": postal.findings,
    }
    findings: list[Finding] = []
    for what, look in looks.items():
        try:
            findings += await look(store)
        except Unavailable as error:
            findings.append(Finding(level="error", what=f"{what} cannot be read now", mend=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest is still worth looking at
            findings.append(_unreadable(what, error))
    return Report(at, tuple(map(_escaped, findings)))


def _escaped(one: Finding) -> Finding:
    """A finding is shown and logged: it names types, sinks and schedules of others."""
    return msgspec.structs.replace(one, what=escaped(one.what, TEXT_MAX), mend=escaped(one.mend, TEXT_MAX))


def _unreadable(what: str, error: Exception) -> Finding:
    return Finding(
        level="error",
        what=f"{what} cannot be read: {type(error).__name__}: {escaped(error)}",
        mend="the store may be damaged: stop its workers, keep a copy of it, restore it from a backup",
    )


def _well(what: str) -> Finding:
    return Finding(level="ok", what=what)


def _warn(what: str, mend: str) -> Finding:
    return Finding(level="warning", what=what, mend=mend)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


async def _stuck(store: Store) -> list[Finding]:
    found = await store.stuck(STUCK_MAX)
    if not found:
        return [_well("every open run has a way on")]
    least = "at least " if len(found) == STUCK_MAX else ""
    return [
        Finding(
            level="error",
            what=f"{least}{_count(len(found), 'open run')} without a way on: nothing will ever wake them",
            mend="look with `holdfast trail RUN`, then `holdfast rewind RUN STEP` or `holdfast cancel RUN`; "
            "no move leaves such a run behind, so something else has written to the store",
            runs=tuple(found[:SHOWN]),
        )
    ]


async def _by_stats(store: Store) -> list[Finding]:
    stats = await store.stats()
    return [_runs(stats), _workers(stats), _takeable(stats), _lag(stats), _events(stats)]


def _runs(stats: Stats) -> Finding:
    there = {status: count for status, count in stats.by_status.items() if count}
    total = sum(there.values())
    said = ", ".join(f"{count:,} {status}" for status, count in there.items())
    return _well(f"{_count(total, 'run')}: {said}" if total else "no runs")


def _workers(stats: Stats) -> Finding:
    live = len(stats.workers)
    if live:
        slots = sum(one.slots for one in stats.workers)
        stragglers = sum(one.stragglers for one in stats.workers)
        if stragglers:
            return _warn(
                f"{_count(stragglers, 'plain function')} told to stop and not returned: each keeps one of "
                f"{_count(slots, 'slot')} of {_count(live, 'live worker')}",
                "let long plain functions look at `ctx.cancelled`; a restart of the worker frees the slots",
            )
        heard = (stats.now - max(one.seen_at for one in stats.workers)) / SECOND
        said = f"{_count(live, 'live worker')} with {_count(slots, 'slot')}"
        return _well(f"{said}, {'the latest ' * (live > 1)}heard of {max(0.0, heard):.0f} s ago")
    is_open = sum(count for status, count in stats.by_status.items() if status not in FINAL)
    if not is_open:
        return _well("no worker is live, and no run is open")
    return _warn(
        f"no worker is live, and {_count(is_open, 'run')} {'is' if is_open == 1 else 'are'} open",
        "start one: `holdfast worker MODULE:APP`",
    )


def _takeable(stats: Stats) -> Finding:
    nobodys = stats.unclaimable
    if not nobodys:
        return _well("every due run has a live worker that can take it")
    most = sorted(nobodys.items(), key=lambda one: -one[1])
    named = ", ".join(f"{escaped(type_)} ({count:,}{_lacked(type_, stats)})" for type_, count in most[:SHOWN])
    more = f" and {_count(len(most) - SHOWN, 'more type')}" if len(most) > SHOWN else ""
    types = sorted({type_ for one in stats.workers for type_ in one.types})
    can = ", ".join(map(escaped, types[:SHOWN])) or "none"
    return _warn(
        f"no live worker can take {_count(sum(nobodys.values()), 'due run')}: {named}{more}",
        f"start a worker that has these types, for the runs' tenants (live workers have: {can}), correct the "
        "type, or see `holdfast registry ls` for one that is disabled or another runtime's; they lose no "
        "attempts meanwhile",
    )


def _lacked(type_: str, stats: Stats) -> str:
    tasks = lacked(type_, stats.workers)
    return f"; a live worker has this plan, but no handler of {tasks}" if tasks else ""


def _lag(stats: Stats) -> Finding:
    since = stats.now if stats.oldest_due_at is None else stats.oldest_due_at
    lag = (stats.now - since) / SECOND
    if lag <= LAG_SECONDS:
        return _well(f"no due run has waited longer than {LAG_SECONDS:g} s for a worker")
    return _warn(
        f"the oldest due run has waited {lag:,.0f} s for a worker",
        "more slots, more workers or wider limits; `holdfast explain RUN` says what one of them waits for",
    )


def _events(stats: Stats) -> Finding:
    if not stats.undelivered:
        return _well("every event is delivered")
    return _warn(f"{_count(stats.undelivered, 'event')} recorded and not delivered yet", _KEEP)


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
        return [_well("no lease is past its end")]
    return [
        Finding(
            level="warning",
            what=f"{_count(len(past), 'run')} whose worker is gone, and no keeper has taken them back",
            mend=_KEEP,
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
            f"in a row: a worker begins only few such runs at once",
            mend="look for what kills the workers: memory, a crash in a driver; `holdfast explain RUN` says "
            "how many of them go at once",
            runs=tuple(run.id for run in crashed[:SHOWN]),
        )
    ]


def _shut(pending: Sequence[Run]) -> list[Finding]:
    shut = [run for run in pending if (run.last_error or "").startswith(SHUT)]
    if not shut:
        return []  # most stores are not encrypted, and need not hear of it
    return [
        Finding(
            level="error",
            what=f"{_count(len(shut), 'run')} given back by workers that cannot open or seal a value of it: "
            f"{escaped((shut[0].last_error or '').removeprefix(SHUT))}",
            mend="give every worker the codec and the keys; `holdfast explain RUN` says what each one lacks",
            runs=tuple(run.id for run in shut[:SHOWN]),
        )
    ]


async def _chores(store: Store) -> list[Finding]:
    overdue = [(one.id, one.rev) for one in await timed.due(store)]  # which have findings of their own
    due_at, now = (await store.due((), besides=overdue)).chore_at, await store.now()
    late = 0.0 if not due_at else (now - due_at) / SECOND  # 0: an event, which has a finding of its own
    if late <= LATE_SECONDS:
        return [_well("no chore is overdue")]
    return [_warn(f"timers and leases have been due for {late:,.0f} s, and no keeper does them", _KEEP)]
