"""A form for params: fields made from a JSON Schema, and the JSON that is made from the fields.

A field is named `form:TYPE:/a/b`, by the type of its value and the place of the value (a JSON pointer). The
field `form:base` has the params that the form began with: what no field changes stays as it was, also an
empty text and a null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from holdfast.http.problems import Code, Refusal

PREFIX, BASE = "form:", "form:base"
FIELDS_MAX, DEPTH = 60, 3
BASE_MAX = 200_000  # characters of params in a form: each field reads all of them again
TYPES = ("string", "integer", "number", "boolean", "json")


class Field(NamedTuple):
    """A field of the form. text: its value as it is typed; choices: empty for any."""

    name: str
    label: str
    type: str
    text: str
    choices: tuple[str, ...]
    is_required: bool
    help: str


def fields(schema: Any, params: bytes | None = None) -> list[Field] | None:
    """Return the fields for params by their schema; None if the schema says too little or too much.

    params: the values that the form begins with; None: the fields are empty.
    """
    if not isinstance(schema, Mapping):
        return None
    made = _fields(_resolved(schema, schema), schema, params, "", "params", is_required=True)
    found = list(islice(made, FIELDS_MAX + 1))  # references may make it very large
    if not found or len(found) > FIELDS_MAX or (len(found) == 1 and found[0].type == "json"):
        return None
    return found


def _fields(
    one: Mapping[str, Any],
    root: Mapping[str, Any],
    value: bytes | None,
    at: str,
    label: str,
    *,
    is_required: bool,
) -> Iterator[Field]:
    properties = one.get("properties")
    if isinstance(properties, Mapping) and properties and at.count("/") < DEPTH:
        parts = _object(value) if value is not None else {}
        if parts is not None:
            needed = _required(one)
            for name, inner in properties.items():
                whole = _resolved(inner, root) if isinstance(inner, Mapping) else {}  # `true`: any JSON
                place, words = f"{at}/{_escaped(name)}", f"{label}.{name}" if at else str(name)
                given = parts.get(name)
                yield from _fields(
                    whole, root, None if given is None else bytes(given), place, words,
                    is_required=name in needed,
                )  # fmt: skip
            return
    said = one.get("type")
    type_: str = said if isinstance(said, str) and said in TYPES else "json"
    choices = one.get("enum")
    if "type" not in one and isinstance(choices, list) and all(isinstance(each, str) for each in choices):
        type_ = "string"
    texts = tuple(str(each) for each in choices) if isinstance(choices, list) and type_ != "json" else ()
    text = "" if value is None else _typed(value, type_)
    if text is None:  # the value has another type than the schema says
        type_, text = "json", (value or b"").decode(errors="replace")
    yield Field(
        f"{PREFIX}{type_}:{at}",
        label,
        type_,
        text,
        texts,
        is_required,
        str(one.get("description") or "")[:300],
    )


def bare_params(schema: Any) -> str:
    """Return the params, as JSON, that a form with empty fields makes: required objects without their values,
    and null where that is required and may be null. `fields` must have accepted the schema.
    """
    return msgspec.json.encode(_bare(schema, schema, 0)).decode()


def _bare(one: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any] | None:
    whole = _resolved(one, root)
    properties = whole.get("properties")
    if _takes_null(one) or not isinstance(properties, Mapping) or not properties or depth >= DEPTH:
        return None
    needed = _required(whole)
    inner = {name: each for name, each in properties.items() if name in needed and isinstance(each, Mapping)}
    made = {name: (each, _bare(each, root, depth + 1)) for name, each in inner.items()}
    return {name: value for name, (each, value) in made.items() if value is not None or _takes_null(each)}


def _required(one: Mapping[str, Any]) -> list[str]:
    names = one.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _takes_null(one: Mapping[str, Any]) -> bool:
    options = one.get("anyOf")
    return isinstance(options, list) and any(
        isinstance(each, Mapping) and each.get("type") == "null" for each in options
    )


def _resolved(one: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without references, and `X or null` as X."""
    for _ in range(8):
        name = one.get("$ref")
        found: Any = None
        if isinstance(name, str) and name.startswith("#/$defs/"):
            definitions = root.get("$defs")
            found = (
                definitions.get(name.removeprefix("#/$defs/")) if isinstance(definitions, Mapping) else None
            )
        elif isinstance(options := one.get("anyOf"), list):
            others = [each for each in options if isinstance(each, Mapping) and each.get("type") != "null"]
            found = others[0] if len(others) == 1 else None
        if not isinstance(found, Mapping):
            return one
        one = found
    return {}


