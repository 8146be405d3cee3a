"""`app.bulk`: one verb on every run that a filter matches, as a durable run that any worker executes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.arguments import check_by, check_whole
from holdfast.clipped import clipped
from holdfast.engine.bulk.asked import (
    BULK_LABEL,
    OPERATOR_TENANT,
    RATE,
    RATE_MAX,
    SAMPLE,
    Bulk,
    BulkVerb,
    narrowed,
    written,
)
from holdfast.engine.bulk.workflow import BULK, COUNT_MAX, counted, sampled
from holdfast.errors import HoldfastError, UsageError
from holdfast.records import ANY, BEGINNING, DEFAULT_TENANT, Beginning, Run, RunFilter
from holdfast.step_keys import check_key

from .handle import Handle
from .new_run import new_run
from .reads import checked_kinds
from .tenant_scope import not_reserved, tenant_of

if TYPE_CHECKING:
    from .client import StoreClient

PRIORITY = 0  # before the runs that it puts into the queue


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that a bulk operation would take: how many, and the newest few of them.

    more: the count ends there, and there may be more.
    """

    count: int
    more: bool
    sample: tuple[Run, ...]

    @property
    def shown(self) -> str:
        """The count as people read it: "5,000", or "10,000+"."""
        return f"{self.count:,}{'+' * self.more}"


class BulkOperations:
    """Bulk operations of an app. Each verb starts one, and returns the handle of its run.

    It takes the runs that match the filter and were last changed before it began, each at most once, newest
    first, `rate` a second; cancel and pause also those that have changed since, but were created before. A
    filter that names no status gets those that the verb can change. It takes no
    deleted runs, and of a chain only the present run. The run belongs to the tenant of the filter, and
    touches no other tenant's runs; `RunFilter(tenant=ANY)` asks for the runs of all tenants.
    `handle.result()` is a `BulkReport`; `app.pause` and `app.resume` stop it and let it go on. With `key`, a
    second call returns the first operation.
    """

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def preview(
        self, where: RunFilter, verb: str | None = None, *, most: int = COUNT_MAX
    ) -> BulkPreview:
        """Count the runs that match, up to `most`, and return the first few. Nothing is changed.

        verb: count only what this verb would take, such as "retry".
        """
        known = None if verb is None else bulk_verb(verb)
        most = check_whole("most", most, 1, COUNT_MAX)
        where = narrowed(bulk_filter(where), known)
        fetch = self._client._outlines  # noqa: SLF001 - of its own package
        found = await counted(fetch, where, known, sample=SAMPLE, most=most)
        sample = await sampled(self._client.list, where, found)
        return BulkPreview(count=found.count, more=found.more, sample=tuple(sample))

    async def cancel(
        self,
        where: RunFilter,
        *,
        rate: int = RATE,
        by: str = "",
        key: str | None = None,
        children: bool = True,
    ) -> Handle[Any]:
        """Cancel all open runs that match, and their open children unless told otherwise."""
        return await self._start(BulkVerb.CANCEL, where, rate, by, key, children=children)

    async def pause(
        self, where: RunFilter, *, rate: int = RATE, by: str = "", key: str | None = None
    ) -> Handle[Any]:
        """Pause all open runs that match; running ones at their next step boundary."""
        return await self._start(BulkVerb.PAUSE, where, rate, by, key)

    async def resume(
        self, where: RunFilter, *, rate: int = RATE, by: str = "", key: str | None = None
    ) -> Handle[Any]:
        """Resume all paused runs that match, and withdraw pauses that have not taken effect yet."""
        return await self._start(BulkVerb.RESUME, where, rate, by, key)

    async def retry(
        self, where: RunFilter, *, rate: int = RATE, by: str = "", key: str | None = None
    ) -> Handle[Any]:
        """Let all failed runs that match continue at the step that failed."""
        return await self._start(BulkVerb.RETRY, where, rate, by, key)

    async def rewind(
        self,
        where: RunFilter,
        step: str | Beginning,
        *,
        rate: int = RATE,
        by: str = "",
        key: str | None = None,
        children: bool = True,
    ) -> Handle[Any]:
        """Let all runs that match forget a step and all later ones. BEGINNING: all steps."""
        to = None if step is BEGINNING else check_key(step)
        return await self._start(BulkVerb.REWIND, where, rate, by, key, children=children, step=to)

    async def delete(
        self, where: RunFilter, *, rate: int = RATE, by: str = "", key: str | None = None
    ) -> Handle[Any]:
        """Hide all runs that match and stop executing them; each can be restored until it is purged."""
        return await self._start(BulkVerb.DELETE, where, rate, by, key)

    async def _start(
        self, verb: BulkVerb, where: RunFilter, rate: int, by: str, key: str | None, **arguments: Any
    ) -> Handle[Any]:
        client, where = self._client, bulk_filter(where)
        asked = Bulk(
            verb=verb,
            where=written(where),
            rate=check_whole("rate", rate, 1, RATE_MAX, hint=" runs a second"),
            by=check_by(by),
            **arguments,
        )
        tenant = tenant_of(client.tenant, where.tenant)
        await client.list(where, 1)  # refuses a filter that no list takes
        owner = DEFAULT_TENANT if tenant is ANY else not_reserved(tenant)
        new = new_run(
            client.world,
            BULK,
            asked,
            key=key,
            priority=PRIORITY,
            tenant=owner,
            labels={BULK_LABEL: verb.value},
        )
        if tenant is ANY:  # its filter and its report are no tenant's business
            new = msgspec.structs.replace(new, tenant=OPERATOR_TENANT)
        (answer,) = await client.store.start([client._signed(new)])  # noqa: SLF001 - of its own package
        if isinstance(answer, HoldfastError):
            raise answer
        return Handle(client, answer.id, new.type, created=answer.created, workflow=BULK)


def bulk_filter(where: Any) -> RunFilter:
    """Check the filter of a bulk operation."""
    if not isinstance(where, RunFilter):
        raise UsageError(
            f"{clipped(where)} is not a filter: give one, as in RunFilter(statuses=(Status.FAILED,))"
        )
    if where.deleted:
        raise UsageError("a bulk operation takes no deleted runs: leave deleted=True out of the filter")
    return msgspec.structs.replace(checked_kinds(where), values=False)


def bulk_verb(verb: Any) -> BulkVerb:
    """Check the name of a verb."""
    try:
        return BulkVerb(verb)
    except ValueError:
        raise UsageError(
            f"{clipped(verb)} is not a verb of bulk operations: give one of {', '.join(BulkVerb)}"
        ) from None
