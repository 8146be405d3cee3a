"""purge: removal of expired rows, one slice a commit, so that no commit is long."""

from __future__ import annotations

import msgspec

from holdfast import bounds
from holdfast.contract import DELETED_SECONDS, PURGE_SLICE, TTL_SECONDS
from holdfast.machine.durations import bounded
from holdfast.records import Purged

from .calls import Calls, json_text

ROWS = 5000  # the most rows of each kind (of runs, events, claims, the audit, keys) that one commit removes


class _Slice(msgspec.Struct, gc=False, frozen=True):
    gone: Purged
    past: msgspec.Raw
    more: bool


_SLICE = msgspec.json.Decoder(_Slice)


class PurgeVerb(Calls):
    """The verb `purge`."""

    # The place up to which all expired runs are held back. However many runs wait for their messages, each
    # slice continues where the last one stopped.
    _past = msgspec.Raw(b"null")

    async def purge(
        self,
        ttl_seconds: float = TTL_SECONDS,
        deleted_seconds: float = DELETED_SECONDS,
        limit: int = PURGE_SLICE,
    ) -> Purged:
        terms = {
            "ttl_seconds": bounded(ttl_seconds),
            "deleted_seconds": bounded(deleted_seconds),
            "limit": limit,
            "rows": ROWS,
            "bytes": 4 * bounds.BATCH_BYTES,
        }
        while True:
            slice_ = await self._ask(_SLICE, "purge", json_text({**terms, "past": self._past}))
            self._past = slice_.past
            if slice_.gone.total or not slice_.more:
                return slice_.gone
