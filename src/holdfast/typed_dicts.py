"""Additional keys of TypedDicts: keys that the class does not name are kept.

In Python a TypedDict is a dict, and a dict with more keys is still of its type. The decoder silently drops
such keys; here they are added again, as untyped data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_origin

from msgspec import inspect as types

_ROWS = (types.ListType, types.VarTupleType, types.CollectionType)
_NAMED = (types.StructType, types.DataclassType, types.NamedTupleType)


def described(wanted: Any) -> types.Type | None:
    """Return the description of an annotated type that contains a TypedDict; None for other types."""
    try:
        found = types.type_info(wanted)
    except Exception:  # noqa: BLE001 - the annotation describes no data: values are untyped
        return None
    return found if _holds(found) else None


def _holds(root: types.Type) -> bool:
    seen: set[int] = set()
    left = [root]
    while left:
        one = left.pop()
        if isinstance(one, types.TypedDictType):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            left.extend(_inside(one))
    return False


def _inside(one: types.Type) -> Iterator[types.Type]:
    if isinstance(one, _NAMED):
        yield from (field.type for field in one.fields)
    elif isinstance(one, _ROWS):
        yield one.item_type
    elif isinstance(one, types.TupleType):
        yield from one.item_types
    elif isinstance(one, types.DictType):
        yield one.value_type
    elif isinstance(one, types.UnionType):
        yield from one.types
    elif isinstance(one, types.Metadata):  # Annotated[…, Meta(…)]
        yield one.type


def put_back(one: types.Type, data: Any, value: Any) -> None:
    """Add to the dicts of `value` the further keys of `data`, which is the same value as untyped data."""
    if isinstance(one, types.Metadata):
        put_back(one.type, data, value)
    elif isinstance(one, types.UnionType):
        for member in one.types:
            if _fits(member, value):
                put_back(member, data, value)
    elif isinstance(one, types.TypedDictType):
        _extend(one, data, value)
    else:
        for inner, part, typed in _pairs(one, data, value):
            put_back(inner, part, typed)


def _extend(one: types.TypedDictType, data: Any, value: Any) -> None:
    known = {field.encode_name: field.type for field in one.fields}
    for key, part in data.items():
        if key in known:
            put_back(known[key], part, value[key])
        else:
            value[key] = part


def _pairs(one: types.Type, data: Any, value: Any) -> Iterable[tuple[types.Type, Any, Any]]:
    if isinstance(one, _NAMED):
        return _fields(one, data, value)
    if isinstance(one, _ROWS):
        return ((one.item_type, part, typed) for part, typed in zip(data, value, strict=True))
    if isinstance(one, types.TupleType):
        return zip(one.item_types, data, value, strict=True)
    if isinstance(one, types.DictType) and len(data) == len(value):
        parts = zip(data.values(), value.values(), strict=True)
        return ((one.value_type, part, typed) for part, typed in parts)
    return ()


def _fields(
    one: types.StructType | types.DataclassType | types.NamedTupleType, data: Any, value: Any
) -> Iterator[tuple[types.Type, Any, Any]]:
    if isinstance(data, list):  # the values in the order of the fields, after the tag
        tagged = isinstance(one, types.StructType) and one.tag is not None
        data = dict(zip((field.encode_name for field in one.fields), data[tagged:], strict=False))
    for field in one.fields:
        if field.encode_name in data:
            yield field.type, data[field.encode_name], getattr(value, field.name)


def _fits(one: types.Type, value: Any) -> bool:
    """Return True when the value was decoded as this member of a union. At most one member is a dict, or a
    list.
    """
    if isinstance(one, types.Metadata):
        return _fits(one.type, value)
    if isinstance(one, _NAMED):
        return isinstance(value, get_origin(one.cls) or one.cls)  # Page for Page[Row]
    if isinstance(one, types.TypedDictType | types.DictType):
        return isinstance(value, dict)
    if isinstance(one, (*_ROWS, types.TupleType)):
        return isinstance(value, list | tuple)
    return False
