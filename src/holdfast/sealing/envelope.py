"""The envelope: the form of a sealed value in a store. It is JSON text that names its hooks.

    {"holdfast.sealed":{"v":1,"by":["zlib","aes256gcm:2026-11"],"data":"…base64…"}}

No value of a user begins like this: the codec refuses to encode it. A value that cannot be opened is passed
on in the same form, with the reason in it, so nothing is lost.
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
# The kind of an error that says why a run cannot be opened: written by Holdfast, so no secret.
OURS = "sealed"
SHUT = "sealed: "  # the beginning of the last error of a run that was released because it cannot be opened


SAID_MAX = 500  # characters of a reason
KEY_SHOWN = 64  # characters of the name of a key or a hook that are shown
BY_SHOWN = 8


class Seal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hooks that sealed a value, in order, and the sealed bytes; or the reason why it cannot be
    opened."""

    why: str = ""  # the name of the error, if the value cannot be opened
    said: str = ""
    key: str = ""
    v: int = VERSION
    by: tuple[str, ...] = ()
    data: bytes = b""
    plain: msgspec.Raw = msgspec.Raw()  # a value that should have been sealed and was not


class Envelope(msgspec.Struct, frozen=True):
    """The stored form of a sealed value."""

    seal: Seal = msgspec.field(name=RESERVED)


def read(text: Json) -> Seal:
    """Return the seal of a text that begins with MARK. CannotOpen when it is not a valid envelope."""
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
    """Return the stored form of a sealed value, always with the version."""
    return msgspec.json.encode({RESERVED: {"v": VERSION, "by": by, "data": data}}).decode()


def unopened(why: CannotOpen, text: Json) -> Json:
    """Return the envelope of a value that cannot be opened, with the reason in it."""
    try:
        seal = read(text) if text.startswith(MARK) else Seal(plain=msgspec.Raw(text.encode()))
    except CannotOpen:
        seal = Seal()
    explained = msgspec.structs.replace(seal, why=type(why).__name__, said=str(why), key=why.key)
    return msgspec.json.encode(Envelope(explained)).decode()


def reason(text: Json, what: str) -> CannotOpen:
    """Return the reason why a text that begins with MARK was not opened."""
    try:
        seal = read(text)
    except CannotOpen as damaged:
        return damaged
    if not seal.why:
        by = escaped(", ".join(seal.by[:BY_SHOWN]))
        return CannotOpen(f"{what} is sealed ({by}), and here is no codec: App(…, codec=…)")
    kinds: dict[str, type[CannotOpen]] = {one.__name__: one for one in (NotSealed, UnknownKey, WrongKey)}
    # Without a codec the reason is not trusted: anyone who can write rows may have written it. So it is
    # escaped.
    return kinds.get(seal.why, CannotOpen)(escaped(seal.said, SAID_MAX), escaped(seal.key, KEY_SHOWN))


def is_untouched(text: Json) -> bool:
    """Return True when no codec has tried to open a text that begins with MARK, because there is none."""
    try:
        return not read(text).why
    except CannotOpen:
        return False


def hidden_by(text: Json) -> str:
    """Return the names of the hooks that hide a value. Empty when it is not sealed, or only compressed."""
    try:
        by = read(text).by if text.startswith(MARK) else ()
    except CannotOpen:
        return ""
    return escaped(", ".join(how for how in by[:BY_SHOWN] if how != Compress.name))


def shut(claim: Claim) -> str:
    """Return the reason why this run cannot be executed here. Empty when it can.

    A payload inside the record of a step is not checked. Anyone can emit an event, so without a codec a
    payload that looks sealed is a value like any other. With a codec, the whole record is marked when it
    cannot be opened.
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
