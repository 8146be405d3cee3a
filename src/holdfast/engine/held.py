"""A run while a worker holds it, whatever its kind, as its worker and its renewal see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.records import Claim, Held, Instant, Lease

if TYPE_CHECKING:
    from .journal import Journal
    from .lease_clock import LeaseClock
    from .outcome import Why
    from .record import Record
    from .worker import Worker

UNWIND_SECONDS = 5.0  # what user code may take to clean up when its run parks or is given back,
CLEANUP_SECONDS = 60.0  # and what when the run was cancelled, paused or lost


class HeldRun(Protocol):
    """From claim to commit: the execution of a code workflow, or of a plan."""

    claim: Claim
    worker: Worker
    journal: Journal
    lease_clock: LeaseClock
    record: Record
    attempt: int
    ended_as: str  # how it ended here; empty when it did not
    ending: bool  # its code has come to its end, and the commit that says so is on its way

    async def run(self) -> None:
        """Execute until the run ends, parks, or is no longer ours."""

    def take(self, claim: Claim) -> None:
        """Go on with all that the run has recorded, which its claim did not bring."""

    @property
    def cancelled(self) -> bool:
        """User code should come to its end."""

    def stop(self, why: Why, reason: str = "", *, unwind_seconds: float = UNWIND_SECONDS) -> None:
        """Unwind user code: the run was cancelled, lost or paused, or is to be released."""

    def lease(self) -> Lease:
        """What renewal says of this run. Called from the renewal thread."""

    def news(self, held: Held) -> None:
        """What renewal learnt."""

    @property
    def suspect(self) -> int:
        """How often it has crashed since progress was last committed."""

    def now(self) -> Instant:
        """The store's clock, as far as it can be known without asking."""
