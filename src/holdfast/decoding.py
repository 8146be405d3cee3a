"""Decoding of JSON text, in a time that depends only on its length.

The decoder of msgspec needs 10 µs and more for a number such as 9e307: a legal value of 4 MiB would stop a
worker for 8 s. A text with many such numbers is read by the json module, which needs 0.4 s, and converted to
the annotated type. Both ways give the same values and refuse the same texts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

LARGE_BYTES = 4096  # a shorter text is decoded fast enough, whatever it holds
NESTED_MAX = 5000  # a text with more brackets may be nested deeper than Python can follow
SLOW_MAX = 256  # more slow numbers than this, and the json module reads the text

_CLASSES = bytes.maketrans(b"123456789E", b"000000000e")  # maps every digit to 0
_EXPONENTS = (b"e000", b"e-000", b"e+000")  # three digits
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_any = msgspec.json.Decoder()
_raw = msgspec.json.Decoder(msgspec.Raw)  # checks the syntax, and builds nothing

Hook = Callable[[type, Any], Any]


def decoded(text: str | bytes, wanted: Any = Any, decoder: Any = None, hook: Hook | None = None) -> Any:
    """Return the value of a JSON text, of the type `wanted`. `decoder` is the decoder of that type, if there
    is one.

    Raises the same exceptions as msgspec: DecodeError, ValidationError, UnicodeError, RecursionError."""
    encoded = text if isinstance(text, bytes) else text.encode()
    if slow(encoded) and not exact(wanted):
        return msgspec.convert(_loaded(encoded), wanted, str_keys=True, dec_hook=hook)
    if decoder is None:
        return msgspec.json.decode(encoded, type=wanted, dec_hook=hook)
    return decoder.decode(encoded)


def decode_untyped(text: str | bytes) -> Any:
    """Return the value of a JSON text as untyped data."""
    return decoded(text, Any, _any)


def slow(text: bytes) -> bool:
    """Return True for a text with many numbers that msgspec decodes slowly: exponents of three digits."""
    if len(text) < LARGE_BYTES:
        return False
    classes = text.translate(_CLASSES)
    return sum(map(classes.count, _EXPONENTS)) > SLOW_MAX


def exact(wanted: Any) -> bool:
    """Return True for a type that keeps the digits of a number as written: a Decimal, or raw JSON."""
    if wanted is Any or wanted is object:
        return False
    try:
        return _exact(msgspec.inspect.type_info(wanted), set())
    except Exception:  # noqa: BLE001 - a type that cannot be described is left to its decoder
        return True


def _exact(one: Any, seen: set[int]) -> bool:
    if isinstance(one, msgspec.inspect.DecimalType | msgspec.inspect.RawType):
        return True
    if id(one) in seen:
        return False
    seen.add(id(one))
    return any(_exact(part, seen) for part in _parts(one))


def custom_class(one: Any, seen: set[int] | None = None) -> type | None:
    """Return the first class inside a described type that only a hook could read; None if there is none."""
    seen = set() if seen is None else seen
    if isinstance(one, msgspec.inspect.CustomType):
        return None if one.cls is object or hasattr(one.cls, "model_validate") else one.cls
    if id(one) in seen:
        return None
    seen.add(id(one))
    return next((found for part in _parts(one) if (found := custom_class(part, seen)) is not None), None)


def _parts(one: Any) -> list[Any]:
    """Return the types inside a described type."""
    fields = [field.type for field in getattr(one, "fields", ())]
    single = [
        getattr(one, name) for name in ("type", "item_type", "key_type", "value_type") if hasattr(one, name)
    ]
    return [*fields, *single, *getattr(one, "item_types", ()), *getattr(one, "types", ())]


def _loaded(text: bytes) -> Any:
    try:
        value = json.loads(text.decode(), parse_float=_float, parse_constant=_refused)
        if _SURROGATE.search(text):
            msgspec.json.encode(value)  # half of a surrogate pair is refused here
    except json.JSONDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        raise
    except UnicodeEncodeError:
        raise msgspec.DecodeError("JSON is malformed: half of a surrogate pair") from None
    except UnicodeError:
        raise
    except ValueError:
        raise msgspec.ValidationError("Integer value out of range") from None
    return value


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise msgspec.ValidationError("Number out of range")
    return number


def _refused(name: str) -> NoReturn:
    raise msgspec.DecodeError(f"JSON is malformed: {name} is no number of JSON")


def fault(text: str) -> str | None:
    """Return the reason why a text is no JSON; None if it is JSON. Takes 0.1 µs, and some ms for 4 MiB.

    Only the syntax is checked: half of a surrogate pair as an escape is JSON, and so is deep nesting.
    """
    try:
        _raw.decode(text)
    except msgspec.DecodeError as error:
        return str(error) if not _SURROGATE.search(text.encode()) else _fault_by_json(text)
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
    except RecursionError:
        return "it is nested too deep" if text.count("[") + text.count("{") > NESTED_MAX else None
    return None


def _fault_by_json(text: str) -> str | None:
    """Check the syntax with the json module, which accepts such escapes."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refused)
    except msgspec.DecodeError as error:
        return str(error)
    except ValueError as error:
        return f"JSON is malformed: {error}"
    except RecursionError:
        return None
    return None
