"""The pages of the Python API, from the code: every public name of `holdfast` and `holdfast.testing`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import holdfast
from holdfast import testing
from tools.docs import members, signatures, text
from tools.docs.groups import BUILT, ERRORS, GROUPS, NOTES, OPTIONS, SECTIONS, TWINS, TYPES, Group

MANY = 6  # methods, from which on a list of links stands before them


def pages() -> dict[str, str]:
    """Return the pages by name: one a group, and the list of all names."""
    found = {group.file: _page(group) for group in GROUPS}
    return {"README.md": _index(), **found}


def home(group: Group) -> ModuleType:
    return testing if group.module == testing.__name__ else holdfast


def _page(group: Group) -> str:
    blocks = [block for name in group.names for block in _blocks(name, getattr(home(group), name))]
    return text.page(group.title, f"`{group.module}`", group.text, *blocks)


def _index() -> str:
    blocks = []
    for group in GROUPS:
        rows = [
            [f"[`{name}`]({group.file}#{text.anchor(name)})", _summary(name, getattr(home(group), name))]
            for name in group.names
        ]
        blocks += [f"## {group.title}", group.text, text.table(["name", "meaning"], rows)]
    errors = [[f"[`{name}`](../errors.md)", text.first_words(getattr(holdfast, name))] for name in ERRORS]
    blocks += ["## Errors", "[Their tree](../errors.md) says which error catches which."]
    blocks.append(text.table(["error", "meaning"], errors))
    types = [[f"`{name}`", meaning] for name, meaning in TYPES.items()]
    blocks += ["## Types in signatures", text.table(["type", "meaning"], types)]
    return text.page(
        "Python API",
        "`holdfast`",
        "Every public name, the most used first. Write `import holdfast as hf`, and then `hf.App`. "
        "Names that are not on these pages may change at any time.",
        *blocks,
    )


def _summary(name: str, thing: object) -> str:
    return text.one_line(NOTES.get(name, "").split("\n\n")[0]) or text.first_words(thing)


def _blocks(name: str, thing: object) -> Iterator[str]:
    yield f"## `{name}`"
    if inspect.isclass(thing):
        yield from _class(name, thing)
        return
    if inspect.isfunction(thing):
        yield _code(signatures.function(name, thing, bound=False))
        yield text.prose(text.docstring(thing), inspect.signature(thing).parameters)
        return
    yield NOTES.get(name) or text.docstring(thing)


def _class(name: str, cls: type) -> Iterator[str]:
    attributes = members.attributes(cls)
    if name in BUILT:
        fields = vars(cls).get("__annotations__", {})
        types = {field.name: field.type for field in attributes if field.name in fields}
        yield _code(signatures.constructor(cls, types))
    yield NOTES.get(name) or text.docstring(cls)
    if attributes:
        yield _attributes(attributes)
    if name in TWINS:
        yield from _twin(name, cls)
    elif name in SECTIONS:
        yield from _sections(name, cls)
    else:
        yield from _methods(name, members.all_methods(cls))


def _attributes(attributes: list[members.Attribute]) -> str:
    rows = [
        [
            f"`{attribute.name}`",
            f"`{attribute.type}`" if attribute.type else "",
            f"`{attribute.default}`" if attribute.default else "",
            attribute.note,
        ]
        for attribute in attributes
    ]
    # Columns that are empty in every row are left out.
    head = ["attribute", "type", "default", "meaning"]
    kept = [0, *(column for column in (1, 2, 3) if any(row[column] for row in rows))]
    if not any(row[1] for row in rows):
        head[0], head[2] = "member", "value"
    return text.table([head[column] for column in kept], [[row[column] for column in kept] for row in rows])


def _methods(owner: str, methods: list[members.Method]) -> Iterator[str]:
    if len(methods) >= MANY:
        yield " · ".join(f"[`{one.name}`](#{text.anchor(f'{owner}.{one.name}')})" for one in methods)
    for one in methods:
        yield f"### `{owner}.{one.name}`"
        yield _code(signatures.function(one.name, one.function, one.decorator))
        yield text.prose(one.text, inspect.signature(one.function).parameters)
        if f"{owner}.{one.name}" in OPTIONS:
            yield _options(OPTIONS[f"{owner}.{one.name}"])


def _options(called: Callable[..., Any]) -> str:
    rows = [
        [f"`{name}`", f"`{type_}`", f"`{default}`" if default else ""]
        for name, type_, default in signatures.keywords(called)
    ]
    return text.table(["option", "type", "default"], rows)


def _sections(name: str, cls: type) -> Iterator[str]:
    """Yield the methods of a class with many, in sections: one for each base that defines some."""
    shown: set[str] = set()
    for base in members.ours(cls):
        own = [one for one in members.methods(base) if one.name not in shown]
        shown.update(one.name for one in own)
        title = SECTIONS[name].get(base.__module__.rpartition(".")[2])
        if title is None:
            message = f"tools/docs/groups.py has no section for the methods of {name} in {base.__module__}"
            raise LookupError(message)
        if title:
            yield f"## `{name}`: {title}"
        yield from _methods(name, own)


def _twin(name: str, cls: type) -> Iterator[str]:
    """Yield the methods of a class that repeats another: links for those, and the rest in full."""
    twin = TWINS[name]
    known = {one.name for one in members.all_methods(getattr(holdfast, twin.of))}
    mine = members.all_methods(cls)
    page = next(group.file for group in GROUPS if twin.of in group.names)
    links = [
        f"[`{one.name}`]({page}#{text.anchor(f'{twin.of}.{one.name}')})" for one in mine if one.name in known
    ]
    yield f"{twin.text} {' · '.join(links)}"
    yield from _methods(name, [one for one in mine if one.name not in known])


def _code(written: str) -> str:
    return f"```python\n{written}\n```"
