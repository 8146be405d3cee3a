"""The codec: values to JSON text and back, without loss. Values that would change are refused.

The result of a function is passed on as it will be read back later, so that the first execution and every
later one see the same value. Types come from annotations; nothing is ever imported or called by a stored
name. JSON alone would silently turn NaN into null, integer keys into strings and a dataclass into a dict:
such values are refused with the path of the field.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable
from types import UnionType
from typing import Any, TypeVar

import msgspec

from . import bounds, typed_dicts
from .decoding import custom_class, decode_untyped, decoded
from .errors import BadValue, TooLarge
from .escaping import escaped
from .records import Json
from .roundtrip import DEEPER, KEY_SHOWN, changed, deeper, offence, repeated_key

DEPTH_MAX = bounds.DEPTH_MAX
RESERVED = "holdfast.sealed"  # the first key of a sealed value, and of no other value
MARK = f'{{"{RESERVED}"'

CLASSES_OF_USERS = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "model_validate")

T = TypeVar("T")

SAID_MAX = 500  # characters of a decoder's message


def _enc_hook(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a pydantic model, without a dependency on pydantic
        return value.model_dump(mode="json")
    raise NotImplementedError(type(value).__qualname__)


def _dec_hook(wanted: type, value: Any) -> Any:
    if wanted is object:  # the same as Any
        return value
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    raise NotImplementedError(wanted.__qualname__)


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
_any = msgspec.json.Decoder()


class Written(msgspec.Struct, frozen=True):
    """A value as checked, compact JSON text, in place of the value: `encode` of any codec takes it."""

    text: Json


class Codec:
    """An encoder and decoder for values of one annotated type."""

    __slots__ = ("_decoder", "_limit", "_open", "_wanted", "typed")

    def __init__(self, wanted: Any = Any, limit: int = bounds.VALUE_BYTES) -> None:
        self.typed = wanted is not Any and wanted is not object
        self._limit = limit
        self._decoder: msgspec.json.Decoder[Any] = _any
        if self.typed:
            try:
                self._decoder = msgspec.json.Decoder(wanted, dec_hook=_dec_hook)
            except TypeError:
                # The annotation cannot describe data (a TypeVar, a coroutine): values are untyped.
                self.typed = False
        self._wanted = wanted if self.typed else Any
        self._open = typed_dicts.described(wanted) if self.typed else None

    @property
    def wanted(self) -> Any:
        """The annotated type; Any for a codec without one."""
        return self._wanted

    def encode(self, value: Any, what: str) -> Json:
        """Return the JSON text of `value`; BadValue or TooLarge names `what` and the field."""
        if isinstance(value, Written):
            if not self.typed and len(value.text) <= self._limit:
                return value.text
            value = decode_untyped(value.text)
        return self.record(value, what)[0]

    def record(self, value: Any, what: str) -> tuple[Json, Any]:
        """Return the JSON text of `value`, and the value as it will be read back."""
        try:
            encoded = _encoder.encode(value)
        except RecursionError:
            raise BadValue(f"{what} {DEEPER}") from None
        except (TypeError, NotImplementedError, ValueError, UnicodeError) as error:
            raise BadValue(
                _complaint(value, what, typed=self.typed) or f"{what} cannot be recorded: {_said(error)}"
            ) from None
        if len(encoded) > self._limit:
            raise _too_large(what, len(encoded), self._limit)
        text = encoded.decode()
        if text.startswith(MARK):
            raise BadValue(
                f"{what} begins with the key {RESERVED!r}, which marks encrypted values: rename the key"
            )
        back = self._decoded(encoded, what)
        if "\\u0000" in text or not _same(value, back):
            complaint = (
                _complaint(value, what, typed=self.typed)
                or _repeated(encoded, what)
                or changed(value, back, what)
            )
            if complaint:
                raise BadValue(complaint)
        return text, back

    def decode(self, text: Json | bytes, what: str) -> Any:
        """Return the value of a JSON text. BadValue when it is no JSON, not of the annotated type, or nested
        too deep; TooLarge when it is above the limit. No text makes it raise anything else."""
        return self._decoded(_limited(text, what, self._limit), what)

    def _decoded(self, text: bytes, what: str) -> Any:
        try:
            value = decoded(text, self._wanted, self._decoder, _dec_hook)
            if self._open is not None:
                typed_dicts.put_back(self._open, decode_untyped(text), value)
        except MemoryError:
            raise  # not the fault of the text
        except Exception as error:  # noqa: BLE001 - the type itself may raise anything
            raise BadValue(_why(error, what, text)) from None
        if deeper(text):
            raise BadValue(f"{what} {DEEPER}")
        return value


untyped = Codec()


def shown(value: Any, what: str) -> Any:
    """Return the value as untyped data, to show it to people."""
    try:
        found = msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True)
        twice = _repeated(_encoder.encode(value), what)
    except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
        raise BadValue(
            _complaint(value, what, typed=False) or f"{what} cannot be shown: {_said(error)}"
        ) from None
    if twice:
        raise BadValue(twice)
    return found


def _limited(text: Json | bytes, what: str, limit: int) -> bytes:
    """Return the text as bytes; TooLarge when there are too many."""
    try:
        found = text if isinstance(text, bytes) else text.encode()
    except UnicodeError:
        raise BadValue(f"{what} is not JSON: it contains half of a surrogate pair") from None
    if len(found) > limit:
        raise _too_large(what, len(found), limit)
    return found


def _too_large(what: str, size: int, limit: int) -> TooLarge:
    said = f"{what} is {size:,} bytes as JSON, the limit is {limit:,}"
    return TooLarge(f"{said}: store it elsewhere, and record its address")


def _why(error: Exception, what: str, text: bytes) -> str:
    """Return the reason why a text was not decoded."""
    if isinstance(error, RecursionError):
        return f"{what} {DEEPER}" if deeper(text) else f"{what} cannot be read: {_said(error)}"
    if isinstance(error, UnicodeError):
        return f"{what} is not JSON: it is not UTF-8"
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return f"{what} is not JSON: {_said(error)}"
    name = "" if isinstance(error, msgspec.ValidationError) else f"{type(error).__qualname__}: "
    return f"{what} does not match its annotation: {name}{_said(error)}"


def _said(error: BaseException) -> str:
    """Return the message of an error, on one line. It is escaped: it may repeat a value of another party."""
    try:
        return escaped(" ".join(str(error)[:SAID_MAX].split()), SAID_MAX)
    except Exception:  # noqa: BLE001 - an exception class of users may raise anything here
        return type(error).__qualname__


def _same(value: Any, back: Any) -> bool:
    try:
        return bool(back == value)
    except Exception:  # noqa: BLE001 - values that cannot be compared are compared in parts later
        return False


def _complaint(value: Any, what: str, *, typed: bool) -> str | None:
    """Return the first part of `value` that JSON would change, with its path; None if there is none."""
    data = value
    if typed:
        try:
            data = msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True)
        except (TypeError, NotImplementedError, ValueError, UnicodeError, RecursionError):
            data = value
    found = offence(data)
    return found and f"{what}{found}"


def _repeated(encoded: bytes, what: str) -> str | None:
    """Return a complaint about two keys of one dict that are the same in JSON, as 1 and "1": one would be
    lost.
    """
    key = repeated_key(encoded)
    if key is None:
        return None
    return (
        f"{what} has two keys that are both {escaped(repr(key), KEY_SHOWN)} in JSON: keys are strings there"
    )


def unwrapped(text: Json | None, wanted: type[T], what: str) -> T:
    """Read a record that a store has put around a value. The value itself stays JSON text in a field of type
    Raw, because it has its own limits. BadValue when the record cannot be read."""
    try:
        return msgspec.json.decode(text or "", type=wanted)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        said = DEEPER if isinstance(error, RecursionError) else f"cannot be read: {_said(error)}"
        raise BadValue(f"{what} {said}") from None


def digest(type_: str, params: Json) -> str:
    """Return the digest of a start: it tells a repeated start from another start under the same key."""
    return hashlib.sha256(f"{type_}\n{params}".encode()).hexdigest()


def parse(text: str | bytes, what: str, *, repeated: bool = True) -> Any:
    """Parse JSON that a person typed; BadValue names the syntax error or the repeated key.

    repeated=False: the caller has looked for repeated keys.
    """
    encoded = _limited(text, what, bounds.VALUE_BYTES)
    try:
        value = decode_untyped(encoded)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadValue(f"{what} is not JSON: {_said(error)}") from None
    except RecursionError:
        raise BadValue(f"{what} {DEEPER}") from None
    if deeper(encoded):
        raise BadValue(f"{what} {DEEPER}")
    if repeated and (key := repeated_key(encoded)) is not None:
        raise BadValue(f"{what} has the key {escaped(repr(key), KEY_SHOWN)} twice in one object")
    return value


def written(text: bytes, what: str, *, repeated: bool = True) -> Written:
    """Check a JSON text as `parse` and `encode` do, and keep it as text.

    repeated=False: the caller has looked for repeated keys.
    """
    return Written(untyped.encode(parse(text, what, repeated=repeated), what))


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations of a function; empty when they cannot be resolved."""
    target = function
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = getattr(target, "func", None) or type(target).__call__  # partial, or an object with __call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError, AttributeError):
        return {}


