"""Search for the parts of a value that JSON cannot hold or would change, with their paths.

Paths and keys in a complaint may come from anyone: they are escaped and clipped.
"""

from __future__ import annotations

import inspect
import json
import math
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from .bounds import DEPTH_MAX
from .escaping import escaped

KEY_SHOWN = 60  # characters of one key in a message
DEEPER = f"is nested deeper than {DEPTH_MAX} levels"

_SCALARS = (str, int, float, bool, type(None))
_UNTYPED = (*_SCALARS, list, tuple, dict)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NONE = object()
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


def deeper(text: bytes, levels: int = DEPTH_MAX) -> bool:
    """Return True when a JSON text is nested deeper than `levels`. The cost is linear in its length."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Every second part is inside quotes. In the other parts only brackets are kept: +1 opens, -1 closes.
    steps = b"".join(text.split(b'"')[::2]).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(array("b", steps)), default=0) > levels


class _Repeated(Exception):
    pass


def repeated_key(text: bytes | str) -> str | None:
    """Return the first key that occurs twice in one object of a JSON text; None when there is none."""
    try:
        said = text if isinstance(text, str) else text.decode("utf-8", "surrogatepass")
        _UNIQUE_KEYS.raw_decode(said.lstrip(" \t\r\n"))
    except _Repeated as found:
        return str(found)
    except (ValueError, RecursionError):
        return None
    return None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        raise _Repeated(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]


# Numbers stay text: an integer with thousands of digits would raise ValueError.
_UNIQUE_KEYS = json.JSONDecoder(object_pairs_hook=_unique, parse_int=str, parse_float=str)


def offence(value: Any, path: str = "", depth: int = 1) -> str | None:
    """Return the first part of untyped data that JSON cannot hold, with its path; None if there is none."""
    at = path and f" at {path}"
    if isinstance(value, str):
        return _bad_text(value, at)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{at} is {value}, which JSON cannot hold"
    if isinstance(value, _SCALARS):
        return None
    if depth > DEPTH_MAX:
        return f" {DEEPER}"
    if isinstance(value, list | tuple):
        return next(
            filter(None, (offence(one, f"{path}[{n}]", depth + 1) for n, one in enumerate(value))), None
        )
    if isinstance(value, dict):
        return next(filter(None, (_bad_entry(key, one, path, depth) for key, one in value.items())), None)
    name = type(value).__qualname__
    if inspect.isawaitable(value):
        return f"{at} is {_a(name)} that nobody has awaited: write `await`"
    return f"{at} is {_a(name)}, which would come back as something else: annotate the type, or convert it"


def changed(value: Any, back: Any, path: str) -> str | None:
    """Return a complaint about a field that would come back as untyped data for lack of an annotation."""
    if isinstance(back, _UNTYPED) and not isinstance(value, _UNTYPED):
        name, becomes = type(value).__qualname__, type(back).__qualname__
        come = f"which would come back as {_a(becomes)}"
        return f"{path} is {_a(name)}, {come}: annotate the type, or convert it"
    if isinstance(value, dict) and isinstance(back, dict):
        lost = next((key for key in value if key not in back), _NONE)
        if lost is not _NONE:
            return f"{path} has the key {_key(lost)}: annotate the type, keys are strings in JSON"
    return next(filter(None, (changed(*part) for part in _parts(value, back, path))), None)


def _parts(value: Any, back: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    if isinstance(value, dict) and isinstance(back, dict):
        yield from ((value[key], back[key], f"{path}.{_named(key)}") for key in value if key in back)
    elif isinstance(value, list | tuple) and isinstance(back, list | tuple):
        pairs = enumerate(zip(value, back, strict=False))
        yield from ((one, other, f"{path}[{n}]") for n, (one, other) in pairs)
    elif type(value) is type(back):
        yield from ((getattr(value, name), getattr(back, name), f"{path}.{name}") for name in _fields(value))


def _fields(value: Any) -> Iterable[str]:
    """Return the names of the fields of a struct, a dataclass or a pydantic model."""
    for known in ("__struct_fields__", "__dataclass_fields__", "model_fields"):
        if names := getattr(type(value), known, None):
            return list(names)
    return ()


def _a(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _named(key: object) -> str:
    return escaped(key, KEY_SHOWN)


def _key(key: object) -> str:
    """Return a key as code shows it. `repr` of an integer with thousands of digits raises."""
    try:
        return escaped(repr(key), KEY_SHOWN)
    except Exception:  # noqa: BLE001 - a class of users may raise anything here
        return f"of type {type(key).__qualname__}"


def _bad_entry(key: Any, value: Any, path: str, depth: int) -> str | None:
    if not isinstance(key, str):
        return f" at {path or '.'} has the key {_key(key)}: keys are strings in JSON"
    return _bad_text(key, f" (a key of {path or '.'})") or offence(value, f"{path}.{_named(key)}", depth + 1)


def _bad_text(text: str, at: str) -> str | None:
    if "\0" in text:
        return f"{at} holds a NUL character, which no store can keep"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{at} holds half of a surrogate pair, which is no text"
    return None
