"""The handle that `start` returns."""

from __future__ import annotations

from typing import Generic, Protocol, cast
from uuid import UUID

from holdfast.codec import untyped
from holdfast.durations import Seconds
from holdfast.engine.definitions import Defined
from holdfast.engine.typed import R_co
from holdfast.records import Decided, Run

# how the result of a run begins that ended by `continue_as` before chains existed
CONTINUED = '{"continued_as":'


class HandleClient(Protocol):
    """The verbs that a handle needs: an app has them, and a client of the HTTP API."""

    async def ended(self, run: UUID | str, timeout: Seconds | None = None) -> Run: ...

    async def known(self, run: UUID | str) -> Run: ...

    async def cancel(self, run: UUID | str, by: str = "", *, children: bool = True) -> Run: ...

    async def approve(
        self, run: UUID | str, step: str | None = None, *, by: str = "", comment: str = "",
        digest: str | None = None,
    ) -> Decided: ...  # fmt: skip

    async def reject(
        self, run: UUID | str, step: str | None = None, *, by: str = "", comment: str = "",
        digest: str | None = None,
    ) -> Decided: ...  # fmt: skip


class Handle(Generic[R_co]):
    """A started run: its id and type, and whether this call created it."""

    def __init__(
        self,
        client: HandleClient,
        run_id: UUID,
        type_: str,
        *,
        created: bool,
        workflow: Defined | None = None,
    ) -> None:
        self._client, self._workflow = client, workflow
        self.id, self.type, self.created = run_id, type_, created

    def __repr__(self) -> str:
        """Return a short text for logs."""
        return f"<run {self.id}>"

    async def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the run, or for its chain, and return its typed result. Raises RunFailed, RunCancelled,
        ResultTimeout."""
        run = await self._client.ended(self.id, timeout)
        result = run.result_json or "null"
        # A run that used `continue_as` before chains existed is no chain in the store: its result has another
        # type.
        known = None if result.startswith(CONTINUED) else self._workflow
        codec = untyped if known is None else known.result_of(run.cursor)
        return cast("R_co", codec.decode(result, f"the result of run {run.id}"))

    async def get(self) -> Run:
        """Read the run as it is now."""
        return await self._client.known(self.id)

    async def cancel(self, by: str = "", *, children: bool = True) -> Run:
        """Cancel the run, and its open children unless told otherwise."""
        return await self._client.cancel(self.id, by=by, children=children)

    async def approve(
        self, step: str | None = None, *, by: str = "", comment: str = "", digest: str | None = None
    ) -> Decided:
        """Approve the run's open gate, as `app.approve` does."""
        return await self._client.approve(self.id, step, by=by, comment=comment, digest=digest)

    async def reject(
        self, step: str | None = None, *, by: str = "", comment: str = "", digest: str | None = None
    ) -> Decided:
        """Reject the run's open gate, as `app.reject` does."""
        return await self._client.reject(self.id, step, by=by, comment=comment, digest=digest)
