"""Values to JSON text and back, exactly, or not at all.

What a function returns is handed on as it will be read back later, so that the first execution
and every later one see the same. Types come from annotations; nothing is ever imported or called
by a stored name. JSON alone would turn NaN into null, integer keys into strings and a dataclass
into a dict without a word: such values are refused, by the path of the field.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from . import bounds
from .errors import BadValue, TooLarge
from .records import Json

LIMIT_BYTES = bounds.VALUE_BYTES
DEPTH_MAX = bounds.DEPTH_MAX
RESERVED = "holdfast.sealed"  # the first key of a sealed value, and of no other
MARK = f'{{"{RESERVED}"'

_SCALARS = (str, int, float, bool, type(None))
_PLAIN = (*_SCALARS, list, tuple, dict)


def _enc_hook(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a pydantic model, without a dependency on pydantic
        return value.model_dump(mode="json")
    raise NotImplementedError(type(value).__qualname__)


def _dec_hook(wanted: type, value: Any) -> Any:
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    raise NotImplementedError(wanted.__qualname__)


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
_any = msgspec.json.Decoder()


class Codec:
    """Encodes and decodes values of one annotated type."""

    __slots__ = ("_decoder", "_limit", "typed")

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

    def encode(self, value: Any, what: str) -> Json:
        """The JSON text of `value`; BadValue or TooLarge names `what` and the field."""
        return self.record(value, what)[0]

    def record(self, value: Any, what: str) -> tuple[Json, Any]:
        """The JSON text of `value`, and the value as it will be read back."""
        try:
            encoded = _encoder.encode(value)
        except RecursionError:
            raise BadValue(f"{what} is nested deeper than {DEPTH_MAX} levels") from None
        except (TypeError, NotImplementedError, ValueError, UnicodeError) as error:
            raise BadValue(
                _complaint(value, what, typed=self.typed) or f"{what} cannot be recorded: {error}"
            ) from None
        if len(encoded) > self._limit:
            said = f"{what} is {len(encoded):,} bytes as JSON, the limit is {self._limit:,}"
            raise TooLarge(f"{said}: keep it elsewhere, and record where")
        text = encoded.decode()
        if text.startswith(MARK):
            raise BadValue(
                f"{what} begins with the key {RESERVED!r}, by which sealed values are known: rename it"
            )
        try:
            back = self._decoder.decode(encoded)
        except (msgspec.ValidationError, NotImplementedError) as error:
            raise BadValue(f"{what} is not what the annotation says: {error}") from None
        if back != value or "\\u0000" in text or text.count("[") + text.count("{") > DEPTH_MAX:
            complaint = _complaint(value, what, typed=self.typed) or _changed(value, back, what)
            if complaint:
                raise BadValue(complaint)
        return text, back

    def decode(self, text: Json, what: str) -> Any:
        """The value that `text` holds; BadValue when it is not of the annotated type."""
        try:
            return self._decoder.decode(text)
        except (msgspec.ValidationError, NotImplementedError) as error:
            raise BadValue(f"{what} is not what the annotation says: {error}") from None


plain = Codec()


def shown(value: Any, what: str) -> Any:
    """The value as mere data, for people to look at: what its types were is not kept."""
    try:
        return msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True)
    except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
        raise BadValue(_complaint(value, what, typed=False) or f"{what} cannot be shown: {error}") from None


def _complaint(value: Any, what: str, *, typed: bool) -> str | None:
    """What about `value` does not survive JSON, with its path; None if all of it does."""
    plain_value = value
    if typed:
        try:
            plain_value = msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True)
        except (TypeError, NotImplementedError, ValueError, UnicodeError):
            plain_value = value
    found = _offence(plain_value, "", 1)
    return found and f"{what}{found}"


def _offence(value: Any, path: str, depth: int) -> str | None:
    at = path and f" at {path}"
    if depth > DEPTH_MAX:
        return f" is nested deeper than {DEPTH_MAX} levels"
    if isinstance(value, str):
        return _bad_text(value, at)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{at} is {value}, which JSON cannot hold"
    if isinstance(value, _SCALARS):
        return None
    if isinstance(value, list | tuple):
        return next(
            filter(None, (_offence(one, f"{path}[{n}]", depth + 1) for n, one in enumerate(value))), None
        )
    if isinstance(value, dict):
        return next(filter(None, (_bad_entry(key, one, path, depth) for key, one in value.items())), None)
    name = type(value).__qualname__
    if inspect.isawaitable(value):
        return f"{at} is {_a(name)} that nobody has awaited: write `await`"
    return f"{at} is {_a(name)}, which would come back as something else: annotate the type, or convert it"


def _changed(value: Any, back: Any, path: str) -> str | None:
    """A field whose annotation does not say enough, and which would come back as mere JSON."""
    if isinstance(back, _PLAIN) and not isinstance(value, _PLAIN):
        name, becomes = type(value).__qualname__, type(back).__qualname__
        come = f"which would come back as {_a(becomes)}"
        return f"{path} is {_a(name)}, {come}: annotate the type, or convert it"
    if isinstance(value, dict) and isinstance(back, dict):
        lost = next((key for key, other in zip(value, back, strict=False) if key != other), None)
        if lost is not None:
            return f"{path} has the key {lost!r}: annotate the type, keys are strings in JSON"
    return next(filter(None, (_changed(*part) for part in _parts(value, back, path))), None)


def _parts(value: Any, back: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    if isinstance(value, dict) and isinstance(back, dict):
        yield from ((value[key], back[key], f"{path}.{key}") for key in value if key in back)
    elif isinstance(value, list | tuple) and isinstance(back, list | tuple):
        pairs = enumerate(zip(value, back, strict=False))
        yield from ((one, other, f"{path}[{n}]") for n, (one, other) in pairs)
    elif type(value) is type(back):
        names: Iterable[str] = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", ()))
        yield from ((getattr(value, name), getattr(back, name), f"{path}.{name}") for name in names)


def _a(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _bad_entry(key: Any, value: Any, path: str, depth: int) -> str | None:
    if not isinstance(key, str):
        return f" at {path or '.'} has the key {key!r}: keys are strings in JSON"
    return _bad_text(key, f" (a key of {path or '.'})") or _offence(value, f"{path}.{key}", depth + 1)


def _bad_text(text: str, at: str) -> str | None:
    if "\0" in text:
        return f"{at} holds a NUL character, which no store can keep"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{at} holds half of a surrogate pair, which is no text"
    return None


def digest(type_: str, params: Json) -> str:
    """Tells the same start from another one under the same key."""
    return hashlib.sha256(f"{type_}\n{params}".encode()).hexdigest()


def parse(text: str, what: str) -> Any:
    """JSON that a person typed; BadValue says where it breaks."""
    try:
        return _any.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadValue(f"{what} is not JSON: {error}") from None


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """The resolved annotations of a function; empty when they cannot be resolved."""
    target = function
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = getattr(target, "func", None) or type(target).__call__  # partial, or an object with __call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError, AttributeError):
        return {}


def result_codec(function: Callable[..., Any]) -> Codec:
    """The codec of what `function` returns."""
    wanted = annotated(function).get("return", Any)
    return plain if wanted is Any else Codec(type(None) if wanted is None else wanted)
