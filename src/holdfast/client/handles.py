"""The handle that the client's `start` returns."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from holdfast.arguments import Seconds
from holdfast.codec import untyped
from holdfast.engine.app.handle import CONTINUED, Handle
from holdfast.engine.definitions import Defined
from holdfast.engine.plans.plan import Plan
from holdfast.engine.typed import R_co

from .reads import ReadVerbs


class ClientHandle(Handle[R_co]):
    """A started run. Its result is one request, for which an API key needs the scope `payloads.read` only."""

    def __init__(
        self, client: ReadVerbs, run_id: UUID, type_: str, *, created: bool, workflow: Defined | None = None
    ) -> None:
        verbs: Any = client
        super().__init__(verbs, run_id, type_, created=created, workflow=workflow)
        self._reads = client

    async def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the run, or for its chain, and return its typed result. Raises RunFailed, RunCancelled,
        ResultTimeout."""
        if isinstance(self._workflow, Plan):  # the type of its result is that of the step at which it ended
            return await super().result(timeout)
        run, text = await self._reads._result_text(self.id, timeout)  # noqa: SLF001 - a part of it
        known = None if text.startswith(CONTINUED) else self._workflow
        codec = untyped if known is None else known.result
        return cast("R_co", codec.decode(text, f"the result of run {run}"))