def unreadable_class(wanted: Any) -> str | None:
    """Return the class inside an annotation that no JSON can be read as; None when none is found."""
    try:
        found = custom_class(msgspec.inspect.type_info(wanted))
    except Exception:  # noqa: BLE001 - unknown names, and any exception of user classes
        return None
    return None if found is None else _shown(found)


def unreadable_type(wanted: Any) -> str | None:
    """Return an annotation that describes no data, with the reason: for example a union of two dataclasses.

    None when it describes data, or when `Codec` reads it untyped and untyped data is among its values, as in
    `str | UUID`.
    """
    try:
        msgspec.inspect.type_info(wanted)
    except TypeError as error:
        said = _said(error).partition(" - type")[0]
        return None if _allows_untyped(wanted, set()) else f"{_shown(wanted)} ({said})"
    except Exception:  # noqa: BLE001 - as above
        return None
    return None


def _allows_untyped(wanted: Any, seen: set[int]) -> bool:
    """Return True when values of an annotation may be untyped data: it names no class of users, or a union in
    it has another member beside None.
    """
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(wanted, str | typing.ForwardRef | TypeVar) or origin is typing.Literal:
        return True
    if origin in {typing.Union, UnionType}:
        return any(_allows_untyped(part, seen) for part in parts if part is not type(None))
    if origin is typing.Annotated:
        return _allows_untyped(parts[0], seen)
    if hasattr(wanted, "__value__"):  # an alias, which may name itself
        known = id(wanted) in seen
        seen.add(id(wanted))
        return known or _allows_untyped(wanted.__value__, seen)
    if origin is not None:
        return _allows_untyped(origin, seen) and all(
            _allows_untyped(part, seen) for part in parts if part is not ...
        )
    return _is_data(wanted)


def _is_data(wanted: Any) -> bool:
    if any(hasattr(wanted, name) for name in CLASSES_OF_USERS):
        return False
    try:
        return custom_class(msgspec.inspect.type_info(wanted)) is None
    except Exception:  # noqa: BLE001 - as above
        return False


def _shown(wanted: Any) -> str:
    return getattr(wanted, "__qualname__", None) or escaped(str(wanted), KEY_SHOWN)


def result_codec(function: Callable[..., Any]) -> Codec:
    """Return the codec for the result of `function`."""
    wanted = annotated(function).get("return", Any)
    return untyped if wanted is Any else Codec(type(None) if wanted is None else wanted)
