"""start, claim, load and commit: the queue and the holders of runs."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES
from holdfast.contract import START
from holdfast.errors import (
    DuplicateRun,
    HoldfastError,
    KeyReused,
    TooManyRuns,
    Unavailable,
    UnknownRun,
)
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import (
    Answer,
    Ask,
    Claim,
    Item,
    Lease,
    LeaseState,
    Loaded,
    NewRun,
    Run,
    Running,
    Started,
    Step,
    Tenant,
    Verdict,
)
from holdfast.records.traits import SHORT_LEASE_SECONDS
from holdfast.stores.items import brings_news
from holdfast.stores.postgres.sessions.sending import SENT_AGAIN

from . import fast_rows
from .calls import Calls, items_text, json_text
from .durations import finite_item, finite_run


class _Answer(msgspec.Struct):
    """The outcome of one start."""

    id: UUID
    created: bool = False
    error: str = ""


_ANSWERS = msgspec.json.Decoder(list[_Answer])
_CLAIMS = msgspec.json.Decoder(list[Claim])
_LOADED = msgspec.json.Decoder(Loaded)
_LEASE_STATES = msgspec.json.Decoder(list[LeaseState])
_WRITTEN = msgspec.json.Decoder(list[bool])


class _Committed(msgspec.Struct):
    """The verdicts of the general path, and the places of rows that did not fit the fast path."""

    verdicts: list[Verdict]
    checkpoints: list[int]
    completes: list[int]
    advanced: list[tuple[int, int | None, str | None, int | None]]


_VERDICTS = msgspec.json.Decoder(list[Verdict])
_COMMITTED = msgspec.json.Decoder(_Committed)
_NO_NEWS = False  # nobody else waits for a checkpoint
_LEASED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)
_SUCCEEDED = Verdict(answer=Answer.APPLIED, status=Status.SUCCEEDED)


def started(runs: Sequence[NewRun], answers: str) -> list[Started | HoldfastError]:
    """Return the answers of `start`, in order."""
    return [_started(run, answer) for run, answer in zip(runs, _ANSWERS.decode(answers), strict=True)]


def _started(run: NewRun, answer: _Answer) -> Started | HoldfastError:
    match answer.error:
        case "":
            return Started(answer.id, created=answer.created)
        case "key_reused":
            return KeyReused(run.key or "", answer.id)
        case "duplicate_run":
            return DuplicateRun(answer.id)
        case "too_many_runs":
            return TooManyRuns(run.api_key or "", run.open_runs_max or 0)
        case "busy":
            return Unavailable(f"run {answer.id} waits for another open transaction: start it alone")
        case _:
            return UnknownRun(answer.id)


class QueueVerbs(Calls):
    """The verbs of the queue and of holders."""

    if TYPE_CHECKING:

        async def get(self, run: UUID, tenant: Tenant) -> Run | None: ...

    async def start(
        self, runs: Sequence[NewRun], connection: Any = None
    ) -> builtins.list[Started | HoldfastError]:
        sent = [finite_run(run) for run in runs]
        if connection is not None:
            return started(runs, await self._within(connection, "start", runs=sent))
        if not runs:
            return []
        SENT_AGAIN.set(False)
        verb = "start" if len(sent) == 1 else "start_together"
        answers = started(runs, await self._call(verb, json_text(sent)))
        if SENT_AGAIN.get():
            return [await self._own(run, answer) for run, answer in zip(sent, answers, strict=True)]
        return answers

    async def _own(self, run: NewRun, answer: Started | HoldfastError) -> Started | HoldfastError:
        """Return the answer to a start that was sent twice. A duplicate may be the run that the first call
        has started.
        """
        if isinstance(answer, DuplicateRun):
            existing = await self.get(run.id, run.tenant)
            asked = (run.type, run.params, run.key)
            if existing is not None and (existing.type, existing.params_json, existing.key) == asked:
                return Started(run.id, created=True)
        return answer

    async def claim(self, ask: Ask) -> builtins.list[Claim]:
        claims = await self._ask(_CLAIMS, "claim", json_text(ask)) if ask.limit > 0 else []
        if claims and ask.lease_seconds < SHORT_LEASE_SECONDS:
            self._call_soon("announce_lease")
        return claims

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        return await self._ask(_LOADED, "load", lease.run, lease.fence, after, bytes)

    async def lease_states(self, leases: Sequence[tuple[UUID, int]]) -> builtins.list[LeaseState]:
        given = json_text([{"run": run, "fence": fence} for run, fence in leases])
        return await self._ask(_LEASE_STATES, "lease_states", given)

    async def show_running(self, worker: str, rows: Sequence[Running]) -> builtins.list[bool]:
        return await self._ask(_WRITTEN, "show_running", worker, json_text(rows))

    async def commit(self, batch: Sequence[Item]) -> builtins.list[Verdict]:
        batch = [finite_item(item) for item in batch]
        found = self._sorted(batch)
        if len(batch) == 1 and found.checkpoints and fast_rows.is_bare(found.checkpoints[0]):
            return [await self._commit_one(batch[0], found.checkpoints[0])]
        news = bool(found.completes) or brings_news(found.long)
        answer = await self._call(
            "commit",
            items_text(found.long) if found.long else None,
            _rows(found.checkpoints),
            _rows(found.completes),
            _rows(found.parts),
            news,
            _rows(found.advances),
        )
        places = found.places
        verdicts: dict[int, Verdict] = dict.fromkeys(places.checkpoints, _LEASED)
        verdicts.update(dict.fromkeys(places.completes, _SUCCEEDED))
        if answer is not None:
            committed = _COMMITTED.decode(answer)
            verdicts.update(zip(places.long, committed.verdicts, strict=True))
            for at, seq, key, attempts in committed.advanced:
                verdicts[places.advances[at]] = _advanced(seq, key, attempts)
            late = [places.checkpoints[at] for at in committed.checkpoints]
            late += [places.completes[at] for at in committed.completes]
            late += [place for place in places.advances if place not in verdicts]
            late += [place for place in places.long if verdicts[place].answer == "busy"]
            if late:
                items = [batch[at] for at in late]
                again = await self._ask(
                    _VERDICTS, "commit_again", items_text(items), news or brings_news(items)
                )
                verdicts.update(zip(late, again, strict=True))
        return [verdicts[place] for place in range(len(batch))]

    def _sorted(self, batch: Sequence[Item]) -> fast_rows.Sorted:
        return fast_rows.sort(batch)

    async def _commit_one(self, item: Item, row: fast_rows.Checkpoint) -> Verdict:
        if await self._is_done(row):
            return _LEASED
        (verdict,) = await self._ask(_VERDICTS, "commit_again", items_text([item]), _NO_NEWS)
        return verdict

    async def _is_done(self, row: fast_rows.Checkpoint) -> bool:
        done: bool = await self._call("commit_one", *msgspec.structs.astuple(row)[: fast_rows.BARE])
        return done


def _advanced(seq: int | None, key: str | None, max_attempts: int | None) -> Verdict:
    """Return the verdict of a plan that goes on with a fresh task, or has ended."""
    if seq is None or key is None:
        return _SUCCEEDED
    step = Step(seq=seq, key=key, kind=StepKind.TASK, status=StepStatus.PENDING, max_attempts=max_attempts)
    return Verdict(answer=Answer.APPLIED, status=Status.LEASED, settled=(step,))


def _rows(rows: Sequence[Any]) -> str | None:
    return json_text(rows) if rows else None
