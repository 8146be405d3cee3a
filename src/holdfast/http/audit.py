"""The audit log of the HTTP API: who did what.

Every request that changes something is noted before its answer is sent, except starts: the trail of a run
names the key that started it. Refusals of a known key are noted, at most REFUSALS a minute for each key; the
others are counted in one row. Refusals without a known key are only counted in the process.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from holdfast.contract import AUDIT_BATCH, Store
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.records import ANY, AuditWrite
from holdfast.world import World

from .call import Call
from .problems import Refusal

log = safe_logger("holdfast.http")

REFUSALS = 10  # rows in REFUSALS_SECONDS for one key
REFUSALS_SECONDS = 60.0
KEYS_MAX = 10_000


class _Minute(msgspec.Struct):
    began: float
    noted: int = 0
    more: int = 0  # refusals that were not noted
    last: AuditWrite | None = None


class Audit:
    """Writes the audit log of one server process."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()
        self.lost = 0  # refusals of keys that were forgotten because there were too many

    async def done(self, call: Call) -> None:
        """Note an act. If only this fails, the answer is sent all the same: the act is done, and the trail of
        a run names the caller too.
        """
        if not call.actor.key_id:
            return
        entry = _entry(call, "done", "")
        try:
            await self._store.note_audit([entry])
        except StoreError as error:
            act = f"{entry.action} {entry.target} by {entry.key_id}"
            log.error("the audit log lacks an act: %s (%s)", act, error)  # noqa: TRY400 - no bug of ours

    async def refused(self, call: Call, refusal: Refusal) -> None:
        """Note a refusal, unless the key has had many of them in this minute."""
        minute = self._minute(call.actor.key_id)
        entry = _entry(call, "refused", refusal.code)
        if minute.noted < REFUSALS:
            minute.noted += 1
            await self._store.note_audit([entry])
        else:
            minute.more, minute.last = minute.more + 1, entry

    async def flush_refusals(self) -> None:
        """Note how many refusals were left out in minutes that have passed. Rows that cannot be written are
        counted in the log of the process: the list of keys must not grow while the store is away.
        """
        now, rows, left_out = self._world.monotonic(), list[AuditWrite](), list[int]()
        for key, minute in list(self._minutes.items()):
            if now - minute.began >= REFUSALS_SECONDS:
                del self._minutes[key]
                if minute.last is not None:
                    more = f"{minute.more} more refusals in this minute"
                    rows.append(msgspec.structs.replace(minute.last, target=more))
                    left_out.append(minute.more)
        if lost := self.lost:
            self.lost = 0
            log.warning(
                "the audit log lacks %d refusals: more than %d keys had some in a minute", lost, KEYS_MAX
            )
        for at in range(0, len(rows), AUDIT_BATCH):
            try:
                await self._store.note_audit(rows[at : at + AUDIT_BATCH])
            except StoreError as error:
                lost = sum(left_out[at:])
                log.error("the audit log lacks %d refusals of %d keys (%s)", lost, len(rows) - at, error)  # noqa: TRY400 - no bug of ours
                raise

    def _minute(self, key: str) -> _Minute:
        now = self._world.monotonic()
        found = self._minutes.get(key)
        if found is None:
            found = self._minutes[key] = _Minute(now)
            while len(self._minutes) > KEYS_MAX:
                _, old = self._minutes.popitem(last=False)
                self.lost += old.more
        return found


def _entry(call: Call, outcome: str, code: str) -> AuditWrite:
    actor = call.actor
    return AuditWrite(
        tenant=actor.tenant if call.scope is ANY else call.tenant,
        key_id=actor.key_id,
        key_name=actor.name,
        action=call.operation.id,
        target=call.target or str(call.request.path_params.get("run", "")),
        outcome=outcome,
        code=code,
        request=call.id,
    )
