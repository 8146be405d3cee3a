"""A run that was started here, as its starter holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from holdfast.codec import plain
from holdfast.durations import Seconds
from holdfast.records import Decided, Run

from .definitions import Defined

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")

CONTINUED = '{"continued_as":'  # the result of a run that went on as another begins so


class Handle(Generic[T]):
    """A run that was started: its id, and whether this call created it."""

    def __init__(
        self, client: Client, run_id: UUID, *, created: bool, workflow: Defined | None = None
    ) -> None:
        self._client, self._workflow = client, workflow
        self.id, self.created = run_id, created

    def __repr__(self) -> str:
        """Short, for logs."""
        return f"<run {self.id}>"

    async def result(self, timeout: Seconds | None = None) -> Any:
        """What the run returns, or the last one of its chain, as its annotation says; RunFailed,
        RunCancelled, ResultTimeout."""
        run = await self._client.ended(self.id, timeout)
        result = run.result_json or "null"
        # What went on before there were chains is none to the store, and its result is not of its type.
        known = None if result.startswith(CONTINUED) else self._workflow
        codec = plain if known is None else known.result_of(run.cursor)
        return codec.decode(result, f"the result of run {run.id}")

    async def get(self) -> Run:
        """The run as it is now."""
        return await self._client.known(self.id)

    async def cancel(self, by: str = "", *, children: bool = True) -> Run:
        """Cancel it, and its open children unless they are to go on."""
        return await self._client.cancel(self.id, by=by, children=children)

    async def approve(
        self, step: str | None = None, *, by: str = "", comment: str = "", digest: str | None = None
    ) -> Decided:
        """Approve its open gate, as `app.approve` does it."""
        return await self._client.approve(self.id, step, by=by, comment=comment, digest=digest)

    async def reject(
        self, step: str | None = None, *, by: str = "", comment: str = "", digest: str | None = None
    ) -> Decided:
        """Reject its open gate, as `app.reject` does it."""
        return await self._client.reject(self.id, step, by=by, comment=comment, digest=digest)
