"""The outcomes that a handler of a plan's task may return. Any other value is an output and completes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from holdfast.arguments import Seconds, check_cost, check_duration, check_topic
from holdfast.clipped import clipped
from holdfast.codec import Codec, annotated, untyped
from holdfast.engine.outbox.messages import Message
from holdfast.errors import UsageError

T = TypeVar("T")


class Completed(msgspec.Struct, Generic[T], frozen=True):
    """The step has succeeded. Messages are sent with the commit that records it."""

    output: T = None  # type: ignore[assignment]  # left out, it is None
    cost: float = 0.0
    outbound: Sequence[Message] = ()

    def __post_init__(self) -> None:
        """Refuse a cost or messages that cannot be recorded, inside the handler."""
        check_cost(self.cost)
        _check_outbound("Completed", self.outbound)


class Waiting(msgspec.Struct, frozen=True):
    """The run waits for an event on `topic`, for a time, or both; then the same handler is called again."""

    topic: str | None = None
    timeout: Seconds | None = None
    outbound: Sequence[Message] = ()

    def __post_init__(self) -> None:
        """Refuse a wait that nothing could end."""
        if self.topic is None and self.timeout is None:
            raise UsageError("Waiting() would wait for ever: give a topic, a timeout, or both")
        if self.topic is not None:
            msgspec.structs.force_setattr(self, "topic", check_topic(self.topic))
        if self.timeout is not None:
            check_duration("Waiting: timeout", self.timeout)
        _check_outbound("Waiting", self.outbound)


class Retry(msgspec.Struct, frozen=True):
    """Call the handler again after `delay`, by default the delay of the policy; Dead after the last
    attempt.
    """

    delay: Seconds | None = None
    error: str | BaseException = "the handler asked to be called again"

    def __post_init__(self) -> None:
        """Refuse a delay that is no duration and an error that is no error."""
        if self.delay is not None:
            check_duration("Retry: delay", self.delay)
        _check_error("Retry", self.error)


class Dead(msgspec.Struct, frozen=True):
    """The step has failed for good, and the run with it."""

    error: str | BaseException = "the handler gave up"

    def __post_init__(self) -> None:
        """Refuse an error that is no error."""
        _check_error("Dead", self.error)


Outcome = Completed[Any] | Waiting | Retry | Dead


def _check_error(what: str, error: Any) -> None:
    if not isinstance(error, str | BaseException):
        raise UsageError(f"{what}: error={clipped(error)}: give text or an exception")


def _check_outbound(what: str, outbound: Any) -> None:
    if not isinstance(outbound, list | tuple) or not all(isinstance(one, Message) for one in outbound):
        raise UsageError(f"{what}: outbound={clipped(outbound)}: give a list of hf.Message(sink, payload)")


def output_codec(handler: Any) -> Codec:
    """Return the codec of a handler's output, by its annotation: `-> Receipt`, `-> hf.Completed[Receipt]`."""
    wanted = output_type(annotated(handler))
    return untyped if wanted is Any else Codec(type(None) if wanted is None else wanted)


def output_type(hints: dict[str, Any]) -> Any:
    """Return the type of a handler's output from its annotations; Any when they do not say."""
    return _output(hints.get("return", Any))


def _output(said: Any) -> Any:
    """Return the output's part of a return annotation; Any when it has none."""
    parts = get_args(said) if get_origin(said) in {Union, UnionType} else (said,)
    kinds = [_kind(one) for one in parts if one not in {Waiting, Retry, Dead}]
    return reduce(or_, kinds) if kinds and Any not in kinds else Any


def _kind(said: Any) -> Any:
    if said is Completed:
        return Any
    return get_args(said)[0] if get_origin(said) is Completed else said
