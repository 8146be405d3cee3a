"""Values to JSON text and back, exactly, or not at all.

What a function returns is handed on as it will be read back later, so that the first execution
and every later one see the same. Types come from annotations; nothing is ever imported or called
by a stored name. JSON alone would turn NaN into null, integer keys into strings and a dataclass
into a dict without a word: such values are refused, by the path of the field.
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
from .decoding import custom_class, decoded, mere
from .errors import BadValue, TooLarge
from .escaping import escaped
from .records import Json
from .roundtrip import DEEPER, KEY_SHOWN, changed, deeper, offence, repeated_key

LIMIT_BYTES = bounds.VALUE_BYTES
DEPTH_MAX = bounds.DEPTH_MAX
RESERVED = "holdfast.sealed"  # the first key of a sealed value, and of no other
MARK = f'{{"{RESERVED}"'

CLASSES_OF_USERS = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "model_validate")

T = TypeVar("T")

SAID_MAX = 500  # characters of what a decoder says


def _enc_hook(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a pydantic model, without a dependency on pydantic
        return value.model_dump(mode="json")
    raise NotImplementedError(type(value).__qualname__)


def _dec_hook(wanted: type, value: Any) -> Any:
    if wanted is object:  # says no more than Any
        return value
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    raise NotImplementedError(wanted.__qualname__)


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
_any = msgspec.json.Decoder()


class Codec:
    """Encodes and decodes values of one annotated type."""

    __slots__ = ("_decoder", "_limit", "_open", "_wanted", "typed")

    def __init__(self, wanted: Any = Any, limit: int = LIMIT_BYTES) -> None:
        self.typed = wanted is not Any and wanted is not object
        self._limit = limit
        self._decoder: msgspec.json.Decoder[Any] = _any
        if self.typed:
            try:
                self._decoder = msgspec.json.Decoder(wanted, dec_hook=_dec_hook)
            except TypeError:
                # An annotation that cannot describe data (a TypeVar, a coroutine): no type is said.
                self.typed = False
        self._wanted = wanted if self.typed else Any
        self._open = typed_dicts.described(wanted) if self.typed else None

    def encode(self, value: Any, what: str) -> Json:
        """The JSON text of `value`; BadValue or TooLarge names `what` and the field."""
        return self.record(value, what)[0]

    def record(self, value: Any, what: str) -> tuple[Json, Any]:
        """The JSON text of `value`, and the value as it will be read back."""
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
                f"{what} begins with the key {RESERVED!r}, by which sealed values are known: rename it"
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
        """The value that `text` holds. BadValue when it is no JSON, not of the annotated type, or nested too
        deep; TooLarge when it is above the limit. Nothing else is raised, whoever wrote the text."""
        return self._decoded(_limited(text, what, self._limit), what)

    def _decoded(self, text: bytes, what: str) -> Any:
        try:
            value = decoded(text, self._wanted, self._decoder, _dec_hook)
            if self._open is not None:
                typed_dicts.put_back(self._open, mere(text), value)
        except MemoryError:
            raise  # not for what the text says
        except Exception as error:  # noqa: BLE001 - what the type itself raises says: it is none of its values
            raise BadValue(_why(error, what, text)) from None
        if deeper(text):
            raise BadValue(f"{what} {DEEPER}")
        return value


plain = Codec()


def shown(value: Any, what: str) -> Any:
    """The value as mere data, for people to look at: what its types were is not kept."""
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
    """The text in bytes, if they are not too many."""
    try:
        found = text if isinstance(text, bytes) else text.encode()
    except UnicodeError:
        raise BadValue(f"{what} is not JSON: it holds half of a surrogate pair") from None
    if len(found) > limit:
        raise _too_large(what, len(found), limit)
    return found


def _too_large(what: str, size: int, limit: int) -> TooLarge:
    said = f"{what} is {size:,} bytes as JSON, the limit is {limit:,}"
    return TooLarge(f"{said}: keep it elsewhere, and record where")


def _why(error: Exception, what: str, text: bytes) -> str:
    """Why a text was not decoded."""
    if isinstance(error, RecursionError):
        return f"{what} {DEEPER}" if deeper(text) else f"{what} cannot be read: {_said(error)}"
    if isinstance(error, UnicodeError):
        return f"{what} is not JSON: it is no UTF-8"
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return f"{what} is not JSON: {_said(error)}"
    name = "" if isinstance(error, msgspec.ValidationError) else f"{type(error).__qualname__}: "
    return f"{what} is not what the annotation says: {name}{_said(error)}"


def _said(error: BaseException) -> str:
    """The message of an error, on one line. It may repeat the value that somebody else wrote."""
    try:
        return escaped(" ".join(str(error)[:SAID_MAX].split()), SAID_MAX)
    except Exception:  # noqa: BLE001 - an error of somebody's own class may do anything here
        return type(error).__qualname__


def _same(value: Any, back: Any) -> bool:
    try:
        return bool(back == value)
    except Exception:  # noqa: BLE001 - values that cannot be compared are looked at in parts
        return False


def _complaint(value: Any, what: str, *, typed: bool) -> str | None:
    """What about `value` does not survive JSON, with its path; None if all of it does."""
    plain_value = value
    if typed:
        try:
            plain_value = msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True)
        except (TypeError, NotImplementedError, ValueError, UnicodeError, RecursionError):
            plain_value = value
    found = offence(plain_value)
    return found and f"{what}{found}"


def _repeated(encoded: bytes, what: str) -> str | None:
    """Two keys of one dict that are the same text in JSON, as 1 and "1" are: one of them would be lost."""
    key = repeated_key(encoded)
    if key is None:
        return None
    return (
        f"{what} has two keys that are both {escaped(repr(key), KEY_SHOWN)} in JSON: keys are strings there"
    )


def unwrapped(text: Json | None, wanted: type[T], what: str) -> T:
    """A record that a store has put around a value. The value itself stays text, in a field of type Raw:
    it has limits of its own. BadValue when the record cannot be read."""
    try:
        return msgspec.json.decode(text or "", type=wanted)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        said = DEEPER if isinstance(error, RecursionError) else f"cannot be read: {_said(error)}"
        raise BadValue(f"{what} {said}") from None


def digest(type_: str, params: Json) -> str:
    """Tells the same start from another one under the same key."""
    return hashlib.sha256(f"{type_}\n{params}".encode()).hexdigest()


def parse(text: str | bytes, what: str) -> Any:
    """JSON that a person typed; BadValue says where it breaks, or which key stands there twice."""
    encoded = _limited(text, what, LIMIT_BYTES)
    try:
        value = mere(encoded)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadValue(f"{what} is not JSON: {_said(error)}") from None
    except RecursionError:
        raise BadValue(f"{what} {DEEPER}") from None
    if deeper(encoded):
        raise BadValue(f"{what} {DEEPER}")
    if (key := repeated_key(encoded)) is not None:
        raise BadValue(f"{what} has the key {escaped(repr(key), KEY_SHOWN)} twice in one object")
    return value


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """The resolved annotations of a function; empty when they cannot be resolved."""
    target = function
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = getattr(target, "func", None) or type(target).__call__  # partial, or an object with __call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError, AttributeError):
        return {}


def unreadable_class(wanted: Any) -> str | None:
    """The class inside an annotation that no JSON can be read as; None: there is none, or none is known."""
    try:
        found = custom_class(msgspec.inspect.type_info(wanted))
    except Exception:  # noqa: BLE001 - names that are not known yet, and whatever a class of the user's raises
        return None
    return None if found is None else _shown(found)


def unreadable_type(wanted: Any) -> str | None:
    """An annotation that describes no data, such as a union of classes that cannot be told apart, and why.

    None: it describes data, or `Codec` reads it untyped, and mere data is among its values: `str | UUID`.
    """
    try:
        msgspec.inspect.type_info(wanted)
    except TypeError as error:
        said = _said(error).partition(" - type")[0]
        return None if _is_mere(wanted, set()) else f"{_shown(wanted)} ({said})"
    except Exception:  # noqa: BLE001 - as above
        return None
    return None


def _is_mere(wanted: Any, seen: set[int]) -> bool:
    """Whether values of an annotation may be mere data: it names no class of somebody's own, or a union in it
    allows something else beside None.
    """
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(wanted, str | typing.ForwardRef | TypeVar) or origin is typing.Literal:
        return True
    if origin in {typing.Union, UnionType}:
        return any(_is_mere(part, seen) for part in parts if part is not type(None))
    if origin is typing.Annotated:
        return _is_mere(parts[0], seen)
    if hasattr(wanted, "__value__"):  # an alias, which may name itself
        known = id(wanted) in seen
        seen.add(id(wanted))
        return known or _is_mere(wanted.__value__, seen)
    if origin is not None:
        return _is_mere(origin, seen) and all(_is_mere(part, seen) for part in parts if part is not ...)
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
    """The codec of what `function` returns."""
    wanted = annotated(function).get("return", Any)
    return plain if wanted is Any else Codec(type(None) if wanted is None else wanted)
