"""Public members of a class, read from the code: attributes with their types, and methods."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property
from typing import Any, Generic, NamedTuple

import msgspec

from holdfast.world import World
from tools.docs import text
from tools.docs.signatures import type_name, value

# Bases whose members are no part of our interface.
_FOREIGN = (object, Generic, msgspec.Struct, BaseException, Exception, Enum, str)

_COMMENTED = re.compile(r"^    (\w+)(?::| =) [^#\n]*?  # (.+)$", re.MULTILINE)


class Attribute(NamedTuple):
    """One attribute: its type as it is written in the code, its default, and what is said about it."""

    name: str
    type: str
    default: str = ""
    note: str = ""


class Method(NamedTuple):
    """One method: the function itself, its docstring, and how it is called."""

    name: str
    function: Callable[..., Any]
    text: str
    decorator: str = ""  # classmethod or staticmethod


def ours(cls: type) -> list[type]:
    """Return the class and its bases, as far as they are Holdfast's."""
    return [base for base in cls.__mro__ if base not in _FOREIGN and base.__module__.startswith("holdfast")]


def methods(cls: type) -> Iterator[Method]:
    """Yield the public methods that this class itself defines, in the order of its source.

    Methods that replace one of a foreign base, such as an event loop of asyncio, are not ours to explain.
    """
    foreign = [base for base in cls.__mro__ if not base.__module__.startswith("holdfast")]
    for name, member in vars(cls).items():
        if name.startswith("_") or any(name in vars(base) for base in foreign):
            continue
        if isinstance(member, classmethod | staticmethod):
            yield Method(name, member.__func__, _explained(name, member.__func__), type(member).__name__)
        elif inspect.isfunction(member):
            yield Method(name, member, _explained(name, member))


def _explained(name: str, function: Callable[..., Any]) -> str:
    """Return the docstring of a method. Methods that the engine asks of any world are explained there."""
    return text.docstring(function) or text.docstring(getattr(World, name, None))


def all_methods(cls: type) -> list[Method]:
    """Return own and inherited public methods, each name once."""
    found: dict[str, Method] = {}
    for base in ours(cls):
        for method in methods(base):
            found.setdefault(method.name, method)
    return list(found.values())


def attributes(cls: type) -> list[Attribute]:
    """Return all public members but methods: fields, members of an enum, properties, what __init__ sets."""
    found: dict[str, Attribute] = {}
    for base in ours(cls):
        for attribute in (*_fields(base), *_properties(base), *set_in_init(base)):
            found.setdefault(attribute.name, attribute)
    return list(found.values())


def _fields(cls: type) -> Iterator[Attribute]:
    notes = _notes(cls)
    if issubclass(cls, Enum):
        yield from (Attribute(name, "", value(item.value), notes.get(name, "")) for name, item in _items(cls))
        return
    types = {name: type_name(type_) for name, type_ in vars(cls).get("__annotations__", {}).items()}
    defaults = _defaults(cls)
    for name, type_ in types.items():
        if not name.startswith("_") and not type_.startswith("ClassVar"):
            yield Attribute(name, type_, defaults.get(name, ""), notes.get(name, ""))


def _items(cls: type[Enum]) -> Iterator[tuple[str, Enum]]:
    return ((name, item) for name, item in cls.__members__.items())


def _defaults(cls: type) -> dict[str, str]:
    if issubclass(cls, msgspec.Struct):
        return {
            field.name: value(field.default)
            for field in msgspec.structs.fields(cls)
            if field.default is not msgspec.NODEFAULT
        }
    if dataclasses.is_dataclass(cls):
        found = dataclasses.fields(cls)
        return {f.name: value(f.default) for f in found if f.default is not dataclasses.MISSING}
    return {}


def _notes(cls: type) -> dict[str, str]:
    """Return the comments at the ends of the lines that name a field."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    return {name: note for name, note in _COMMENTED.findall(source) if not note.startswith("noqa")}


def _properties(cls: type) -> Iterator[Attribute]:
    for name, member in vars(cls).items():
        getter = member.fget if isinstance(member, property) else getattr(member, "func", None)
        if name.startswith("_") or not isinstance(member, property | cached_property) or getter is None:
            continue
        returns = getter.__annotations__.get("return", "Any")
        yield Attribute(name, type_name(returns), note=text.one_line(text.docstring(getter)))


def set_in_init(cls: type) -> Iterator[Attribute]:
    """Yield the public attributes to which `__init__` gives one of its arguments: their types are known."""
    init = vars(cls).get("__init__")
    if not inspect.isfunction(init) or dataclasses.is_dataclass(cls):
        return
    types = {name: type_name(type_) for name, type_ in init.__annotations__.items()}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init)))):
        if not isinstance(node, ast.Assign):
            continue
        for target, given in _pairs(node):
            public = isinstance(target, ast.Attribute) and not target.attr.startswith("_")
            if public and isinstance(given, ast.Name) and given.id in types:
                assert isinstance(target, ast.Attribute)
                yield Attribute(target.attr, types[given.id])


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value