def _typed(value: bytes, type_: str) -> str | None:
    """Return a value as it is typed into a field; None if it is not of that type."""
    if type_ == "json":
        return value.decode(errors="replace")
    if value == b"null":
        return ""
    if type_ == "string":
        try:
            return msgspec.json.decode(value, type=str)
        except msgspec.DecodeError:
            return None
    text = value.decode(errors="replace")
    if type_ == "boolean":
        return text if text in {"true", "false"} else None
    return text if text.lstrip("-")[:1].isdigit() else None


def composed(given: Sequence[tuple[str, str]]) -> msgspec.Raw | None:
    """Return the params that the fields of a form make; None if it has none of them.

    An empty field leaves its value out, unless it was empty before. Refusal: a field is not what its type
    says.
    """
    texts = {name: text for name, text in given if name.startswith(PREFIX)}
    if not any(name != BASE for name in texts):
        return None
    base = texts.pop(BASE, "") or "null"
    if len(texts) > FIELDS_MAX or len(base) > BASE_MAX or any(one.count("/") > DEPTH for one in texts):
        raise Refusal(Code.BAD_VALUE, "params: this form is too large: send the params as JSON")
    try:
        value = msgspec.Raw(base.encode())
        msgspec.json.decode(value)
        for name, text in texts.items():
            type_, _, place = name.removeprefix(PREFIX).partition(":")
            keys = [_unescaped(one) for one in place.split("/")[1:]]
            if not _is_unchanged(value, keys, type_, text):
                value = _put(value, keys, _written(type_, text, place))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refusal(Code.BAD_VALUE, f"params: this is not JSON: {error}") from None
    return value


def _is_unchanged(value: msgspec.Raw, place: Sequence[str], type_: str, text: str) -> bool:
    """Return True if the field of this value has this text before anybody types. Browsers send line breaks
    of their own.
    """
    for name in place:
        inner = (_object(bytes(value)) or {}).get(name)
        if inner is None:
            return False
        value = inner
    shown = "" if bytes(value) == b"null" and not text else _typed(bytes(value), type_)
    return shown is not None and _lines(shown) == _lines(text)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _written(type_: str, text: str, place: str) -> msgspec.Raw | None:
    """Return the JSON of a field; None for an empty one."""
    if text == "":
        return None
    if type_ == "string":
        return msgspec.Raw(msgspec.json.encode(_lines(text)))
    try:
        read = msgspec.json.decode(text.strip())
    except msgspec.DecodeError:
        raise Refusal(Code.BAD_VALUE, f"params{place.replace('/', '.')}: this is no {_word(type_)}") from None
    is_number = isinstance(read, int | float) and not isinstance(read, bool)
    fits = {
        "integer": isinstance(read, int) and is_number,
        "number": is_number,
        "boolean": isinstance(read, bool),
    }
    if not fits.get(type_, True):
        raise Refusal(Code.BAD_VALUE, f"params{place.replace('/', '.')}: this is no {_word(type_)}")
    return msgspec.Raw(text.strip().encode())


def _word(type_: str) -> str:
    return {"integer": "whole number", "boolean": "true or false", "json": "JSON"}.get(type_, type_)


def _put(value: msgspec.Raw, place: list[str], new: msgspec.Raw | None) -> msgspec.Raw:
    """Return JSON with one value at a place replaced or left out; all other text in it stays as it is."""
    if not place:
        return msgspec.Raw(b"null") if new is None else new
    parts = _object(bytes(value)) or {}
    name, *rest = place
    if new is None and name not in parts:
        return value
    if rest:
        parts[name] = _put(parts.get(name, msgspec.Raw(b"{}")), rest, new)
    elif new is None:
        del parts[name]
    else:
        parts[name] = new
    return msgspec.Raw(msgspec.json.encode(parts))


def _object(value: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None


def _escaped(name: str) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")
