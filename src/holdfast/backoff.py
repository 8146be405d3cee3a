"""Retry policies: the delay after a failed attempt. Pure functions: no clock, and chance is an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec

from .arguments import (
    FOREVER_SECONDS,
    Seconds,
    check_attempts,
    check_duration,
    check_list,
    check_number,
    to_seconds,
)
from .clipped import clipped
from .errors import UsageError

Shape = Literal["exponential", "quadratic", "linear", "fixed", "list", "function"]
SHAPES: tuple[str, ...] = get_args(Shape)

HOUR = 3600.0
DAY = 24 * HOUR
JITTER_MAX = 10.0  # times the delay
IN_PLACE_MAX_SECONDS = 1.0  # up to here a retry keeps its slot; above, the run goes back to the queue


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy: the delays and the number of attempts. `n` is the number of the failed attempt, from
    1.
    """

    shape: Shape = "exponential"
    base_seconds: float = 1.0
    attempts: int = 3
    cap_seconds: float = HOUR
    jitter: float = 0.1
    delays: tuple[float, ...] = ()
    function: Callable[[int], Seconds] | None = None
    fatal: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a policy that cannot work, at its definition and not at the first failure."""
        check_attempts("attempts", self.attempts)
        check_duration("the base of a backoff", self.base_seconds)
        check_duration("the cap of a backoff", self.cap_seconds)
        check_number("the jitter of a backoff", self.jitter, 0, JITTER_MAX)
        if self.shape not in SHAPES:
            raise UsageError(f"shape is {clipped(self.shape)}: give one of {', '.join(SHAPES)}")
        for delay in self.delays:
            check_duration("a delay of a backoff", delay)
        if self.function is not None and not callable(self.function):
            raise UsageError(
                f"function is {clipped(self.function)}: give a function that takes the number of the attempt"
            )
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in _listed(self.fatal)):
            raise UsageError(
                f"fatal is {clipped(self.fatal)}: give a tuple of exception classes, as in (ValueError,)"
            )

    @classmethod
    def exponential(
        cls,
        base: Seconds = 1.0,
        attempts: int = 3,
        cap: Seconds = HOUR,
        jitter: float = 0.1,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Backoff:
        """Return a policy with delays of 2 base, 4 base, 8 base, … (base * 2**n) up to the cap."""
        return cls(
            shape="exponential",
            base_seconds=to_seconds(base),
            attempts=attempts,
            cap_seconds=to_seconds(cap),
            jitter=jitter,
            fatal=fatal,
        )

    @classmethod
    def quadratic(
        cls,
        attempts: int = 3,
        cap: Seconds = DAY,
        jitter: float = 0.1,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Backoff:
        """Return a policy with delays of 1 min, 4 min, 9 min, … up to the cap."""
        return cls(
            shape="quadratic",
            base_seconds=60.0,
            attempts=attempts,
            cap_seconds=to_seconds(cap),
            jitter=jitter,
            fatal=fatal,
        )

    @classmethod
    def linear(
        cls,
        base: Seconds = 1.0,
        attempts: int = 3,
        cap: Seconds = HOUR,
        jitter: float = 0.1,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Backoff:
        """Return a policy with delays of base, 2 base, 3 base, … up to the cap."""
        return cls(
            shape="linear",
            base_seconds=to_seconds(base),
            attempts=attempts,
            cap_seconds=to_seconds(cap),
            jitter=jitter,
            fatal=fatal,
        )

    @classmethod
    def fixed(
        cls,
        delay: Seconds = 1.0,
        attempts: int = 3,
        jitter: float = 0.0,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Backoff:
        """Return a policy with the same delay each time."""
        return cls(
            shape="fixed",
            base_seconds=to_seconds(delay),
            attempts=attempts,
            cap_seconds=max(HOUR, check_duration("delay", delay)),
            jitter=jitter,
            fatal=fatal,
        )

    @classmethod
    def of(
        cls,
        delays: Sequence[Seconds] | Callable[[int], Seconds],
        attempts: int | None = None,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Backoff:
        """Return a policy of a list of delays (one attempt more than delays, the last repeats) or a function
        of n.
        """
        if callable(delays):
            return cls(
                shape="function",
                function=delays,
                attempts=3 if attempts is None else attempts,
                jitter=0.0,
                fatal=fatal,
            )
        listed = tuple(
            check_duration("a delay of a backoff", delay) for delay in check_list("delays", delays)
        )
        if not listed:
            raise UsageError(
                "the list of delays is empty: give at least one delay; for no retries use Backoff.none()"
            )
        return cls(
            shape="list",
            delays=listed,
            attempts=len(listed) + 1 if attempts is None else attempts,
            cap_seconds=max(HOUR, *listed),
            jitter=0.0,
            fatal=fatal,
        )

    @classmethod
    def none(cls) -> Backoff:
        """Return a policy of one execution and no retry."""
        return cls(attempts=1)

    def delay(self, n: int, chance: float = 0.0) -> float:
        """Return the seconds to wait after attempt `n` failed; `chance` in [0, 1) gives the jitter.

        Jitter is added after the cap: the delay of the policy is never shortened.
        """
        delay = min(self.plain(max(1, n)), self.cap_seconds) * (1.0 + self.jitter * chance)
        return min(delay, FOREVER_SECONDS)

    def plain(self, n: int) -> float:
        """Return the delay before cap and jitter."""
        match self.shape:
            case "exponential":
                # 2**1024 is no float. After 1,000 failures the delay is far above any cap.
                return self.base_seconds * 2.0 ** min(n, 1000)
            case "quadratic":
                return float(n) * n * self.base_seconds
            case "linear":
                return n * self.base_seconds
            case "fixed":
                return self.base_seconds
            case "list":
                return self.delays[min(n, len(self.delays)) - 1]
            case "function":
                assert self.function is not None
                return max(0.0, to_seconds(self.function(n)))


def _listed(fatal: Any) -> tuple[Any, ...]:
    return fatal if isinstance(fatal, tuple) else (fatal,)


def check_policy(what: str, retry: Any) -> Backoff | None:
    """Check an optional policy; None stands for the policy of the workflow."""
    if retry is not None and not isinstance(retry, Backoff):
        right = "give a Backoff, as in Backoff.fixed(5, attempts=3)"
        raise UsageError(f"{what}: retry={clipped(retry)}: {right}")
    return retry


DEFAULT = Backoff()


def crash_delay(crashes: int) -> float:
    """Return the seconds before a run with an expired lease may be claimed again: 0 after the first crash.

    There is no jitter: every store computes this delay, and all must agree.
    """
    return 0.0 if crashes <= 1 else min(DEFAULT.plain(crashes - 1), DEFAULT.cap_seconds)
