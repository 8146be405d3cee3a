"""What a handler of a plan's task may answer. Any other value is an output: the task is completed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from holdfast.codec import Codec, annotated, plain
from holdfast.durations import Seconds
from holdfast.engine.checks import check_topic
from holdfast.engine.messages import Message
from holdfast.errors import UsageError

from .elements import check_span

T = TypeVar("T")


class Completed(msgspec.Struct, Generic[T], frozen=True):
    """The step has succeeded; messages go out with the commit that says so."""

    output: T = None  # type: ignore[assignment]  # left out, it is None
    cost: float = 0.0
    outbound: Sequence[Message] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be sent, where the handler can see it."""
        _check_outbound("Completed", self.outbound)


class Waiting(msgspec.Struct, frozen=True):
    """The run waits for an event on `topic`, for a while, or both: then the same handler is called again."""

    topic: str | None = None
    timeout: Seconds | None = None
    outbound: Sequence[Message] = ()

    def __post_init__(self) -> None:
        """Refuse what nothing could ever end."""
        if self.topic is None and self.timeout is None:
            raise UsageError("Waiting() would wait for ever: give a topic, a timeout, or both")
        if self.topic is not None:
            check_topic(self.topic)
        check_span("Waiting: timeout", self.timeout)
        _check_outbound("Waiting", self.outbound)


class Retry(msgspec.Struct, frozen=True):
    """Call the handler again after `delay`, else as the policy says; with its attempts used up it is Dead."""

    delay: Seconds | None = None
    error: str | BaseException = "the handler asked to be called again"

    def __post_init__(self) -> None:
        """Refuse what is no duration."""
        check_span("Retry: delay", self.delay)


class Dead(msgspec.Struct, frozen=True):
    """The step has failed for good, and the run with it."""

    error: str | BaseException = "the handler gave up"


Outcome = Completed[Any] | Waiting | Retry | Dead


def _check_outbound(what: str, outbound: Any) -> None:
    if isinstance(outbound, str | Message) or not all(isinstance(one, Message) for one in outbound):
        raise UsageError(f"{what}: outbound={outbound!r:.60}: a list of hf.Message(sink, payload)")


def output_codec(handler: Any) -> Codec:
    """How a handler's output is recorded, by its annotation: `-> Receipt`, `-> hf.Completed[Receipt]`."""
    wanted = _output(annotated(handler).get("return", Any))
    return plain if wanted is Any else Codec(type(None) if wanted is None else wanted)


def _output(said: Any) -> Any:
    """What of an annotation is the output's; Any when it does not say."""
    parts = get_args(said) if get_origin(said) in {Union, UnionType} else (said,)
    kinds = [_kind(one) for one in parts if one not in {Waiting, Retry, Dead}]
    return reduce(or_, kinds) if kinds and Any not in kinds else Any


def _kind(said: Any) -> Any:
    if said is Completed:
        return Any
    return get_args(said)[0] if get_origin(said) is Completed else said
