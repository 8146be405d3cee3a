"""What a sealed value looks like where values are kept: JSON text that says what it is.

    {"holdfast.sealed":{"v":1,"by":["zlib","aes256gcm:2026-11"],"data":"…base64…"}}

No value of a user's begins so: it would not have been encoded. What could not be opened is handed on
in the same form, with the reason in it, and nothing is lost.
"""

from __future__ import annotations

import msgspec

from holdfast.codec import MARK, RESERVED
from holdfast.errors import CannotOpen, NotSealed, UnknownKey, WrongKey
from holdfast.escaping import escaped
from holdfast.lifecycle import StepKind
from holdfast.records import Claim, Json

from .hooks import Compress

VERSION = 1
OURS = "sealed"  # the kind of an error that says why a run was not opened: our words, and no secret
SHUT = "sealed: "  # how the last error begins of a run that was given back, since it could not be opened


SAID_MAX = 500  # characters of a reason
KEY_SHOWN = 64  # characters of the name of a key or a hook: those of ours are no longer
BY_SHOWN = 8


class Seal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done to a value, in order, and what came of it."""

    why: str = ""  # the name of an error, where it could not be opened
    said: str = ""
    key: str = ""
    v: int = VERSION
    by: tuple[str, ...] = ()
    data: bytes = b""
    plain: msgspec.Raw = msgspec.Raw()  # what stood there instead of a sealed value


class Envelope(msgspec.Struct, frozen=True):
    """The one form in which a sealed value is kept."""

    seal: Seal = msgspec.field(name=RESERVED)


def read(text: Json) -> Seal:
    """The seal of a text that begins with the mark; CannotOpen when it is none of ours."""
    try:
        seal = msgspec.json.decode(text, type=Envelope).seal
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotOpen(f"a sealed value is damaged: {escaped(error)}") from None
    if seal.v != VERSION:
        raise CannotOpen(
            f"a value was sealed in form {seal.v}, newer than this version of Holdfast: upgrade it"
        )
    return seal


def written(by: tuple[str, ...], data: bytes) -> Json:
    """A sealed value as it is kept. The version is always said."""
    return msgspec.json.encode({RESERVED: {"v": VERSION, "by": by, "data": data}}).decode()


def unopened(why: CannotOpen, text: Json) -> Json:
    """What could not be opened, with the reason in it."""
    try:
        seal = read(text) if text.startswith(MARK) else Seal(plain=msgspec.Raw(text.encode()))
    except CannotOpen:
        seal = Seal()
    told = msgspec.structs.replace(seal, why=type(why).__name__, said=str(why), key=why.key)
    return msgspec.json.encode(Envelope(told)).decode()


def reason(text: Json, what: str) -> CannotOpen:
    """Why a text that begins with the mark was not opened."""
    try:
        seal = read(text)
    except CannotOpen as damaged:
        return damaged
    if not seal.why:
        by = escaped(", ".join(seal.by[:BY_SHOWN]))
        return CannotOpen(f"{what} is sealed ({by}), and here is no codec: App(…, codec=…)")
    kinds: dict[str, type[CannotOpen]] = {one.__name__: one for one in (NotSealed, UnknownKey, WrongKey)}
    # Without a codec the reason is not checked: anyone who can write rows may have written it.
    return kinds.get(seal.why, CannotOpen)(escaped(seal.said, SAID_MAX), escaped(seal.key, KEY_SHOWN))


def is_untouched(text: Json) -> bool:
    """Whether no codec has tried to open what begins with the mark: here is none."""
    try:
        return not read(text).why
    except CannotOpen:
        return False


def hidden_by(text: Json) -> str:
    """What hides a value; empty when it is plain, or compressed only."""
    try:
        by = read(text).by if text.startswith(MARK) else ()
    except CannotOpen:
        return ""
    return escaped(", ".join(how for how in by[:BY_SHOWN] if how != Compress.name))


def shut(claim: Claim) -> str:
    """Why this run cannot be executed here; empty when it can.

    A payload inside a step's record is not looked at. Anyone can emit an event: where there is no codec, one
    that looks sealed is a value like any other. With a codec, what did not open is marked as a whole.
    """
    if claim.params.startswith(MARK):
        return str(reason(claim.params, f"the params of run {claim.id}"))
    for step in claim.steps:
        if step.wake is not None and step.wake.startswith(MARK):
            return str(reason(step.wake, f"the event that called step {step.key!r} of run {claim.id}"))
        if step.output is not None and step.output.startswith(MARK):
            what = "payload" if step.kind is StepKind.EVENT else "output"
            return str(reason(step.output, f"the {what} of step {step.key!r} of run {claim.id}"))
    return ""
