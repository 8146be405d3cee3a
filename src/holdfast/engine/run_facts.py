"""The facts of a run that user code may read: the same in both contexts and in the task of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.records import Claim


class Held(Protocol):
    """A run that is executed here."""

    @property
    def claim(self) -> Claim:
        """The run as it was claimed."""

    @property
    def attempt(self) -> int:
        """Executions begun since the run last made progress."""


class RunFacts:
    """The facts of a run that do not change while it is executed."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def _run(self) -> Held: ...

    @property
    def run_id(self) -> UUID:
        """The id of this run."""
        return self._run.claim.id

    @property
    def type(self) -> str:
        """The type of this run, with its version: `shop.order.v1`."""
        return self._run.claim.type

    @property
    def tenant(self) -> str:
        """The tenant of this run."""
        return self._run.claim.tenant

    @property
    def labels(self) -> dict[str, str]:
        """The labels of this run. A schedule's run has `fire_at`, the time that it was due at."""
        return self._run.claim.labels

    @property
    def attempt(self) -> int:
        """Executions begun since the run last made progress; the first is 1."""
        return self._run.attempt

    @property
    def max_attempts(self) -> int:
        """How many executions without progress may fail; then the run fails."""
        return self._run.claim.max_attempts
