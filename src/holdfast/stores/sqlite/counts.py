"""counts, rates, scale and recount: not written yet."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contract import RATES_MAX, SCALE_MAX
from holdfast.records import Counts, Instant, Miscount, Rate, Scale, Tenant


class CountVerbs:
    """The verbs, as a mixin of the store."""

    async def counts(self, tenant: Tenant) -> Counts:
        raise NotImplementedError

    async def rates(
        self, tenant: Tenant, since: Instant, until: Instant | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        raise NotImplementedError

    async def scale(self, tenant: Tenant, limit: int = SCALE_MAX) -> Scale:
        raise NotImplementedError

    async def recount(self, *, repair: bool = False) -> Sequence[Miscount]:
        raise NotImplementedError
