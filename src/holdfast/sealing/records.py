"""Records with a codec: the values of each record that are sealed, and the places that they are bound to.

Sealed: params, results, outputs of tasks, payloads of events, and the parts of errors, logs and progress that
may hold users' values. Readable: everything that a store checks, looks up or counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from holdfast.codec import RESERVED
from holdfast.decoding import decode_untyped
from holdfast.errors import CannotOpen, CannotSeal
from holdfast.lifecycle import SETTLED, Status, StepKind, StepStatus
from holdfast.records import (
    ApprovalRequest,
    Claim,
    Error,
    Item,
    Json,
    Lease,
    NewEvent,
    NewRun,
    Run,
    Step,
    StepWrite,
    TrailEntry,
    TrailWrite,
)
from holdfast.records.moves import Advance, Complete, Fail, HolderMove, Retry

from . import places
from .chain import Chain, decoded
from .envelope import OURS, unopened
from .hooks import Where
from .outbox import sealed_message

HIDDEN = "(sealed)"

_replace = msgspec.structs.replace


_NOTHING = (b"", b"null")


class _TakenEvent(msgspec.Struct):
    """An event as the store gives it to the wait that took it."""

    id: str
    topic: str
    at: int
    payload: msgspec.Raw


class _Woken(msgspec.Struct, omit_defaults=True):
    """The reason for which a plan's task is called again."""

    reason: str
    event: msgspec.Raw = msgspec.Raw()


