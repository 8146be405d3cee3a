"""rates and scale with their bounds, stats, and the fold of `tick`."""

from __future__ import annotations

import builtins

import msgspec

from holdfast.contract import FOLD_MAX, LIVE_SECONDS, RATES_MAX, SCALE_MAX, SLICES
from holdfast.records import Instant, Rate, Scale, Stats, Tenant, tenant_name
from holdfast.stores.pacing import Pace

from .calls import Calls

_RATES = msgspec.json.Decoder(list[Rate])
_SCALE = msgspec.json.Decoder(Scale)
_STATS = msgspec.json.Decoder(Stats)


class CountVerbs(Calls):
    """The verbs of kept counts that are more than a call."""

    async def rates(
        self, tenant: Tenant, since: Instant, until: Instant | None = None, limit: int = RATES_MAX
    ) -> builtins.list[Rate]:
        return await self._ask(_RATES, "rates", tenant_name(tenant), since, until, min(limit, RATES_MAX))

    async def scale(self, tenant: Tenant, limit: int = SCALE_MAX) -> Scale:
        return await self._ask(_SCALE, "scale", tenant_name(tenant), min(limit, SCALE_MAX))

    async def stats(self) -> Stats:
        return await self._ask(_STATS, "stats", LIVE_SECONDS)

    async def _fold(self, pace: Pace) -> tuple[int, bool]:
        """Fold changes, one slice a commit: (how many, is more left)."""
        folded = 0
        for _ in range(SLICES):
            some = int(await self._call("fold_counts", FOLD_MAX))
            folded += some
            if some < FOLD_MAX:
                return folded, False
            if pace.is_over:
                break
        return folded, True
