"""`client.bulk`: one verb on every run that a filter matches, as a durable run of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.arguments import check_name, check_whole
from holdfast.engine.app.bulk import BulkPreview, bulk_filter, bulk_verb
from holdfast.engine.app.handle import Handle
from holdfast.engine.bulk.asked import RATE, RATE_MAX, BulkVerb
from holdfast.engine.bulk.workflow import BULK, COUNT_MAX
from holdfast.records import ANY, BEGINNING, Beginning, RunFilter
from holdfast.shown.shapes import ListedRunData, StartedData
from holdfast.step_keys import check_key

from .base import no_by, set_fields, times
from .handles import ClientHandle
from .reads import errors_of, times_of
from .records import run_of
from .starts import made_key

if TYPE_CHECKING:
    from .client import Client


class PreviewData(msgspec.Struct, frozen=True):
    """The runs that a bulk operation would take."""

    count: int
    more: bool
    sample: tuple[ListedRunData, ...]


class BulkVerbs:
    """Bulk operations over HTTP: each verb starts one, and returns the handle of its run. The verbs are those
    of `BulkOperations`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def preview(
        self, where: RunFilter, verb: str | None = None, *, most: int = COUNT_MAX
    ) -> BulkPreview:
        """Count the runs that match, up to `most`, and return the first few. Nothing is changed."""
        known = None if verb is None else bulk_verb(verb)
        most = check_whole("most", most, 1, COUNT_MAX)
        body = set_fields(where=_where(where), verb=known, most=None if most == COUNT_MAX else most)
        query = self._client._whose(where.tenant)  # noqa: SLF001 - a part of the client
        found = await self._client._ask("preview", PreviewData, query=query, body=body)  # noqa: SLF001
        return BulkPreview(count=found.count, more=found.more, sample=tuple(map(run_of, found.sample)))

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
        return await self._start(BulkVerb.CANCEL, where, rate, by, key, children=bool(children))

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
        return await self._start(BulkVerb.REWIND, where, rate, by, key, children=bool(children), step=to)

    async def delete(
        self, where: RunFilter, *, rate: int = RATE, by: str = "", key: str | None = None
    ) -> Handle[Any]:
        """Hide all runs that match and stop executing them; each can be restored until it is purged."""
        return await self._start(BulkVerb.DELETE, where, rate, by, key)

    async def _start(
        self, verb: BulkVerb, where: RunFilter, rate: int, by: str, key: str | None, **arguments: Any
    ) -> Handle[Any]:
        no_by(by)
        client = self._client
        key = made_key(client.world) if key is None else check_name("key", key)
        body = set_fields(
            verb=verb,
            where=_where(where),
            rate=check_whole("rate", rate, 1, RATE_MAX, hint=" runs a second"),
            key=key,
            **arguments,
        )
        query = client._whose(where.tenant)  # noqa: SLF001 - a part of the client
        made = await client._ask("bulk", StartedData, query=query, body=body, key=key)  # noqa: SLF001
        # An operation on all tenants belongs to none of them: only a client of all tenants finds its run.
        owner = client.of(ANY) if where.tenant is ANY else client
        return ClientHandle(owner, made.id, made.type, created=made.created, workflow=BULK)


def _errors(where: RunFilter) -> str | list[str] | None:
    found = list(errors_of(where))
    return where.error if isinstance(where.error, str) else found or None


def _where(where: RunFilter) -> dict[str, Any]:
    """Return a filter as the body of a request."""
    where = bulk_filter(where)
    return set_fields(
        statuses=[str(one) for one in where.statuses],
        waiting_on=where.waiting_on,
        type=where.type,
        key=where.key,
        parent=where.parent,
        roots=bool(where.roots),
        labels=dict(where.labels),
        error=_errors(where),
        **dict(times(**times_of(where))),
    )
