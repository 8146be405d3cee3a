"""Where messages go: functions of an app, by name, and one try to hand a parcel over."""

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
from holdfast.codec import MARK, plain, unwrapped
from holdfast.errors import BadValue, UsageError
from holdfast.records import SECOND, Error, Json, Parcel, Webhook, moment
from holdfast.sealing.envelope import OURS, is_untouched, reason
from holdfast.sealing.outbox import RAISED
from holdfast.world import World

from . import signing
from .failures import encoded, stored, text
from .messages import Delivery
from .posting import Poster, Unpostable

SINK_SECONDS = 30.0
DELAY_MAX_SECONDS = 3600.0  # between two tries, whoever asks for more
GONE = 410
AGENT = "holdfast"
ADD = "`holdfast sink add`"
FRAMES_READ, FRAMES_SHOWN = 1000, 3  # of a traceback

IN_SHORT_MAX = 160
_QUERY = re.compile(r"(?<=\S)\?[^\s'\"]+")


class Sink(msgspec.Struct, frozen=True):
    """A function that takes messages."""

    name: str
    function: Callable[[Delivery], Any]
    is_async: bool
    timeout_seconds: float = SINK_SECONDS


Sinks = dict[str, Sink]


class Target(msgspec.Struct, frozen=True):
    """What a webhook keeps under seal: where it is, and the secrets that sign, the newest first."""

    url: str
    secrets: tuple[str, ...]


def sink_of(name: str, function: Any, timeout_seconds: float) -> Sink:
    """A function as a sink; UsageError for what can never be one."""
    if not callable(function) or not _takes_one(function):
        raise UsageError(f"sink {name!r} takes one argument, the delivery: write def {name}(delivery)")
    inner = getattr(function, "func", None) or type(function).__call__  # a partial, or an object
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
    """The parcel was not taken. `final`: it never will be; `delay_seconds`: not before that."""

    def __init__(self, kind: str, message: str, *, final: bool = False, delay_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.final, self.delay_seconds = final, delay_seconds
        self.error = failure(kind, "", message)


def failure(kind: str, type_: str, message: object, where: str = "") -> Json:
    """Why a try failed, as it is recorded."""
    return encoded(Error(kind=kind, type=type_, message=text(message, 500), traceback=where))


def raised(error: BaseException) -> Json:
    """What a function has raised: its words, not ours, and sealed where there is a codec."""
    return failure(RAISED, type(error).__name__, error, place_of(error))


def place_of(error: BaseException) -> str:
    """The innermost lines of an error's traceback in a sink's code, without values."""
    frames = list(islice(walk_tb(error.__traceback__), FRAMES_READ))[-FRAMES_SHOWN:]
    places = (f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in frames)
    return text(" > ".join(places), 500)


def in_short(error: Json | None) -> str:
    """Why, for one line of a log. What a function has raised may hold the payload: only its type is told, and
    where it was raised; `holdfast outbox show` has the words. Of ours, without the query of a URL."""
    if error is None:
        return "no reason given"
    said = stored(error)
    if said.kind == RAISED:
        return f"{said.type} at {said.traceback}" if said.traceback else said.type
    words = ": ".join(part for part in (said.type or said.kind, said.message) if part)
    return _QUERY.sub("?…", " ".join(words.split()))[:IN_SHORT_MAX]


class Shut(NamedTuple):
    """Why a parcel cannot be sent from here. `whole_sink`: nor anything else to that sink."""

    error: Json
    whole_sink: bool


def shut(parcel: Parcel) -> Shut | None:
    """What was not opened of it, if anything."""
    target = "" if parcel.webhook is None else parcel.webhook.target
    value = next((one for one in (target, parcel.payload) if one.startswith(MARK)), None)
    if value is None:
        return None
    error = failure(OURS, "", str(reason(value, f"message {parcel.id}")))
    return Shut(error, parcel.webhook is not None and (value is target or is_untouched(value)))


async def call(sink: Sink, parcel: Parcel, world: World) -> None:
    """Hand it to a function; what that raises is raised. Refused when nobody can ever read it."""
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
    if sink.is_async:
        await sink.function(delivery)
        return
    answer = await world.thread(sink.function, delivery, aside=True)
    if inspect.isawaitable(answer):
        await answer  # a lambda around an async call


def _payload(parcel: Parcel) -> Any:
    try:
        return plain.decode(parcel.payload, "the payload")
    except BadValue as why:
        raise Refused("encoding", str(why), final=True) from None


async def post(webhook: Webhook, parcel: Parcel, poster: Poster, world: World) -> None:
    """Send it to an address; Refused when that did not take it."""
    try:
        target = unwrapped(webhook.target, Target, "its stored address")
    except BadValue:
        raise Refused("address", f"its stored address cannot be read: say {ADD} again") from None
    body = parcel.payload.encode()
    signed = signing.headers(parcel.id, world.now() // SECOND, body, target.secrets)
    headers = {"Content-Type": "application/json", "User-Agent": AGENT, **signed}
    try:
        answer = await poster.post(target.url, headers, body, allow_private=webhook.allow_private)
    except Unpostable as why:
        raise Refused(why.kind, str(why)) from None
    status = answer.status
    if not 200 <= status < 300:
        hint = " (redirects are not followed)" if 300 <= status < 400 else ""
        delay = min(answer.retry_seconds or 0.0, DELAY_MAX_SECONDS) if status in {429, 503} else 0.0
        raise Refused("http", f"answered {status}{hint}", final=status == GONE, delay_seconds=delay)
