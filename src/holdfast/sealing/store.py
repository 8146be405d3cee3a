"""A store in front of another store, which sees only sealed values. Everything else passes through.

The verbs that pass through are found when this module is imported, by the types of the contract. A verb that
takes or returns values and is not written here makes the import fail.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES, page, text_bytes
from holdfast.codec import digest
from holdfast.contract import (
    OUTLINES_MAX,
    START,
    TRANSACTION_SECONDS,
    OwnEngine,
    Store,
)
from holdfast.contract.forwarding import Forwards, Verb, left_to_forward
from holdfast.decoding import fault
from holdfast.errors import CannotOpen, CannotSeal, HoldfastError, KeyReused, Unavailable, UsageError
from holdfast.exact import check_nested
from holdfast.lifecycle import Status, StepKind
from holdfast.records import (
    ANY,
    DEFAULT_TENANT,
    OWN,
    Answer,
    ApprovalRequest,
    Ask,
    Claim,
    Decided,
    Emitted,
    Found,
    Held,
    Item,
    Lease,
    Loaded,
    NewEvent,
    NewRun,
    OutboxMessage,
    Renewal,
    Run,
    RunFilter,
    RunOutline,
    Schedule,
    Started,
    Step,
    Tenant,
    Verdict,
)
from holdfast.records.fingerprints import FILTERS_MAX
from holdfast.records.shown import without_values
from holdfast.records.sizes import request_bytes, run_bytes, shown_step_bytes
from holdfast.searching import check_searched

from .chain import Chain
from .hooks import CodecHook
from .outbox import SealedOutbox
from .records import Records
from .schedules import SealedSchedules
from .trail import SealedTrail
from .values import carries_values

_replace = msgspec.structs.replace


class Sealed(SealedOutbox, SealedSchedules, SealedTrail, Forwards):
    """All verbs of the contract over `inner`: values are sealed on their way in and opened on their way
    out."""

    def __init__(self, inner: Store, codec: CodecHook | Sequence[CodecHook]) -> None:
        self.inner = inner
        self.traits = inner.traits
        hooks = codec if isinstance(codec, Sequence) else (codec,)
        self._chain = self.chain = Chain(hooks)
        self._records = Records(self._chain)

    async def _forward(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        answer = await getattr(self.inner, verb)(*args, **kwargs)
        opened = _OPENED[verb]
        return answer if opened is None else opened(self, answer)

    def _forward_blocking(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        assert _OPENED[verb] is None
        return getattr(self.inner, verb)(*args, **kwargs)

    def opened_run(self, run: Run) -> Run:
        """Return the run as people see it."""
        return self._records.run(run)

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        found = await self.inner.approvals(tenant, limit, after)
        return page(map(self._records.approval, found), request_bytes, limit)

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> builtins.list[Run]:
        if where.error is not None:
            where = self._hashed(where)
        runs = map(self._records.run, await self.inner.list(where, limit, after))
        # Compressed values grow when they are opened: a page of them may have to end earlier.
        return page(runs if where.values else map(without_values, runs), run_bytes, limit)

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> Sequence[RunOutline]:
        where = where if where.error is None else self._hashed(where)
        return await self.inner.outlines(where, limit, after)

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        check_searched(text)
        raise UsageError(
            "the values in this store are sealed (encrypted or compressed), so no text can be looked for in "
            "them: filter by label, key, error or time"
        )

    def _hashed(self, where: RunFilter) -> RunFilter:
        """Return a filter with its errors as they may be stored: keyed digests, and the text itself, because
        errors that the store writes are not sealed."""
        tenant = DEFAULT_TENANT if where.tenant is OWN else where.tenant
        texts: tuple[Any, ...] = where.error if isinstance(where.error, tuple) else (where.error,)
        if not all(isinstance(text, str) for text in texts):
            return where  # the store refuses it
        if len(texts) > FILTERS_MAX:
            raise UsageError(f"error: at most {FILTERS_MAX} texts, not {len(texts)}")
        if not isinstance(tenant, str):
            raise UsageError("errors are sealed in this store, for each tenant by itself: name a tenant")
        if any(text.endswith("%") for text in texts):
            raise UsageError(
                "errors are sealed in this store, so it cannot look for a prefix: give the whole "
                "fingerprint, as `holdfast show` prints it, or filter by status, type and time"
            )
        found = [one for text in texts for one in (*self._chain.fingerprints(text, tenant), text)]
        return _replace(where, error=tuple(dict.fromkeys(found)))

    async def steps(
        self,
        run: UUID,
        tenant: Tenant,
        *,
        largest: int | None = None,
        after: int | None = None,
        before: int | None = None,
        bytes: int | None = None,
    ) -> builtins.list[Step]:
        steps = await self.inner.steps(run, tenant, largest=largest, after=after, before=before, bytes=bytes)
        owner = await self._tenant(run) if tenant is ANY else tenant
        opened = (self._records.shown_step(step, owner, run) for step in steps)
        if after is None and before is None:
            return [*opened]
        return page(opened, shown_step_bytes, len(steps), bytes)

    async def start(
        self, runs: Sequence[NewRun], connection: Any = None
    ) -> builtins.list[Started | HoldfastError]:
        sealed = [self._new_run(new) for new in runs]
        known = [one for one in sealed if isinstance(one, NewRun)]
        answers_of_known = iter(await self.inner.start(known, connection) if known else ())
        answers: builtins.list[Started | HoldfastError] = []
        for new, one in zip(runs, sealed, strict=True):
            answer = one if isinstance(one, CannotSeal | UsageError) else next(answers_of_known)
            if isinstance(answer, KeyReused) and isinstance(one, NewRun):
                answer = await self._same_start(new, one, answer, connection)
            answers.append(answer)
        return answers

    def _new_run(self, new: NewRun) -> NewRun | CannotSeal | UsageError:
        try:
            check_nested(new)
            return self._records.new_run(new)
        except (CannotSeal, UsageError) as why:
            return why

    async def _same_start(
        self, new: NewRun, sealed: NewRun, refused: KeyReused, connection: Any
    ) -> Started | HoldfastError:
        """Start again with each digest that older keys may have stored: under another key the same start has
        another digest. This also works where nothing can be read: for a deleted run, and in the caller's
        transaction.
        """
        for digest_ in self._records.digests(new)[1:]:
            (answer,) = await self.inner.start([_replace(sealed, digest=digest_)], connection)
            if not isinstance(answer, KeyReused):
                return answer
        try:
            return await self._compared(new, refused)
        except Unavailable:
            if connection is None:
                raise
            return refused  # the store need not be open here

    async def _compared(self, new: NewRun, refused: KeyReused) -> Started | HoldfastError:
        """Compare the params of the stored run. They say whether it is the same start, or why that is
        unknown."""
        found = await self.inner.get(refused.run_id, new.tenant)
        if found is None:
            return refused
        try:
            params = self._records.opened_params(found.params_json, found.tenant, found.id)
        except CannotOpen as why:
            return why
        same = digest(found.type, params) == new.digest
        return Started(found.id, created=False) if same else refused

    async def claim(self, ask: Ask) -> builtins.list[Claim]:
        left, claims = ask.bytes, []
        for sealed in await self.inner.claim(ask):
            claim = sealed if sealed.unread else self._records.claim(sealed)
            size = text_bytes(claim.params) + sum(map(shown_step_bytes, claim.steps))
            if size > left:  # after opening it is larger than the worker asked for
                claim = _replace(claim, params="null", labels_json=None, steps=(), unread=True)
            else:
                left -= size
            claims.append(claim)
        return claims

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        found = await self.inner.load(lease, after, bytes)
        of = lease.tenant, lease.run
        try:
            params = None if found.params is None else self._records.opened_params(found.params, *of)
            opened = (self._records.opened_step(step, *of) for step in found.steps)
            steps = tuple(page(opened, shown_step_bytes, len(found.steps), bytes))
        except CannotOpen as why:
            return Loaded(answer=Answer.SEALED, reason=str(why))
        more = found.more or len(steps) < len(found.steps)
        return _replace(found, params=params, steps=steps, more=more)

    async def commit(self, batch: Sequence[Item]) -> builtins.list[Verdict]:
        sealed: builtins.list[Item] = []
        refused: dict[UUID, Verdict] = {}
        for item in batch:
            try:
                sealed.append(self._item(item))
            except CannotSeal as why:
                refused[item.run] = _refusal(why)
        verdicts = iter(await self.inner.commit(sealed) if sealed else ())
        return [refused.get(item.run) or self._verdict(item, next(verdicts)) for item in batch]

    def _item(self, item: Item) -> Item:
        """Return the sealed item. Values that no store can keep are refused before they are sealed."""
        check_nested(item)
        return self._records.item(item)

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        made = item
        refused: CannotSeal | None = None

        def sealed(answer: Item) -> Item:
            nonlocal made, refused
            made = answer
            try:
                return self._item(made)
            except CannotSeal as why:
                refused = why
                raise

        async def sealed_later(answer: Awaitable[Item]) -> Item:
            return sealed(await answer)

        def performed(connection: Any) -> Any:
            answer = work(connection)
            return sealed_later(answer) if isawaitable(answer) else sealed(answer)

        try:
            begun = self._item(item)
        except CannotSeal as why:
            return _refusal(why)
        try:
            own = () if on is None else (on,)
            verdict = await self.inner.transact(begun, performed, limit_seconds, *own)
        except CannotSeal as why:
            if why is not refused:
                raise  # raised by the user's function
            return _refusal(why)
        return self._verdict(made, verdict)

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        sealed = [self._records.lease(_readable(lease)) for lease in leases]
        renewal = self.inner.renew(worker, sealed, lease_seconds)
        held = zip(leases, renewal.held, strict=True)
        return _replace(renewal, held=tuple([self._held(lease, one) for lease, one in held]))

    def _verdict(self, item: Item, verdict: Verdict) -> Verdict:
        if not verdict.settled and not verdict.kept:
            return verdict
        written = {write.key: (write.kind, write.key, write.topic) for write in item.steps}
        of, opened = (item.tenant, item.run), self._records.opened_output
        try:
            settled = tuple([self._records.opened_step(step, *of) for step in verdict.settled])
            kept = tuple(
                [
                    (key, output and opened(*written.get(key, (StepKind.TASK, key, None)), output, of))
                    for key, output in verdict.kept
                ]
            )
        except CannotOpen as why:
            # The item was applied, but the values of the answer do not open, so the holder cannot go on.
            if verdict.status is not Status.LEASED:
                return verdict
            return _replace(verdict, answer=Answer.SEALED, reason=str(why))
        return _replace(verdict, settled=settled, kept=kept)

    def _held(self, lease: Lease, held: Held) -> Held:
        if not held.settled:
            return held
        try:
            settled = tuple(
                [self._records.opened_step(step, lease.tenant, lease.run) for step in held.settled]
            )
        except CannotOpen as why:
            return _replace(held, answer=Answer.SEALED, reason=str(why))
        return _replace(held, settled=settled)

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        return await self.inner.emit(self._records.event(event), connection)


Opener = Callable[[Sealed, Any], Any]

# Functions that open the answers of forwarded verbs, by type.
OPENERS: Mapping[Any, Opener] = {
    Run: Sealed.opened_run,
    Run | None: lambda sealed, run: None if run is None else sealed.opened_run(run),
    Decided: lambda sealed, decided: _replace(decided, run=sealed.opened_run(decided.run)),
    Schedule: Sealed.opened_schedule,
    OutboxMessage: Sealed.opened_message,
}
# Forwarded verbs whose types could carry values, and the reason why they may be forwarded.
IN_PLAIN = {
    "publish": "what a plan's gate asks is part of the program, the same for all its runs",
    "definitions": "the same",
    "append_step": "a step that is added has no values yet",
    "export_runs": "whole runs go as they are stored, sealed",
    "export_events": "the same",
    "import_runs": "whole runs are stored as they come: sealed by the same keys",
    "import_events": "the same",
}


def opener_of(verb: Verb) -> Opener | None:
    """Return the function that opens the answer of a forwarded verb. None: the answer holds no sealed
    value."""
    if verb.name in IN_PLAIN:
        return None
    if any(carries_values(one) for one in verb.takes.values()):
        raise TypeError(f"{verb.name} takes values: write it in Sealed, which has to seal them")
    opener = OPENERS.get(verb.answer)
    if opener is None and carries_values(verb.answer):
        raise TypeError(f"{verb.name} answers values: say in OPENERS how they are opened")
    return opener


_OPENED = {name: opener_of(verb) for name, verb in left_to_forward(Sealed).items()}


def _readable(lease: Lease) -> Lease:
    """Return the lease without a progress that is not JSON: it cannot be sealed, and no store would
    accept it."""
    if lease.progress is None or fault(lease.progress) is None:
        return lease
    return _replace(lease, progress=None)


def _refusal(why: CannotSeal) -> Verdict:
    """Return a refusal: nothing was written. The holder releases the run, and it is executed again later."""
    return Verdict(answer=Answer.SEALED, status=Status.LEASED, refused=True, reason=str(why))