class _Ended(msgspec.Struct, omit_defaults=True):
    """The end of a child, as the store gives it to the wait for it."""

    run: UUID
    status: str
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class Records:
    """Seals records on their way into the store, opens them on their way out."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    # -- in ------------------------------------------------------------------------------------

    def new_run(self, new: NewRun) -> NewRun:
        """Seal a start. Its digest is bound to its key: else anyone could see that two runs have equal
        params."""
        params = self._chain.seal(new.params, Where(tenant=new.tenant, run=new.id, field="params"))
        return _replace(new, params=params, digest=self.digests(new)[0])

    def digests(self, new: NewRun) -> list[str]:
        """Return the digest of a start as it is stored now, and as older keys may have stored it."""
        once = Where(tenant=new.tenant, field="digest", name=str(new.id) if new.key is None else new.key)
        return self._chain.digests(new.digest, once)

    def event(self, event: NewEvent) -> NewEvent:
        payload = self._chain.seal(event.payload, places.payload(event.tenant, event.id, event.topic))
        return _replace(event, payload=payload)

    def step(self, write: StepWrite, tenant: str, run: UUID) -> StepWrite:
        """Seal the outcome of a step, the question of a gate, the start of a child. Other waits hold no
        user values."""
        if write.ask is not None:
            return self._gate(write, places.ask(tenant, run, write.key))
        if write.child is not None:
            return _replace(write, child=self.new_run(write.child))
        if write.kind is not StepKind.TASK or (write.output is None and write.error is None):
            return write
        output, error = write.output, write.error
        if output is not None:
            output = self._chain.seal(output, places.output(tenant, run, write.key))
        if error is not None:
            where = places.step_error(tenant, run, write.key)
            error = self._chain.veil(_shown(_error(error)), error, where) or error
        return _replace(write, output=output, error=error)

    def _gate(self, write: StepWrite, where: Where) -> StepWrite:
        """Seal a question and its digest. A readable digest would let anyone test guesses of the question."""
        assert write.ask is not None
        digest = None if write.digest is None else self._chain.digests(write.digest, where)[0]
        return _replace(write, ask=self._chain.seal(write.ask, where), digest=digest)

    def item(self, item: Item) -> Item:
        """Seal an item of a holder with all its parts."""
        tenant, run = item.tenant, item.run
        sealed: dict[str, Any] = {}
        if item.steps:
            sealed["steps"] = tuple([self.step(one, tenant, run) for one in item.steps])
        if item.events:
            sealed["events"] = tuple([self.event(one) for one in item.events])
        if item.outbox:
            sealed["outbox"] = tuple([sealed_message(self._chain, one, tenant, run) for one in item.outbox])
        if item.trail:
            sealed["trail"] = tuple([self._log(one, tenant, run) for one in item.trail])
        if item.progress is not None:
            sealed["progress"] = self._progress(item.progress, tenant, run)
        if (move := self._move(item.move, tenant, run)) is not item.move:
            sealed["move"] = move
        return _replace(item, **sealed) if sealed else item

    def _move(self, move: HolderMove, tenant: str, run: UUID) -> HolderMove:
        where = Where(tenant=tenant, run=run, field="result")
        match move:
            case Complete():
                starts = tuple([self.new_run(one) for one in move.starts])
                return _replace(move, result=self._chain.seal(move.result, where), starts=starts)
            case Advance() if move.result is not None:
                return _replace(move, result=self._chain.seal(move.result, where))
            case Retry() | Fail() if move.error is not None:
                error, line = self._failure(move.error, move.last_error, places.run_error(tenant, run))
                return _replace(move, error=error, last_error=line)
            case _:
                return move

    def lease(self, lease: Lease) -> Lease:
        if lease.progress is None:
            return lease
        return _replace(lease, progress=self._progress(lease.progress, lease.tenant, lease.run))

    def _log(self, row: TrailWrite, tenant: str, run: UUID) -> TrailWrite:
        found = _fields(row.data)
        # These stay readable: the store counts by log_no, and people filter by level and step.
        shown: dict[str, Any] = {key: found[key] for key in ("level", "step", "log_no") if key in found}
        veiled = self._chain.veil({**shown, "message": HIDDEN}, row.data, places.logged(tenant, run))
        return row if veiled is None else TrailWrite(row.type, veiled)

    def _failure(self, error: Json, line: str | None, where: Where) -> tuple[Json, str | None]:
        """Seal the error of a run together with its one-line form. The readable line names only the kind."""
        found = _error(error)
        if found.kind == OURS:
            return error, line
        whole = msgspec.json.encode((msgspec.Raw(error.encode()), line)).decode()
        veiled = self._chain.veil_error(_shown(found), error, whole, where)
        if veiled is None:
            return error, line
        return veiled, f"{found.kind}: {found.type} {HIDDEN}" if found.type else f"{found.kind} {HIDDEN}"

    def _progress(self, progress: Json, tenant: str, run: UUID) -> Json:
        found = decode_untyped(progress)
        if not isinstance(found, dict) or found.get("note") is None:
            return progress  # only numbers
        shown = {**found, "note": HIDDEN}
        try:
            return self._chain.veil(shown, progress, places.progressed(tenant, run)) or progress
        except CannotSeal:
            # Drop it: the same renewal carries the leases of all runs of the worker, and progress is worth
            # less.
            return msgspec.json.encode(shown).decode()

    # -- out -----------------------------------------------------------------------------------

    def run(self, run: Run) -> Run:
        """Return a run as people see it. A value that does not open is shown sealed, with the reason in
        it."""
        error, line = self._failed(run)
        progress = run.progress_json
        if progress is not None:
            progress = self._unveiled(progress, places.progressed(run.tenant, run.id))
        params = Where(tenant=run.tenant, run=run.id, field="params")
        waits = run.waiting_on
        if any(one.ask is not None for one in waits):
            waits = tuple([self._wait(one, run.tenant, run.id) for one in waits])
        return _replace(
            run,
            waiting_on=waits,
            params_json=self._shown(run.params_json, params),
            result_json=self._result(run),
            error_json=error,
            last_error=line,
            progress_json=progress,
        )

    def approval(self, request: ApprovalRequest) -> ApprovalRequest:
        """Return an open gate as people see it."""
        ask = self._asked(request.ask_json, places.ask(request.tenant, request.run, request.step))
        return request if ask is request.ask_json else _replace(request, ask_json=ask)

    def _wait(self, step: Step, tenant: str, run: UUID) -> Step:
        asks = step.ask is not None
        return _replace(step, ask=self._asked(step.ask, places.ask(tenant, run, step.key))) if asks else step

    def _asked(self, ask: Json | None, where: Where) -> Json | None:
        """Return the question of a gate. The question of a plan is published, and not sealed."""
        return ask if ask is None or RESERVED not in ask else self._shown(ask, where)

    def shown_step(self, step: Step, tenant: str, run: UUID) -> Step:
        """Return a step as people see it."""
        step = self._wait(step, tenant, run)
        if step.left_out and step.status is StepStatus.SUCCEEDED and step.output is None:
            return _replace(step, wake=None)  # there is nothing to open
        try:
            return self.opened_step(step, tenant, run)
        except CannotOpen as why:
            if step.status is StepStatus.SUCCEEDED:
                return _replace(step, output=unopened(why, step.output or "null"))
            return step if step.wake is None else _replace(step, wake=unopened(why, step.wake))

    def opened_step(self, step: Step, tenant: str, run: UUID) -> Step:
        """Return a step as its run reads it. CannotOpen."""
        if step.wake is not None:
            step = _replace(step, wake=self._woken(step.wake, tenant, step.topic or ""))
        if step.kind is StepKind.CHILD and step.output is not None and step.status in SETTLED:
            return _replace(step, output=self._ended(step.output, tenant))
        if step.status is StepStatus.SUCCEEDED:
            output = self.opened_output(step.kind, step.key, step.topic, step.output, (tenant, run))
            return step if output is step.output else _replace(step, output=output)
        if step.kind is not StepKind.TASK:
            return step
        where = places.step_error(tenant, run, step.key)
        if (text := step.error_json) is None:
            if step.status is StepStatus.FAILED:
                self._chain.demand(where)
            return step
        if step.max_attempts is not None:
            return _replace(step, error_json=self._of_plan(text, where, places.run_error(tenant, run)))
        error = self._chain.unveil(text, where)
        return _replace(step, error_json=self._chain.open(text, where) if error is None else error)

    def _of_plan(self, error: Json, own: Where, runs: Where) -> Json:
        """Open the error of a plan's task: its own, or that of its run, which it shows while it is
        retried."""
        try:
            found = self._chain.unveil(error, own)
        except CannotOpen:
            found = None
        return self._failure_of(error, None, runs)[0] if found is None else found

    def opened_output(
        self, kind: StepKind, key: str, topic: str | None, output: Json | None, of: tuple[str, UUID]
    ) -> Json | None:
        """Return the output of a step. CannotOpen, also when an output is missing that must be there."""
        if kind is not StepKind.TASK and kind is not StepKind.EVENT:
            return output
        if output is None:
            self._chain.demand(places.output(*of, key))
            return None
        return (
            self._chain.open(output, places.output(*of, key))
            if kind is StepKind.TASK
            else self._came(output, of[0], topic or "")
        )

    def opened_params(self, params: Json, tenant: str, run: UUID) -> Json:
        """Return the params of a run. CannotOpen."""
        return self._chain.open(params, Where(tenant=tenant, run=run, field="params"))

    def claim(self, claim: Claim) -> Claim:
        """Return a run as its holder reads it. If it does not open, its params hold the reason."""
        try:
            params = self.opened_params(claim.params, claim.tenant, claim.id)
            steps = tuple([self.opened_step(step, claim.tenant, claim.id) for step in claim.steps])
        except CannotOpen as why:
            return _replace(claim, params=unopened(why, claim.params))
        return _replace(claim, params=params, steps=steps)

    def trail(self, entry: TrailEntry, tenant: str) -> TrailEntry:
        """Return a row of the trail as people see it."""
        if entry.type == "log":
            return _replace(
                entry, data_json=self._unveiled(entry.data_json, places.logged(tenant, entry.run))
            )
        try:
            data = decoded(entry.data_json, dict[str, msgspec.Raw])
            step = decoded(bytes(data.get("step", b"null")).decode(), str | None) or ""
        except CannotOpen:
            return entry  # a foreign or damaged row: show it as it is, and show the others
        if "error" not in data:
            return entry
        veiled = bytes(data["error"]).decode()
        if entry.type == "step_failed":
            error = self._unveiled(veiled, places.step_error(tenant, entry.run, step))
        else:
            error = self._failure_of(veiled, None, places.run_error(tenant, entry.run))[0]
        data["error"] = msgspec.Raw(error.encode())
        return _replace(entry, data_json=msgspec.json.encode(data).decode())

    def _came(self, output: Json, tenant: str, topic: str) -> Json:
        """Open an event. It is bound to the topic of the wait: the topic in the event could be forged."""
        event = decoded(output, _TakenEvent)
        payload = self._chain.open(bytes(event.payload).decode(), places.payload(tenant, event.id, topic))
        event.topic, event.payload = topic, decoded(payload, msgspec.Raw)
        return msgspec.json.encode(event).decode()

    def _woken(self, wake: Json, tenant: str, topic: str) -> Json:
        """Open the wake of a plan's task, with its event if there is one."""
        why = decoded(wake, _Woken)
        if bytes(why.event) not in _NOTHING:
            why.event = msgspec.Raw(self._came(bytes(why.event).decode(), tenant, topic).encode())
        return msgspec.json.encode(why).decode()

    def _ended(self, output: Json, tenant: str) -> Json:
        """Open the end of a child: its result or error, bound to the id of the child."""
        end = decoded(output, _Ended)
        if bytes(end.result) not in _NOTHING:
            where = Where(tenant=tenant, run=end.run, field="result")
            end.result = decoded(self._chain.open(bytes(end.result).decode(), where), msgspec.Raw)
        if bytes(end.error) not in _NOTHING:
            error, _ = self._failure_of(bytes(end.error).decode(), None, places.run_error(tenant, end.run))
            end.error = msgspec.Raw(error.encode())
        return msgspec.json.encode(end).decode()

    def _result(self, run: Run) -> Json | None:
        where = Where(tenant=run.tenant, run=run.id, field="result")
        if run.result_json is not None:
            return self._shown(run.result_json, where)
        try:
            if run.status is Status.SUCCEEDED and run.kind != "plan":  # a plan need not end with a task
                self._chain.demand(where)
        except CannotOpen as why:
            return unopened(why, "null")
        return None

    def _failed(self, run: Run) -> tuple[Json | None, str | None]:
        if run.error_json is None:
            return None, run.last_error
        return self._failure_of(run.error_json, run.last_error, places.run_error(run.tenant, run.id))

    def _failure_of(self, error: Json, line: str | None, where: Where) -> tuple[Json, str | None]:
        """Return the error of a run and its one-line form. An error that the store itself has written is
        not sealed."""
        try:
            whole = self._chain.unveil(error, where)
            found, line = decoded(whole or "null", tuple[msgspec.Raw, str | None])
        except CannotOpen:
            return error, line
        return bytes(found).decode(), line

    def _unveiled(self, text: Json, where: Where) -> Json:
        try:
            return self._chain.unveil(text, where) or text
        except CannotOpen:
            return text

    def _shown(self, text: Json, where: Where) -> Json:
        try:
            return self._chain.open(text, where)
        except CannotOpen as why:
            return unopened(why, text)


def veiled(entries: Iterable[TrailEntry]) -> set[UUID]:
    """Return the runs of those rows that hold a sealed value."""
    return {entry.run for entry in entries if RESERVED in entry.data_json}


def _fields(data: Json) -> dict[str, Any]:
    """Return the content of a log row. Empty, if it is JSON of another shape or cannot be read."""
    try:
        found = decode_untyped(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(error: Json) -> Error:
    return msgspec.json.decode(error, type=Error)


def _shown(error: Error) -> dict[str, Any]:
    """Return the readable part of an error: its step, which the store needs, and its kind."""
    step = {} if error.step is None else {"step": error.step}
    return {"kind": error.kind, "type": error.type, "message": HIDDEN, **step}
