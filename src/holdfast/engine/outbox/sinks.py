"""Sinks: functions of an app and webhooks, and one try to deliver a parcel to them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import islice
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, NamedTuple

import msgspec

from holdfast.arguments import check_name
from holdfast.codec import MARK, untyped, unwrapped
from holdfast.engine.failures import encoded, stored, text
from holdfast.engine.log_context import PLACE, LogPlace
from holdfast.errors import BadValue, UsageError
from holdfast.records import SECOND, Error, Json, Parcel, Webhook, moment
from holdfast.sealing.envelope import OURS, is_untouched, reason
from holdfast.sealing.outbox import RAISED
from holdfast.world import World

from . import signing
from .http_post import Poster, Unpostable
from .messages import Delivery

SINK_SECONDS = 30.0
DELAY_MAX_SECONDS = 3600.0  # longest delay between two tries, even if the receiver asks for more
GONE = 410
AGENT = "holdfast"
ADD = "`holdfast sink add`"
FRAMES_READ, FRAMES_SHOWN = 1000, 3  # frames of a traceback

IN_SHORT_MAX = 160
_QUERY = re.compile(r"(?<=\S)\?[^\s'\"]+")


class Sink(msgspec.Struct, frozen=True):
    """A function that receives messages."""

    name: str
    function: Callable[[Delivery], Any]
    is_async: bool
    timeout_seconds: float = SINK_SECONDS


Sinks = dict[str, Sink]


class WebhookTarget(msgspec.Struct, frozen=True):
    """The sealed part of a webhook: its URL, and the secrets that sign, the newest first."""

    url: str
    secrets: tuple[str, ...]


def sink_of(name: str, function: Any, timeout_seconds: float) -> Sink:
    """Make a sink of a function; UsageError when the function cannot be a sink."""
    if not callable(function) or not _takes_one(function):
        raise UsageError(f"sink {name!r} takes one argument, the delivery: write def {name}(delivery)")
    inner = getattr(function, "func", None) or type(function).__call__  # a partial, or a callable object
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    return Sink(check_name("sink", name), function, is_async, timeout_seconds)


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # some builtins cannot be asked
        return True
    return True


class Refused(Exception):
    """The receiver did not accept the parcel. `final`: no retry; `delay_seconds`: the least delay of the
    retry.
    """

    def __init__(self, kind: str, message: str, *, final: bool = False, delay_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.final, self.delay_seconds = final, delay_seconds
        self.error = failure(kind, "", message)


def failure(kind: str, type_: str, message: object, where: str = "") -> Json:
    """Return the error of a failed try as it is recorded."""
    return encoded(Error(kind=kind, type=type_, message=text(message, 500), traceback=where))


def raised(error: BaseException) -> Json:
    """Return the record of an exception of a sink's function. Its text is the user's: it is sealed if there
    is a codec.
    """
    return failure(RAISED, type(error).__name__, error, place_of(error))


def place_of(error: BaseException) -> str:
    """Return the innermost lines of an error's traceback, as file:line, without values."""
    frames = list(islice(walk_tb(error.__traceback__), FRAMES_READ))[-FRAMES_SHOWN:]
    places = (f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in frames)
    return text(" > ".join(places), 500)


def in_short(error: Json | None) -> str:
    """Return the reason of a failure for one line of a log.

    An exception of a function may contain the payload: only its type and its place are logged;
    `holdfast outbox show` shows its text. In our own errors the query of a URL is left out.
    """
    if error is None:
        return "no reason given"
    said = stored(error)
    if said.kind == RAISED:
        return f"{said.type} at {said.traceback}" if said.traceback else said.type
    words = ": ".join(part for part in (said.type or said.kind, said.message) if part)
    return _QUERY.sub("?…", " ".join(words.split()))[:IN_SHORT_MAX]


def read(error: Json | None) -> Error | None:
    """Return the recorded error of a try."""
    return None if error is None else stored(error)


class Unopenable(NamedTuple):
    """The reason why a parcel cannot be opened here. `whole_sink`: nothing can be sent to that sink from
    here.
    """

    error: Json
    whole_sink: bool


def unopenable(parcel: Parcel) -> Unopenable | None:
    """Return the reason if the payload or the webhook of a parcel is still sealed; else None."""
    target = "" if parcel.webhook is None else parcel.webhook.target
    value = next((one for one in (target, parcel.payload) if one.startswith(MARK)), None)
    if value is None:
        return None
    error = failure(OURS, "", str(reason(value, f"message {parcel.id}")))
    return Unopenable(error, parcel.webhook is not None and (value is target or is_untouched(value)))


async def call(sink: Sink, parcel: Parcel, world: World) -> None:
    """Call a function sink with the parcel; its exceptions are raised. Refused when the payload is
    unreadable.
    """
    delivery = Delivery(
        id=parcel.id,
        sink=parcel.sink,
        payload=_payload(parcel),
        key=parcel.key,
        run=parcel.run,
        tenant=parcel.tenant,
        attempt=parcel.attempt,
        sent_at=moment(parcel.created_at),
    )
    PLACE.set(LogPlace(parcel.run, "", parcel.tenant, "", parcel.attempt))  # each try is a task of its own
    if sink.is_async:
        await sink.function(delivery)
        return
    answer = await world.thread(sink.function, delivery, separate=True)
    if inspect.isawaitable(answer):
        await answer  # a lambda around an async call


def _payload(parcel: Parcel) -> Any:
    try:
        return untyped.decode(parcel.payload, "the payload")
    except BadValue as why:
        raise Refused("encoding", str(why), final=True) from None


async def post(webhook: Webhook, parcel: Parcel, poster: Poster, world: World, traceparent: str = "") -> None:
    """Post the parcel to a webhook; Refused when the receiver does not accept it."""
    try:
        target = unwrapped(webhook.target, WebhookTarget, "its stored address")
    except BadValue:
        raise Refused("address", f"its stored address cannot be read: say {ADD} again") from None
    body = parcel.payload.encode()
    signed = signing.headers(parcel.id, world.now() // SECOND, body, target.secrets)
    headers = {"Content-Type": "application/json", "User-Agent": AGENT, **signed}
    if traceparent:
        headers["traceparent"] = traceparent
    try:
        answer = await poster.post(target.url, headers, body, allow_private=webhook.allow_private)
    except Unpostable as why:
        raise Refused(why.kind, str(why)) from None
    status = answer.status
    if not 200 <= status < 300:
        hint = " (redirects are not followed)" if 300 <= status < 400 else ""
        delay = min(answer.retry_seconds or 0.0, DELAY_MAX_SECONDS) if status in {429, 503} else 0.0
        raise Refused("http", f"answered {status}{hint}", final=status == GONE, delay_seconds=delay)
